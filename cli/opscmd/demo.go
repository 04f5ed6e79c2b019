package opscmd

import (
	"cmp"
	"context"
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

const (
	demoClient = "fila demo" // name of connections

	demoCall  = 5 * time.Millisecond
	demoGrace = 5 * time.Second // time for fila's last replies
)

// demoPatience bounds each wait of a demo. A loaded machine that runs the tests may need more.
var demoPatience = time.Minute

// demo is one of the demos.
type demo struct {
	flag, usage string
	length      terminal.Millis // without --duration; 0: the demo has none
	play        func(ctx context.Context, s *demoStage, length time.Duration) error
}

var demos = []demo{
	{"", "", 20_000, fairDemo},
	{"shared", "two filas that share the circuit of a vendor that fails", 20_000, sharedDemo},
	{"cluster", "three nodes of a cluster, one of which is killed", clusterDuration, clusterDemo},
}

func newDemoCommand(env *command.Env) *cobra.Command {
	duration, given, incident := demos[0].length, make([]bool, len(demos)), ""
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See what fila is for, in 20 seconds",
		Long: fmt.Sprintf(`Start a temporary fila on a free port of 127.0.0.1. A noisy tenant sends 100 times as
much as each of three quiet ones, together about twice what the provider of %d
workers accepts: %d calls a second, which a throttle keeps. First all tenants share
one flow, then each has a fair share, by one line of Lua. A table shows how long each
tenant's messages wait.

--shared starts two filas that share the circuit of a vendor that fails. When the first
fila sees the failures, the second one blocks its messages, too. Exactly %d probes go,
and then all messages go again.

--cluster starts three cluster nodes, kills the owner of a queue under load (%d
seconds), and shows which node took over, for how long nothing was confirmed, and that
all confirmed messages are delivered.

--incident prepares an incident for you to solve. fila, its producers and its consumers
run until an interrupt, so that you can find the cause and mend it on the pages or with
commands. The incidents:

%s
The command leaves nothing behind, even after an interrupt.`, demoWorkers, demoRate, sharedProbes, clusterDuration/1000, incidentHelp()),
		Example: `  fila demo
  fila demo --shared
  fila demo --cluster
  fila demo --incident broken-hook
  fila demo --duration 10s --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if duration < 200 || duration > 3_600_000 {
				return command.UsageError("--duration %s: allowed are 200ms to 1h", duration.String())
			}
			chosen, err := chooseDemo(given, incident, cmd.Flags().Changed("incident"))
			if err != nil {
				return err
			}
			switch timed := cmd.Flags().Changed("duration"); {
			case timed && chosen.length == 0:
				return command.UsageError("--%s has no --duration: it ends with an interrupt", chosen.flag)
			case timed:
				chosen.length = duration
			}
			return chosen.run(env, cmd)
		},
	}
	for i, d := range demos[1:] {
		cmd.Flags().BoolVar(&given[i+1], d.flag, false, d.usage)
	}
	cmd.Flags().StringVar(&incident, "incident", "", "`name` of the incident")
	command.Allow(cmd, "incident", incidentNames()...)
	cmd.Flags().Var(&duration, "duration", "length of the demo; with --cluster, of the load")
	return cmd
}

// chooseDemo returns the one demo whose flag is given, or the first one.
func chooseDemo(given []bool, incident string, incidentGiven bool) (demo, error) {
	chosen := demos[0]
	for i, d := range demos {
		switch {
		case !given[i]:
		case chosen.flag != "" || incidentGiven:
			return demo{}, command.UsageError("--shared, --cluster and --incident are demos of their own: one of them is allowed")
		default:
			chosen = d
		}
	}
	if incidentGiven {
		return incidentDemo(incident)
	}
	return chosen, nil
}

// run plays the demo, and leaves nothing behind.
func (d demo) run(env *command.Env, cmd *cobra.Command) error {
	ctx, stop := command.UntilSignal(cmd)
	defer stop()
	dir, err := os.MkdirTemp("", "fila-demo-")
	if err != nil {
		return err
	}
	s := newDemoStage(env, cmd.OutOrStdout())
	s.dir, s.errOut = dir, cmd.ErrOrStderr()
	if err = d.play(ctx, s, d.length.Duration()); err != nil && ctx.Err() != nil {
		err = command.ErrInterrupted
	}
	return cmp.Or(err, s.end(0), os.RemoveAll(dir))
}

// demoStage is what the demos have in common: a directory, processes that end with the demo,
// events, and a screen, which is live on a terminal, shows only final lines elsewhere, and with
// --json one value at the end.
type demoStage struct {
	env    *command.Env
	out    io.Writer
	errOut io.Writer
	dir    string
	paint  terminal.Style
	live   bool
	begin  time.Time
	table  func() []string // present table, always of the same number of lines
	moved  chan struct{}   // capacity 1; signals a change to await
	ends   []func() error  // in the order of the starts

	mu struct {
		sync.Mutex
		drawn   int // lines of the table on the screen
		moments []demoMoment
		err     error
	}
}

// demoMoment is a reported event of a demo.
type demoMoment struct {
	Seconds float64 `json:"seconds"`
	Text    string  `json:"text"`
}

func newDemoStage(env *command.Env, out io.Writer) *demoStage {
	return &demoStage{
		env: env, out: out, paint: terminal.StyleFor(out), live: terminal.IsTerminal(out) && !env.JSON, begin: time.Now(),
		table: func() []string { return nil }, moved: make(chan struct{}, 1),
	}
}

// atEnd calls fn when the demo is over, the latest one first.
func (s *demoStage) atEnd(fn func() error) { s.ends = append(s.ends, fn) }

// end ends everything but the first n things that the demo has started.
func (s *demoStage) end(n int) (err error) {
	for _, end := range slices.Backward(s.ends[n:]) {
		err = cmp.Or(err, end())
	}
	s.ends = s.ends[:n]
	return err
}

// demoServer is the sidecar of a demo with a connection to it.
type demoServer struct {
	url   string
	pages string // URL of its pages; empty without pages
	nc    *nats.Conn
	c     *client.Client
}

// demoConfig returns the configuration of a sidecar with its data in dir and free ports.
func demoConfig(dir string) config.Config {
	cfg := config.Default()
	cfg.DataDir, cfg.HTTP.Addr, cfg.NATS.Embedded.Port, cfg.DrainTimeoutMs = dir, "", -1, 0
	return cfg
}

// start starts a sidecar that runs until the demo is over.
func (s *demoStage) start(ctx context.Context, cfg config.Config) (*demoServer, error) {
	log := slog.New(slog.NewTextHandler(s.errOut, &slog.HandlerOptions{Level: slog.LevelError}))
	server, err := sidecar.New(cfg, log, command.ReadBuildInfo().Version)
	if err != nil {
		return nil, err
	}
	// Clients stop first, so the sidecar must not stop by itself.
	runCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- server.Run(runCtx) }()
	select {
	case <-server.Ready():
	case err := <-ended:
		cancel()
		return nil, fmt.Errorf("start fila: %w", err)
	}
	s.atEnd(func() error {
		cancel()
		return <-ended
	})
	d := &demoServer{url: server.ClientURL(), pages: server.PagesURL()}
	return d, s.connect(d, d.url, demoClient, client.WithPrefix(cfg.NATS.SubjectPrefix))
}

// connect connects a client of this name, which reconnects, until the demo is over.
func (s *demoStage) connect(d *demoServer, urls, name string, options ...client.Option) (err error) {
	d.nc, err = nats.Connect(urls, nats.Name(name), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})) // unconfirmed messages are sent again
	if err != nil {
		return fmt.Errorf("connect to fila: %w", err)
	}
	s.atEnd(func() error {
		d.nc.Close()
		return nil
	})
	d.c, err = client.New(d.nc, options...)
	return err
}

// consume starts a consumer that stops with the demo.
func (s *demoStage) consume(ctx context.Context, c *client.Client, queue string, handle client.Handler, options ...client.ConsumeOption) (*client.Consumer, error) {
	quiet := client.OnError(func(error) {}) // its messages come again
	consumer, err := c.Consume(ctx, queue, handle, append(options, quiet)...)
	if err == nil {
		s.atEnd(func() error {
			ctx, cancel := context.WithTimeout(context.Background(), demoGrace)
			defer cancel()
			_ = consumer.Stop(ctx) // its messages go with the queue
			return nil
		})
	}
	return consumer, err
}

// send calls publish for each message that is due, until ctx ends. On a slow machine messages
// come in bursts, but not fewer.
func (s *demoStage) send(ctx context.Context, rate int, publish func(n int) error) {
	begin := time.Now()
	for n := 0; ; n++ {
		select {
		case <-time.After(time.Until(begin.Add(time.Duration(n) * time.Second / time.Duration(rate)))):
		case <-ctx.Done():
			return
		}
		if err := publish(n); err != nil {
			if ctx.Err() == nil {
				_ = s.failed(err)
			}
			return
		}
	}
}

// failed keeps the first error and returns it.
func (s *demoStage) failed(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.err = cmp.Or(s.mu.err, err)
	return s.mu.err
}

// wake has await check its condition.
func (s *demoStage) wake() {
	select {
	case s.moved <- struct{}{}:
	default:
	}
}

// await waits for a condition and shows progress meanwhile. It reports false if the condition
// does not hold in time. It returns at once after an error of the demo or the end of ctx.
func (s *demoStage) await(ctx context.Context, patience time.Duration, holds func() bool) (inTime bool) {
	late := time.After(patience)
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for s.failed(ctx.Err()) == nil && !holds() {
		select {
		case <-ctx.Done():
		case <-late:
			return false
		case <-s.moved:
		case <-ticker.C:
			s.draw(false)
		}
	}
	return true
}

// until waits for a condition, which must hold within demoPatience. After an error until, pass
// and say do nothing, so a script of them checks for an error at its end.
func (s *demoStage) until(ctx context.Context, name string, holds func() bool) {
	if !s.await(ctx, demoPatience, holds) {
		_ = s.failed(fmt.Errorf("the demo waited %s for %s: this machine is too busy for it", demoPatience, name))
	}
}

// pass waits until a time since begin has passed.
func (s *demoStage) pass(ctx context.Context, begin time.Time, d time.Duration) {
	s.await(ctx, d+time.Minute, func() bool { return time.Since(begin) >= d })
}

// say prints an event of the demo.
func (s *demoStage) say(format string, args ...any) {
	if s.failed(nil) != nil {
		return
	}
	s.mu.Lock()
	at := demoMoment{time.Since(s.begin).Seconds(), fmt.Sprintf(format, args...)}
	s.mu.moments = append(s.mu.moments, at)
	s.mu.Unlock()
	s.line(fmt.Sprintf("%5.1f s  %s", at.Seconds, at.Text))
	s.wake()
}

func (s *demoStage) moments() []demoMoment {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.mu.moments)
}

// write ignores errors: a failed output does not change the demo.
func (s *demoStage) write(format string, args ...any) {
	if !s.env.JSON {
		_, _ = fmt.Fprintf(s.out, format, args...)
	}
}

// draw draws the table over the previous one. After the last one, output continues below.
func (s *demoStage) draw(last bool) {
	table := s.table()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live || last {
		s.redraw(nil, table)
	}
	if last {
		s.mu.drawn = 0
	}
}

// line prints a permanent line above the table and redraws the table.
func (s *demoStage) line(text string) {
	table := s.table()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live {
		s.redraw([]string{text}, table)
	} else {
		s.write("%s\n", text)
	}
}

// redraw draws permanent lines and a table over the present table. The caller holds mu.
func (s *demoStage) redraw(stay, table []string) {
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
	s.write("%s", b.String())
}

// result prints the result, as JSON or in words.
func (s *demoStage) result(figures any, words string) error {
	if s.env.JSON {
		return terminal.PrintJSON(s.out, figures)
	}
	width, _ := terminal.ScreenSize(s.out)
	_, err := fmt.Fprintln(s.out, terminal.Wrap(words, 0, min(78, width)))
	return err
}
