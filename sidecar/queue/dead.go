package queue

import (
	"errors"

	"github.com/filaq/fila/sidecar/queue/backlog"
	"github.com/filaq/fila/sidecar/queue/history"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// cause is why a message becomes a dead letter.
type cause struct {
	reason, err, code string
	confirm           Confirmation
	last              *history.AttemptRecord // the last attempt; nil: there was none
}

// deadLetter moves message seq, which is in no place or leased, to the DLQ. The move is
// a commit of its own: if the record cannot be read, it alone is refused, and the
// message comes back at the next start.
func (q *side) deadLetter(seq uint64, s *backlog.Slot, why cause, now int64) {
	to := &q.m.sides[Dead]
	msg := store.Message{
		Ref:        to.ref(to.nextSeq()),
		ID:         s.ID,
		EnqueuedAt: s.EnqueuedAt,
		Class:      q.Class(s),
		Dead: &store.Dead{
			Reason: why.reason, Error: why.err, ErrorCode: why.code,
			SourceQueue: q.name, At: now, Attempts: s.Attempts,
		},
	}
	q.m.flush()
	c := q.m.journal.fresh()
	c.Move = append(c.Move, store.Move{From: q.ref(seq), To: msg})
	if why.last != nil {
		q.m.journal.addHistory(c, msg.Ref, why.last)
	}
	c.dead = append(c.dead, backlog.Arrival{From: seq, Message: msg, Size: s.Size})
	if to.Arriving == nil {
		to.Arriving = make(map[uint64]*backlog.Arrival)
	}
	to.Arriving[msg.Seq] = &c.dead[0]
	if why.confirm.Awaited() {
		c.Replies = append(c.Replies, Reply{Kind: ReplyDone, Confirmation: why.confirm})
	}
	c.Notes = append(c.Notes, Note{Kind: NoteDeadLettered, Role: q.role, ID: msg.ID, Key: msg.Key, Dead: msg.Dead})
	q.m.submit(c)

	to.countMessage(1, int64(s.Size))
	if why.reason == wire.ReasonExpired {
		q.count().TTLExpired++
	}
	q.forget(seq, s, neutral, now)
}

// deadLettered handles the outcome of the moves of c to the DLQ.
func (q *side) deadLettered(c *Commit, err error) {
	to := &q.m.sides[Dead]
	for i := range c.dead {
		a := &c.dead[i]
		delete(to.Arriving, a.Message.Seq)
		if err == nil {
			to.arrive(&a.Message, int64(a.Size), nil, q.m.now)
			continue
		}
		to.countMessage(-1, int64(a.Size))
		if !errors.Is(err, store.ErrNoQueue) {
			q.note(Note{Kind: NoteMoveFailed, ID: a.Message.ID, Seq: a.From, Err: err})
		}
	}
}
