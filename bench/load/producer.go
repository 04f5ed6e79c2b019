package load

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/bench/measure"
	"github.com/filaq/fila/bench/system"
)

// producer publishes on its own connection and receives the confirmations. Each unconfirmed
// message has a slot, the last token of its reply subject, so that its latency needs no table
// of ids.
type producer struct {
	c     *crew
	nc    *nats.Conn
	index int

	free    chan int       // slots
	sent    []atomic.Int64 // by slot; the publish writes it, the reply reads it
	replies []string

	confirm, late *measure.Latencies
}

func (c *crew) newProducer(ctx context.Context, index int) (*producer, error) {
	nc, err := c.connect("producer")
	if err != nil {
		return nil, err
	}
	n := share(c.p.Window, c.p.Producers, index)
	p := &producer{
		c: c, nc: nc, index: index, free: make(chan int, n), sent: make([]atomic.Int64, n), replies: make([]string, n),
		confirm: c.newLatencies("confirm"), late: c.newLatencies("late"),
	}
	inbox := nc.NewInbox()
	for slot := range n {
		p.replies[slot] = inbox + "." + strconv.Itoa(slot)
		p.free <- slot
	}
	if _, err := system.Subscribe(nc, inbox+".*", "", func(m *nats.Msg) { p.answered(m, len(inbox)+1) }); err != nil {
		return nil, err
	}
	return p, system.Flush(ctx, nc)
}

// answered runs on the goroutine of the subscription.
func (p *producer) answered(m *nats.Msg, prefix int) {
	e := p.c.e
	slot, err := strconv.Atoi(m.Subject[prefix:])
	if err != nil || slot < 0 || slot >= len(p.sent) {
		e.note("an answer nobody asked for", fmt.Errorf("subject %s", m.Subject))
		return
	}
	sent := p.sent[slot].Load()
	if err := e.target.Refused(m); err != nil {
		e.note("a message was refused", err)
		e.refused.Add(1)
		p.c.letIn()
	} else {
		if sent >= e.from.Load() {
			p.confirm.Record(e.now() - sent)
		}
		e.confirmed.Add(1)
	}
	select {
	case p.free <- slot:
	default:
		e.note("a message was answered twice", fmt.Errorf("subject %s", m.Subject))
	}
}

// run publishes until the crew stops or all messages are published.
func (p *producer) run() {
	e, ph := p.c.e, p.c.p
	m, start := p.message(), e.now()
	for number := int64(p.index); ph.Mode != ModeFill || number < ph.Count; number += int64(ph.Producers) {
		due := ph.due(start, number)
		if !p.wait(due) {
			return
		}
		slot, ok := p.admit()
		if !ok {
			return
		}
		if e.spec.Keys > 0 {
			m.Header[KeyHeader][0] = strconv.FormatInt(number%int64(e.spec.Keys), 10)
		}
		if ph.Follow {
			p.c.ledger.open(number)
		}
		now := e.now()
		if due > 0 && now >= e.from.Load() {
			p.late.Record(now - due)
		}
		p.sent[slot].Store(now)
		stamp(m.Data, now, number)
		m.Reply = p.replies[slot]
		e.published.Add(1)
		if err := p.nc.PublishMsg(m); err != nil {
			e.note("a message was not sent", err)
			e.refused.Add(1)
			return
		}
	}
}

// message returns the message to publish repeatedly; the client library copies it.
func (p *producer) message() *nats.Msg {
	s := p.c.e.spec
	m := nats.NewMsg(p.c.e.target.Subject())
	const text = "abcdefghijklmnopqrstuvwxyz"
	m.Data = bytes.Repeat([]byte(text), s.Payload/len(text)+1)[:s.Payload]
	if s.Keys > 0 {
		m.Header[KeyHeader] = []string{""}
	}
	for n := range s.Gates {
		m.Header[GateHeader(n+1)] = []string{Gate(s.Queue.Name, n+1)}
	}
	return m
}

// admit waits for a token and a free slot.
func (p *producer) admit() (slot int, ok bool) {
	if p.c.tokens != nil {
		select {
		case <-p.c.tokens:
		case <-p.c.stop:
			return 0, false
		}
	}
	select {
	case slot = <-p.free:
		return slot, true
	case <-p.c.stop:
		return 0, false
	}
}

// due returns when a message of a phase is to be published: evenly spaced over all producers, 0
// without a rate.
func (p *Phase) due(start, number int64) int64 {
	if p.Rate == 0 {
		return 0
	}
	return start + int64(float64(number)*float64(time.Second)/p.Rate)
}

// wait waits until due, unless the crew stops before. A late producer does not wait.
func (p *producer) wait(due int64) (ok bool) {
	d := due - p.c.e.now()
	if d <= 0 {
		return true
	}
	select {
	case <-time.After(time.Duration(d)):
		return true
	case <-p.c.stop:
		return false
	}
}
