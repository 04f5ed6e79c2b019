package messagecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
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

// publishSummary is what --json prints about many messages.
type publishSummary struct {
	Queue      string  `json:"queue"`
	Sent       int64   `json:"sent"`
	Confirmed  int64   `json:"confirmed"`
	Duplicates int64   `json:"duplicates"`
	ElapsedMs  int64   `json:"elapsed_ms"`
	PerSecond  float64 `json:"per_second"`
	Error      string  `json:"error,omitempty"`
}

func (p *pipeline) summary(failed error) error {
	elapsed := time.Since(p.begin)
	rate := float64(p.done()) / max(elapsed.Seconds(), 1e-6)
	if p.env.JSON {
		s := publishSummary{p.queue, p.sent, p.confirmed, p.duplicate, elapsed.Milliseconds(), math.Round(rate*10) / 10, ""}
		if failed != nil {
			s.Error = failed.Error()
		}
		return terminal.PrintJSON(p.out, s)
	}
	if p.f.quiet {
		return nil
	}
	text := terminal.Grouped(p.done()) + " message"
	if p.done() != 1 {
		text += "s"
	}
	text += " published to " + p.queue
	if p.f.noConfirm {
		text += ", not confirmed,"
	}
	text += fmt.Sprintf(" in %s (%s/s)", terminal.Span(elapsed), terminal.Short(rate))
	if p.duplicate > 0 {
		text += ", " + terminal.Plural(p.duplicate, "duplicate") + " among them"
	}
	if left := p.sent - p.confirmed; left > 0 && !p.f.noConfirm {
		text += fmt.Sprintf("; sent as well, and refused or not confirmed: %s", terminal.Grouped(left))
	}
	_, err := fmt.Fprintln(p.out, text)
	return err
}

// progressBar shows how far it has come, on one line of a terminal. A nil one
// shows nothing.
type progressBar struct {
	w     io.Writer
	total int64 // 0: not known
	last  time.Duration
	drawn bool
}

// barEvery is how often the bar is drawn at most.
const barEvery = 100 * time.Millisecond

func (b *progressBar) draw(done int64, elapsed time.Duration) {
	if b == nil || b.drawn && elapsed-b.last < barEvery && done != b.total {
		return
	}
	b.last, b.drawn = elapsed, true
	_, _ = fmt.Fprint(b.w, "\r"+b.text(done, elapsed)+terminal.EraseLine) // nobody to tell
}

func (b *progressBar) text(done int64, elapsed time.Duration) string {
	rate := float64(done) / max(elapsed.Seconds(), 1e-3)
	if b.total == 0 {
		return fmt.Sprintf("%s published, %s/s", terminal.Grouped(done), terminal.Short(rate))
	}
	const width = 30
	full := int(width * done / b.total)
	text := "[" + strings.Repeat("=", full) + strings.Repeat(" ", width-full) + "] " + terminal.Grouped(done) + " of " + terminal.Grouped(b.total) + ", " + terminal.Short(rate) + "/s"
	if left := b.total - done; left > 0 && rate > 0 {
		text += ", " + terminal.Span(time.Duration(min(float64(left)/rate*1e9, math.MaxInt64/4))) + " left"
	}
	return text
}

// end takes the bar away.
func (b *progressBar) end() {
	if b != nil && b.drawn {
		_, _ = fmt.Fprint(b.w, "\r"+terminal.EraseLine)
	}
}
