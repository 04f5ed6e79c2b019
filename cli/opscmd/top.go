package opscmd

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
	"github.com/filaq/fila/wire/api"
)

// Bounds on what a frame of fila top requests.
const (
	topQueues  = 200 // the queues with the most messages
	topFlows   = 5
	topBlocked = 10 // queues whose gates are requested
	topWrong   = 3  // findings
)

type topFlags struct {
	interval terminal.Millis
	once     bool
	all      bool
	queue    string
	sort     string
}

func newTopCommand(env *command.Env) *cobra.Command {
	f := topFlags{interval: 2000}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show queues, rates and consumers live",
		Long: `Show queues with their backlog, rates, oldest message and consumers. Below each queue
are its largest flows, the gates that block messages, and the messages in flight by
consumer. Above the table are the worst findings of fila status. Rates are per second
over the last interval: IN counts enqueued messages, OUT deliveries, ACKED finished
messages, FAIL nacks and expired leases, TERM messages that consumers ended with +TERM,
DEAD messages that became dead letters. Columns that do not fit are left out.

Keys: s and S sort by the next or previous column, f filters by name, a shows idle
queues, d hides the lines below, p or space pauses, ? is help, q ends.

--once prints one table after one interval; with --json each interval is a JSON
object on a line. Without a terminal the command prints one table after the other.`,
		Example: `  fila top
  fila top --queue orders --interval 500ms
  fila top --once --sort oldest
  fila top --once --json | jq '.queues[] | {name, ready, out}'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.interval < 50 {
				return command.UsageError("--interval %s: allowed is 50ms and more", f.interval.String())
			}
			if f.sort == "parked" { // its old name, for one version
				f.sort = "blocked"
			}
			order := slices.Index(topSortNames(), f.sort)
			if order < 0 {
				return command.UsageError("--sort %q: allowed are %s", f.sort, strings.Join(topSortNames(), ", "))
			}
			return env.Stay(cmd, func(ctx context.Context, _ func(), s *command.Session) error {
				out := cmd.OutOrStdout()
				v := &topView{env: env, flags: f, s: s, screen: newTopScreen(env, f, order, terminal.StyleFor(out))}
				return s.Explain(v.run(ctx, cmd.InOrStdin(), out, terminal.IsTerminal(out) && !f.once && !env.JSON))
			})
		},
	}
	flags := cmd.Flags()
	flags.VarP(&f.interval, "interval", "i", "interval of the display")
	flags.BoolVar(&f.once, "once", false, "print one table and end")
	flags.BoolVar(&f.all, "all", false, "show idle queues, too")
	flags.StringVar(&f.queue, "queue", "", "only this `queue` and its dead letter queue")
	flags.StringVar(&f.sort, "sort", topSorts[0].name, "sort by this `column`: "+strings.Join(topSortNames(), ", "))
	command.Allow(cmd, "sort", topSortNames()...)
	return cmd
}

// topView is the state of fila top between frames.
type topView struct {
	env    *command.Env
	flags  topFlags
	s      *command.Session
	screen *topScreen
	before *sample
	frames int
}

// run shows frames; on a terminal it redraws them and obeys keys.
func (v *topView) run(ctx context.Context, in io.Reader, out io.Writer, live bool) (err error) {
	if v.before, err = takeSample(ctx, v.s, v.flags); err != nil { // before the screen changes
		return err
	}
	var keys <-chan rune
	if live {
		pressed, restore, err := terminal.Keys(in)
		if err != nil {
			return err
		}
		defer restore()
		keys = pressed
		if _, err := io.WriteString(out, terminal.EnterView); err != nil {
			return err
		}
		defer func() { _, _ = io.WriteString(out, terminal.LeaveView) }() // an error here has no remedy
		v.screen.live = true
		v.screen.take(v.before.frame(nil))
		if err := v.screen.draw(out); err != nil {
			return err
		}
	}
	if err = v.follow(ctx, out, live, keys); ctx.Err() != nil && !v.flags.once {
		return nil
	}
	return err
}

// sampled is a sample or the error of taking it.
type sampled struct {
	*sample
	err error
}

// poll takes a sample after every interval until ctx ends. It runs beside the keys, so that a
// key never waits for fila.
func (v *topView) poll(ctx context.Context) <-chan sampled {
	samples := make(chan sampled)
	go func() {
		defer close(samples)
		ticker := time.NewTicker(v.flags.interval.Duration())
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			now, err := takeSample(ctx, v.s, v.flags)
			select {
			case <-ctx.Done():
				return
			case samples <- sampled{now, err}:
			}
		}
	}()
	return samples
}

// follow shows a frame after every interval, until ctx or a key ends it.
func (v *topView) follow(ctx context.Context, out io.Writer, live bool, keys <-chan rune) error {
	polling, stop := context.WithCancel(ctx)
	samples := v.poll(polling)
	defer func() {
		stop()
		for range samples { // drain until the sender has ended
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case key, ok := <-keys:
			if !ok {
				keys = nil // the terminal is gone or closed
			} else if v.screen.press(key) {
				return nil
			}
		case now := <-samples:
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case now.err != nil && !live:
				return now.err
			case now.err != nil: // fila or NATS may return soon
				v.screen.problem = "fila does not answer: " + terminal.OneLine(v.s.Explain(now.err).Error())
			default:
				frame := now.frame(v.before)
				v.before, v.screen.problem = now.sample, ""
				v.screen.take(frame)
				if !live {
					if err := v.print(out, frame); err != nil || v.flags.once {
						return err
					}
				}
			}
		}
		if live {
			if err := v.screen.draw(out); err != nil {
				return err
			}
		}
	}
}

// print writes one frame after the previous one.
func (v *topView) print(out io.Writer, f topFrame) error {
	if v.env.JSON {
		f.Queues = v.screen.visible(f.Queues)
		return terminal.PrintJSONLine(out, f)
	}
	lines := v.screen.lines(100)
	if v.frames++; v.frames > 1 {
		lines = append([]string{""}, lines...)
	}
	_, err := io.WriteString(out, strings.Join(lines, "\n")+"\n")
	return err
}

// sample is the state of the queues at one time.
type sample struct {
	at      time.Time
	server  string
	total   int
	queues  []api.QueueInfo
	blocked map[string][]api.BlockedCount
	wrong   api.Attention
}

func takeSample(ctx context.Context, s *command.Session, f topFlags) (*sample, error) {
	now := &sample{at: time.Now(), server: s.Server, blocked: map[string][]api.BlockedCount{}}
	now.wrong, _ = s.Attention(ctx, f.queue, topWrong) // an older fila cannot say
	queues, err := topQueuesOf(ctx, s, now, f)
	if err != nil {
		return nil, err
	}
	for _, q := range queues {
		if q.DLQ == "" && messages(q) == 0 { // skip empty queues: there may be many
			now.queues = append(now.queues, api.QueueInfo{QueueSummary: q})
			continue
		}
		name := q.Name
		info, err := s.QueueInspect(ctx, name, topFlows)
		var refused *client.Error
		if errors.As(err, &refused) && refused.Code == 404 && f.queue == "" {
			continue // deleted since the list
		}
		if err != nil {
			return nil, err
		}
		now.queues = append(now.queues, info)
		if info.Blocked > 0 && len(now.blocked) < topBlocked {
			explained, err := s.ExplainQueue(ctx, name)
			if err == nil {
				now.blocked[name] = explained.BlockedBy
			}
		}
	}
	return now, nil
}

// topQueuesOf returns the queues to request in detail.
func topQueuesOf(ctx context.Context, s *command.Session, now *sample, f topFlags) ([]api.QueueSummary, error) {
	if f.queue != "" {
		now.total = 1
		info, err := s.QueueInspect(ctx, f.queue, 0)
		if err != nil || info.DLQ == "" {
			return []api.QueueSummary{info.QueueSummary}, err
		}
		dlq, err := s.QueueInspect(ctx, info.DLQ, 0)
		return []api.QueueSummary{info.QueueSummary, dlq.QueueSummary}, err
	}
	queues, err := s.QueueList(ctx)
	now.total = len(queues)
	slices.SortStableFunc(queues, func(a, b api.QueueSummary) int { return cmp.Compare(messages(b), messages(a)) })
	return queues[:min(len(queues), topQueues)], err
}

// messages returns the number of unfinished messages of a queue.
func messages(q api.QueueSummary) int64 { return q.Pending + q.Delayed + q.InFlight + q.Moving }

// topFrame is what fila top shows, and prints with --json.
type topFrame struct {
	Time    string     `json:"time"`
	Server  string     `json:"server"`
	Total   int        `json:"total"` // number of all queues
	Seconds float64    `json:"seconds"`
	Queues  []topQueue `json:"queues"`

	Attention api.Attention `json:"attention"` // the worst findings
}

// topQueue is a queue in a frame. Rates are per second; -1 means unknown.
type topQueue struct {
	Name        string             `json:"name"`
	Ready       int64              `json:"ready"`
	Blocked     int64              `json:"blocked"`
	Parked      int64              `json:"parked"` // the old name of blocked, for one version
	Delayed     int64              `json:"delayed"`
	InFlight    int64              `json:"in_flight"`
	Moving      int64              `json:"moving"`
	In          float64            `json:"in"`
	Out         float64            `json:"out"`
	Acked       float64            `json:"acked"`
	Failed      float64            `json:"failed"`
	Terminated  float64            `json:"terminated"`
	Dead        float64            `json:"dead"` // dead-lettered, terminated ones included
	OldestAgeMs int64              `json:"oldest_age_ms"`
	Consumers   []api.ConsumerInfo `json:"consumers"`
	Active      int                `json:"active_flows"`
	Flows       []api.FlowInfo     `json:"flows"`
	BlockedBy   []api.BlockedCount `json:"blocked_by"`
	ParkedBy    []api.BlockedCount `json:"parked_by"` // the old name of blocked_by, for one version
	Noisy       []string           `json:"noisy_flows"`
	Starved     int                `json:"starved_flows"`
}

// messages returns the number of unfinished messages.
func (q *topQueue) messages() int64 { return q.Ready + q.Blocked + q.Delayed + q.InFlight + q.Moving }

// idle reports whether the queue has no messages and no traffic.
func (q *topQueue) idle() bool {
	return q.messages() == 0 && q.In <= 0 && q.Out <= 0 && q.Acked <= 0 && q.Failed <= 0 && q.Dead <= 0
}

// frame compares two samples; before may be nil.
func (s *sample) frame(before *sample) topFrame {
	f := topFrame{Time: s.at.UTC().Format(time.RFC3339), Server: s.server, Total: s.total, Queues: []topQueue{}, Attention: s.wrong}
	counters := map[string]map[string]int64{}
	if before != nil {
		f.Seconds = s.at.Sub(before.at).Seconds()
		for _, q := range before.queues {
			if q.Counters != nil {
				counters[q.Name] = q.Counters
			}
		}
	}
	for _, q := range s.queues {
		rate := func(names ...string) float64 {
			was, ok := counters[q.Name]
			switch {
			case q.Counters == nil: // not requested, because it was empty
				return 0
			case !ok || f.Seconds <= 0:
				return -1
			}
			var n int64
			for _, name := range names {
				n += q.Counters[name] - was[name]
			}
			return max(float64(n), 0) / f.Seconds // a lower count means that fila restarted
		}
		f.Queues = append(f.Queues, topQueue{
			Name: q.Name, Ready: q.Ready, Blocked: q.Blocked, Parked: q.Blocked, Delayed: q.Delayed, InFlight: q.InFlight, Moving: q.Moving,
			In: rate("enqueued", "redriven"), Out: rate("delivered"), Acked: rate("acked"), Failed: rate("nacked", "expired"), Terminated: rate("terminated"), Dead: rate("dead_lettered"),
			OldestAgeMs: q.OldestAgeMs, Consumers: q.ConsumerList, Active: q.Flows, Flows: q.TopFlows, BlockedBy: s.blocked[q.Name], ParkedBy: s.blocked[q.Name],
			Noisy: q.NoisyFlows, Starved: q.StarvedFlows,
		})
	}
	return f
}
