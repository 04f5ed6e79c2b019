package load

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/filaq/fila/bench/measure"
	"github.com/filaq/fila/bench/system"
)

// producer publishes on its own connection and receives the confirmations. Each unconfirmed
// message has a slot, so that its latency needs no table of ids.
type producer struct {
	c     *crew
	conn  system.Producer
	index int

	free chan int       // slots
	sent []atomic.Int64 // by slot; the publish writes it, the reply reads it

	confirm, late *measure.Latencies
}

func (c *crew) newProducer(ctx context.Context, index int) (*producer, error) {
	n := share(c.p.Window, c.p.Producers, index)
	p := &producer{
		c: c, index: index, free: make(chan int, n), sent: make([]atomic.Int64, n),
		confirm: c.newLatencies("confirm"), late: c.newLatencies("late"),
	}
	for slot := range n {
		p.free <- slot
	}
	var err error
	if p.conn, err = c.e.target.Producer(ctx, n, p.answered); err != nil {
		return nil, err
	}
	c.closes = append(c.closes, p.conn.Close)
	return p, nil
}

// answered counts the answer to a message.
func (p *producer) answered(slot int, refused error) {
	e := p.c.e
	sent := p.sent[slot].Load()
	if refused != nil {
		e.note("a message was refused", refused)
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
		e.note("a message was answered twice", fmt.Errorf("slot %d", slot))
	}
}

// run publishes until the crew stops or all messages are published.
func (p *producer) run() {
	e, ph := p.c.e, p.c.p
	m, start := p.message(), e.now()
	random := rand.NewChaCha8([32]byte{byte(p.index)})
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
		if e.spec.Random {
			random.Read(m.Data) //nolint:errcheck // it never fails
		}
		stamp(m.Data, now, number)
		e.published.Add(1)
		if err := p.conn.Publish(slot, m); err != nil {
			e.note("a message was not sent", err)
			e.refused.Add(1)
			return
		}
	}
}

// message returns the message to publish repeatedly; a publish copies it.
func (p *producer) message() *system.Message {
	s := p.c.e.spec
	m := &system.Message{Header: map[string][]string{}}
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
