package queue

import (
	"github.com/filaq/fila/sidecar/queue/backlog"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/store"
)

// Operators change messages: Purge, Remove and RunNow. Each hands the open commit to
// the store and is a commit of its own. So it is on disk when its ticket comes back, and
// not before the messages that it is about.

func (c Purge) apply(q *side) {
	h := &Handled{}
	q.m.out.Handled = h
	var found []uint64
	n := 0
	for seq := range q.Slots.From(c.From) {
		if seq > c.Last {
			break
		}
		if n++; n > c.Max {
			h.Next = seq
			break
		}
		found = append(found, seq)
	}
	h.Done = q.removeWaiting(found, c.Ticket)
}

func (c Remove) apply(q *side) {
	s, h := q.find(c.Seq, c.ID)
	if q.m.out.Handled = h; s != nil {
		h.Done = q.removeWaiting([]uint64{c.Seq}, c.Ticket)
	}
}

func (c RunNow) apply(q *side) {
	s, h := q.find(c.Seq, c.ID)
	if q.m.out.Handled = h; s == nil || s.State != backlog.Delayed {
		return
	}
	h.Done = 1
	q.m.flush()
	s.State, s.ReadyAt, s.Stored = backlog.Moving, q.m.now, true
	q.Delays.Dropped()
	b := q.m.journal.fresh()
	b.Ticket = c.Ticket
	b.State = append(b.State, store.State{Ref: q.ref(c.Seq), Attempts: s.Attempts, ReadyAt: s.ReadyAt})
	q.m.submit(b)
	q.ready(c.Seq, s)
}

// find returns the slot of message seq if it has that id; nil: the message is not here,
// or not on disk here.
func (q *side) find(seq uint64, id store.ID) (*backlog.Slot, *Handled) {
	if a := q.Arriving[seq]; a != nil && a.Message.ID == id {
		return nil, &Handled{Found: true, State: inspect.StateMoving}
	}
	s := q.Slots.Get(seq)
	if s == nil || s.ID != id {
		return nil, &Handled{}
	}
	return s, &Handled{Found: true, State: q.reader.MessageState(seq, s, q.m.now)}
}

// removeWaiting removes the messages that wait, and returns how many.
func (q *side) removeWaiting(seqs []uint64, ticket any) (n int64) {
	q.m.flush()
	b := q.m.journal.fresh()
	for _, seq := range seqs {
		if s := q.Slots.Get(seq); q.pull(s) {
			b.Finish = append(b.Finish, q.ref(seq))
			q.forget(seq, s, neutral, q.m.now)
			n++
		}
	}
	if n == 0 {
		q.m.journal.recycle(b)
		return 0
	}
	b.Ticket = ticket
	q.count().Removed += n
	q.m.submit(b)
	return n
}
