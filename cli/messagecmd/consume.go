package messagecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// stopGrace is how long an interrupted consume waits for fila's last replies.
const stopGrace = 5 * time.Second

// takeover is how long it tries to register while nobody owns the queue, or whoever owns
// it does not answer: longer than an election of the log's servers and a campaign.
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
		Long: `Print the payload of each message on a line and ack it: with -v after id, key and
headers, with --json as one JSON object. After an interrupt the command leaves the
queue.

--exec runs a shell command for each message, with the payload on standard input and
each header in a variable: tenant is FILA_HEADER_TENANT, Fila-Attempt is
FILA_HEADER_FILA_ATTEMPT (an underscore for all but letters and digits). Exit code 0
acks. Any other nacks with the last line of standard error and the code exit-N (or
signal-N), for on_failure and the error rules. The lease is extended while the
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
	flags.IntVar(&f.maxInFlight, "max-in-flight", 0, "messages in flight at most; 0 is 64, with --exec the --concurrency")
	flags.BoolVar(&f.noAck, "no-ack", false, "do not ack: messages come again when their lease ends")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "print id, key, attempt and headers, too")
	flags.StringVar(&f.command, "exec", "", "run this `command` for each message")
	flags.IntVar(&f.concurrency, "concurrency", 1, "how many commands of --exec run at once")
	flags.Var(&f.idle, "timeout", "end when no message comes for this time, with --count as a failure; 0 is never")
	return cmd
}

func (f *consumeFlags) check(cmd *cobra.Command) error {
	flags := cmd.Flags()
	switch {
	case f.count < 0:
		return command.UsageError("--count %d: allowed is 0 (no end) and more", f.count)
	case f.concurrency < 1 || f.concurrency > 1000:
		return command.UsageError("--concurrency %d: allowed are 1 to 1000", f.concurrency)
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

// consumption takes messages, has each handled, and counts.
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
		handled  int // to the end, whatever that was
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
	case c.flags.count > 0 && c.flags.noAck: // nothing earns credit back
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

// wait returns when enough messages have been handled, none came for too long,
// one could not be printed, or ctx ended.
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

// stop leaves the queue and waits for what runs. Printing does not take long, so
// that ends by itself; commands are ended by a second signal.
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
	c.running.Wait() // they have been told to end
	flushCtx, stop := context.WithTimeout(context.Background(), stopGrace)
	defer stop()
	return errors.Join(errors.New("stopped while commands were running; their messages come again"), s.Flush(flushCtx))
}

func (c *consumption) state() (handled, running int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.handled, c.mu.running, c.mu.err
}

// begin reports whether a message is to be handled, and why not.
func (c *consumption) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.mu.err != nil:
		return c.mu.err
	case c.flags.count > 0 && c.mu.handled+c.mu.running >= c.flags.count:
		return errors.New("one more than was asked for")
	case c.mu.stopping && c.flags.command != "":
		return errors.New("consumer stopped")
	}
	c.mu.running++
	c.running.Add(1)
	return nil
}

// handle prints a message or runs a command for it, and then settles it. An ack
// that fails is a notice: the message has been handled.
func (c *consumption) handle(ctx context.Context, m *client.Message) error {
	select {
	case <-c.ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := c.begin(); err != nil {
		// The delay keeps it from on_failure, which would have nothing to judge.
		return m.Nack(client.NackOptions{Error: err.Error(), Delay: time.Millisecond})
	}
	defer c.running.Done()
	if c.flags.command != "" {
		nack := c.run(ctx, m)
		c.settle(ctx, m, nack, nil)
		return nil
	}
	err := c.print(m)
	c.settle(ctx, m, nil, err)
	return err // before which a message that was not printed must not be acked
}

// settle ends a message: acked, nacked, or left to the client if there is an
// error.
func (c *consumption) settle(ctx context.Context, m *client.Message, nack *client.NackOptions, failed error) {
	if failed == nil {
		ctx = context.WithoutCancel(ctx) // it has been handled, whatever comes now
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
		if err != nil && !errors.As(err, &refused) { // of those OnError tells
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
	default: // the waiter has not looked yet; it will see both
	}
}

func (c *consumption) notice(err error) { command.Complain(c.notices, err.Error()) }

// limitCredit tells fila, before the answer that would earn another message, how
// many are still wanted, so that --count takes not one too many.
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
		return nil // messages held count against the credit as it is
	}
	return c.consumer.SetMaxInFlight(ctx, wanted)
}

// lockedWriter lets several goroutines write.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// printedMessage is a message as `fila consume --json` prints it. A payload
// that is not UTF-8 is in payload_base64; headers are in the form of
// [wire.ShowText].
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

// head is what -v prints before the payload: what fila says of the message, the
// producer's headers, and those of a dead letter.
func (c *consumption) head(m *client.Message) string {
	if !c.flags.verbose {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s  key %s, attempt %d, enqueued %s\n",
		c.paint.Bold(terminal.Clean(m.ID)), terminal.Clean(wire.ShowKey(m.Key)), m.Attempt, c.env.When(m.EnqueuedAt.Format(time.RFC3339Nano)))
	writeHeaders(&b, c.paint, wire.ShowHeaders(m.Header), saidAlready...)
	b.WriteString("\n")
	return b.String()
}

// saidAlready are the headers that a head says in its first line, or that say
// nothing to who reads it.
var saidAlready = []string{"Fila-Id", "Fila-Queue", "Fila-Key", "Fila-Attempt", "Fila-Enqueued-At", "Fila-Deadline"}
