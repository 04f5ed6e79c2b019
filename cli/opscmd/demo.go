package opscmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
	"github.com/filaq/fila/sidecar"
	"github.com/filaq/fila/sidecar/config"
)

// The demo of fair shares: a provider with a rate limit, and tenants that together want about
// twice as much.
const (
	demoRate    = 200 // calls a second that the provider accepts
	demoQuiet   = 4   // messages a second of a quiet tenant
	demoNoisy   = 100 * demoQuiet
	demoWorkers = 3
	demoEach    = 4 // concurrent messages of a worker
	demoCall    = 5 * time.Millisecond
	demoGrace   = 5 * time.Second // time for fila's last replies
)

// demoHook is the on_enqueue hook of a queue of the demo.
func demoHook(fairnessKey string) string {
	return `function on_enqueue(msg)
  return { fairness_key = ` + fairnessKey + `, throttle_keys = { "provider" } }
end`
}

// demoRun is one half of the demo.
type demoRun struct {
	queue string // also its name in the output
	title string
	hook  string
}

var demoRuns = []demoRun{
	{"fifo", "One line for all (every message has the same fairness key)", demoHook(`"all"`)},
	{"fair", "Fair between tenants (fairness_key = msg.headers.tenant)", demoHook(`msg.headers["tenant"]`)},
}

func newDemoCommand(env *command.Env) *cobra.Command {
	duration, shared, cluster, incident := terminal.Millis(20_000), false, false, false
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See what fila is for, in 20 seconds",
		Long: fmt.Sprintf(`Start a temporary fila on a free port of 127.0.0.1. A noisy tenant sends 100 times as
much as each of three quiet ones, together about twice what the provider of %d
workers accepts: %d calls a second, which a throttle keeps. First all tenants share
one flow, then each has a fair share, by one line of Lua. A table shows how long each
tenant's messages wait.

--shared starts two filas that share the circuit of a vendor that breaks: the second
one blocks its messages when the first has seen it fail, exactly %d probes go, and
then all go again.

--cluster starts three cluster nodes, kills the owner of a queue under load (%d
seconds), and counts: who took over, how long nothing was confirmed, and that all
confirmed messages are delivered.

--incident is for you: a bad release of the workers makes %d dead letters of three
causes, and fila and the workers run until an interrupt, so that you can sort them
out with the workbench commands or the pages.

The command leaves nothing behind, even after an interrupt.`, demoWorkers, demoRate, sharedProbes, clusterDuration/1000, incidentMessages),
		Example: `  fila demo
  fila demo --shared
  fila demo --cluster
  fila demo --incident
  fila demo --duration 10s --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if duration < 200 || duration > 3_600_000 {
				return command.UsageError("--duration %s: allowed are 200ms to 1h", duration.String())
			}
			if shared && cluster || shared && incident || cluster && incident {
				return command.UsageError("--shared, --cluster and --incident are demos of their own: one of them is allowed")
			}
			play := fairDemo
			switch {
			case shared:
				play = sharedDemo
			case cluster:
				play = clusterDemo
				if !cmd.Flags().Changed("duration") {
					duration = clusterDuration
				}
			case incident && cmd.Flags().Changed("duration"):
				return command.UsageError("--incident has no --duration: it ends with an interrupt")
			case incident:
				play = incidentDemo
			}
			return demo(env, cmd, duration.Duration(), play)
		},
	}
	cmd.Flags().BoolVar(&shared, "shared", false, "two filas that share the circuit of a vendor that breaks")
	cmd.Flags().BoolVar(&cluster, "cluster", false, "three nodes of a cluster, one of which is killed")
	cmd.Flags().BoolVar(&incident, "incident", false, "a bad release and its dead letters, for you to sort out")
	cmd.Flags().Var(&duration, "duration", "length of the demo; with --cluster, of the load")
	return cmd
}

// demoPlay is one of the demos, with its own directory.
type demoPlay func(ctx context.Context, env *command.Env, cmd *cobra.Command, dir string, duration time.Duration) error

func demo(env *command.Env, cmd *cobra.Command, duration time.Duration, play demoPlay) (err error) {
	ctx, stop := command.UntilSignal(cmd)
	defer stop()
	dir, err := os.MkdirTemp("", "fila-demo-")
	if err != nil {
		return err
	}
	defer func() {
		if gone := os.RemoveAll(dir); err == nil {
			err = gone
		}
	}()
	return play(ctx, env, cmd, dir, duration)
}

// fairDemo runs the demo of fair shares.
func fairDemo(ctx context.Context, env *command.Env, cmd *cobra.Command, dir string, duration time.Duration) (err error) {
	server, err := startDemo(ctx, demoConfig(dir), cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer func() {
		if ended := server.end(); err == nil {
			err = ended
		}
	}()

	show := newDemoScreen(env, cmd.OutOrStdout())
	show.intro(server.url)
	report := demoReport{Provider: demoRate}
	for _, run := range demoRuns {
		done, err := server.play(ctx, run, duration/time.Duration(len(demoRuns)), show)
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return command.ErrInterrupted
		}
		report.Runs = append(report.Runs, done)
	}
	report.Result = report.words()
	return show.result(report, report.Result)
}

// demoMoment is a reported event of a demo.
type demoMoment struct {
	Seconds float64 `json:"seconds"`
	Text    string  `json:"text"`
}

// demoServer is the sidecar of a demo with a connection to it.
type demoServer struct {
	url   string
	http  string // address of its pages; empty without pages
	nc    *nats.Conn
	c     *client.Client
	stop  context.CancelFunc
	ended chan error
}

// demoConfig returns the configuration of a sidecar with its data in dir and free ports.
func demoConfig(dir string) config.Config {
	cfg := config.Default()
	cfg.DataDir, cfg.HTTP.Addr, cfg.NATS.Embedded.Port, cfg.DrainTimeoutMs = dir, "", -1, 0
	return cfg
}

// startDemo starts a sidecar that runs until end.
func startDemo(ctx context.Context, cfg config.Config, errOut io.Writer) (*demoServer, error) {
	log := slog.New(slog.NewTextHandler(errOut, &slog.HandlerOptions{Level: slog.LevelError}))
	server, err := sidecar.New(cfg, log, command.ReadBuildInfo().Version)
	if err != nil {
		return nil, err
	}
	// Clients stop first, so the sidecar must not stop by itself.
	runCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	d := &demoServer{stop: cancel, ended: make(chan error, 1)}
	go func() { d.ended <- server.Run(runCtx) }()
	select {
	case <-server.Ready():
	case err := <-d.ended:
		cancel()
		return nil, fmt.Errorf("start fila: %w", err)
	}
	d.url, d.http = server.ClientURL(), server.HTTPAddr()
	if d.nc, err = nats.Connect(d.url, nats.Name("fila demo")); err == nil {
		d.c, err = client.New(d.nc, client.WithPrefix(cfg.NATS.SubjectPrefix))
	}
	if err != nil {
		return nil, errors.Join(err, d.end())
	}
	return d, nil
}

// end stops the sidecar and waits until it has released its directory.
func (d *demoServer) end() error {
	if d.nc != nil {
		d.nc.Close()
	}
	d.stop()
	return <-d.ended
}

// play creates the queue of a run, uses it for the run's duration, and deletes it with its
// remaining messages.
func (d *demoServer) play(ctx context.Context, run demoRun, length time.Duration, show *demoScreen) (demoResult, error) {
	settings := client.DefaultQueueSettings(run.queue)
	settings.OnEnqueue = run.hook
	if _, err := d.c.QueueCreate(ctx, settings); err != nil {
		return demoResult{}, stopped(ctx, err)
	}
	rate, burst := client.Rate(fmt.Sprint(demoRate)), float64(demoRate/20)
	limit := client.ThrottleChange{Key: "provider", ThrottleLimits: client.ThrottleLimits{Rate: &rate, Burst: &burst}}
	if _, err := d.c.ThrottleSet(ctx, limit); err != nil {
		return demoResult{}, stopped(ctx, err)
	}
	load := newDemoLoad(d.c, run)
	if err := load.run(ctx, length, show); err != nil {
		return demoResult{}, stopped(ctx, err)
	}
	_, err := d.c.QueueDelete(context.WithoutCancel(ctx), run.queue, true)
	return load.result(), err
}

// stopped replaces the error that an interrupt causes.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return command.ErrInterrupted
	}
	return err
}

// demoScreen shows the progress of a demo: live on a terminal, otherwise only final lines, and
// with --json one value at the end.
type demoScreen struct {
	env   *command.Env
	out   io.Writer
	paint terminal.Style
	live  bool
	mu    struct {
		sync.Mutex
		drawn int // lines of the table on the screen
	}
}

func newDemoScreen(env *command.Env, out io.Writer) *demoScreen {
	return &demoScreen{env: env, out: out, paint: terminal.StyleFor(out), live: terminal.IsTerminal(out) && !env.JSON}
}

// write ignores errors: a failed output does not change the demo.
func (s *demoScreen) write(text string) {
	if !s.env.JSON {
		_, _ = io.WriteString(s.out, text)
	}
}

func (s *demoScreen) intro(url string) {
	s.write(fmt.Sprintf(`A noisy tenant sends %d messages a second, three quiet ones %d each.
%d workers call a provider that takes %d calls a second.
Look inside meanwhile: fila top -s %s

`, demoNoisy, demoQuiet, demoWorkers, demoRate, url))
}

// update draws the table of a run over the previous one.
func (s *demoScreen) update(r demoResult, last bool) { s.draw(r.lines(s.paint), last) }

// draw draws a table over the previous one. After the last one, output continues below.
func (s *demoScreen) draw(lines []string, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live || last {
		s.redraw(nil, lines)
	}
	if last {
		s.mu.drawn = 0
	}
}

// line prints a permanent line above the table and redraws the table.
func (s *demoScreen) line(text string, table func() []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live {
		s.redraw([]string{text}, table())
	} else {
		s.write(text + "\n")
	}
}

// redraw draws permanent lines and a table over the present table. The caller holds mu.
func (s *demoScreen) redraw(stay, table []string) {
	var b strings.Builder
	if s.mu.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", s.mu.drawn)
	}
	for _, line := range slices.Concat(stay, table) {
		b.WriteString(line)
		if s.live {
			b.WriteString(terminal.EraseLine)
		}
		b.WriteString("\n")
	}
	s.mu.drawn = len(table)
	s.write(b.String())
}

// result prints the result, as JSON or in words.
func (s *demoScreen) result(figures any, words string) error {
	if s.env.JSON {
		return terminal.PrintJSON(s.out, figures)
	}
	width, _ := terminal.ScreenSize(s.out)
	_, err := fmt.Fprintln(s.out, terminal.Wrap(words, 0, min(78, width)))
	return err
}
