package messagecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
)

// windowBytes bounds the payloads that wait for their confirmation.
const windowBytes = 64 << 20

// pipeline publishes many messages and waits for their confirmations in order.
// All of it runs on one goroutine.
type pipeline struct {
	env     *command.Env
	s       *command.Session
	c       *client.Client // with the window
	f       *publishFlags
	queue   string
	out     io.Writer
	bar     *progressBar
	begin   time.Time
	waiting []waitingReceipt // in the order of sending
	bytes   int              // of their payloads

	sent      int64
	confirmed int64
	duplicate int64
}

type waitingReceipt struct {
	n      int64 // the number of the message
	size   int
	future *client.PublishFuture
}

func newPipeline(env *command.Env, cmd *cobra.Command, s *command.Session, f *publishFlags, queue string) (*pipeline, error) {
	p := &pipeline{env: env, s: s, f: f, queue: queue, out: cmd.OutOrStdout()}
	total := int64(0)
	if !f.lines && !f.jsonl {
		total = f.count
	}
	if errOut := cmd.ErrOrStderr(); terminal.IsTerminal(errOut) && !f.quiet && !env.JSON {
		p.bar = &progressBar{w: errOut, total: total}
	}
	var err error
	p.c, err = client.New(s.Conn(), client.WithPrefix(s.Prefix()), client.WithTimeout(s.Timeout), client.WithMaxPending(f.window))
	return p, err
}

// run publishes until there is no more, one fails, or ctx ends, then waits for
// what is on its way and says what has become of it all. After that has begun a
// second interrupt ends the process.
func (p *pipeline) run(ctx context.Context, restoreSignals func(), from source) error {
	p.begin = time.Now()
	failed := p.sendAll(ctx, from)
	if failed == nil {
		failed = p.drain(ctx)
	}
	restoreSignals()
	p.giveUp()
	p.bar.end()
	if failed == nil && p.f.noConfirm {
		failed = p.s.Flush(context.Background())
	}
	if err := p.summary(failed); err != nil {
		return err
	}
	return failed
}

func (p *pipeline) sendAll(ctx context.Context, from source) error {
	ended := make(chan struct{})
	defer close(ended)
	messages := ahead(from, ended)
	for {
		m, err := wait(ctx, p, messages)
		switch {
		case err != nil:
			return err
		case m == nil:
			return nil
		case m.err != nil:
			return m.err
		}
		if err := p.pace(ctx); err != nil {
			return err
		}
		if err := p.send(ctx, m.outgoing); err != nil {
			return err
		}
	}
}

// input is what a source has yielded.
type input struct {
	outgoing
	err error
}

// ahead reads on a goroutine of its own, since nothing interrupts a read, and closes
// the channel after the last. After ended it stops as soon as the read returns.
func ahead(from source, ended <-chan struct{}) <-chan *input {
	messages := make(chan *input)
	go func() {
		defer close(messages)
		for m, err := range from {
			select {
			case messages <- &input{m, err}:
			case <-ended:
				return
			}
		}
	}()
	return messages
}

// wait waits for what comes from ready. What is confirmed meanwhile is noticed.
func wait[T any](ctx context.Context, p *pipeline, ready <-chan T) (v T, err error) {
	for {
		if ctx.Err() != nil {
			return v, command.ErrInterrupted
		}
		select {
		case v = <-ready:
			return v, nil
		case <-ctx.Done():
		case <-p.oldest():
			if err := p.settle(); err != nil {
				return v, err
			}
		}
	}
}

// oldest is closed when the fate of the oldest message is known; nil if none
// waits.
func (p *pipeline) oldest() <-chan struct{} {
	if len(p.waiting) == 0 {
		return nil
	}
	return p.waiting[0].future.Done()
}

// pace waits until the next message may go.
func (p *pipeline) pace(ctx context.Context) error {
	if p.f.rate == 0 {
		return nil
	}
	due := min(float64(p.sent)/p.f.rate*float64(time.Second), math.MaxInt64/4)
	timer := time.NewTimer(time.Until(p.begin.Add(time.Duration(due))))
	defer timer.Stop()
	_, err := wait(ctx, p, timer.C)
	return err
}

// send sends a message when the window has room.
func (p *pipeline) send(ctx context.Context, m outgoing) error {
	if p.f.noConfirm {
		if err := p.s.Send(p.queue, m.payload, m.options...); err != nil {
			return p.failure(m.n, err)
		}
		p.sent++
		p.bar.draw(p.sent, time.Since(p.begin))
		return nil
	}
	for len(p.waiting) > 0 {
		select {
		case <-p.oldest():
		default:
			if len(p.waiting) < p.f.window && p.bytes+len(m.payload) <= windowBytes {
				return p.start(ctx, m)
			}
			if err := p.await(ctx); err != nil {
				return err
			}
		}
		if err := p.settle(); err != nil {
			return err
		}
	}
	return p.start(ctx, m)
}

// await waits for the oldest message.
func (p *pipeline) await(ctx context.Context) error {
	select {
	case <-p.oldest():
		return nil
	case <-ctx.Done():
		return command.ErrInterrupted
	}
}

// start sends a message. The first must pass before others are sent, and before
// anything is tried again where nobody listens: that is so for a queue that does
// not exist, and looks like a fila that is just being restarted.
func (p *pipeline) start(ctx context.Context, m outgoing) error {
	first := p.sent == 0
	patient := append(slices.Clone(m.options), client.RetryFor(publishRetry))
	options := patient
	if first || p.f.noRetry {
		options = m.options
	}
	future, err := p.c.PublishAsync(ctx, p.queue, m.payload, options...)
	if err != nil {
		return p.failure(m.n, err)
	}
	p.sent++
	p.waiting = append(p.waiting, waitingReceipt{m.n, len(m.payload), future})
	p.bytes += len(m.payload)
	if !first {
		return nil
	}
	if err := p.await(ctx); err != nil {
		return err
	}
	_, err = future.Result()
	if refusedForNow(err) && !p.f.noRetry {
		if p.waiting[0].future, err = p.c.PublishAsync(ctx, p.queue, m.payload, patient...); err != nil {
			p.waiting = nil
			return p.failure(m.n, err)
		}
	}
	return nil
}

// settle takes what has become of the oldest message, which is known.
func (p *pipeline) settle() error {
	n, err := p.take()
	if err != nil {
		return p.failure(n, err)
	}
	p.bar.draw(p.confirmed, time.Since(p.begin))
	return nil
}

func (p *pipeline) take() (n int64, err error) {
	oldest := p.waiting[0]
	p.waiting[0] = waitingReceipt{}
	p.waiting = p.waiting[1:]
	p.bytes -= oldest.size
	receipt, err := oldest.future.Result()
	if err == nil {
		p.confirmed++
		if receipt.Duplicate {
			p.duplicate++
		}
	}
	return oldest.n, err
}

// drain waits for all that is on its way.
func (p *pipeline) drain(ctx context.Context) error {
	for len(p.waiting) > 0 {
		if err := p.await(ctx); err != nil {
			return err
		}
		if err := p.settle(); err != nil {
			return err
		}
	}
	return nil
}

// giveUp waits for what is left after a failure no longer than for a reply; what
// is being tried again is not sent any more.
func (p *pipeline) giveUp() {
	ctx, cancel := context.WithTimeout(context.Background(), p.s.Timeout)
	defer cancel()
	for len(p.waiting) > 0 {
		if p.await(ctx) != nil {
			p.c.Close()
		}
		_, _ = p.take() // the first failure is the one that is told
	}
	p.c.Close()
}

func (p *pipeline) failure(n int64, err error) error {
	if errors.Is(err, context.Canceled) {
		return command.ErrInterrupted
	}
	err = p.s.ExplainFor(context.Background(), p.queue, err)
	code := command.ExitCode(err)
	return command.Exit(code, fmt.Errorf("message %d: %w", n, err))
}

func (p *pipeline) done() int64 {
	if p.f.noConfirm {
		return p.sent
	}
	return p.confirmed
}
