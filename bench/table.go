package bench

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// WriteTable writes the report for people.
func (r *Report) WriteTable(out io.Writer) error {
	var b strings.Builder
	r.writeHead(&b)
	for i := range r.Workloads {
		r.Workloads[i].write(&b)
	}
	r.writeGoals(&b)
	if r.Interrupted {
		b.WriteString("\nInterrupted: what follows was not measured.\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func (r *Report) writeHead(b *strings.Builder) {
	e, s := r.Environment, r.Settings
	fmt.Fprintf(b, "fila %s, NATS server %s, %s, %s, %s, GOGC %s\n", e.Fila, e.NATSServer, e.Go, e.Platform, counted(int64(e.CPUs), "CPU"), e.GOGC)
	each := thousands(float64(s.Count)) + " messages"
	if s.Count == 0 {
		each = strconv.FormatFloat(float64(s.DurationMs)/1e3, 'f', -1, 64) + " s"
	}
	if s.Soak {
		fmt.Fprintf(b, "a soak of %s with messages of %s bytes; the server collects garbage as it does by default\n", each, thousands(float64(s.Payload)))
	} else {
		fmt.Fprintf(b, "%s of %s for each figure, messages of %s bytes, backlogs of %s messages\n",
			counted(int64(s.Rounds), "round"), each, thousands(float64(s.Payload)), thousands(float64(s.Backlog)))
	}
	if e.SyncUs > 0 {
		fmt.Fprintf(b, "writing and syncing 4 KiB takes %s\n", latency(e.SyncUs))
	}
	if e.InMemory {
		b.WriteString("WARNING: the data is on a file system in memory: syncs cost nothing, these figures do not show durability. Use --dir.\n")
	}
	if busy, ok := r.othersBusy(); ok && busy > 0.1*float64(e.CPUs) {
		fmt.Fprintf(b, "WARNING: other processes of this machine used %s of %s CPUs meanwhile (median): absolute figures are too low, take ratios only.\n", decimals(busy), trimmed(float64(e.CPUs)))
	}
	if !s.judged() {
		b.WriteString(s.short() + ": no figure of this is more than a hint.\n")
	}
}

// othersBusy is how many processors other processes kept busy, the median of all
// measurements.
func (r *Report) othersBusy() (float64, bool) {
	var all []float64
	for _, w := range r.Workloads {
		for _, l := range w.Lanes {
			for _, s := range l.Rounds {
				if v, ok := s["others_cpus"]; ok {
					all = append(all, v)
				}
			}
		}
	}
	return median(all), len(all) > 0
}

func counted(n int64, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return thousands(float64(n)) + " " + one + "s"
}

func (w *WorkloadReport) write(b *strings.Builder) {
	fmt.Fprintf(b, "\n%s: %s\n", w.Name, w.About)
	writeAligned(b, w.rows())
	for _, l := range w.Lanes {
		if rows := l.steadyRows(); len(rows) > 1 {
			b.WriteByte('\n')
			writeAligned(b, rows)
		}
	}
	var notes []string
	for _, l := range w.Lanes {
		for _, text := range l.Errors {
			notes = append(notes, fmt.Sprintf("  FAILED %s, %s: %s\n", l.Case, l.System, oneLine(text)))
		}
		for _, text := range l.Notes {
			notes = append(notes, fmt.Sprintf("  note on %s, %s: %s\n", l.Case, l.System, oneLine(text)))
		}
	}
	for _, note := range slices.Compact(notes) {
		b.WriteString(note)
	}
}

// rows is the table of a workload, the header first. Columns without any figure
// are left out.
func (w *WorkloadReport) rows() [][]string {
	var columns []column
	base := ""
	if w.of != nil {
		for _, c := range w.of.columns {
			if slices.ContainsFunc(w.Lanes, func(l LaneReport) bool { _, ok := l.Figures[c.metric]; return ok }) {
				columns = append(columns, c)
			}
		}
		if slices.ContainsFunc(w.Lanes, func(l LaneReport) bool { return l.Ratio != nil }) {
			base = w.of.baseText
		}
	}
	header := []string{"case", "system"}
	for i, c := range columns {
		header = append(header, c.title)
		if i == 0 && base != "" {
			header = append(header, "of "+base)
		}
	}
	rows := [][]string{header}
	for _, l := range w.Lanes {
		row := []string{l.Case, l.System}
		for i, c := range columns {
			row = append(row, l.cell(c))
			if i == 0 && base != "" {
				row = append(row, l.ratioCell())
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func (l *LaneReport) cell(c column) string {
	s, ok := l.Figures[c.metric]
	if !ok {
		return "-"
	}
	return c.show(s.Median)
}

func (l *LaneReport) ratioCell() string {
	if l.Ratio == nil {
		return "-"
	}
	return spread(*l.Ratio)
}

// spread prints a median with its range, if there is one.
func spread(s Summary) string {
	if s.Rounds == 1 {
		return digits3(s.Median)
	}
	return fmt.Sprintf("%s (%s to %s)", digits3(s.Median), digits3(s.Min), digits3(s.Max))
}

func (r *Report) writeGoals(b *strings.Builder) {
	if len(r.Goals) == 0 {
		return
	}
	how := "median of the rounds; for goals: 2 CPUs, 1 KB, at least 5 rounds"
	if r.Settings.Soak {
		how = "of medians; for goals: 2 CPUs, 1 KB, at least 30 minutes"
	}
	fmt.Fprintf(b, "\nRatios and goals (%s)\n", how)
	rows := [][]string{{"workload", "case", "what", "value", "goal", ""}}
	for _, g := range r.Goals {
		rows = append(rows, []string{g.Workload, g.Case, g.Text, spread(g.Value), g.goalText(), g.verdict()})
	}
	writeAligned(b, rows)
}

func (g *GoalReport) goalText() string {
	switch {
	case g.AtLeast != 0:
		return "at least " + trimmed(g.AtLeast)
	case g.AtMost != 0:
		return "at most " + trimmed(g.AtMost)
	}
	return "-"
}

func trimmed(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func (g *GoalReport) verdict() string {
	switch {
	case g.Met == nil:
		return ""
	case *g.Met:
		return "met"
	}
	return "missed"
}

// writeAligned writes rows in columns, numbers to the right.
func writeAligned(b *strings.Builder, rows [][]string) {
	widths := make([]int, len(rows[0]))
	right := make([]bool, len(rows[0]))
	for i := range widths {
		for n, row := range rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
			if n > 0 && i > 1 && row[i] != "" && row[i] != "-" {
				right[i] = right[i] || row[i][0] >= '0' && row[i][0] <= '9' || row[i][0] == '-'
			}
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, text := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text))
			line.WriteString("  ")
			if right[i] {
				line.WriteString(pad + text)
			} else {
				line.WriteString(text + pad)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
