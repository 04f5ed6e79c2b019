package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"

	"github.com/filaq/fila/wire"
)

const (
	// resendAfter is when to repeat an ack or extension without responders.
	resendAfter = 250 * time.Millisecond
	// replyWithin is when to repeat an ack without a reply.
	replyWithin = 5 * time.Second
	// tendEvery is the shortest interval between two runs of tend.
	tendEvery = 10 * time.Millisecond
)

// hold is a received message that is not settled, or whose answer fila has not confirmed. The
// consumer extends its lease until there is an answer, an ack or the like, and then repeats the
// answer until it is confirmed or refused.
type hold struct {
	m        *Message
	id       uint64      // in the reply subjects, unless it is in a batch
	batch    *delivery   // nil: it is not in a batch
	handling atomic.Bool // its handler runs
	ctx      context.Context
	cancel   context.CancelCauseFunc
	done     chan struct{} // closed when err, the result of the answer, is set
	err      error

	// The consumer's mutex guards the following fields.
	due        time.Time  // when to send something
	answer     []byte     // the payload of the ack; counts if giveUp is set
	sent       int        // how often the answer was sent
	giveUp     time.Time  // when to stop repeating the answer; zero: no answer yet
	confirming bool       // a worker waits for the confirmation
	users      int        // of ctx: the handler and the lease
	span       trace.Span // of the answer; nil: no tracer
}

func (k *Consumer) hold(messages []*Message) []*hold {
	holds := make([]*hold, len(messages))
	for i, m := range messages {
		h := &hold{m: m, done: make(chan struct{}), users: 2}
		h.ctx, h.cancel = context.WithCancelCause(k.handlerCtx)
		m.hold, m.holder = h, k
		holds[i] = h
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.lastID++
	var d *delivery
	if messages[0].batched {
		d = &delivery{id: k.mu.lastID, ackTo: messages[0].ackTo, holds: slices.Clone(holds), held: len(holds), open: len(holds)}
		k.mu.batches[d.id] = d
	}
	due := time.Now().Add(k.extendEvery())
	first := len(k.mu.held) == 0
	for _, h := range holds {
		k.mu.lastID++
		h.id, h.batch, h.due = k.mu.lastID, d, due
		k.mu.held[h.id] = h
	}
	if first {
		k.wakeUp()
	}
	return holds
}

// extendEvery is a third of the visibility timeout, so two extensions may be lost.
func (k *Consumer) extendEvery() time.Duration {
	return max(time.Duration(k.visibility.Load())*time.Millisecond/3, time.Millisecond)
}

func (k *Consumer) wakeUp() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// settle sends the answer of a message, and repeats it until it is confirmed. It returns
// false if the message is not held any more, as after Stop; then the caller ends the span.
func (k *Consumer) settle(h *hold, payload []byte, span trace.Span) (bool, error) {
	now := time.Now()
	gathering := false
	k.mu.Lock()
	held := k.mu.held[h.id] == h
	if held {
		h.answer, h.span = payload, span
		h.giveUp = now.Add(2 * max(time.Duration(k.visibility.Load())*time.Millisecond, replyWithin))
		k.mu.unsettled++
		if h.batch != nil {
			h.due = now.Add(replyWithin)
			gathering = k.gather(h.batch)
		}
	}
	k.mu.Unlock()
	if !held {
		if err := context.Cause(h.ctx); errors.Is(err, ErrLeaseLost) {
			endSpan(span, err)
			return true, err
		}
		return false, nil
	}
	switch {
	case gathering:
		return true, nil
	case h.batch != nil:
		return true, k.sendNew(h.batch)
	}
	return true, k.send([]*hold{h}, now)
}

// send sends the answers of messages of a batch, or of one message, or extensions. If that fails,
// they are due again soon. It returns an error only if the connection is closed.
func (k *Consumer) send(holds []*hold, now time.Time) error {
	h := holds[0]
	if h.batch != nil {
		return k.sendBatch(h.batch, holds, now)
	}
	k.mu.Lock()
	kind := "e"
	if !h.giveUp.IsZero() {
		kind = "a"
	}
	payload := k.takeAnswer(h, now)
	k.mu.Unlock()
	err := k.c.nc.PublishRequest(h.m.ackTo, k.inbox+kind+strconv.FormatUint(h.id, 36), payload)
	return k.sentOrDue(err, holds)
}

// takeAnswer returns the payload to send for a message, an answer or an extension, and notes that
// it is sent. The caller holds mu.
func (k *Consumer) takeAnswer(h *hold, now time.Time) []byte {
	if h.giveUp.IsZero() {
		h.due = now.Add(k.extendEvery())
		return []byte("+WPI")
	}
	h.sent++
	h.due = now.Add(replyWithin)
	return h.answer
}

// sentOrDue handles the error of a request about messages: they are due again soon. It
// returns the error if the connection is closed.
func (k *Consumer) sentOrDue(err error, holds []*hold) error {
	if err == nil {
		return nil
	}
	closed := errors.Is(err, nats.ErrConnectionClosed)
	for _, h := range holds {
		k.mu.Lock()
		answered := !h.giveUp.IsZero()
		k.mu.Unlock()
		switch {
		case !closed:
			k.scheduleSend(h, resendAfter)
		case answered:
			k.release(h, err)
		}
	}
	if closed {
		return err
	}
	return nil
}

// scheduleSend makes a message due after d, unless an extension is due earlier.
func (k *Consumer) scheduleSend(h *hold, d time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if due := time.Now().Add(d); due.Before(h.due) || !h.giveUp.IsZero() {
		h.due = due
		k.wakeUp()
	}
}

// release removes a message whose answer is confirmed or refused.
func (k *Consumer) release(h *hold, err error) {
	var span trace.Span
	defer func() { endSpan(span, err) }() // after unlocking
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mu.held[h.id] != h {
		return
	}
	span = h.span
	delete(k.mu.held, h.id)
	if d := h.batch; d != nil {
		d.holds[h.m.index] = nil
		if h.giveUp.IsZero() {
			d.open--
		}
		if d.held--; d.held == 0 {
			delete(k.mu.batches, d.id)
		}
	}
	h.err = err
	close(h.done)
	k.releaseContext(h)
	if h.giveUp.IsZero() {
		return
	}
	k.mu.unsettled--
	if k.mu.unsettled == 0 && k.mu.idle != nil {
		close(k.mu.idle)
		k.mu.idle = nil
	}
}

// releaseContext cancels the context when handler and lease have both ended: a handler may
// continue after its ack, and a message may be held after its handler. The caller holds mu.
func (k *Consumer) releaseContext(h *hold) {
	if h.users--; h.users == 0 {
		h.cancel(nil)
	}
}

// reply handles the reply to a request about one message or some of a batch. It runs on the
// subscription's goroutine.
func (k *Consumer) reply(msg *nats.Msg) {
	tail := msg.Subject[strings.LastIndexByte(msg.Subject, '.')+1:]
	if len(tail) < 2 {
		return
	}
	if tail[0] == 'b' {
		k.replyToBatch(tail[1:], msg)
		return
	}
	id, err := strconv.ParseUint(tail[1:], 36, 64)
	if err != nil {
		return
	}
	k.mu.Lock()
	h := k.mu.held[id]
	k.mu.Unlock()
	if h != nil {
		k.replied(h, tail[0] == 'a', msg, wire.ParseError(msg.Header, msg.Data))
	}
}

// replied handles the reply to an answer or extension of a message.
func (k *Consumer) replied(h *hold, answer bool, msg *nats.Msg, refused *Error) {
	k.mu.Lock()
	held := k.mu.held[h.id] == h
	settled, sent := !h.giveUp.IsZero(), h.sent
	k.mu.Unlock()
	if !held || settled != answer {
		return // the reply to an extension of a message that was settled meanwhile
	}
	switch {
	case msg.Header.Get(wire.HeaderStatus) == wire.StatusNoResponders && refused == nil:
		k.scheduleSend(h, resendAfter)
	case refused != nil && refused.Code >= 500:
		k.scheduleSend(h, max(refused.RetryAfter, resendAfter))
	case refused != nil && settled:
		k.o.onError(answerRefused(h, sent, refused)) // before release lets a waiting caller continue, which may end the process
		k.release(h, refused)
	case refused != nil:
		k.lost(h, refused)
	case settled:
		k.release(h, nil)
	}
}

// answerRefused returns an error that says how often the answer was sent: after several times
// a lost lease may mean that an earlier one arrived.
func answerRefused(h *hold, sent int, refused error) error {
	if sent > 1 {
		return fmt.Errorf("ack of %s, sent %d times: %w", h.m.ID, sent, refused)
	}
	return fmt.Errorf("ack of %s: %w", h.m.ID, refused)
}

// lost handles a refused extension.
func (k *Consumer) lost(h *hold, refused error) {
	h.cancel(refused)
	k.release(h, refused)
	k.o.onError(fmt.Errorf("extend lease of %s: %w", h.m.ID, refused))
}

// denied handles a refusal by NATS permissions on the connection. It does not repeat the
// refused answer of a message, and reports a refused subscription.
func (k *Consumer) denied(err *PermissionError) {
	if err.Subscribe {
		if err.Subject == k.sub.Subject || err.Subject == k.replies.Subject {
			k.o.onError(fmt.Errorf("consumer %s of %s: %w", k.o.name, k.queue, err))
		}
		return
	}
	var answered []*hold
	var of *hold
	k.mu.Lock()
	for _, h := range k.mu.held {
		if h.m.ackTo == err.Subject {
			of = h
			if !h.giveUp.IsZero() {
				answered = append(answered, h)
			}
		}
	}
	k.mu.Unlock()
	if of == nil {
		return
	}
	k.o.onError(fmt.Errorf("ack of %s: %w", of.m.ID, err))
	for _, h := range answered {
		k.release(h, err)
	}
}

// keepHeld sends due answers until ctx ends, after the last answer.
func (k *Consumer) keepHeld(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
		case <-timer.C:
		}
		if wait, more := k.tend(time.Now()); more {
			timer.Reset(max(wait, tendEvery))
		}
	}
}

// tend sends due answers, and returns when the next one is due, if there is any.
func (k *Consumer) tend(now time.Time) (time.Duration, bool) {
	wait := k.extendEvery()
	var due [][]*hold // by request
	var hopeless []*hold
	batches := map[*delivery][]*hold{} // due, too
	k.mu.Lock()
	for _, h := range k.mu.held {
		switch {
		case h.due.After(now):
			wait = min(wait, h.due.Sub(now))
		case !h.giveUp.IsZero() && h.giveUp.Before(now):
			hopeless = append(hopeless, h)
		case h.batch != nil:
			batches[h.batch] = append(batches[h.batch], h)
		default:
			due = append(due, []*hold{h})
		}
	}
	more := len(k.mu.held) > len(hopeless)
	k.mu.Unlock()
	for _, h := range hopeless {
		err := fmt.Errorf("ack of %s: %w (%s)", h.m.ID, ErrNoReply, h.m.ackTo)
		k.release(h, err)
		k.o.onError(err)
	}
	for _, holds := range slices.AppendSeq(due, maps.Values(batches)) {
		if err := k.send(holds, now); err != nil {
			k.o.onError(fmt.Errorf("extend or ack %s: %w", holds[0].m.ID, err))
			return 0, false // the others would fail as well
		}
	}
	return wait, more
}

// setVisibility sets the visibility timeout, and extends earlier if it is shorter.
func (k *Consumer) setVisibility(ms int64) {
	if k.visibility.Swap(ms) == ms {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	due := time.Now().Add(k.extendEvery())
	for _, h := range k.mu.held {
		if due.Before(h.due) {
			h.due = due
		}
	}
	k.wakeUp()
}

// resend makes all messages due: earlier answers may have been lost with the connection.
func (k *Consumer) resend() {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	for _, h := range k.mu.held {
		h.due = now
	}
	k.wakeUp()
}
