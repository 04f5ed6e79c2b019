package queue

import (
	"errors"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// cause is why a message becomes a dead letter.
type cause struct {
	reason, err, code string
	reply             string         // who waits for it to be on disk; empty: nobody
	past              *AttemptRecord // the attempt that was the last; nil: there was none
}

// deadLetter moves message seq, which no place holds any more or a lease, to the
// dead letters. The move is a commit of its own: if the record cannot be read, it
// alone is refused, and the message comes back at the next start.
func (q *side) deadLetter(seq uint64, s *slot, why cause, now int64) {
	to := &q.m.sides[Dead]
	msg := store.Message{
		Ref:        to.ref(to.nextSeq()),
		ID:         s.id,
		EnqueuedAt: s.enqueuedAt,
		Key:        q.keys.name(s.flow),
		Weight:     uint32(q.keys.weight(s.flow)),
		Cost:       s.cost,
		Dead: &store.Dead{
			Reason: why.reason, Error: why.err, ErrorCode: why.code,
			SourceQueue: q.name, At: now, Attempts: s.attempts,
		},
	}
	q.m.flush()
	c := q.m.journal.fresh()
	c.Move = append(c.Move, store.Move{From: q.ref(seq), To: msg})
	if why.past != nil {
		q.m.journal.record(c, msg.Ref, why.past)
	}
	c.dead = append(c.dead, arrival{from: seq, msg: msg, size: s.size})
	if to.dying == nil {
		to.dying = make(map[uint64]*arrival)
	}
	to.dying[msg.Seq] = &c.dead[0]
	if why.reply != "" {
		c.Replies = append(c.Replies, Reply{Kind: ReplyDone, Subject: why.reply})
	}
	c.Notes = append(c.Notes, Note{Kind: NoteDeadLettered, Role: q.which, ID: msg.ID, Key: msg.Key, Dead: msg.Dead})
	q.m.submit(c)

	t := to.tally()
	t.Messages++
	t.Bytes += int64(s.size)
	if why.reason == wire.ReasonExpired {
		q.tally().TTLExpired++
	}
	q.forget(seq, s, neutral, now)
}

// deadLettered is told the outcome of the moves of c, which left this side.
func (q *side) deadLettered(c *Commit, err error) {
	to := &q.m.sides[Dead]
	for i := range c.dead {
		a := &c.dead[i]
		delete(to.dying, a.msg.Seq)
		if err == nil {
			to.arrive(a, q.m.now)
			continue
		}
		t := to.tally()
		t.Messages--
		t.Bytes -= int64(a.size)
		if !errors.Is(err, store.ErrNoQueue) {
			q.note(Note{Kind: NoteMoveFailed, ID: a.msg.ID, Seq: a.from, Err: err})
		}
	}
}
