package queue

import (
	"errors"

	"github.com/filaq/fila/sidecar/queue/backlog"
	"github.com/filaq/fila/sidecar/queue/history"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// deadLetterExpired moves message seq, whose TTL is over, to the DLQ.
func (q *side) deadLetterExpired(seq uint64, s *backlog.Slot, now int64) {
	q.deadLetter(seq, s, store.Dead{Reason: wire.ReasonExpired}, nil, Confirmation{}, now)
}

// deadLetterFailed moves message seq to the DLQ because of its last attempt, which has the reason.
func (q *side) deadLetterFailed(seq uint64, s *backlog.Slot, last *history.AttemptRecord, confirm Confirmation, now int64) {
	q.deadLetter(seq, s, store.Dead{Reason: last.Reason, Error: last.Error, ErrorCode: last.Code}, last, confirm, now)
}

// deadLetter moves message seq, which is in no place or leased, to the DLQ for a reason, with the record
// of the attempt that it ends with, if it is one. confirm waits for the disk. The move is
// a commit of its own: if the record cannot be read, it alone is refused, and the
// message comes back at the next start.
func (q *side) deadLetter(seq uint64, s *backlog.Slot, why store.Dead, last *history.AttemptRecord, confirm Confirmation, now int64) {
	why.SourceQueue, why.At, why.Attempts = q.name, now, s.Attempts
	to := &q.m.sides[Dead]
	msg := store.Message{
		Ref:        to.ref(to.nextSeq()),
		ID:         s.ID,
		EnqueuedAt: s.EnqueuedAt,
		Class:      q.Class(s),
		Dead:       &why,
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
