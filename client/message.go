package client

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"

	"github.com/filaq/fila/wire"
)

// Message is a delivery. It is leased to its receiver until Ack, Nack or Term settles it, or
// until the lease ends.
//
// Ack, Nack, Extend and Term do not wait. A [Consumer] repeats Ack, Nack and Term until fila
// confirms them, also over a restart of fila or NATS. For a message from Fetch they are sent
// once: if they get lost, the lease runs out and the message comes again. The Sync variants
// wait until the result is durable, and return a refusal, for instance [ErrLeaseLost]. A
// message can be settled once; after that they return [ErrSettled].
type Message struct {
	Queue      string
	ID         string      // UUID; the same on every attempt and after a redrive
	Key        string      // fairness key; empty with MinHeaders
	Route      string      // the route by which it goes; empty: it has no choice
	Attempt    int         // 1 on the first delivery
	EnqueuedAt time.Time   // zero with MinHeaders
	Deadline   time.Time   // end of the lease as of the delivery; zero with MinHeaders, except in a batch
	Header     nats.Header // all of them, Fila-* included
	Data       []byte

	c       *Client
	ackTo   string
	settled atomic.Bool
	holder  *Consumer // nil for a fetched message
	hold    *hold     // of the holder
	batched bool      // in a batch, with this index
	index   int
	fetched *fetchedBatch     // its batch, if it was fetched in one
	process trace.SpanContext // of its handler, if there is a tracer
}

func (c *Client) newMessage(msg *nats.Msg, queue string) *Message {
	attempt, _ := strconv.Atoi(msg.Header.Get(wire.HeaderAttempt))
	return &Message{
		Queue:      queue,
		ID:         msg.Header.Get(wire.HeaderID),
		Key:        msg.Header.Get(wire.HeaderKey),
		Route:      msg.Header.Get(wire.HeaderRoute),
		Attempt:    attempt,
		EnqueuedAt: headerTime(msg.Header, wire.HeaderEnqueuedAt),
		Deadline:   headerTime(msg.Header, wire.HeaderDeadline),
		Header:     msg.Header,
		Data:       msg.Data,
		c:          c,
		ackTo:      msg.Reply,
	}
}

func headerTime(h nats.Header, name string) time.Time {
	t, _ := time.Parse(time.RFC3339Nano, h.Get(name))
	return t
}

// NackOptions describe a failure and when to retry. Without a Delay the
// queue's on_failure hook sees the error and decides.
type NackOptions struct {
	Error      string        // text for people and for on_failure, at most 1024 bytes
	Code       string        // short, for rules, at most 64 bytes
	Delay      time.Duration // wait before the next attempt, up to a year; on_failure is not asked
	RetryAfter time.Duration // the destination asked not to be called for so long, up to a year
	Cost       *float64      // actual cost of the attempt, as in AckCost; nil: the estimate stands
	Feedback   *Feedback     // of the destination; nil: it said nothing
}

// Feedback is what a destination has said about its limit, such as in the headers of a reply. It
// lowers the buckets of throttle keys that learn their limits, and never raises one.
type Feedback struct {
	Remaining float64       // cost that the destination still admits, 0 to 1e12
	Reset     time.Duration // until it admits more, up to a year; 0: not known
}

// putReported adds a cost and the fields of f, which may both be nil, to a body.
func putReported(body map[string]any, cost *float64, f *Feedback) error {
	if cost != nil {
		if err := checkCost(*cost); err != nil {
			return err
		}
		body["cost"] = *cost + 0 // adding 0 makes 0 of -0
	}
	if f == nil {
		return nil
	}
	reset := wholeMs(f.Reset)
	if _, err := wire.NewFeedback(&f.Remaining, &reset); err != nil {
		return err
	}
	if body["remaining"] = f.Remaining + 0; f.Reset > 0 {
		body["reset_ms"] = reset
	}
	return nil
}

func (o NackOptions) payload() ([]byte, error) {
	if longest := max(o.Delay, o.RetryAfter); longest > wire.MaxNackDelay {
		return nil, fmt.Errorf("nack with %v: allowed are times up to %v", longest, wire.MaxNackDelay)
	}
	body := map[string]any{}
	if o.Error != "" {
		body["error"] = o.Error
	}
	if o.Code != "" {
		body["code"] = o.Code
	}
	if o.Delay > 0 {
		body["delay"] = o.Delay.Nanoseconds()
	}
	if o.RetryAfter > 0 {
		body["retry_after_ms"] = wholeMs(o.RetryAfter)
	}
	if err := putReported(body, o.Cost, o.Feedback); err != nil {
		return nil, err
	}
	if len(body) == 0 {
		return []byte("-NAK"), nil
	}
	data, err := json.Marshal(body)
	return append([]byte("-NAK "), data...), err
}

// Ack finishes the message.
func (m *Message) Ack() error { return m.settle(nil, nil) }

// AckSync finishes the message; when it returns nil, it never comes again.
func (m *Message) AckSync(ctx context.Context) error { return m.answer(ctx, nil, true) }

// AckCost finishes the message and reports its actual cost, 0 to 1,000,000, in the unit of
// its costs and rates. fila charges its fairness key and rates with it instead of the
// estimate at the enqueue. With a cost out of range it does nothing.
func (m *Message) AckCost(cost float64) error {
	return m.settle(costPayload(cost))
}

// AckCostSync is AckCost with a confirmation.
func (m *Message) AckCostSync(ctx context.Context, cost float64) error {
	payload, err := costPayload(cost)
	if err != nil {
		return err
	}
	return m.answer(ctx, payload, true)
}

// AckOptions are what an ack, or the done of a guarded call, may report.
type AckOptions struct {
	Cost     *float64  // as in AckCost; nil: the estimate stands
	Feedback *Feedback // of the destination; nil: it said nothing
}

func (o AckOptions) payload() ([]byte, error) {
	body := map[string]any{}
	if err := putReported(body, o.Cost, o.Feedback); err != nil || len(body) == 0 {
		return nil, err
	}
	data, err := json.Marshal(body)
	return append([]byte("+ACK "), data...), err
}

// AckWith finishes the message and reports what the options say. With a value out of range it
// does nothing.
func (m *Message) AckWith(o AckOptions) error { return m.settle(o.payload()) }

// AckWithSync is AckWith with a confirmation.
func (m *Message) AckWithSync(ctx context.Context, o AckOptions) error {
	payload, err := o.payload()
	if err != nil {
		return err
	}
	return m.answer(ctx, payload, true)
}

func costPayload(cost float64) ([]byte, error) {
	if err := checkCost(cost); err != nil {
		return nil, err
	}
	// Adding 0 makes 0 of -0.
	return append(strconv.AppendFloat([]byte(`+ACK {"cost":`), cost+0, 'f', -1, 64), '}'), nil
}

func checkCost(cost float64) error {
	if !(cost >= 0 && cost <= wire.MaxAckCost) {
		return fmt.Errorf("cost is %v: allowed is a number from 0 to %d", cost, wire.MaxAckCost)
	}
	return nil
}

// Nack gives the message back as failed. With a time of more than a year it does nothing.
func (m *Message) Nack(o NackOptions) error { return m.settle(o.payload()) }

// NackSync is Nack with a confirmation.
func (m *Message) NackSync(ctx context.Context, o NackOptions) error {
	payload, err := o.payload()
	if err != nil {
		return err
	}
	return m.answer(ctx, payload, true)
}

// Term dead-letters the message now, with a reason for people, of which fila keeps 1024 bytes,
// and a code for rules, at most 64 bytes. Both may be empty. In a dead letter queue it deletes
// the message.
func (m *Message) Term(reason, code string) error { return m.settle(termPayload(reason, code)) }

// TermSync is Term with a confirmation.
func (m *Message) TermSync(ctx context.Context, reason, code string) error {
	payload, err := termPayload(reason, code)
	if err != nil {
		return err
	}
	return m.answer(ctx, payload, true)
}

// Extend makes the lease end one visibility timeout from now. A [Consumer] does that by
// itself.
func (m *Message) Extend() error { return m.c.nc.Publish(m.ackTo, m.answerTo([]byte("+WPI"))) }

// ExtendSync is Extend with a confirmation; a lost lease is a 409.
func (m *Message) ExtendSync(ctx context.Context) error { return m.confirm(ctx, []byte("+WPI")) }

// termPayload writes the reason as plain text where it can, which every fila understands.
func termPayload(reason, code string) ([]byte, error) {
	switch {
	case code == "" && reason == "":
		return []byte("+TERM"), nil
	case code == "" && !strings.HasPrefix(strings.TrimSpace(reason), "{"):
		return []byte("+TERM " + reason), nil
	}
	body := map[string]string{}
	if reason != "" {
		body["error"] = reason
	}
	if code != "" {
		body["code"] = code
	}
	data, err := json.Marshal(body)
	return append([]byte("+TERM "), data...), err
}

// settle answers a message, unless there is an error about the payload.
func (m *Message) settle(payload []byte, err error) error {
	if err != nil {
		return err
	}
	return m.answer(context.Background(), payload, false)
}

// answer answers a message. With confirmed it waits for the result, and leaves a fetched message
// open if there is none, so that the caller can retry. The Consumer retries for the messages that
// it holds.
func (m *Message) answer(ctx context.Context, payload []byte, confirmed bool) (err error) {
	if m.settled.Swap(true) {
		return ErrSettled
	}
	span := m.settling(ctx, payload)
	if m.holder != nil {
		if kept, err := m.holder.settle(m.hold, payload, span); kept {
			if err != nil || !confirmed {
				return err
			}
			return m.awaitAnswer(ctx)
		}
	}
	switch {
	case confirmed:
		err = m.confirm(ctx, payload)
	case m.fetched != nil:
		err = m.gather(payload)
	default:
		err = m.c.nc.Publish(m.ackTo, m.answerTo(payload))
	}
	endSpan(span, err)
	refused := refusalIn(err).Code
	m.settled.Store(err == nil || refused != 0 && refused < 500)
	return err
}

// awaitAnswer waits for the result of the answer.
func (m *Message) awaitAnswer(ctx context.Context) error {
	ctx, cancel := m.c.withTimeout(ctx)
	defer cancel()
	if m.hold.handling.Load() {
		m.holder.rest(m.hold)
		defer m.holder.proceed(m.hold)
	}
	select {
	case <-m.hold.done:
		return m.hold.err
	case <-ctx.Done():
		return sendError(m.ackTo, ctx.Err())
	}
}

func (m *Message) confirm(ctx context.Context, payload []byte) error {
	reply, err := m.c.request(ctx, &nats.Msg{Subject: m.ackTo, Data: m.answerTo(payload)})
	if err != nil || !m.batched {
		return err
	}
	if whole, refused := parseAckReply(reply); whole != nil || refused[m.index] != nil {
		return cmp.Or(whole, refused[m.index])
	}
	return nil
}
