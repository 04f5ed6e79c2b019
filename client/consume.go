package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/wire"
)

// ConsumeOption changes how a Consumer works.
type ConsumeOption func(*consumeOptions)

type consumeOptions struct {
	name        string
	shared      bool
	maxInFlight *int // nil: the default
	concurrency int
	batch       int
	gatherFor   time.Duration // the constant, except in tests
	ttl         time.Duration
	headers     string // of ConsumeRequest
	manual      bool
	inTrace     bool
	onError     func(error)
	middleware  []func(Handler) Handler
	stopWithin  time.Duration
}

// ConsumerName names the consumer, 1 to 64 bytes of A-Za-z0-9_-. The default
// is a random name.
func ConsumerName(name string) ConsumeOption { return func(o *consumeOptions) { o.name = name } }

// Shared allows several processes to consume under one name. They share its credit, and Stop
// of one does not end the registration of the others.
func Shared() ConsumeOption { return func(o *consumeOptions) { o.shared = true } }

// MaxInFlight is how many unfinished messages the consumer may have, 1 to 65536. The default is
// [Concurrency] or, if that is larger, [Batch], so that no message waits here while another
// consumer could handle it. More messages save handlers that are shorter than a round trip to
// fila from waiting for the next one.
func MaxInFlight(n int) ConsumeOption { return func(o *consumeOptions) { o.maxInFlight = &n } }

// Batch allows fila to put up to n messages, 1 to 1000, into one delivery; the default is 1.
// It does not wait for more messages, and a fila that knows no batches sends them one by one.
// Handlers see no difference, except that Fila-Id, Fila-Queue, Fila-Attempt and Fila-Deadline
// are fields of a message but no headers. Answers to messages of a delivery are sent together:
// when all have one, when all handlers wait, and after at most a millisecond.
func Batch(n int) ConsumeOption { return func(o *consumeOptions) { o.batch = n } }

// Concurrency is how many handlers run at once; the default is 1.
func Concurrency(n int) ConsumeOption { return func(o *consumeOptions) { o.concurrency = n } }

// MinHeaders leaves out the headers that fila adds to deliveries, except Fila-Id and Fila-Attempt.
// Deliveries then cost less. [Message.Key], EnqueuedAt and, without [Batch], Deadline stay zero, and
// messages from a dead letter queue do not say why they are there.
func MinHeaders() ConsumeOption { return func(o *consumeOptions) { o.headers = wire.HeadersMin } }

// RegistrationTTL is how long fila keeps the registration without renewal, from 100 ms; the
// default is 30 seconds. The consumer renews it three times in that time.
func RegistrationTTL(d time.Duration) ConsumeOption { return func(o *consumeOptions) { o.ttl = d } }

// ManualAck makes the application settle messages, also after the handler has returned. The
// consumer extends the lease until then.
func ManualAck() ConsumeOption { return func(o *consumeOptions) { o.manual = true } }

// OnError sets a function that is called with background errors: a failed renewal, a refused
// ack, a lost lease, a panic of a handler (a [*PanicError]). It must not block. Without it
// slog.Default logs them as warnings.
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

// Consumer receives messages of one queue until Stop. It extends the leases of its messages,
// repeats acks and nacks until fila confirms them, and registers again after a reconnect or a
// restart of fila.
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
	wake    chan struct{} // wakes keepHeld, because something is due earlier

	visibility atomic.Int64 // ms, from the latest registration

	reg struct {
		sync.Mutex  // orders registrations and the leave
		maxInFlight int
		batch       int
		left        bool
	}
	stopKeeping context.CancelFunc
	handlerCtx  context.Context
	stopHandler context.CancelFunc
	stopOnce    sync.Once
	stopErr     error

	mu struct {
		sync.Mutex
		lastID  uint64
		held    map[uint64]*hold     // received, not yet settled and confirmed
		waiting []*hold              // for a worker
		batches map[uint64]*delivery // with held messages

		free        int         // workers that wait for messages
		confirming  int         // workers that wait for confirmations
		gathered    []*delivery // with answers that wait for others
		gatherTimer *time.Timer // set while there are any

		work      *sync.Cond    // signals waiting and drained
		drained   bool          // no more messages will come
		unsettled int           // unconfirmed answers
		idle      chan struct{} // closed when unsettled is 0; nil until Stop waits
	}
}

// Consume subscribes, registers with fila and calls handler for each message
// until Stop. The context is only for the registration, which is retried until the context's
// deadline, or for the client's timeout, while no node owns the queue or there is no reply.
func (c *Client) Consume(ctx context.Context, queue string, handler Handler, opts ...ConsumeOption) (*Consumer, error) {
	o := consumeOptions{concurrency: 1, batch: 1, gatherFor: gatherFor, ttl: 30 * time.Second, stopWithin: 25 * time.Second}
	for _, opt := range opts {
		opt(&o)
	}
	if o.maxInFlight == nil {
		o.maxInFlight = new(max(o.concurrency, o.batch))
	}
	if o.name == "" {
		o.name = "c-" + strings.ToLower(rand.Text())
	}
	if o.onError == nil {
		o.onError = func(err error) {
			slog.Warn("fila consumer", "queue", queue, "consumer", o.name, "error", err)
		}
	}
	if err := o.check(queue); err != nil {
		return nil, err
	}
	if handler == nil {
		return nil, errors.New("consume without a handler")
	}
	for _, wrap := range slices.Backward(o.middleware) {
		handler = wrap(handler)
	}
	k := &Consumer{
		c: c, queue: queue, o: o, handler: handler,
		inbox:  c.nc.NewInbox() + ".",
		closed: make(chan struct{}),
		wake:   make(chan struct{}, 1),
	}
	k.visibility.Store(wire.DefaultQueueSettings("").VisibilityTimeoutMs) // until the reply
	k.mu.held, k.mu.batches = map[uint64]*hold{}, map[uint64]*delivery{}
	k.mu.gatherTimer = stoppedTimer(k.sendGathered)
	k.mu.work = sync.NewCond(&k.mu)
	k.reg.maxInFlight, k.reg.batch = *o.maxInFlight, o.batch
	if err := k.start(ctx); err != nil {
		return nil, err
	}
	return k, nil
}

func (o *consumeOptions) check(queue string) error {
	return cmp.Or(
		checkQueue(queue),
		badRequest(wire.CodeBadConsumerName, wire.CheckConsumerName(o.name)),
		inRange("batch", int64(o.batch), 1, wire.MaxBatchMessages, ""),
		inRange("concurrency", int64(o.concurrency), 1, wire.MaxInFlightLimit, ""),
		inRange("max in flight", int64(*o.maxInFlight), 1, wire.MaxInFlightLimit, ""),
		inRange("registration TTL", o.ttl.Milliseconds(), 100, wire.MaxRegistrationMs, " ms"),
	)
}

// start subscribes before it registers, and flushes in between: deliveries that find no
// subscription would end the registration.
func (k *Consumer) start(ctx context.Context) error {
	ctx, cancel := k.c.withTimeout(ctx)
	defer cancel()
	k.handlerCtx, k.stopHandler = context.WithCancel(context.Background())
	connected := k.c.nc.StatusChanged(nats.CONNECTED) // before the registration, so that no reconnect after it is missed
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
	// Credit bounds the pending messages. With its own limits the library would drop some.
	for _, sub := range []*nats.Subscription{k.sub, k.replies} {
		if err := sub.SetPendingLimits(-1, -1); err != nil {
			return err
		}
	}
	return k.c.admitted(ctx, before, k.sub, k.replies)
}

// flush returns when the server has received everything. nats.go requires a deadline.
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
