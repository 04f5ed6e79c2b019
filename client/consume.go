package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/wire"
)

// Handler works on one message. If it has not settled the message itself, nil
// acks it and an error nacks it with the error's text; a panic counts as an
// error. The context ends when the grace of Stop does.
type Handler func(ctx context.Context, m *Message) error

// ConsumeOption changes how a Consumer works.
type ConsumeOption func(*consumeOptions)

type consumeOptions struct {
	name        string
	shared      bool
	maxInFlight int
	concurrency int
	ttl         time.Duration
	manual      bool
	onError     func(error)
}

// ConsumerName names the consumer, 1 to 64 bytes of A-Za-z0-9_-. The default
// is a random name.
func ConsumerName(name string) ConsumeOption { return func(o *consumeOptions) { o.name = name } }

// Shared tells that several processes consume under this name. They share its
// credit, and Stop does not end the name for the others.
func Shared() ConsumeOption { return func(o *consumeOptions) { o.shared = true } }

// MaxInFlight is how many unfinished messages the consumer may have, 1 to
// 65536; the default is 64.
func MaxInFlight(n int) ConsumeOption { return func(o *consumeOptions) { o.maxInFlight = n } }

// Concurrency is how many handlers run at once; the default is 1.
func Concurrency(n int) ConsumeOption { return func(o *consumeOptions) { o.concurrency = n } }

// RegistrationTTL is how long fila keeps the registration without renewal, from
// 100 ms; the default is 30 seconds. It is renewed three times as often, so it
// is also how long a lost registration can go unnoticed.
func RegistrationTTL(d time.Duration) ConsumeOption { return func(o *consumeOptions) { o.ttl = d } }

// ManualAck leaves it to the handler, or to whom it hands the message, to
// settle it. Its lease is extended until then.
func ManualAck() ConsumeOption { return func(o *consumeOptions) { o.manual = true } }

// OnError is told what goes wrong behind the scenes: a renewal that failed, an
// ack that could not be sent, a handler that panicked. It must not block.
func OnError(fn func(error)) ConsumeOption { return func(o *consumeOptions) { o.onError = fn } }

// Consumer receives messages of one queue until Stop. While it holds messages
// it extends their leases; after a reconnect, and when fila was restarted, it
// registers again.
type Consumer struct {
	c       *Client
	queue   string
	o       consumeOptions
	handler Handler
	sub     *nats.Subscription

	work    chan *Message
	drained chan struct{} // closed when no more messages come in
	closed  chan struct{} // closed when the subscription is
	workers sync.WaitGroup
	keepers sync.WaitGroup

	visibility atomic.Int64 // ms, from the latest registration

	reg struct {
		sync.Mutex  // orders registrations and the leave
		maxInFlight int
		left        bool
	}
	stopKeeping context.CancelFunc
	handlerCtx  context.Context
	stopHandler context.CancelFunc
	stopOnce    sync.Once
	stopErr     error

	mu struct {
		sync.Mutex
		held map[*Message]struct{} // received and not settled
	}
}

// Consume subscribes, registers with fila and calls handler for each message
// until Stop. The context is for the registration only.
func (c *Client) Consume(ctx context.Context, queue string, handler Handler, opts ...ConsumeOption) (*Consumer, error) {
	o := consumeOptions{maxInFlight: wire.DefaultMaxInFlight, concurrency: 1, ttl: 30 * time.Second, onError: func(error) {}}
	for _, opt := range opts {
		opt(&o)
	}
	if o.name == "" {
		o.name = "c-" + strings.ToLower(rand.Text())
	}
	if err := o.check(queue); err != nil {
		return nil, err
	}
	k := &Consumer{
		c: c, queue: queue, o: o, handler: handler,
		work:    make(chan *Message, o.maxInFlight),
		drained: make(chan struct{}),
		closed:  make(chan struct{}),
	}
	k.mu.held = map[*Message]struct{}{}
	k.reg.maxInFlight = o.maxInFlight
	if err := k.start(ctx); err != nil {
		return nil, err
	}
	return k, nil
}

func (o *consumeOptions) check(queue string) error {
	if err := checkQueue(queue); err != nil {
		return err
	}
	if err := wire.CheckConsumerName(o.name); err != nil {
		return badRequest(wire.CodeBadConsumerName, err)
	}
	for _, limit := range []struct {
		name     string
		value    int64
		lo, hi   int64
		quantity string
	}{
		{"max in flight", int64(o.maxInFlight), 1, wire.MaxInFlightLimit, ""},
		{"concurrency", int64(o.concurrency), 1, wire.MaxInFlightLimit, ""},
		{"registration TTL", o.ttl.Milliseconds(), 100, wire.MaxRegistrationMs, " ms"},
	} {
		if limit.value < limit.lo || limit.value > limit.hi {
			return badRequest(wire.CodeBadField,
				fmt.Errorf("%s is %d: allowed are %d to %d%s", limit.name, limit.value, limit.lo, limit.hi, limit.quantity))
		}
	}
	return nil
}

// start subscribes before it registers, and flushes in between: otherwise the
// first deliveries would find nobody and end the registration.
func (k *Consumer) start(ctx context.Context) error {
	sub, err := k.c.nc.QueueSubscribe(k.c.subjects.Deliver(k.o.name, k.queue), k.o.name, k.receive)
	if err != nil {
		return err
	}
	k.sub = sub
	sub.SetClosedHandler(func(string) { close(k.closed) })
	// Credit bounds what can be pending; the library's limits would drop.
	err = sub.SetPendingLimits(-1, -1)
	ctx, cancel := k.c.withTimeout(ctx)
	defer cancel()
	if err == nil {
		err = k.c.nc.FlushWithContext(ctx)
	}
	k.handlerCtx, k.stopHandler = context.WithCancel(context.Background())
	for range k.o.concurrency {
		k.workers.Go(k.run)
	}
	if err == nil {
		err = k.register(ctx)
	}
	if err != nil {
		k.stopHandler()
		close(k.drained)
		return errors.Join(err, unsubscribe(sub))
	}
	var keepCtx context.Context
	keepCtx, k.stopKeeping = context.WithCancel(context.Background())
	k.keepers.Go(func() { k.keepRegistered(keepCtx) })
	k.keepers.Go(func() { k.keepLeases(k.handlerCtx) })
	return nil
}

func unsubscribe(sub *nats.Subscription) error {
	if err := sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) && !errors.Is(err, nats.ErrBadSubscription) {
		return err
	}
	return nil
}

// Name returns the consumer's name.
func (k *Consumer) Name() string { return k.o.name }

// receive runs on the subscription's goroutine.
func (k *Consumer) receive(msg *nats.Msg) {
	m := k.c.newMessage(msg)
	m.onSettle = func() {
		k.mu.Lock()
		delete(k.mu.held, m)
		k.mu.Unlock()
	}
	k.mu.Lock()
	k.mu.held[m] = struct{}{}
	k.mu.Unlock()
	select {
	case k.work <- m:
	case <-k.drained:
		k.giveBack(m)
	}
}

// run is a worker.
func (k *Consumer) run() {
	for {
		select {
		case m := <-k.work:
			k.handle(m)
		case <-k.drained:
			for {
				select {
				case m := <-k.work:
					k.handle(m)
				default:
					return
				}
			}
		}
	}
}

func (k *Consumer) handle(m *Message) {
	if k.handlerCtx.Err() != nil {
		k.giveBack(m)
		return
	}
	err := k.call(m)
	if m.settled.Load() || k.o.manual && err == nil {
		return
	}
	if err != nil {
		err = m.Nack(NackOptions{Error: err.Error()})
	} else {
		err = m.Ack()
	}
	if err != nil {
		m.setSettled()
		k.o.onError(fmt.Errorf("ack of %s: %w", m.ID, err))
	}
}

func (k *Consumer) call(m *Message) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			k.o.onError(fmt.Errorf("handler of %s: %w", m.ID, err))
		}
	}()
	return k.handler(k.handlerCtx, m)
}

// giveBack nacks a message that no handler has seen, so that another consumer
// gets it before its lease ends.
func (k *Consumer) giveBack(m *Message) {
	if err := m.Nack(NackOptions{Error: "consumer stopped"}); err != nil {
		m.setSettled()
	}
}
