package load

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/filaq/fila/bench/measure"
	"github.com/filaq/fila/bench/system"
)

// maxConsumerConns is the number of connections that all consumers share.
const maxConsumerConns = 16

// slowWork is the time that a slow consumer takes for a message.
const slowWork = 5 * time.Millisecond

// crew is the producers and consumers of a phase.
type crew struct {
	e *engine
	p *Phase

	closes    []func() // of connections
	producers []*producer
	stops     []func(context.Context) error // of consumers
	timings   map[string]*timing            // by kind of latency
	ledger    ledger                        // if the phase follows its messages

	// tokens has one token for each message that may be published before another one is
	// finished; nil without consumers.
	tokens chan struct{}

	stop     chan struct{} // closed: producers stop
	stopOnce sync.Once
	working  sync.WaitGroup
}

// timing has the latencies of one kind: of each connection since the last cut, so that
// connections do not wait for each other, and of all before.
type timing struct {
	fresh []*measure.Latencies
	past  measure.Latencies
}

func newCrew(e *engine, p *Phase) *crew {
	return &crew{e: e, p: p, timings: map[string]*timing{}, stop: make(chan struct{})}
}

// newLatencies returns a histogram of a kind for one connection.
func (c *crew) newLatencies(kind string) *measure.Latencies {
	if c.timings[kind] == nil {
		c.timings[kind] = &timing{}
	}
	l := &measure.Latencies{}
	c.timings[kind].fresh = append(c.timings[kind].fresh, l)
	return l
}

// cut adds the latencies since the last cut to a sample.
func (c *crew) cut(into measure.Sample) {
	for kind, t := range c.timings {
		var now measure.Latencies
		for _, one := range t.fresh {
			one.MoveTo(&now)
		}
		now.Into(into, c.p.figure(kind))
		now.MoveTo(&t.past)
	}
}

// latencies adds the latencies of the whole phase to a sample.
func (c *crew) latencies(into measure.Sample) {
	c.cut(measure.Sample{})
	for kind, t := range c.timings {
		t.past.Into(into, c.p.figure(kind))
	}
}

// gather connects all producers and consumers. Deliveries may come when it returns.
func (c *crew) gather(ctx context.Context) error {
	for i := range c.p.Producers {
		p, err := c.newProducer(ctx, i)
		if err != nil {
			return err
		}
		c.producers = append(c.producers, p)
	}
	if c.p.Mode != ModeLife {
		return nil
	}
	c.tokens = make(chan struct{}, c.p.Window)
	for range c.p.Window {
		c.tokens <- struct{}{}
	}
	var ackers []*acker
	all := c.p.Consumers + c.p.Slow
	for i := range all {
		slow := i >= c.p.Consumers
		if slow || i < maxConsumerConns {
			a, err := c.newAcker()
			if err != nil {
				return err
			}
			ackers = append(ackers, a)
		}
		a := ackers[len(ackers)-1]
		if !slow {
			a = ackers[i%maxConsumerConns]
		}
		stop, err := a.conn.Consume(ctx, fmt.Sprintf("w%d", i), share(c.p.Window, all, i), a.handler(slow))
		if err != nil {
			return err
		}
		c.stops = append(c.stops, stop)
	}
	return nil
}

func (c *crew) start() {
	for _, p := range c.producers {
		c.working.Go(func() {
			p.run()
			if err := p.conn.Flush(); err != nil {
				c.e.note("the last messages were not sent", err)
			}
		})
	}
}

// halt ends publishing; confirmations and deliveries go on.
func (c *crew) halt() {
	c.stopOnce.Do(func() { close(c.stop) })
	c.working.Wait()
}

// end stops all producers and consumers.
func (c *crew) end(ctx context.Context) error {
	c.halt()
	var errs []error
	for _, stop := range c.stops {
		errs = append(errs, stop(ctx))
	}
	for _, closes := range c.closes {
		closes()
	}
	return errors.Join(errs...)
}

// finished counts a finished message and permits another one. On top of a backlog more messages
// finish than were published.
func (c *crew) finished() {
	c.e.finished.Add(1)
	c.letIn()
}

func (c *crew) letIn() {
	select {
	case c.tokens <- struct{}{}:
	default: // no tokens, or all are there
	}
}

// acker is the consumers of one connection.
type acker struct {
	c         *crew
	conn      system.Consumers
	delivered *measure.Latencies
}

func (c *crew) newAcker() (*acker, error) {
	var acked func(error)
	if c.p.AckConfirmed {
		acked = func(refused error) {
			if refused != nil {
				c.e.note("an ack was refused", refused)
				return
			}
			c.finished()
		}
	}
	conn, err := c.e.target.Consumers(acked)
	if err != nil {
		return nil, err
	}
	c.closes = append(c.closes, conn.Close)
	return &acker{c: c, conn: conn, delivered: c.newLatencies("deliver")}, nil
}

// ack acks a message. It is finished at once or when the ack is confirmed.
func (a *acker) ack(to string) {
	if a.sent(a.conn.Ack(to)) && !a.c.p.AckConfirmed {
		a.c.finished()
	}
}

// sent reports whether an answer to a delivery was sent.
func (a *acker) sent(err error) bool {
	if err != nil {
		a.c.e.note("an ack was not sent", err)
	}
	return err == nil
}

// handler returns the handler of a consumer. Slow consumers record no latencies.
func (a *acker) handler(slow bool) system.Handler {
	switch {
	case slow:
		return func(_ []byte, to string) {
			time.Sleep(slowWork)
			a.ack(to)
		}
	case a.c.p.Follow:
		return a.follow
	}
	return func(data []byte, to string) {
		if len(data) >= MinPayload {
			sent, _ := stampOf(data)
			a.record(sent)
		}
		a.ack(to)
	}
}

// record records the latency of a message of the measured part.
func (a *acker) record(sent int64) {
	if sent >= a.c.e.from.Load() {
		a.delivered.Record(a.c.e.now() - sent)
	}
}

// stamp writes the header of a payload: publish time and message number.
func stamp(data []byte, sent, number int64) {
	binary.LittleEndian.PutUint64(data, uint64(sent))
	binary.LittleEndian.PutUint64(data[8:], uint64(number))
}

func stampOf(data []byte) (sent, number int64) {
	return int64(binary.LittleEndian.Uint64(data)), int64(binary.LittleEndian.Uint64(data[8:]))
}
