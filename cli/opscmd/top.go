package opscmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
)

// Bounds of what a frame of fila top asks for.
const (
	topQueues  = 200 // queues, those with the most messages first
	topFlows   = 5
	topBlocked = 10 // queues whose gates are asked for
)

type topFlags struct {
	interval terminal.Millis
	once     bool
	all      bool
	queue    string
}

func newTopCommand(env *command.Env) *cobra.Command {
	f := topFlags{interval: 2000}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show what goes on, live",
		Long: `Show queues with their backlog, rates, the age of the oldest message and their
consumers, and below each its largest flows, the gates that hold messages back,
and its consumers with how much they have in flight. Rates are per second, of
the last interval: IN are messages taken, OUT deliveries, ACKED what is done,
FAIL nacks and leases that ran out. An interrupt ends it.

Idle queues and empty dead letter queues are left out, unless --all. --once
measures for one interval and prints one table; with --json each interval is a
JSON object on one line. When the output is not a terminal, one table follows
the other.`,
		Example: `  fila top
  fila top --queue orders --interval 500ms
  fila top --once --json | jq '.queues[] | {name, pending, out}'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.interval < 50 {
				return command.UsageError("--interval %s: allowed is 50ms and more", f.interval.String())
			}
			return env.Stay(cmd, func(ctx context.Context, _ func(), s *command.Session) error {
				v := &topView{env: env, flags: f, s: s, paint: terminal.StyleFor(cmd.OutOrStdout())}
				return s.Explain(v.run(ctx, cmd.OutOrStdout()))
			})
		},
	}
	flags := cmd.Flags()
	flags.VarP(&f.interval, "interval", "i", "how often to look")
	flags.BoolVar(&f.once, "once", false, "print one table and end")
	flags.BoolVar(&f.all, "all", false, "show idle queues, too")
	flags.StringVar(&f.queue, "queue", "", "only this `queue` and its dead letter queue")
	return cmd
}

// topView is what fila top keeps between frames.
type topView struct {
	env    *command.Env
	flags  topFlags
	s      *command.Session
	paint  terminal.Style
	before *sample
	frames int
	width  int // of the frame that is drawn
}

func (v *topView) run(ctx context.Context, out io.Writer) (err error) {
	live := terminal.IsTerminal(out) && !v.flags.once && !v.env.JSON
	if v.before, err = takeSample(ctx, v.s, v.flags); err != nil { // before the screen is taken
		return err
	}
	if live {
		if _, err := io.WriteString(out, terminal.EnterView); err != nil {
			return err
		}
		defer func() { _, _ = io.WriteString(out, terminal.LeaveView) }() // nobody to tell
		if err := v.show(out, v.before.frame(nil), live); err != nil {
			return err
		}
	}
	if err = v.follow(ctx, out, live); ctx.Err() != nil && !v.flags.once {
		return nil
	}
	return err
}

// follow shows a frame after every interval.
func (v *topView) follow(ctx context.Context, out io.Writer, live bool) error {
	ticker := time.NewTicker(v.flags.interval.Duration())
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		now, err := takeSample(ctx, v.s, v.flags)
		if err != nil {
			if !live || ctx.Err() != nil {
				return err
			}
			// fila or NATS may be back soon.
			_ = terminal.Draw(out, []string{v.paint.Red("fila does not answer: " + terminal.Clean(terminal.OneLine(v.s.Explain(err).Error())))}, 24)
			continue
		}
		if err := v.show(out, now.frame(v.before), live); err != nil {
			return err
		}
		v.before = now
		if v.flags.once {
			return nil
		}
	}
}

func (v *topView) show(out io.Writer, f topFrame, live bool) error {
	switch {
	case v.env.JSON:
		return terminal.PrintJSONLine(out, f)
	case live:
		width, height := terminal.ScreenSize(out)
		return terminal.Draw(out, v.lines(f, width), height)
	}
	lines := v.lines(f, 100)
	if v.frames++; v.frames > 1 {
		lines = append([]string{""}, lines...)
	}
	_, err := io.WriteString(out, strings.Join(lines, "\n")+"\n")
	return err
}

// sample is one look at the queues.
type sample struct {
	at      time.Time
	server  string
	total   int
	queues  []client.QueueInfo
	blocked map[string][]client.BlockedCount
}

func takeSample(ctx context.Context, s *command.Session, f topFlags) (*sample, error) {
	now := &sample{at: time.Now(), server: s.Server, blocked: map[string][]client.BlockedCount{}}
	names, err := topNames(ctx, s, now, f)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		info, err := s.QueueInspect(ctx, name, topFlows)
		var refused *client.Error
		if errors.As(err, &refused) && refused.Code == 404 && f.queue == "" {
			continue // deleted meanwhile
		}
		if err != nil {
			return nil, err
		}
		now.queues = append(now.queues, info)
		if info.Parked > 0 && len(now.blocked) < topBlocked {
			explained, err := s.ExplainQueue(ctx, name)
			if err == nil {
				now.blocked[name] = explained.BlockedBy
			}
		}
	}
	return now, nil
}

// topNames are the queues to look at.
func topNames(ctx context.Context, s *command.Session, now *sample, f topFlags) ([]string, error) {
	if f.queue != "" {
		now.total = 1
		info, err := s.QueueInspect(ctx, f.queue, 0)
		if err != nil {
			return nil, err
		}
		if info.DLQ != "" {
			return []string{f.queue, info.DLQ}, nil
		}
		return []string{f.queue}, nil
	}
	queues, err := s.QueueList(ctx)
	if err != nil {
		return nil, err
	}
	now.total = len(queues)
	slices.SortStableFunc(queues, func(a, b client.QueueSummary) int {
		return cmp.Compare(b.Pending+b.Delayed+b.InFlight, a.Pending+a.Delayed+a.InFlight)
	})
	var names []string
	for _, q := range queues[:min(len(queues), topQueues)] {
		if f.all || q.DLQ != "" || q.Pending+q.Delayed+q.InFlight > 0 {
			names = append(names, q.Name)
		}
	}
	return names, nil
}

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
