package queue

import (
	"errors"

	"github.com/filaq/fila/sidecar/queue/backlog"
	"github.com/filaq/fila/sidecar/queue/history"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// deadLetter moves message seq, which is in no place or leased, to the DLQ: its last attempt
// has the reason, or it is nil and the TTL is over. confirm waits for the disk. The move is
// a commit of its own: if the record cannot be read, it alone is refused, and the
// message comes back at the next start.
func (q *side) deadLetter(seq uint64, s *backlog.Slot, last *history.AttemptRecord, confirm Confirmation, now int64) {
	to := &q.m.sides[Dead]
	msg := store.Message{
		Ref:        to.ref(to.nextSeq()),
		ID:         s.ID,
		EnqueuedAt: s.EnqueuedAt,
		Class:      q.Class(s),
		Dead:       &store.Dead{Reason: wire.ReasonExpired, SourceQueue: q.name, At: now, Attempts: s.Attempts},
	}
	if last != nil {
		msg.Dead.Reason, msg.Dead.Error, msg.Dead.ErrorCode = last.Reason, last.Error, last.Code
	}
	q.m.flush()
	c := q.m.journal.fresh()
	c.Move = append(c.Move, store.Move{From: q.ref(seq), To: msg})
	if last != nil {
		q.m.journal.addHistory(c, msg.Ref, last)
	}
	c.dead = append(c.dead, backlog.Arrival{From: seq, Message: msg, Size: s.Size})
	if to.Arriving == nil {
		to.Arriving = make(map[uint64]*backlog.Arrival)
	}
	to.Arriving[msg.Seq] = &c.dead[0]
	if confirm.Awaited() {
		c.Replies = append(c.Replies, Reply{Kind: ReplyDone, Confirmation: confirm})
	}
	c.Notes = append(c.Notes, Note{Kind: NoteDeadLettered, Role: q.role, ID: msg.ID, Key: msg.Key, Dead: msg.Dead})
	q.m.submit(c)

	to.countMessage(1, int64(s.Size))
	if msg.Dead.Reason == wire.ReasonExpired {
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
