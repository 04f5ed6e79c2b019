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
			return nil, command.HintQueue(err)
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
