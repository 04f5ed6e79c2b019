package opscmd

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
)

// topFrame is what fila top shows, and prints with --json.
type topFrame struct {
	Time    string     `json:"time"`
	Server  string     `json:"server"`
	Total   int        `json:"total"` // queues that there are
	Seconds float64    `json:"seconds"`
	Queues  []topQueue `json:"queues"`
}

// topQueue is a queue in a frame. Rates are per second; -1 is not known yet.
type topQueue struct {
	Name        string                `json:"name"`
	Ready       int64                 `json:"ready"`
	Parked      int64                 `json:"parked"`
	Delayed     int64                 `json:"delayed"`
	InFlight    int64                 `json:"in_flight"`
	In          float64               `json:"in"`
	Out         float64               `json:"out"`
	Acked       float64               `json:"acked"`
	Failed      float64               `json:"failed"`
	OldestAgeMs int64                 `json:"oldest_age_ms"`
	Consumers   []client.ConsumerInfo `json:"consumers"`
	Active      int                   `json:"active_flows"`
	Flows       []client.FlowInfo     `json:"flows"`
	ParkedBy    []client.BlockedCount `json:"parked_by"`
}

// frame compares two looks; before may be nil.
func (s *sample) frame(before *sample) topFrame {
	f := topFrame{Time: s.at.UTC().Format(time.RFC3339), Server: s.server, Total: s.total, Queues: []topQueue{}}
	counters := map[string]map[string]int64{}
	if before != nil {
		f.Seconds = s.at.Sub(before.at).Seconds()
		for _, q := range before.queues {
			counters[q.Name] = q.Counters
		}
	}
	for _, q := range s.queues {
		rate := func(names ...string) float64 {
			was, ok := counters[q.Name]
			if !ok || f.Seconds <= 0 {
				return -1
			}
			var n int64
			for _, name := range names {
				n += q.Counters[name] - was[name]
			}
			return max(float64(n), 0) / f.Seconds // less than before: fila was restarted
		}
		f.Queues = append(f.Queues, topQueue{
			Name: q.Name, Ready: q.Pending - q.Parked, Parked: q.Parked, Delayed: q.Delayed, InFlight: q.InFlight,
			In: rate("enqueued", "redriven"), Out: rate("delivered"), Acked: rate("acked"), Failed: rate("nacked", "expired"),
			OldestAgeMs: q.OldestAgeMs, Consumers: q.ConsumerList, Active: q.Flows, Flows: q.TopFlows, ParkedBy: s.blocked[q.Name],
		})
	}
	slices.SortStableFunc(f.Queues, func(a, b topQueue) int {
		return cmp.Or(cmp.Compare(b.Ready+b.Parked+b.Delayed+b.InFlight, a.Ready+a.Parked+a.Delayed+a.InFlight), cmp.Compare(a.Name, b.Name))
	})
	return f
}

// topColumns are the columns after the queue's name, with their widths.
var topColumns = []string{" READY", "PARKED", " DELAY", "FLIGHT", "   IN", "  OUT", "ACKED", " FAIL", "  OLDEST"}

// lines draws a frame in width columns.
func (v *topView) lines(f topFrame, width int) []string {
	v.width = max(width, 40)
	header := strings.Join(topColumns, " ")
	name := max(v.width-len(header)-1, 12)
	at, _ := time.Parse(time.RFC3339, f.Time)
	title := fmt.Sprintf("fila at %s  %s UTC  %s", f.Server, at.Format(time.TimeOnly), terminal.Plural(int64(f.Total), "queue"))
	lines := []string{
		v.paint.Bold(terminal.Fit(terminal.Clean(title), v.width)),
		v.paint.Bold(terminal.Fit(terminal.Pad("QUEUE", name)+" "+header, v.width)),
	}
	if len(f.Queues) == 0 {
		return append(lines, "(nothing to see; --all shows idle queues, too)")
	}
	for i := range f.Queues {
		lines = append(lines, v.queueLines(&f.Queues[i], name)...)
	}
	return lines
}

func (v *topView) queueLines(q *topQueue, name int) []string {
	cells := []string{
		terminal.Short(float64(q.Ready)), terminal.Short(float64(q.Parked)), terminal.Short(float64(q.Delayed)), terminal.Short(float64(q.InFlight)),
		terminal.Short(q.In), terminal.Short(q.Out), terminal.Short(q.Acked), terminal.Short(q.Failed), coarse(q.OldestAgeMs),
	}
	for i := range cells {
		cells[i] = fmt.Sprintf("%*s", len(topColumns[i]), cells[i])
	}
	if q.Parked > 0 {
		cells[1] = v.paint.Yellow(cells[1])
	}
	if q.Failed > 0 {
		cells[7] = v.paint.Red(cells[7])
	}
	title := terminal.Pad(terminal.Fit(terminal.Clean(q.Name), name), name)
	lines := []string{v.paint.Bold(title) + " " + strings.Join(cells, " ")}
	detail := func(label, text string) {
		lines = append(lines, v.paint.Dim(terminal.Fit("  "+label+terminal.Clean(text), v.width)))
	}
	if q.Active > 0 {
		var parts []string
		for _, flow := range q.Flows {
			parts = append(parts, fmt.Sprintf("%s %s (%.0f%%)", flow.Key, terminal.Short(float64(flow.Pending)), flow.Share*100))
		}
		detail(fmt.Sprintf("%-11s", terminal.Plural(int64(q.Active), "flow")), strings.Join(parts, ", "))
	}
	for _, g := range q.ParkedBy[:min(len(q.ParkedBy), 3)] {
		text := fmt.Sprintf("%s by %s (%s)", terminal.Short(float64(g.Messages)), g.Gate, g.Kind)
		if g.OpensAt != "" {
			text += ", opens " + v.env.Soon(g.OpensAt)
		}
		if g.Limits != "" && g.Limits != "none" {
			text += "; " + g.Limits
		}
		detail("parked     ", text)
	}
	if len(q.Consumers) > 0 {
		var parts []string
		for _, c := range q.Consumers {
			consumer := c.Name
			if c.Fetch {
				consumer = strings.TrimSpace(consumer + " fetch")
			}
			parts = append(parts, fmt.Sprintf("%s %d/%d", consumer, c.InFlight, c.MaxInFlight))
		}
		detail(fmt.Sprintf("%-11s", terminal.Plural(int64(len(parts)), "worker")), strings.Join(parts, ", "))
	}
	return lines
}

// coarse is an age in eight columns at most.
func coarse(ms int64) string {
	switch {
	case ms <= 0:
		return "-"
	case ms < 100:
		return fmt.Sprintf("%dms", ms)
	case ms < 60_000:
		return fmt.Sprintf("%.1fs", float64(ms)/1000)
	}
	return terminal.Span(time.Duration(ms/1000) * time.Second)
}
