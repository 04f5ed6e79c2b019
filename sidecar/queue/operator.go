package queue

import "github.com/filaq/fila/store"

// What operators do to messages by hand: Purge, Remove and RunNow. Each hands the open
// commit in and is a commit of its own, so that it is on disk when the ticket comes
// back, and nothing of it before that of the messages.

func (c Purge) apply(q *side) {
	h := &Handled{}
	q.m.out.Handled = h
	var found []uint64
	looks := 0
	for seq := range q.slots.From(c.From) {
		if seq > c.Last {
			break
		}
		if looks++; looks > c.Max {
			h.Next = seq
			break
		}
		found = append(found, seq)
	}
	h.Done = q.remove(found, c.Ticket)
}

func (c Remove) apply(q *side) {
	s, h := q.named(c.Seq, c.ID)
	if q.m.out.Handled = h; s != nil {
		h.Done = q.remove([]uint64{c.Seq}, c.Ticket)
	}
}

func (c RunNow) apply(q *side) {
	s, h := q.named(c.Seq, c.ID)
	if q.m.out.Handled = h; s == nil || s.state != slotDelayed {
		return
	}
	h.Done = 1
	q.m.flush()
	s.state, s.readyAt, s.stored = slotMoving, q.m.now, true
	q.delays.Dropped()
	b := q.m.journal.fresh()
	b.Ticket = c.Ticket
	b.State = append(b.State, store.State{Ref: q.ref(c.Seq), Attempts: s.attempts, ReadyAt: s.readyAt})
	q.m.submit(b)
	q.pend(c.Seq, s)
}

// named returns the slot of message seq if it has that id; nil: it is not here, or
// not on disk here.
func (q *side) named(seq uint64, id store.ID) (*slot, *Handled) {
	s := q.slots.Get(seq)
	switch a := q.dying[seq]; {
	case a != nil && a.msg.ID == id:
		return nil, &Handled{Found: true, State: StateMoving}
	case s == nil || s.id != id:
		return nil, &Handled{}
	}
	return s, &Handled{Found: true, State: q.view(q.asking(q.m.now), seq, s).State}
}

// remove finishes those of the messages that wait, and returns how many.
func (q *side) remove(seqs []uint64, ticket any) (n int64) {
	q.m.flush()
	b := q.m.journal.fresh()
	for _, seq := range seqs {
		if s := q.slots.Get(seq); q.pull(s) {
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
	q.tally().Removed += n
	q.m.submit(b)
	return n
}
