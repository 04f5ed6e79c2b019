package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/filaq/fila/client"
)

// stopGrace is how long an interrupted consume waits for fila's last replies.
const stopGrace = 5 * time.Second

type consumeFlags struct {
	name        string
	count       int
	maxInFlight int
	noAck       bool
	idle        msValue
}

func newConsumeCommand(a *app) *cobra.Command {
	var f consumeFlags
	cmd := &cobra.Command{
		Use:     "consume QUEUE",
		Aliases: []string{"sub"},
		Short:   "Print the messages of a queue and ack them",
		Long: `Print the payload of each message on a line of its own, and ack it when it has
been printed. With --json each message is a JSON object on one line, with its
headers. An interrupt leaves the queue and ends.`,
		Example: `  fila consume orders
  fila consume orders --count 10 --timeout 5s --json
  fila consume orders.dlq --no-ack`,
		Args: needArgs("QUEUE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.count < 0 {
				return usageError("--count %d: allowed is 0 (no end) and more", f.count)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			s, err := a.conn.open(nats.MaxReconnects(-1))
			if err != nil {
				return err
			}
			defer s.close()
			p := &printer{app: a, flags: f, out: cmd.OutOrStdout(), notices: cmd.ErrOrStderr(), progress: make(chan struct{}, 1)}
			return s.explainQueue(cmd.Context(), args[0], p.consume(ctx, stop, s, args[0]))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.name, "consumer", "", "`name` of the consumer (default a random one)")
	flags.IntVar(&f.count, "count", 0, "end after so many messages; 0 is no end")
	flags.IntVar(&f.maxInFlight, "max-in-flight", 64, "how many messages fila may send ahead")
	flags.BoolVar(&f.noAck, "no-ack", false, "do not ack: messages stay leased while the command runs, and come again when the lease ends")
	flags.Var(&f.idle, "timeout", "end when no message has come for so long; with --count it is a failure then; 0 is never")
	return cmd
}

// printer prints messages, acks them and counts.
type printer struct {
	app      *app
	flags    consumeFlags
	out      io.Writer
	notices  io.Writer
	consumer *client.Consumer
	ready    chan struct{} // closed when consumer is set
	progress chan struct{} // a message was printed

	mu struct {
		sync.Mutex
		printed int
		err     error
	}
}

func (p *printer) consume(ctx context.Context, restoreSignals func(), s *session, queue string) error {
	p.ready = make(chan struct{})
	credit := p.flags.maxInFlight
	switch {
	case p.flags.count > 0 && p.flags.noAck: // nothing earns credit back
		credit = p.flags.count
	case p.flags.count > 0:
		credit = min(credit, p.flags.count)
	}
	options := []client.ConsumeOption{
		client.MaxInFlight(credit),
		client.OnError(p.notice),
	}
	if p.flags.name != "" {
		options = append(options, client.ConsumerName(p.flags.name))
	}
	if p.flags.noAck {
		options = append(options, client.ManualAck())
	}
	consumer, err := s.Consume(ctx, queue, p.handle, options...)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	p.consumer = consumer
	close(p.ready)

	reason := p.wait(ctx)
	restoreSignals() // a second interrupt ends the process
	stopCtx, cancel := context.WithTimeout(context.Background(), stopGrace)
	defer cancel()
	return errors.Join(reason, consumer.Stop(stopCtx))
}

// wait returns when enough messages have been printed, none came for too long,
// one could not be printed, or ctx ended.
func (p *printer) wait(ctx context.Context) error {
	var idle <-chan time.Time
	for {
		if p.flags.idle > 0 {
			idle = time.After(p.flags.idle.duration())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-idle:
			printed, err := p.state()
			if err == nil && p.flags.count > 0 {
				err = fmt.Errorf("%d of %d messages came; none within the last %s", printed, p.flags.count, p.flags.idle.String())
			}
			return err
		case <-p.progress:
			printed, err := p.state()
			if err != nil || p.flags.count > 0 && printed >= p.flags.count {
				return err
			}
		}
	}
}

func (p *printer) state() (printed int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.printed, p.mu.err
}

// handle prints before it acks, so that a message that could not be printed
// comes again. An ack that fails is a notice: the message has been printed.
func (p *printer) handle(ctx context.Context, m *client.Message) error {
	select {
	case <-p.ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	printed, failed := p.state()
	if failed == nil && p.flags.count > 0 && printed >= p.flags.count {
		failed = errors.New("one more than was asked for")
	}
	if failed != nil {
		return failed
	}
	err := p.print(m)
	if err == nil {
		if err := p.limitCredit(ctx, printed+1); err != nil {
			p.notice(err)
		}
	}
	if err == nil && !p.flags.noAck {
		if err := m.AckSync(ctx); err != nil {
			p.notice(fmt.Errorf("ack of message %s: %w", m.ID, err))
		}
	}
	p.mu.Lock()
	p.mu.printed, p.mu.err = printed+1, err
	p.mu.Unlock()
	select {
	case p.progress <- struct{}{}:
	default: // the waiter has not looked yet; it will see both
	}
	return err
}

func (p *printer) notice(err error) {
	complain(p.notices, err.Error())
}

// limitCredit tells fila, before the ack that would earn another message, how
// many are still wanted, so that --count takes not one too many.
func (p *printer) limitCredit(ctx context.Context, printed int) error {
	if p.flags.count == 0 {
		return nil
	}
	wanted := p.flags.count - printed
	switch {
	case wanted == 0:
		return p.consumer.Leave(ctx)
	case p.flags.noAck || wanted >= p.flags.maxInFlight:
		return nil // messages held count against the credit as it is
	}
	return p.consumer.SetMaxInFlight(ctx, wanted)
}

// printedMessage is a message as `fila consume --json` prints it. A payload
// that is not UTF-8 is in payload_base64.
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

func (p *printer) print(m *client.Message) error {
	if !p.app.json {
		_, err := p.out.Write(append(m.Data[:len(m.Data):len(m.Data)], '\n'))
		return err
	}
	line := printedMessage{
		ID: m.ID, Queue: m.Queue, Key: m.Key, Attempt: m.Attempt,
		EnqueuedAt: m.EnqueuedAt.Format(time.RFC3339Nano), Headers: m.Header,
	}
	if utf8.Valid(m.Data) {
		text := string(m.Data)
		line.Payload = &text
	} else {
		line.PayloadBase64 = m.Data
	}
	return printJSONLine(p.out, line)
}
