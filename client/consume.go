package client

import (
	"cmp"
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
// acks it and an error nacks it with the error's text; a panic, or the end of
// its goroutine, counts as an error. The context ends when the grace of Stop
// does, or when the lease is lost, which is its cause then: whatever the handler
// still does, somebody else does as well.
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
	inTrace     bool
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
// ack that was refused, a lease that was lost, a handler that panicked (a
// [*PanicError]). It must not block.
func OnError(fn func(error)) ConsumeOption { return func(o *consumeOptions) { o.onError = fn } }

// PanicError is the panic of a handler.
type PanicError struct {
	Value any    // of the panic; nil if the handler ended its goroutine
	Stack []byte // of the handler's goroutine
}

// Error returns the value, without the stack.
func (e *PanicError) Error() string {
	if e.Value == nil {
		return "the handler ended its goroutine"
	}
	return fmt.Sprint("panic: ", e.Value)
}

// Consumer receives messages of one queue until Stop. While it holds messages
// it extends their leases; what the handler says of a message it repeats until
// fila has confirmed it; and after a reconnect, and when fila was restarted, it
// registers again.
type Consumer struct {
	c       *Client
	queue   string
	o       consumeOptions
	handler Handler
	sub     *nats.Subscription // deliveries
	replies *nats.Subscription // to acks and extensions
	inbox   string             // of the replies, with the dot at its end

	closed  chan struct{} // closed when sub is
	workers sync.WaitGroup
	keepers sync.WaitGroup
	wake    chan struct{} // to the keeper of leases: something is due earlier

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
		lastID    uint64
		held      map[uint64]*hold // received, and not settled or not confirmed to be
		waiting   []*hold          // for a worker
		work      *sync.Cond       // waiting has grown, or drained
		drained   bool             // no more messages come in
		unsettled int              // answers that are not confirmed
		idle      chan struct{}    // closed when unsettled is 0; nil until Stop waits
	}
}

// Consume subscribes, registers with fila and calls handler for each message
// until Stop. The context is for the registration only, which is tried again until its
// deadline, or for the client's timeout, while nobody owns the queue or there is no reply.
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
	if handler == nil {
		return nil, errors.New("consume without a handler")
	}
	k := &Consumer{
		c: c, queue: queue, o: o, handler: handler,
		inbox:  c.nc.NewInbox() + ".",
		closed: make(chan struct{}),
		wake:   make(chan struct{}, 1),
	}
	k.visibility.Store(wire.DefaultQueueSettings("").VisibilityTimeoutMs) // until the reply
	k.mu.held = map[uint64]*hold{}
	k.mu.work = sync.NewCond(&k.mu)
	k.reg.maxInFlight = o.maxInFlight
	if err := k.start(ctx); err != nil {
		return nil, err
	}
	return k, nil
}

func (o *consumeOptions) check(queue string) error {
	return cmp.Or(
		checkQueue(queue),
		badRequest(wire.CodeBadConsumerName, wire.CheckConsumerName(o.name)),
		inRange("max in flight", int64(o.maxInFlight), 1, wire.MaxInFlightLimit, ""),
		inRange("concurrency", int64(o.concurrency), 1, wire.MaxInFlightLimit, ""),
		inRange("registration TTL", o.ttl.Milliseconds(), 100, wire.MaxRegistrationMs, " ms"),
	)
}

// start subscribes before it registers, and flushes in between: otherwise the
// first deliveries would find nobody and end the registration.
func (k *Consumer) start(ctx context.Context) error {
	ctx, cancel := k.c.withTimeout(ctx)
	defer cancel()
	k.handlerCtx, k.stopHandler = context.WithCancel(context.Background())
	connected := k.c.nc.StatusChanged(nats.CONNECTED) // a reconnect right behind the registration is heard, too
	err := k.subscribe(ctx)
	if err == nil {
		for range k.o.concurrency {
			k.workers.Go(k.run)
		}
		err = k.registerFirst(ctx)
	}
	if err != nil {
		k.c.nc.RemoveStatusListener(connected)
		k.stopHandler()
		k.drain()
		return errors.Join(err, unsubscribe(k.sub), unsubscribe(k.replies))
	}
	context.AfterFunc(k.handlerCtx, k.c.refusals.listen(k.denied))
	var keepCtx context.Context
	keepCtx, k.stopKeeping = context.WithCancel(context.Background())
	k.keepers.Go(func() { k.keepRegistered(keepCtx, connected) })
	k.keepers.Go(func() { k.keepHeld(k.handlerCtx) })
	return nil
}

func (k *Consumer) subscribe(ctx context.Context) (err error) {
	before := k.c.nc.LastError()
	if k.replies, err = k.c.nc.Subscribe(k.inbox+"*", k.reply); err != nil {
		return err
	}
	if k.sub, err = k.c.nc.QueueSubscribe(k.c.subjects.Deliver(k.o.name, k.queue), k.o.name, k.receive); err != nil {
		return err
	}
	k.sub.SetClosedHandler(func(string) { close(k.closed) })
	// Credit bounds what can be pending; the library's limits would drop.
	for _, sub := range []*nats.Subscription{k.sub, k.replies} {
		if err := sub.SetPendingLimits(-1, -1); err != nil {
			return err
		}
	}
	return k.c.admitted(ctx, before, k.sub, k.replies)
}

// flush returns when the server has what was sent; nats.go insists on a
// deadline.
func flush(ctx context.Context, nc *nats.Conn) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Minute)
		defer cancel()
	}
	return nc.FlushWithContext(ctx)
}

func unsubscribe(sub *nats.Subscription) error {
	if sub == nil {
		return nil
	}
	if err := sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) && !errors.Is(err, nats.ErrBadSubscription) {
		return err
	}
	return nil
}

// Name returns the consumer's name.
func (k *Consumer) Name() string { return k.o.name }
