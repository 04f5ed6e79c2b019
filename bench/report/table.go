package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/filaq/fila/bench/measure"
)

// WriteTable writes the report as text.
func (r *Report) WriteTable(out io.Writer) error {
	var b strings.Builder
	r.writeHead(&b)
	for i := range r.Workloads {
		r.Workloads[i].write(&b)
	}
	r.writePromises(&b)
	r.writeGoals(&b)
	if r.Interrupted {
		b.WriteString("\nInterrupted: what follows was not measured.\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func (r *Report) writeHead(b *strings.Builder) {
	e, s := r.Environment, r.Settings
	if s.Simulated {
		fmt.Fprintf(b, "fila %s: a simulation, in simulated time; the machine does not matter\n", e.Fila)
		if !s.judged() {
			b.WriteString("A quick run: no figure of this is more than a hint.\n")
		}
		return
	}
	fmt.Fprintf(b, "fila %s, NATS server %s, %s, %s, %s, GOGC %s\n", e.Fila, e.NATSServer, e.Go, e.Platform, Counted(int64(e.CPUs), "CPU"), e.GOGC)
	each, size := Thousands(float64(s.Count))+" messages", Thousands(float64(s.Payload))
	if s.Count == 0 {
		each = shortest(float64(s.DurationMs)/1e3) + " s"
	}
	tooShort := "A quick run or fewer than 5 rounds"
	if s.Soak {
		tooShort = "A quick run or a soak of less than 30 minutes"
		fmt.Fprintf(b, "a soak of %s with messages of %s bytes; the server collects garbage as it does by default\n", each, size)
	} else {
		fmt.Fprintf(b, "%s of %s for each figure, messages of %s bytes, backlogs of %s messages\n",
			Counted(int64(s.Rounds), "round"), each, size, Thousands(float64(s.Backlog)))
		if s.Batch > 0 {
			fmt.Fprintf(b, "batches of at most %s\n", Counted(int64(s.Batch), "message"))
		}
	}
	if e.SyncUs > 0 {
		fmt.Fprintf(b, "writing and syncing 4 KiB takes %s\n", latency(e.SyncUs))
	}
	if e.InMemory {
		b.WriteString("WARNING: the data is on a file system in memory: syncs cost nothing, these figures do not show durability. Use --dir.\n")
	}
	// othersBusy is the median of all measurements.
	var rounds []measure.Sample
	for _, l := range r.lanes() {
		rounds = append(rounds, l.Rounds...)
	}
	if othersBusy := measure.Median(measure.Values(rounds, "others_cpus")); othersBusy > 0.1*float64(e.CPUs) {
		fmt.Fprintf(b, "WARNING: other processes of this machine used %s of %d CPUs meanwhile (median): absolute figures are too low, take ratios only.\n", decimals(othersBusy), e.CPUs)
	}
	if !s.judged() {
		b.WriteString(tooShort + ": no figure of this is more than a hint.\n")
	}
}

func (w *Group) write(b *strings.Builder) {
	fmt.Fprintf(b, "\n%s: %s\n", w.Name, w.About)
	writeAligned(b, w.rows())
	var notes []string
	for _, l := range w.Lanes {
		if rows := l.steadyRows(); len(rows) > 1 {
			b.WriteByte('\n')
			writeAligned(b, rows)
		}
		for _, text := range l.Errors {
			notes = append(notes, fmt.Sprintf("  FAILED %s, %s: %s\n", l.Case, l.System, oneLine(text)))
		}
		for _, text := range l.Notes {
			notes = append(notes, fmt.Sprintf("  note on %s, %s: %s\n", l.Case, l.System, oneLine(text)))
		}
	}
	b.WriteString(strings.Join(slices.Compact(notes), ""))
}

// rows returns the table of a workload with its header. Columns without figures are left out.
// The ratio is the second column.
func (w *Group) rows() [][]string {
	rows := [][]string{{"case", "system"}}
	for _, l := range w.Lanes {
		rows = append(rows, []string{l.Case, l.System})
	}
	add := func(title string, cell func(*Lane) string) {
		rows[0] = append(rows[0], title)
		for i := range w.Lanes {
			rows[1+i] = append(rows[1+i], cell(&w.Lanes[i]))
		}
	}
	if w.of == nil {
		return rows
	}
	for _, c := range w.of.Columns {
		if !slices.ContainsFunc(w.Lanes, func(l Lane) bool { _, ok := l.Figures[c.Metric]; return ok }) {
			continue
		}
		add(c.Title, func(l *Lane) string {
			if s, ok := l.Figures[c.Metric]; ok {
				return c.Show(s.Median)
			}
			return "-"
		})
		if len(rows[0]) > 3 || !slices.ContainsFunc(w.Lanes, func(l Lane) bool { return l.Ratio != nil }) {
			continue
		}
		add("of "+w.of.Base.Text, func(l *Lane) string {
			if l.Ratio == nil {
				return "-"
			}
			return spread(*l.Ratio)
		})
	}
	return rows
}

// writePromises writes what a confirmed publish of each system promises.
func (r *Report) writePromises(b *strings.Builder) {
	rows := [][]string{{"system", "a confirmed publish is"}}
	for _, l := range r.lanes() {
		row := []string{l.System, l.Promise}
		if l.Promise != "" && !slices.ContainsFunc(rows, func(other []string) bool { return slices.Equal(other, row) }) {
			rows = append(rows, row)
		}
	}
	if len(rows) > 1 {
		b.WriteString("\nPromises\n")
		writeAligned(b, rows)
	}
}

// spread prints a median with its range, if there is one.
func spread(s measure.Summary) string {
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
	switch {
	case r.Settings.Simulated:
		how = "of all seeds"
	case r.Settings.Soak:
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
		return "at least " + shortest(g.AtLeast)
	case g.AtMost != 0:
		return "at most " + shortest(g.AtMost)
	}
	return "-"
}

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
	for n, row := range rows {
		for i, text := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(text))
			number := text != "" && text != "-" && strings.ContainsRune("0123456789-", rune(text[0]))
			right[i] = right[i] || n > 0 && i > 1 && number
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, text := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text))
			if right[i] {
				text, pad = pad, text
			}
			line.WriteString("  " + text + pad)
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
