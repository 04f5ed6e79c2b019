package client

import (
	"context"
	"encoding/json"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/wire"
)

// Message is a delivery. It is leased to its receiver until it is settled by
// Ack, Nack or Term, or until the lease ends.
//
// Ack, Nack, Extend and Term send and wait for nothing: if they get lost, the
// lease runs out and the message comes again. Their Sync variants wait until
// it is durable and return the refusal, for instance a lost lease (409).
type Message struct {
	Queue      string
	ID         string // UUID; the same on every attempt and after a redrive
	Key        string // fairness key
	Attempt    int    // 1 on the first delivery
	EnqueuedAt time.Time
	Deadline   time.Time   // end of the lease as of the delivery
	Header     nats.Header // all of them, Fila-* included
	Data       []byte

	c        *Client
	ackTo    string
	settled  atomic.Bool
	onSettle func() // called once; nil outside of a Consumer
}

func (c *Client) newMessage(msg *nats.Msg) *Message {
	attempt, _ := strconv.Atoi(msg.Header.Get(wire.HeaderAttempt))
	return &Message{
		Queue:      msg.Header.Get(wire.HeaderQueue),
		ID:         msg.Header.Get(wire.HeaderID),
		Key:        msg.Header.Get(wire.HeaderKey),
		Attempt:    attempt,
		EnqueuedAt: headerTime(msg, wire.HeaderEnqueuedAt),
		Deadline:   headerTime(msg, wire.HeaderDeadline),
		Header:     msg.Header,
		Data:       msg.Data,
		c:          c,
		ackTo:      msg.Reply,
	}
}

func headerTime(msg *nats.Msg, name string) time.Time {
	t, _ := time.Parse(time.RFC3339Nano, msg.Header.Get(name))
	return t
}

// NackOptions say what went wrong and when to try again. The queue's on_failure
// hook sees the error and decides; Delay is for queues without that hook.
type NackOptions struct {
	Error      string        // text for people and for on_failure
	Code       string        // short, for rules
	Delay      time.Duration // wait before the next attempt
	RetryAfter time.Duration // closes the message's circuit key for so long
}

func (o NackOptions) payload() []byte {
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
		body["retry_after_ms"] = (o.RetryAfter + time.Millisecond - 1).Milliseconds()
	}
	if len(body) == 0 {
		return []byte("-NAK")
	}
	data, err := json.Marshal(body)
	if err != nil { // strings and integers always marshal
		return []byte("-NAK")
	}
	return append([]byte("-NAK "), data...)
}

// Ack finishes the message.
func (m *Message) Ack() error { return m.settle(nil) }

// AckSync finishes the message; when it returns nil, it never comes again.
func (m *Message) AckSync(ctx context.Context) error { return m.settleSync(ctx, nil) }

// Nack gives the message back as failed.
func (m *Message) Nack(o NackOptions) error { return m.settle(o.payload()) }

// NackSync is Nack with a confirmation.
func (m *Message) NackSync(ctx context.Context, o NackOptions) error {
	return m.settleSync(ctx, o.payload())
}

// Term dead-letters the message now. The reason may be empty. In a dead letter
// queue it deletes the message.
func (m *Message) Term(reason string) error { return m.settle(termPayload(reason)) }

// TermSync is Term with a confirmation.
func (m *Message) TermSync(ctx context.Context, reason string) error {
	return m.settleSync(ctx, termPayload(reason))
}

// Extend makes the lease end one visibility timeout from now. A [Consumer]
// does it by itself.
func (m *Message) Extend() error { return m.c.nc.Publish(m.ackTo, []byte("+WPI")) }

// ExtendSync is Extend with a confirmation; a lost lease is a 409.
func (m *Message) ExtendSync(ctx context.Context) error { return m.confirm(ctx, []byte("+WPI")) }

func termPayload(reason string) []byte {
	if reason == "" {
		return []byte("+TERM")
	}
	return []byte("+TERM " + reason)
}

func (m *Message) settle(payload []byte) error {
	if err := m.c.nc.Publish(m.ackTo, payload); err != nil {
		return err
	}
	m.setSettled()
	return nil
}

// settleSync counts the message as settled even if the confirmation did not
// come: extending its lease further would only keep it from others.
func (m *Message) settleSync(ctx context.Context, payload []byte) error {
	m.setSettled()
	return m.confirm(ctx, payload)
}

func (m *Message) confirm(ctx context.Context, payload []byte) error {
	_, err := m.c.request(ctx, &nats.Msg{Subject: m.ackTo, Data: payload})
	return err
}

func (m *Message) setSettled() {
	if !m.settled.Swap(true) && m.onSettle != nil {
		m.onSettle()
	}
}
