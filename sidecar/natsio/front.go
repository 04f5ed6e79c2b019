package natsio

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/filaq/fila/sidecar/shard"
	"github.com/filaq/fila/sidecar/telemetry"
	"github.com/filaq/fila/wire"
)

// Options of a [Front].
type Options struct {
	Log      *slog.Logger
	Conn     *nats.Conn
	Subjects wire.Subjects
	Signer   *wire.Signer
	// ReplyPrefixes are what a reply subject must begin with to be answered. None of
	// them may let a subject through that fila takes orders on.
	ReplyPrefixes []string
	// Headers are the limits by which Conn has removed headers, see [Connect].
	Headers HeaderLimits
	// Exact has Attach subscribe to all that concerns its queue, acks and requests of
	// consumers included: in a cluster other queues have other owners.
	Exact bool
	Now   func() int64 // Unix ns; it does not go back
	// Tracer takes spans of calls of the guard that their callers trace; nil: there are
	// none.
	Tracer telemetry.Tracer
}

// Front holds fila's subscriptions. Its exported methods may be called from any
// goroutine, except those that begin and end acks and requests, which its owner
// calls once.
type Front struct {
	Options

	standstill standstill
	watched    chan struct{} // closed when standstills need not be noticed any more; nil: not begun

	acks    []*nats.Subscription // acks and nacks
	service micro.Service        // requests; nil: not begun
	group   micro.Service        // of the common guard; nil: not begun
	calls   sync.RWMutex         // held to read while a request of the guard is answered

	mu struct {
		sync.Mutex
		attached map[*shard.Queue][]*nats.Subscription
		dead     map[string]*shard.Queue // dead letter queues, by subject, that enqueues are handed over for
		enqueues chan *nats.Msg          // to these, see refuseDead
		closed   chan nats.Status        // ends refuseDead, which is there while dead is not empty; nil: it is not
	}
}

// deadBacklog is how many enqueues to dead letter queues wait at most to be refused; more
// at once get no answer.
const deadBacklog = 16_384

// New returns a Front without subscriptions.
func New(o Options) *Front {
	f := &Front{Options: o}
	f.mu.attached = make(map[*shard.Queue][]*nats.Subscription)
	f.mu.dead = make(map[string]*shard.Queue)
	return f
}

// interest is a subject with what handles what comes there.
type interest struct {
	subject string
	handle  nats.MsgHandler
}

// Attach subscribes to the enqueues of a queue and, with Exact, to all else that concerns
// it. A dead letter queue takes nothing, but answers producers who try.
func (f *Front) Attach(q *shard.Queue) error {
	if q.IsDLQ() && !f.Exact {
		return f.attachDead(q)
	}
	interests := []interest{{f.Subjects.Enqueue(q.Name()), func(m *nats.Msg) { f.enqueue(q, m) }}}
	if f.Exact {
		interests = append(f.ofQueue(q), interests...) // acks before what could be acked
	}
	for _, i := range interests {
		sub, err := f.subscribe(i.subject, i.handle)
		if err != nil {
			f.Detach(q)
			return fmt.Errorf("subscribe to %s: %w", i.subject, err)
		}
		f.mu.Lock()
		f.mu.attached[q] = append(f.mu.attached[q], sub)
		f.mu.Unlock()
	}
	return nil
}

// attachDead subscribes to the enqueues of a dead letter queue. One goroutine refuses those
// of all of them: there are as many as queues, and next to nobody enqueues there.
func (f *Front) attachDead(q *shard.Queue) error {
	subject := f.Subjects.Enqueue(q.Name())
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.closed == nil {
		f.mu.closed = f.Conn.StatusChanged(nats.CLOSED)
		f.mu.enqueues = make(chan *nats.Msg, deadBacklog)
		go f.refuseDead(f.mu.enqueues, f.mu.closed)
	}
	f.mu.dead[subject] = q
	sub, err := f.Conn.ChanSubscribe(subject, f.mu.enqueues)
	if err != nil {
		f.detachDead(subject)
		return fmt.Errorf("subscribe to %s: %w", subject, err)
	}
	f.mu.attached[q] = append(f.mu.attached[q], sub)
	return nil
}

// detachDead forgets a dead letter queue. It needs mu.
func (f *Front) detachDead(subject string) {
	delete(f.mu.dead, subject)
	if len(f.mu.dead) == 0 {
		f.Conn.RemoveStatusListener(f.mu.closed)
		f.mu.closed = nil
	}
}

// refuseDead refuses what comes to dead letter queues, until they or the connection are gone.
func (f *Front) refuseDead(in <-chan *nats.Msg, closed <-chan nats.Status) {
	for {
		select {
		case m := <-in:
			f.mu.Lock()
			q := f.mu.dead[m.Subject]
			f.mu.Unlock()
			if q != nil {
				f.enqueue(q, m)
			}
		case <-closed:
			return
		}
	}
}

// ofQueue is what concerns a queue alone beside enqueues.
func (f *Front) ofQueue(q *shard.Queue) []interest {
	return []interest{
		{f.Subjects.AckOf(q.Name()), func(m *nats.Msg) { f.ackOf(q, wire.ParseAck, m) }},
		{f.Subjects.NackOf(q.Name()), func(m *nats.Msg) { f.ackOf(q, wire.ParseNack, m) }},
		{f.Subjects.Consumer("*", q.Name()), f.directRequest(q, f.Subjects.ParseConsumer, f.consumer)},
		{f.Subjects.Consume(q.Name()), f.directRequest(q, f.nameless(wire.KindConsume), f.consume)},
		{f.Subjects.Fetch(q.Name()), f.directRequest(q, f.nameless(wire.KindFetch), f.fetch)},
	}
}

// subscribe has what comes on a subject handled.
func (f *Front) subscribe(subject string, handle nats.MsgHandler) (*nats.Subscription, error) {
	sub, err := f.Conn.Subscribe(subject, handle)
	if err != nil {
		return nil, err
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return nil, fmt.Errorf("pending limits: %w", err)
	}
	return sub, nil
}

// enqueue takes what a producer has sent to a queue.
func (f *Front) enqueue(q *shard.Queue, m *nats.Msg) {
	if err := f.checkReply(m.Subject, m.Reply); err != nil {
		q.Refuse("", err)
		return
	}
	if err := f.refusedHeaders(m.Header); err != nil {
		q.Refuse(m.Reply, err)
		return
	}
	if err := q.Accept(m); err != nil {
		q.Refuse(m.Reply, err)
	}
}

// flushTimeout bounds the wait for the server to have taken subscriptions.
const flushTimeout = 10 * time.Second

// Flush waits until the NATS server has taken what was sent to it.
func (f *Front) Flush() error { return flush(context.Background(), f.Conn) }

func flush(ctx context.Context, conn *nats.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	if err := conn.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("flush to NATS: %w", err)
	}
	return nil
}

// Detach ends what Attach has subscribed to. What it returns is closed when
// everything that had arrived has been taken or answered: a plain Unsubscribe would
// drop it without an answer.
func (f *Front) Detach(queues ...*shard.Queue) <-chan struct{} {
	ending := make(map[*nats.Subscription]<-chan struct{})
	for _, q := range queues {
		f.mu.Lock()
		subs := f.mu.attached[q]
		delete(f.mu.attached, q)
		subject := f.Subjects.Enqueue(q.Name())
		_, dead := f.mu.dead[subject]
		if dead {
			f.detachDead(subject)
		}
		f.mu.Unlock()
		for _, sub := range subs {
			if dead { // it takes nothing, so nothing is lost
				if err := sub.Unsubscribe(); err != nil {
					f.Log.Debug("unsubscribe", "subject", sub.Subject, "error", err)
				}
				continue
			}
			closed := make(chan struct{})
			over := sync.OnceFunc(func() { close(closed) }) // the connection may close before Drain, and after the handler was set
			sub.SetClosedHandler(func(string) { over() })
			if err := sub.Drain(); err != nil {
				f.Log.Debug("drain", "queue", q.Name(), "error", err)
				over()
			}
			ending[sub] = closed
		}
	}
	done, conn := make(chan struct{}), f.Conn
	go func() {
		defer close(done)
		if len(ending) == 0 {
			return
		}
		complete := flush(context.Background(), conn) == nil // what the server has sent has arrived
		for sub, closed := range ending {
			handled(sub, closed, complete)
		}
	}()
	return done
}

// handledInterval lies between two looks of handled. The library looks whether a
// subscription has drained every 100 ms, and nobody serves the queue in that time.
const handledInterval = time.Millisecond

// handled waits until all that has arrived by a subscription is handled, if that is all
// that will, or until it is closed.
func handled(sub *nats.Subscription, closed <-chan struct{}, complete bool) {
	for {
		if n, _, err := sub.Pending(); complete && err == nil && n == 0 {
			return
		}
		select {
		case <-closed:
			return
		case <-time.After(handledInterval):
		}
	}
}

// parseAck reads what came on a reply subject.
type parseAck func(payload []byte, headers map[string][]string) (wire.Ack, *wire.Error)

// ServeAcks subscribes to acks and nacks of all queues of s, unless Attach does for each.
// Nothing may be delivered before it returns: the server must know the reply subjects
// when the first message goes out.
func (f *Front) ServeAcks(s *shard.Set) error {
	if f.Exact {
		return nil
	}
	for _, kind := range []struct {
		subject string
		parse   parseAck
	}{
		{f.Subjects.AckWildcard(), wire.ParseAck},
		{f.Subjects.NackWildcard(), wire.ParseNack},
	} {
		sub, err := f.subscribe(kind.subject, func(m *nats.Msg) { f.ack(s, kind.parse, m) })
		if err != nil {
			return fmt.Errorf("subscribe to %s: %w", kind.subject, err)
		}
		f.acks = append(f.acks, sub)
	}
	return f.Flush()
}

// StopAcks ends what ServeAcks has begun, if it has.
func (f *Front) StopAcks() {
	for _, sub := range f.acks {
		if err := sub.Unsubscribe(); err != nil {
			f.Log.Debug("unsubscribe", "subject", sub.Subject, "error", err)
		}
	}
}

// ack checks the token of an ack or nack, and hands it to its queue.
func (f *Front) ack(s *shard.Set, parse parseAck, m *nats.Msg) {
	token, name, ok := f.Subjects.ParseToken(m.Subject)
	q := s.Queue(name)
	if err := f.checkReply(m.Subject, m.Reply); err != nil {
		if q == nil {
			s.Refuse("", err)
		} else {
			q.Refuse("", err)
		}
		return
	}
	switch {
	case !ok:
		s.Refuse(m.Reply, wire.BadSubject(m.Subject))
		return
	case q == nil:
		s.Refuse(m.Reply, wire.QueueNotFound(name))
		return
	}
	f.settle(q, token, parse, m)
}

// ackOf is ack for a subject that names the queue.
func (f *Front) ackOf(q *shard.Queue, parse parseAck, m *nats.Msg) {
	token, _, ok := f.Subjects.ParseToken(m.Subject)
	if err := f.checkReply(m.Subject, m.Reply); err != nil {
		q.Refuse("", err)
		return
	}
	if !ok {
		q.Refuse(m.Reply, wire.BadSubject(m.Subject))
		return
	}
	f.settle(q, token, parse, m)
}

// settle has a queue take an ack or nack.
func (f *Front) settle(q *shard.Queue, token string, parse parseAck, m *nats.Msg) {
	name := q.Name()
	t, err := f.Signer.Parse(token, name)
	if err != nil {
		q.Refuse(m.Reply, wire.TokenRefused())
		return
	}
	var ack wire.Ack
	werr := f.refusedHeaders(m.Header)
	if werr == nil {
		ack, werr = parse(m.Data, m.Header)
	}
	if werr == nil {
		werr = q.Ack(t, ack, m.Reply, m.Sub)
	}
	if werr != nil {
		q.Refuse(m.Reply, werr)
	}
}
