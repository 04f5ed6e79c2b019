package messagecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
	"github.com/filaq/fila/wire"
)

// stopGrace is how long an interrupted consume waits for the last replies.
const stopGrace = 5 * time.Second

// takeover is how long consume tries to register while the queue has no owner or its owner does
// not answer. It is longer than an election of the log's servers and of the owner.
const takeover = 30 * time.Second

type consumeFlags struct {
	name        string
	count       int
	maxInFlight int
	concurrency int
	noAck       bool
	verbose     bool
	command     string
	idle        terminal.Millis
}

func newConsumeCommand(env *command.Env) *cobra.Command {
	var f consumeFlags
	cmd := &cobra.Command{
		Use:     "consume QUEUE",
		Aliases: []string{"sub"},
		Short:   "Print the messages of a queue, or run a command for each",
		Long: `Print the payload of each message on a line and ack it. -v prints id, key and headers
before it, --json one JSON object. After an interrupt the command leaves the queue.

--exec runs a shell command for each message, with the payload on standard input and
each header in a variable: Fila-Attempt is FILA_HEADER_FILA_ATTEMPT (all but A to Z
and 0 to 9 become underscores). Exit code 0 acks; any other nacks with the last line
of standard error and the code exit-N (or signal-N). The lease is extended while the
command runs; if it is lost, the command gets SIGTERM, and SIGKILL five seconds
later. After an interrupt fila consume waits for running commands; a second
interrupt ends them, and their messages come again.`,
		Example: `  fila consume orders
  fila consume orders --count 10 --timeout 5s --json
  fila consume orders.dlq --no-ack -v
  fila consume mails --exec ./send.sh --concurrency 4
  fila consume orders --exec 'curl -fsS -d @- "https://example.com/$FILA_HEADER_TENANT"'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd); err != nil {
				return err
			}
			return env.Stay(cmd, func(ctx context.Context, restore func(), s *command.Session) error {
				c := newConsumption(env, cmd, f)
				return s.ExplainFor(cmd.Context(), args[0], c.consume(ctx, restore, s, args[0]))
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.name, "consumer", "", "`name` of the consumer (default a random one)")
	flags.IntVar(&f.count, "count", 0, "end after this many messages; 0 is no end")
	flags.IntVar(&f.maxInFlight, "max-in-flight", 0, "messages in flight, at most; 0 is 64, or --concurrency with --exec")
	flags.BoolVar(&f.noAck, "no-ack", false, "do not ack: messages come again when their lease ends")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "print id, key, attempt and headers, too")
	flags.StringVar(&f.command, "exec", "", "run this `command` for each message")
	flags.IntVar(&f.concurrency, "concurrency", 1, "how many commands of --exec run at once")
	flags.Var(&f.idle, "timeout", "end when no message comes for this time, with --count as a failure; 0 is never")
	command.Bound(cmd, "count", 0, math.MaxInt, "is 0 (no end) and more")
	command.Bound(cmd, "concurrency", 1, 1000, "")
	return cmd
}

func (f *consumeFlags) check(cmd *cobra.Command) error {
	flags := cmd.Flags()
	switch {
	case flags.Changed("exec") && f.command == "":
		return command.UsageError("--exec is empty: name a command")
	case flags.Changed("concurrency") && f.command == "":
		return command.UsageError("--concurrency is for --exec")
	case f.command != "" && (f.noAck || f.verbose):
		return command.UsageError("--exec with --no-ack or --verbose: the command decides about the message and prints what it likes")
	}
	switch {
	case f.maxInFlight != 0:
	case f.command != "":
		f.maxInFlight = f.concurrency
	default:
		f.maxInFlight = 64
	}
	return nil
}

// consumption receives messages, handles and counts them.
type consumption struct {
	env      *command.Env
	flags    consumeFlags
	out      io.Writer
	notices  io.Writer
	paint    terminal.Style
	consumer *client.Consumer
	ready    chan struct{} // closed when consumer is set
	progress chan struct{} // a message was handled
	running  sync.WaitGroup

	finish sync.Mutex // orders changes of the credit

	mu struct {
		sync.Mutex
		answered int // about to be acked or nacked
		handled  int // handled with any result
		running  int
		stopping bool
		err      error
	}
}

func newConsumption(env *command.Env, cmd *cobra.Command, f consumeFlags) *consumption {
	out := cmd.OutOrStdout()
	return &consumption{
		env: env, flags: f, out: out, notices: &lockedWriter{w: cmd.ErrOrStderr()}, paint: terminal.StyleFor(out),
		ready: make(chan struct{}), progress: make(chan struct{}, 1),
	}
}

func (c *consumption) consume(ctx context.Context, restoreSignals func(), s *command.Session, queue string) error {
	credit := c.flags.maxInFlight
	switch {
	case c.flags.count > 0 && c.flags.noAck: // without acks no credit returns
		credit = c.flags.count
	case c.flags.count > 0:
		credit = min(credit, c.flags.count)
	}
	options := []client.ConsumeOption{
		client.MaxInFlight(credit), client.Concurrency(c.flags.concurrency), client.OnError(c.notice),
	}
	if c.flags.name != "" {
		options = append(options, client.ConsumerName(c.flags.name))
	}
	if c.flags.noAck {
		options = append(options, client.ManualAck())
	}
	begin, cancel := context.WithTimeout(ctx, takeover)
	defer cancel()
	consumer, err := s.Consume(begin, queue, c.handle, options...)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	c.consumer = consumer
	close(c.ready)

	reason := c.wait(ctx)
	restoreSignals()
	return errors.Join(reason, c.stop(s))
}

// wait returns when enough messages have been handled, the idle time has passed, an output
// failed, or ctx ended.
func (c *consumption) wait(ctx context.Context) error {
	var idle <-chan time.Time
	for {
		if c.flags.idle > 0 {
			idle = time.After(c.flags.idle.Duration())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-idle:
			handled, running, err := c.state()
			if running > 0 && err == nil {
				continue
			}
			if err == nil && c.flags.count > 0 {
				err = fmt.Errorf("%d of %s came; none within the last %s", handled, terminal.Plural(int64(c.flags.count), "message"), c.flags.idle.String())
			}
			return err
		case <-c.progress:
			handled, _, err := c.state()
			if err != nil || c.flags.count > 0 && handled >= c.flags.count {
				return err
			}
		}
	}
}

// stop leaves the queue and waits for running handlers. Printing ends by itself soon; a second
// signal ends commands.
func (c *consumption) stop(s *command.Session) error {
	c.mu.Lock()
	c.mu.stopping = true
	running := c.mu.running
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), stopGrace)
	if c.flags.command != "" {
		cancel()
		ctx, cancel = signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		if running > 0 {
			c.notice(fmt.Errorf("waiting for %s; an interrupt ends what runs", terminal.Plural(int64(running), "command")))
		}
	}
	defer cancel()
	err := c.consumer.Stop(ctx)
	if ctx.Err() == nil || c.flags.command == "" {
		return err
	}
	c.running.Wait() // the commands have got their signal
	flushCtx, stop := context.WithTimeout(context.Background(), stopGrace)
	defer stop()
	return errors.Join(errors.New("stopped while commands were running; their messages come again"), s.Flush(flushCtx))
}

func (c *consumption) state() (handled, running int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.handled, c.mu.running, c.mu.err
}

// begin counts a message as running, or returns why it must not be handled.
func (c *consumption) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.mu.err != nil:
		return c.mu.err
	case c.flags.count > 0 && c.mu.handled+c.mu.running >= c.flags.count:
		return errors.New("one more than --count")
	case c.mu.stopping && c.flags.command != "":
		return errors.New("consumer stopped")
	}
	c.mu.running++
	c.running.Add(1)
	return nil
}

// handle prints a message or runs a command for it, and then acks or nacks it. A failed ack is
// only a notice, because the message has been handled.
func (c *consumption) handle(ctx context.Context, m *client.Message) error {
	select {
	case <-c.ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := c.begin(); err != nil {
		// A nack with a delay skips on_failure, which has no failure to judge here.
		return m.Nack(client.NackOptions{Error: err.Error(), Delay: time.Millisecond})
	}
	defer c.running.Done()
	if c.flags.command != "" {
		nack := c.run(ctx, m)
		c.ackOrNack(ctx, m, nack, nil)
		return nil
	}
	err := c.print(m)
	c.ackOrNack(ctx, m, nil, err)
	return err // the client must not ack a message that was not printed
}

// ackOrNack acks or nacks a message; after an error it leaves that to the client.
func (c *consumption) ackOrNack(ctx context.Context, m *client.Message, nack *client.NackOptions, failed error) {
	if failed == nil {
		ctx = context.WithoutCancel(ctx) // the message has been handled, so cancellation must not stop its ack
		if err := c.limitCredit(ctx); err != nil {
			c.notice(err)
		}
		var err error
		switch {
		case nack != nil:
			err = m.NackSync(ctx, *nack)
		case !c.flags.noAck:
			err = m.AckSync(ctx)
		}
		var refused *client.Error
		if err != nil && !errors.As(err, &refused) { // OnError reports refusals
			c.notice(fmt.Errorf("message %s: %w", m.ID, err))
		}
	}
	c.mu.Lock()
	c.mu.running--
	c.mu.handled++
	if failed != nil {
		c.mu.err = failed
	}
	c.mu.Unlock()
	select {
	case c.progress <- struct{}{}:
	default: // the waiter has a pending signal and will see both
	}
}

func (c *consumption) notice(err error) { command.Complain(c.notices, err.Error()) }

// limitCredit reduces the credit before an ack would earn another message, so that --count does
// not take too many.
func (c *consumption) limitCredit(ctx context.Context) error {
	if c.flags.count == 0 {
		return nil
	}
	c.finish.Lock()
	defer c.finish.Unlock()
	c.mu.Lock()
	c.mu.answered++
	wanted := c.flags.count - c.mu.answered
	c.mu.Unlock()
	switch {
	case wanted == 0:
		return c.consumer.Leave(ctx)
	case c.flags.noAck || wanted >= c.flags.maxInFlight:
		return nil // messages in flight count against the credit anyway
	}
	return c.consumer.SetMaxInFlight(ctx, wanted)
}

// lockedWriter is a writer for several goroutines.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// printedMessage is the output of `fila consume --json` for a message. A payload that is not
// UTF-8 is in payload_base64; headers are in the form of [wire.ShowText].
type printedMessage struct {
	ID            string              `json:"id"`
	Queue         string              `json:"queue"`
	Key           string              `json:"key"`
	Attempt       int                 `json:"attempt"`
	EnqueuedAt    string              `json:"enqueued_at"`
	Headers       map[string][]string `json:"headers"`
	Payload       *string             `json:"payload,omitempty"`
	PayloadBase64 []byte              `json:"payload_base64,omitempty"`
}

func (c *consumption) print(m *client.Message) error {
	if !c.env.JSON {
		text := append([]byte(c.head(m)), m.Data...)
		_, err := c.out.Write(append(text, '\n'))
		return err
	}
	line := printedMessage{
		ID: m.ID, Queue: m.Queue, Key: wire.ShowKey(m.Key), Attempt: m.Attempt,
		EnqueuedAt: m.EnqueuedAt.Format(time.RFC3339Nano), Headers: wire.ShowHeaders(m.Header),
	}
	if utf8.Valid(m.Data) {
		text := string(m.Data)
		line.Payload = &text
	} else {
		line.PayloadBase64 = m.Data
	}
	return terminal.PrintJSONLine(c.out, line)
}

// head returns the lines that -v prints before the payload: fila's data about the message, the
// producer's headers, and the headers of a dead letter.
func (c *consumption) head(m *client.Message) string {
	if !c.flags.verbose {
		return ""
	}
	var b strings.Builder
	route := ""
	if m.Route != "" {
		route = ", route " + terminal.Clean(wire.ShowKey(m.Route))
	}
	fmt.Fprintf(&b, "%s  key %s, attempt %d%s, enqueued %s\n",
		c.paint.Bold(terminal.Clean(m.ID)), terminal.Clean(wire.ShowKey(m.Key)), m.Attempt, route, c.env.When(m.EnqueuedAt.Format(time.RFC3339Nano)))
	writeHeaders(&b, c.paint, wire.ShowHeaders(m.Header), shownInHead...)
	b.WriteString("\n")
	return b.String()
}

// shownInHead are the headers that are in the first line of the head or have no use for a
// reader.
var shownInHead = []string{"Fila-Id", "Fila-Queue", "Fila-Key", "Fila-Attempt", "Fila-Enqueued-At", "Fila-Deadline", "Fila-Route"}
