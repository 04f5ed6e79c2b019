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
}

// Front holds fila's subscriptions. Its exported methods may be called from any
// goroutine, except those that begin and end acks and requests, which its owner
// calls once.
type Front struct {
	Options

	acks    []*nats.Subscription // acks and nacks
	service micro.Service        // requests; nil: not begun
	group   micro.Service        // of the common guard; nil: not begun
	calls   sync.RWMutex         // held to read while a request of the guard is answered

	mu struct {
		sync.Mutex
		enqueues map[*shard.Queue]*nats.Subscription
	}
}

// New returns a Front without subscriptions.
func New(o Options) *Front {
	f := &Front{Options: o}
	f.mu.enqueues = make(map[*shard.Queue]*nats.Subscription)
	return f
}

// Attach subscribes to the enqueues of a queue. A dead letter queue takes nothing,
// but answers producers who try.
func (f *Front) Attach(q *shard.Queue) error {
	sub, err := f.subscribe(f.Subjects.Enqueue(q.Name()), func(m *nats.Msg) { f.enqueue(q, m) })
	if err != nil {
		return fmt.Errorf("subscribe to enqueues of %s: %w", q.Name(), err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.enqueues[q] = sub
	return nil
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
	if err := q.Accept(m); err != nil {
		q.Refuse(m.Reply, err)
	}
}

// flushTimeout bounds the wait for the server to have taken subscriptions.
const flushTimeout = 10 * time.Second

// Flush waits until the NATS server has taken what was sent to it.
func (f *Front) Flush() error {
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if err := f.Conn.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("flush to NATS: %w", err)
	}
	return nil
}

// Detach unsubscribes from the enqueues of queues. What it returns is closed when
// everything that had arrived has been taken or answered: a plain Unsubscribe would
// drop it without an answer.
func (f *Front) Detach(queues ...*shard.Queue) <-chan struct{} {
	var closed sync.WaitGroup
	for _, q := range queues {
		f.mu.Lock()
		sub := f.mu.enqueues[q]
		delete(f.mu.enqueues, q)
		f.mu.Unlock()
		if sub == nil {
			continue
		}
		closed.Add(1)
		sub.SetClosedHandler(func(string) { closed.Done() })
		if err := sub.Drain(); err != nil {
			f.Log.Debug("drain", "queue", q.Name(), "error", err)
			closed.Done()
		}
	}
	done := make(chan struct{})
	go func() { closed.Wait(); close(done) }()
	return done
}

// parseAck reads what came on a reply subject.
type parseAck func(payload []byte, headers map[string][]string) (wire.Ack, *wire.Error)

// ServeAcks subscribes to acks and nacks of all queues of s. Nothing may be delivered
// before it returns: the server must know the reply subjects when the first message
// goes out.
func (f *Front) ServeAcks(s *shard.Set) error {
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
	t, err := f.Signer.Parse(token, name)
	if err != nil {
		q.Refuse(m.Reply, wire.TokenRefused())
		return
	}
	ack, werr := parse(m.Data, m.Header)
	if werr == nil {
		werr = q.Ack(t, ack, m.Reply, m.Sub)
	}
	if werr != nil {
		q.Refuse(m.Reply, werr)
	}
}
