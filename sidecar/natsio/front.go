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
	// ReplyPrefixes are the allowed beginnings of reply subjects. None of them may match a
	// subject on which fila takes requests.
	ReplyPrefixes []string
	// Headers are the limits of Conn for headers, see [Connect].
	Headers wire.HeaderLimits
	// Exact subscribes per queue to its acks and its consumers' requests as well, because in
	// a cluster other queues have other owners.
	Exact bool
	Now   func() int64 // Unix ns; it never goes back
	// Tracer gets the spans of guard calls that are traced; nil: there are none.
	Tracer telemetry.Tracer
}

// Front holds fila's subscriptions. Its methods may be called from any goroutine, except those
// that start and stop acks and requests, which are called once.
type Front struct {
	Options

	standstill standstill
	watched    chan struct{} // closed to stop watching for standstills; nil: not started

	acks    []*nats.Subscription // acks and nacks
	service micro.Service        // requests; nil: not started
	group   micro.Service        // the common guard; nil: not started
	calls   sync.RWMutex         // read-locked while a guard request is answered

	mu struct {
		sync.Mutex
		attached map[*shard.Queue][]*nats.Subscription
		dead     map[string]*shard.Queue // attached dead letter queues by enqueue subject, see attachDead
		enqueues chan *nats.Msg          // enqueues to them
		closed   chan nats.Status        // ends refuseDead; nil: it is not running
	}
}

// deadBacklog is how many enqueues to dead letter queues may wait to be refused. Further ones get
// no answer.
const deadBacklog = 16_384

// New returns a Front without subscriptions.
func New(o Options) *Front {
	f := &Front{Options: o}
	f.mu.attached = make(map[*shard.Queue][]*nats.Subscription)
	f.mu.dead = make(map[string]*shard.Queue)
	return f
}

// interest is a subject and its handler.
type interest struct {
	subject string
	handle  nats.MsgHandler
}

// Attach subscribes to the enqueues of a queue and, if Exact, to its acks and requests. Enqueues
// to a dead letter queue are refused.
func (f *Front) Attach(q *shard.Queue) error {
	if q.IsDLQ() && !f.Exact {
		return f.attachDead(q)
	}
	interests := []interest{{f.Subjects.Enqueue(q.Name()), func(m *nats.Msg) { f.enqueue(q, m) }}}
	if f.Exact {
		interests = append(f.queueInterests(q), interests...) // acks before deliveries can be acked
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

// attachDead subscribes to the enqueues of a dead letter queue. One goroutine refuses them for
// all queues, because there are hardly any.
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

// detachDead forgets a dead letter queue. Its caller holds mu.
func (f *Front) detachDead(subject string) {
	delete(f.mu.dead, subject)
	if len(f.mu.dead) == 0 {
		f.Conn.RemoveStatusListener(f.mu.closed)
		f.mu.closed = nil
	}
}

// refuseDead refuses enqueues to dead letter queues until there are none or the connection ends.
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

// queueInterests returns the subjects of a queue besides its enqueues.
func (f *Front) queueInterests(q *shard.Queue) []interest {
	own := func(string) *shard.Queue { return q }
	return []interest{
		{f.Subjects.AckOf(q.Name()), func(m *nats.Msg) { f.ack(own, q.Refuse, wire.ParseAck, m) }},
		{f.Subjects.NackOf(q.Name()), func(m *nats.Msg) { f.ack(own, q.Refuse, wire.ParseNack, m) }},
		{f.Subjects.Consumer("*", q.Name()), f.directRequest(q, f.Subjects.ParseConsumer, f.consumer)},
		{f.Subjects.Consume(q.Name()), f.directRequest(q, f.nameless(wire.KindConsume), f.consume)},
		{f.Subjects.Fetch(q.Name()), f.directRequest(q, f.nameless(wire.KindFetch), f.fetch)},
	}
}

// subscribe subscribes to a subject, without limits on pending messages.
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

// enqueue passes a message to its queue.
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

// flushTimeout bounds the wait for the server to process subscriptions.
const flushTimeout = 10 * time.Second

// Flush waits until the NATS server has processed everything that was sent.
func (f *Front) Flush() error { return flush(context.Background(), f.Conn) }

func flush(ctx context.Context, conn *nats.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	if err := conn.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("flush to NATS: %w", err)
	}
	return nil
}

// Detach unsubscribes from the subjects of Attach. It closes the channel that it returns when
// everything that had arrived is accepted or refused; a plain Unsubscribe would drop messages
// without an answer.
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
			if dead { // it accepts nothing, so nothing is lost
				if err := sub.Unsubscribe(); err != nil {
					f.Log.Debug("unsubscribe", "subject", sub.Subject, "error", err)
				}
				continue
			}
			closed := make(chan struct{})
			end := sync.OnceFunc(func() { close(closed) }) // the connection may close before Drain is called
			sub.SetClosedHandler(func(string) { end() })
			if err := sub.Drain(); err != nil {
				f.Log.Debug("drain", "queue", q.Name(), "error", err)
				end()
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
		complete := flush(context.Background(), conn) == nil // everything that the server sent has arrived
		for sub, closed := range ending {
			handled(sub, closed, complete)
		}
	}()
	return done
}

// handledInterval is how often handled checks a subscription. The library itself checks drained
// subscriptions every 100 ms, too long for a queue that nobody serves meanwhile.
const handledInterval = time.Millisecond

// handled waits until everything that arrived by a subscription is handled, provided that nothing
// more can arrive, or until the subscription is closed.
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

// parseAck decodes an ack or nack.
type parseAck func(payload []byte, headers map[string][]string) (wire.Ack, *wire.Error)

// ServeAcks subscribes to the acks and nacks of all queues, unless Attach does so for each queue.
// Nothing may be delivered before it returns, because the server has to know the reply subjects
// first.
func (f *Front) ServeAcks(s *shard.Set) error {
	if f.Exact {
		return nil
	}
	for _, kind := range []struct {
		subject string
		parse   parseAck
	}{
		{f.Subjects.Wildcard(wire.KindAck), wire.ParseAck},
		{f.Subjects.Wildcard(wire.KindNack), wire.ParseNack},
	} {
		sub, err := f.subscribe(kind.subject, func(m *nats.Msg) { f.ack(s.Queue, s.Refuse, kind.parse, m) })
		if err != nil {
			return fmt.Errorf("subscribe to %s: %w", kind.subject, err)
		}
		f.acks = append(f.acks, sub)
	}
	return f.Flush()
}

// StopAcks ends what ServeAcks started.
func (f *Front) StopAcks() {
	for _, sub := range f.acks {
		if err := sub.Unsubscribe(); err != nil {
			f.Log.Debug("unsubscribe", "subject", sub.Subject, "error", err)
		}
	}
}

// ack passes an ack or nack to the queue that find returns for the name in its token. refuse
// answers if there is none.
func (f *Front) ack(find func(name string) *shard.Queue, refuse func(reply string, err *wire.Error), parse parseAck, m *nats.Msg) {
	token, name, ok := f.Subjects.ParseToken(m.Subject)
	q := find(name)
	if q != nil {
		refuse = q.Refuse
	}
	switch err := f.checkReply(m.Subject, m.Reply); {
	case err != nil:
		refuse("", err)
	case !ok:
		refuse(m.Reply, wire.BadSubject(m.Subject))
	case q == nil:
		refuse(m.Reply, wire.QueueNotFound(name))
	default:
		f.passAck(q, token, parse, m)
	}
}

// passAck checks the token of an ack or nack and passes it to the queue.
func (f *Front) passAck(q *shard.Queue, token string, parse parseAck, m *nats.Msg) {
	name := q.Name()
	if wire.IsBatch(token) {
		f.passBatchAck(q, token, parse, m)
		return
	}
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

// passBatchAck is passAck for a batch of deliveries.
func (f *Front) passBatchAck(q *shard.Queue, token string, parse parseAck, m *nats.Msg) {
	all, err := f.Signer.ParseBatch(token, q.Name())
	if err != nil {
		q.Refuse(m.Reply, wire.TokenRefused())
		return
	}
	var acks []wire.PartAck
	werr := f.refusedHeaders(m.Header)
	if werr == nil {
		acks, werr = wire.ParseBatchAck(m.Data, m.Header, len(all), parse)
	}
	if werr == nil {
		werr = q.AckBatch(all, acks, m.Reply, m.Sub)
	}
	if werr != nil {
		q.Refuse(m.Reply, werr)
	}
}
