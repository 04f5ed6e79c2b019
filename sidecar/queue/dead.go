package queue

import (
	"errors"
	"math"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// cause is why a message becomes a dead letter.
type cause struct {
	reason, err, code string
	reply             string // who waits for it to be on disk; empty: nobody
	past              *Past  // the attempt that was the last; nil: there was none
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
		c.History = append(c.History, store.Attempt{Ref: msg.Ref, Record: why.past.Append(nil)})
	}
	c.dead = append(c.dead, arrival{from: seq, msg: msg, size: s.size})
	if why.reply != "" {
		c.Replies = append(c.Replies, Reply{Kind: ReplyDone, Subject: why.reply})
	}
	c.Notes = append(c.Notes, Note{Kind: NoteDeadLettered, Side: q.which, ID: msg.ID, Dead: msg.Dead})
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
		if err == nil {
			to.arrive(a, q.m.now)
			continue
		}
		t := to.tally()
		t.Messages--
		t.Bytes -= int64(a.size)
		if !errors.Is(err, store.ErrNoQueue) {
			q.note(Note{Kind: NoteStuck, ID: a.msg.ID, Seq: a.from, Err: err})
		}
	}
}

// pickBytes is after how many bytes a Pick takes no more.
const pickBytes = 16 << 20

func (c Pick) apply(q *side) {
	p := &Picked{Next: c.From}
	var bytes int64
	for seq, s := range q.slots.From(c.From) {
		if len(p.Letters) == c.Max || bytes >= pickBytes || seq > c.Last {
			break
		}
		p.Next = seq + 1
		if s.state != slotWaiting {
			continue
		}
		q.unlist(s)
		bytes += int64(s.size)
		p.Letters = append(p.Letters, Letter{Seq: seq, Size: int64(s.size), Message: store.Message{
			ID: s.id, EnqueuedAt: s.enqueuedAt, Cost: s.cost,
			Key: q.keys.name(s.flow), Weight: uint32(q.keys.weight(s.flow)),
		}})
	}
	q.m.out.Picked = p
}

func (c Redrive) apply(q *side) {
	q.putBackPicked(c.Stay)
	if len(c.Go) == 0 {
		return
	}
	to := &q.m.sides[Main]
	q.m.flush()
	b := q.m.journal.fresh()
	b.Ticket, b.redrive = c.Ticket, &c
	again := (&Past{Outcome: wire.AttemptRedriven, At: q.m.now}).Append(nil)
	t := to.tally()
	for i := range c.Go {
		g := &c.Go[i]
		g.Message.Ref = to.ref(to.nextSeq())
		b.Move = append(b.Move, store.Move{From: q.ref(g.From), To: g.Message})
		b.History = append(b.History, store.Attempt{Ref: g.Message.Ref, Record: again})
		t.Messages++
		t.Bytes += g.Size
	}
	q.m.submit(b)
}

// redriven is told the outcome of a redrive. If it was refused all of its letters
// stay.
func (q *side) redriven(c *Commit, err error) {
	to := &q.m.sides[Main]
	t := to.tally()
	letters := c.redrive.Go
	if err != nil {
		stay := make([]uint64, len(letters))
		for i := range letters {
			g := &letters[i]
			stay[i] = g.From
			t.Messages--
			t.Bytes -= g.Size
			if g.Counted != nil {
				g.Counted.Add(g.Message.Key, -1)
			}
		}
		q.putBackPicked(stay)
		return
	}
	t.Redriven += int64(len(letters))
	for i := range letters {
		g := &letters[i]
		q.forget(g.From, q.slots.Get(g.From), neutral, q.m.now)
		to.arrive(&arrival{msg: g.Message, size: uint32(g.Size), counted: g.Counted}, q.m.now)
	}
}

// pickedStamp is where letters that were picked go back to: in front of all, in the
// order of their sequences.
const pickedStamp = math.MinInt64 / 2

// putBackPicked makes letters that were picked wait again, each at its place.
func (q *side) putBackPicked(seqs []uint64) {
	for _, seq := range seqs {
		q.enter(seq, q.slots.Get(seq), pickedStamp+int64(seq))
	}
}
