package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// maxConsumerConns is over how many connections consumers are spread.
const maxConsumerConns = 16

// slowWork is what a slow consumer does with a message.
const slowWork = 5 * time.Millisecond

// crew is the producers and consumers of a phase.
type crew struct {
	e *engine
	p *phase

	conns     []*nats.Conn
	producers []*producer
	stops     []func(context.Context) error // of consumers
	delivered []*latencies
	// past are the latencies of the intervals that have been reported.
	past   intervalLatencies
	ledger ledger // of a phase that follows its messages

	// tokens holds one for each message that may still be published before
	// another one must be finished.
	tokens chan struct{}

	stop     chan struct{} // closed: producers stop
	stopOnce sync.Once
	working  sync.WaitGroup
}

// latencies is a histogram that a callback fills.
type latencies struct {
	mu struct {
		sync.Mutex
		histogram
	}
}

func (l *latencies) record(ns int64) {
	l.mu.Lock()
	l.mu.record(ns)
	l.mu.Unlock()
}

// moveTo empties l into h.
func (l *latencies) moveTo(h *histogram) {
	l.mu.Lock()
	h.merge(&l.mu.histogram)
	l.mu.reset()
	l.mu.Unlock()
}

// intervalLatencies are those of all producers and consumers together.
type intervalLatencies struct{ confirm, late, deliver histogram }

func (i *intervalLatencies) merge(o *intervalLatencies) {
	i.confirm.merge(&o.confirm)
	i.late.merge(&o.late)
	i.deliver.merge(&o.deliver)
}

func (i *intervalLatencies) into(s Sample, p *phase) {
	i.confirm.into(s, p.figure("confirm"))
	i.late.into(s, p.figure("late"))
	i.deliver.into(s, p.figure("deliver"))
}

// gather connects everybody. Consumers may be delivered to when it returns.
func (c *crew) gather(ctx context.Context) error {
	for i := range c.p.Producers {
		nc, err := c.connect("producer")
		if err != nil {
			return err
		}
		p, err := newProducer(c, nc, i)
		if err != nil {
			return err
		}
		c.producers = append(c.producers, p)
		if err := flush(ctx, nc); err != nil {
			return err
		}
	}
	if c.p.Mode != modeLife {
		return nil
	}
	c.tokens = make(chan struct{}, c.p.Window)
	for range c.p.Window {
		c.tokens <- struct{}{}
	}
	return c.gatherConsumers(ctx)
}

func (c *crew) gatherConsumers(ctx context.Context) error {
	ackers := make([]*acker, 0, maxConsumerConns+c.p.Slow)
	more := func() error {
		nc, err := c.connect("consumer")
		if err != nil {
			return err
		}
		a, err := c.newAcker(nc)
		ackers = append(ackers, a)
		return err
	}
	for range min(c.p.Consumers, maxConsumerConns) {
		if err := more(); err != nil {
			return err
		}
	}
	spread := len(ackers)
	all := c.p.Consumers + c.p.Slow
	for i := range all {
		a, slow := ackers[i%spread], i >= c.p.Consumers
		if slow {
			if err := more(); err != nil {
				return err
			}
			a = ackers[len(ackers)-1]
		}
		handle := c.handle(a, slow)
		stop, err := c.e.target.consume(ctx, a.nc, fmt.Sprintf("w%d", i), share(c.p.Window, all, i), handle)
		if err != nil {
			return err
		}
		c.stops = append(c.stops, stop)
	}
	return nil
}

func (c *crew) connect(name string) (*nats.Conn, error) {
	nc, err := c.e.spec.Access.connect(name)
	if err != nil {
		return nil, err
	}
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { c.e.note("NATS", err) })
	c.conns = append(c.conns, nc)
	return nc, nil
}

func (c *crew) start() {
	for _, p := range c.producers {
		c.working.Go(p.run)
	}
}

// halt ends publishing; confirmations and deliveries go on.
func (c *crew) halt() {
	c.stopOnce.Do(func() { close(c.stop) })
	c.working.Wait()
}

// end sends everybody home.
func (c *crew) end(ctx context.Context) error {
	c.halt()
	var errs []error
	for _, stop := range c.stops {
		errs = append(errs, stop(ctx))
	}
	for _, nc := range c.conns {
		nc.Close()
	}
	return errors.Join(errs...)
}

// cut returns the latencies since the last cut.
func (c *crew) cut() *intervalLatencies {
	var now intervalLatencies
	for _, one := range c.producers {
		one.confirm.moveTo(&now.confirm)
		one.late.moveTo(&now.late)
	}
	for _, one := range c.delivered {
		one.moveTo(&now.deliver)
	}
	c.past.merge(&now)
	return &now
}

// latencies adds those of the whole phase.
func (c *crew) latencies(p *phase, into Sample) {
	c.cut()
	c.past.into(into, p)
}

// finished counts a message at the end of its life and lets another one in. On
// top of a backlog more are finished than were let in.
func (c *crew) finished() {
	c.e.finished.Add(1)
	c.letIn()
}

func (c *crew) letIn() {
	select {
	case c.tokens <- struct{}{}:
	default:
	}
}

// acker sends the acks of one connection.
type acker struct {
	c     *crew
	nc    *nats.Conn
	inbox string // for answers; empty sends plain acks
	body  []byte
}

func (c *crew) newAcker(nc *nats.Conn) (*acker, error) {
	a := &acker{c: c, nc: nc, body: c.e.target.ack()}
	if !c.p.AckConfirmed {
		return a, nil
	}
	a.inbox = nc.NewInbox()
	sub, err := nc.Subscribe(a.inbox, func(m *nats.Msg) {
		if err := c.e.target.refusedAck(m); err != nil {
			c.e.note("an ack was refused", err)
			return
		}
		c.finished()
	})
	if err != nil {
		return nil, err
	}
	return a, sub.SetPendingLimits(-1, -1)
}

func (a *acker) ack(to string) {
	if a.inbox != "" {
		if err := a.nc.PublishRequest(to, a.inbox, a.body); err != nil {
			a.c.e.note("an ack was not sent", err)
		}
		return
	}
	if a.send(to, a.body) {
		a.c.finished()
	}
}

// send answers a delivery without an end to its message.
func (a *acker) send(to string, body []byte) (sent bool) {
	err := a.nc.Publish(to, body)
	if err != nil {
		a.c.e.note("an ack was not sent", err)
	}
	return err == nil
}

// handle returns what a consumer does with a message. Latencies are those of
// consumers that are not slow.
func (c *crew) handle(a *acker, slow bool) handler {
	if slow {
		return func(_ []byte, reply string) {
			time.Sleep(slowWork)
			a.ack(reply)
		}
	}
	l := &latencies{}
	c.delivered = append(c.delivered, l)
	if c.p.Follow {
		return c.follow(a, l)
	}
	return func(data []byte, reply string) {
		if len(data) >= minPayload {
			sent, _ := stampOf(data)
			c.recordDelivery(l, sent)
		}
		a.ack(reply)
	}
}

// recordDelivery leaves out what was sent before the measured part.
func (c *crew) recordDelivery(l *latencies, sent int64) {
	if sent >= c.e.from.Load() {
		l.record(c.e.now() - sent)
	}
}

// stamp writes the header of a payload: when it is sent, and which message it is.
func stamp(data []byte, sent, number int64) {
	binary.LittleEndian.PutUint64(data, uint64(sent))
	binary.LittleEndian.PutUint64(data[8:], uint64(number))
}

func stampOf(data []byte) (sent, number int64) {
	return int64(binary.LittleEndian.Uint64(data)), int64(binary.LittleEndian.Uint64(data[8:]))
}
