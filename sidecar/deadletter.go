package sidecar

import (
	"errors"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

type deadLetterCause struct {
	reason, err, code string
	reply             string
}

// deadLetter moves message seq, which no place holds any more or a lease, to
// the dead letter queue. The move is a batch of its own: if the record cannot
// be read, it alone is refused, and the message comes back at the next start.
func (l *loop) deadLetter(seq uint64, s *slot, cause deadLetterCause, now int64) {
	dlq := l.q.dlq
	a := &arrival{size: s.size, msg: store.Message{
		Ref:        store.Ref{Queue: dlq.id, Seq: dlq.nextSeq()},
		ID:         s.id,
		EnqueuedAt: s.enqueuedAt,
		Key:        l.keys.name(s.flow),
		Weight:     uint32(l.keys.weight(s.flow)),
		Cost:       s.cost,
		Dead: &store.Dead{
			Reason: cause.reason, Error: cause.err, ErrorCode: cause.code,
			SourceQueue: l.q.name, At: now, Attempts: s.attempts,
		},
	}}
	l.flush()
	dlq.depth.Add(1)
	dlq.bytes.Add(int64(s.size))
	q, from := l.q, l.ref(seq)
	q.core.store.Submit(&store.Batch{
		Move: []store.Move{{From: from, To: a.msg}},
		Done: func(err error) { q.deadLettered(from, a, cause, err) },
	})
	q.metrics.deadLettered.Inc()
	if cause.reason == wire.ReasonExpired {
		q.metrics.ttlExpired.Inc()
	}
	l.forget(seq, s, neutral, now)
}

// deadLettered runs when a move to the dead letter queue has been committed or
// refused.
func (q *queue) deadLettered(from store.Ref, a *arrival, cause deadLetterCause, err error) {
	c := q.core
	switch {
	case err == nil:
		q.dlq.tell(func(l *loop) { l.arrive(a, c.clock.Now()) })
		if cause.reply != "" {
			c.publish(cause.reply, nil)
		}
		c.event(wire.EventDeadLettered, q.name, wire.Event{Queue: q.name, Data: map[string]any{
			"id": formatID(a.msg.ID), "reason": cause.reason, "error": cause.err, "attempts": a.msg.Dead.Attempts,
		}})
	case errors.Is(err, store.ErrNoQueue):
		c.replyError(cause.reply, q.gone())
	case errors.Is(err, store.ErrCorrupt), errors.Is(err, store.ErrNotFound):
		c.log.Error("a message cannot be dead-lettered; it stays in the store, undelivered until the next start",
			"queue", q.name, "id", formatID(a.msg.ID), "seq", from.Seq, "error", err)
		q.dlq.depth.Add(-1)
		q.dlq.bytes.Add(-int64(a.size))
		c.replyError(cause.reply, c.commitError(err))
	default:
		c.fail(err)
		c.replyError(cause.reply, c.commitError(err))
	}
}
