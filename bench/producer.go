package bench

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// Headers of messages: the fairness key, and the throttle keys gate-1, gate-2.
const (
	keyHeader  = "key"
	gateHeader = "gate-"
)

// producer publishes on a connection of its own and waits for confirmations
// there. Each unconfirmed message occupies a slot, which is the last token of
// its reply subject, so that its latency is known without a table by id.
type producer struct {
	c     *crew
	nc    *nats.Conn
	index int

	free    chan int       // slots
	sent    []atomic.Int64 // by slot; written before the publish, read by the answer
	replies []string

	confirm, late latencies
}

func newProducer(c *crew, nc *nats.Conn, index int) (*producer, error) {
	n := share(c.p.Window, c.p.Producers, index)
	p := &producer{c: c, nc: nc, index: index, free: make(chan int, n), sent: make([]atomic.Int64, n), replies: make([]string, n)}
	inbox := nc.NewInbox()
	for slot := range n {
		p.replies[slot] = inbox + "." + strconv.Itoa(slot)
		p.free <- slot
	}
	sub, err := nc.Subscribe(inbox+".*", func(m *nats.Msg) { p.answered(m, len(inbox)+1) })
	if err != nil {
		return nil, err
	}
	return p, sub.SetPendingLimits(-1, -1)
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
	if err := e.target.confirmed(m); err != nil {
		e.note("a message was refused", err)
		e.refused.Add(1)
		if p.c.tokens != nil {
			p.c.letIn()
		}
	} else {
		if sent >= e.from.Load() {
			p.confirm.record(e.now() - sent)
		}
		e.confirmed.Add(1)
	}
	select {
	case p.free <- slot:
	default:
		e.note("a message was answered twice", fmt.Errorf("subject %s", m.Subject))
	}
}

// run publishes until the crew stops, or all that is to be published.
func (p *producer) run() {
	e, ph := p.c.e, p.c.p
	limit := int64(-1)
	if ph.Mode == modeFill {
		limit = ph.Count / int64(ph.Producers)
		if int64(p.index) < ph.Count%int64(ph.Producers) {
			limit++
		}
	}
	m := p.message()
	pace := newPace(ph.Rate, ph.Producers, p.index, e.now())
	for n := int64(0); n != limit; n++ {
		due, ok := pace.wait(n, e, p.c.stop)
		if !ok {
			return
		}
		slot, ok := p.admit()
		if !ok {
			return
		}
		number := n*int64(ph.Producers) + int64(p.index)
		if e.spec.Keys > 0 {
			m.Header[keyHeader][0] = strconv.FormatInt(number%int64(e.spec.Keys), 10)
		}
		if ph.Follow {
			p.c.ledger.open(number)
		}
		now := e.now()
		if due > 0 && now >= e.from.Load() {
			p.late.record(now - due)
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

// message is what the producer publishes again and again; the client library
// copies it.
func (p *producer) message() *nats.Msg {
	s := p.c.e.spec
	m := &nats.Msg{Subject: p.c.e.target.subject(), Data: make([]byte, s.Payload)}
	for i := range m.Data {
		m.Data[i] = 'a' + byte(i%26)
	}
	if s.Keys > 0 || s.Gates > 0 {
		m.Header = nats.Header{}
	}
	if s.Keys > 0 {
		m.Header[keyHeader] = []string{""}
	}
	for i := range s.Gates {
		name := gateHeader + strconv.Itoa(i+1)
		m.Header[name] = []string{s.Queue + "-" + name}
	}
	return m
}

// admit waits for a place in flight and a free slot.
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

// pace spreads messages evenly over time. Its times are those of engine.now.
type pace struct {
	start, every int64 // nanoseconds; every 0 is no pace
}

// newPace gives each of several producers its share of the rate, one after the
// other.
func newPace(rate float64, producers, index int, now int64) pace {
	if rate <= 0 {
		return pace{}
	}
	every := int64(float64(time.Second) * float64(producers) / rate)
	return pace{start: now + every*int64(index)/int64(producers), every: every}
}

// due is when message n is to be published, 0 without a pace.
func (p pace) due(n int64) int64 {
	if p.every == 0 {
		return 0
	}
	return p.start + n*p.every
}

// wait waits for the time of message n and returns it. Who is late publishes
// at once. ok is false if stop came first.
func (p pace) wait(n int64, e *engine, stop <-chan struct{}) (due int64, ok bool) {
	due = p.due(n)
	d := due - e.now()
	if due == 0 || d <= 0 {
		return due, true
	}
	timer := time.NewTimer(time.Duration(d))
	defer timer.Stop()
	select {
	case <-timer.C:
		return due, true
	case <-stop:
		return due, false
	}
}
