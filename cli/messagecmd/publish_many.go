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

// windowBytes bounds the unconfirmed payloads.
const windowBytes = 64 << 20

// pipeline publishes many messages and waits for their confirmations in order. It runs on one
// goroutine.
type pipeline struct {
	env     *command.Env
	s       *command.Session
	c       *client.Client // with a window
	f       *publishFlags
	queue   string
	out     io.Writer
	bar     *progressBar
	begin   time.Time
	waiting []waitingReceipt // in the order of sending
	bytes   int              // sum of payloads

	sent      int64
	confirmed int64
	duplicate int64
}

type waitingReceipt struct {
	n      int64 // number of the message
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

// run publishes until the source ends, a message fails, or ctx ends. Then it waits for the
// unconfirmed messages and reports the result. During that wait a second interrupt ends the
// process.
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

// input is one result of a source.
type input struct {
	outgoing
	err error
}

// ahead reads on a separate goroutine, since a read cannot be interrupted, and closes the
// channel after the last message. Once ended is closed it stops after the current read.
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

// wait waits for a value of ready and handles confirmations meanwhile.
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
			if err := p.confirm(); err != nil {
				return v, err
			}
		}
	}
}

// oldest returns a channel that is closed when the oldest message is confirmed or refused; nil
// without one.
func (p *pipeline) oldest() <-chan struct{} {
	if len(p.waiting) == 0 {
		return nil
	}
	return p.waiting[0].future.Done()
}

// pace waits until the next message is due.
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

// send sends a message when the window has space.
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
		if err := p.confirm(); err != nil {
			return err
		}
	}
	return p.start(ctx, m)
}

// await waits for the result of the oldest message.
func (p *pipeline) await(ctx context.Context) error {
	select {
	case <-p.oldest():
		return nil
	case <-ctx.Done():
		return command.ErrInterrupted
	}
}

// start sends a message. The first one must succeed before others follow and before retries
// without a responder: a queue that does not exist looks like a fila that restarts.
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

// confirm records the result of the oldest message, which is available.
func (p *pipeline) confirm() error {
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

// drain waits for all unconfirmed messages.
func (p *pipeline) drain(ctx context.Context) error {
	for len(p.waiting) > 0 {
		if err := p.await(ctx); err != nil {
			return err
		}
		if err := p.confirm(); err != nil {
			return err
		}
	}
	return nil
}

// giveUp waits for the remaining messages after a failure, but no longer than for one reply. It
// stops retries.
func (p *pipeline) giveUp() {
	ctx, cancel := context.WithTimeout(context.Background(), p.s.Timeout)
	defer cancel()
	for len(p.waiting) > 0 {
		if p.await(ctx) != nil {
			p.c.Close()
		}
		_, _ = p.take() // only the first failure is reported
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

// publishSummary is the output of --json for many messages.
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

// progressBar shows the progress on one line of a terminal. A nil one shows nothing.
type progressBar struct {
	w     io.Writer
	total int64 // 0 if unknown
	last  time.Duration
	drawn bool
}

// barEvery is the minimum time between two drawings of the bar.
const barEvery = 100 * time.Millisecond

func (b *progressBar) draw(done int64, elapsed time.Duration) {
	if b == nil || b.drawn && elapsed-b.last < barEvery && done != b.total {
		return
	}
	b.last, b.drawn = elapsed, true
	_, _ = fmt.Fprint(b.w, "\r"+b.text(done, elapsed)+terminal.EraseLine) // a failed write of the bar does not matter
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

// end removes the bar.
func (b *progressBar) end() {
	if b != nil && b.drawn {
		_, _ = fmt.Fprint(b.w, "\r"+terminal.EraseLine)
	}
}
