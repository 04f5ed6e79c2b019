package queue

import (
	"slices"

	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/sidecar/queue/backlog"
	"github.com/filaq/fila/sidecar/queue/gates"
)

// setOrdering applies a change of the settings ordering and on_blocked.
func (q *schedule) setOrdering(on, skip bool) {
	begin := skip && !q.Order.Skip
	q.Order.Skip = skip
	switch {
	case q.Order.On == on:
		if on && begin {
			q.yieldIdle()
		}
	case on:
		// Leased and judged messages own their keys. Ready ones are put in order when the
		// schedule reaches them.
		q.Order.On = true
		for seq, s := range q.Slots.From(0) {
			if s.State != backlog.Leased && s.State != backlog.Failing {
				continue
			}
			if o := q.KeyOrder(s.Flow); o.Owner == 0 {
				o.Give(seq, s)
			} else {
				o.Also = append(o.Also, seq)
			}
		}
	default:
		q.endOrdering()
	}
}

func (q *schedule) endOrdering() {
	q.Order.On = false
	var free []uint64
	for _, o := range q.Order.Keys {
		for o.Waiting.Head() != 0 {
			seq := q.Links.Seq(o.Waiting.Head())
			free = append(free, seq)
			q.leaveOrder(q.Slots.Get(seq), o)
		}
	}
	slices.Sort(free) // not in the order of a map
	clear(q.Order.Keys)
	for _, s := range q.Slots.From(0) {
		s.Owns = false
	}
	for _, seq := range free {
		q.scheduleLast(seq, q.Slots.Get(seq))
	}
}

// yieldIdle makes messages that wait for a gate or for their retry give up their keys.
func (q *schedule) yieldIdle() {
	var idle []uint64
	for _, o := range q.Order.Keys {
		if s := q.Slots.Get(o.Owner); s != nil && (s.State == backlog.Delayed || q.isBlocked(s)) {
			idle = append(idle, o.Owner)
		}
	}
	slices.Sort(idle) // not in the order of a map
	for _, seq := range idle {
		q.yield(q.Slots.Get(seq))
	}
}

// enqueueInOrder puts message seq, which is ready, in its place among the messages of its key.
// If it owns the key, it gives the key up.
func (q *schedule) enqueueInOrder(seq uint64, s *backlog.Slot) {
	o := q.KeyOrder(s.Flow)
	o.Also = slices.DeleteFunc(o.Also, func(other uint64) bool { return other == seq })
	s.State = backlog.Ordered
	s.Ref = q.Links.Insert(&o.Waiting, seq, int64(seq))
	q.countOrdered(s, o, 1)
	if s.Owns {
		q.yield(s)
	} else {
		q.admitNext(s.Flow, o)
	}
}

// admitNext puts the first message of a key without an owner into the schedule. With
// on_blocked = "skip", a message that is blocked at once behind others of its subqueue
// does not own the key.
func (q *schedule) admitNext(f drr.Flow, o *backlog.KeyOrder) {
	for o.Owner == 0 {
		if o.Waiting.Len() == 0 {
			delete(q.Order.Keys, f)
			return
		}
		seq := q.Links.Seq(o.Waiting.Head())
		s := q.Slots.Get(seq)
		q.leaveOrder(s, o)
		q.scheduleLast(seq, s)
		if !q.Order.Skip || !q.isBlocked(s) {
			o.Give(seq, s)
		}
	}
}

// leaveOrder takes a message out of those that wait for their predecessors.
func (q *schedule) leaveOrder(s *backlog.Slot, o *backlog.KeyOrder) {
	q.Links.Remove(&o.Waiting, s.Ref)
	q.countOrdered(s, o, -1)
	s.State = backlog.Moving
}

func (q *schedule) countOrdered(s *backlog.Slot, o *backlog.KeyOrder, n int32) {
	q.Order.Waiting += int64(n)
	if s.Sub != 0 {
		q.gates.Subs.At(s.Sub).Ordered += n
	} else {
		o.Plain += int64(n)
	}
}

// yield ends the ownership of s of its key.
func (q *schedule) yield(s *backlog.Slot) {
	if !s.Owns {
		return
	}
	s.Owns = false
	o := q.Order.Keys[s.Flow]
	if o == nil {
		return
	}
	o.Owner = 0
	if next := q.NextOwner(o); next != 0 {
		o.Give(next, q.Slots.Get(next))
		return
	}
	q.admitNext(s.Flow, o)
}

// inOrder decides whether message seq, which the schedule serves next, may go as far as
// the order of its key is concerned; otherwise it takes the message out. A message that
// does not own its key is probing a gate, or has been ready since before the queue was
// ordered.
func (q *schedule) inOrder(seq uint64, s *backlog.Slot) bool {
	if s.Owns {
		return true
	}
	o := q.KeyOrder(s.Flow)
	if o.Owner == 0 {
		o.Give(seq, s)
		return true
	}
	owner := q.Slots.Get(o.Owner)
	if owner.State != backlog.Waiting || o.Owner < seq {
		q.remove(s)
		q.enqueueInOrder(seq, s)
		q.orderYounger(q.Subqueue(s), seq)
		return false
	}
	// The owner is younger and has not gone yet: it steps back.
	q.remove(owner)
	younger := o.Owner
	owner.Owns = false
	o.Give(seq, s)
	q.enqueueInOrder(younger, owner)
	q.orderYounger(q.Subqueue(owner), younger)
	return true
}

// orderYounger puts the messages of a subqueue that are younger than message seq among
// those that wait for their predecessors. That message has just gone there, and must
// not be overtaken.
func (q *schedule) orderYounger(id gates.ID, seq uint64) {
	if id == 0 {
		return
	}
	var younger []uint64
	for _, link := range q.Links.Links(&q.gates.Subs.At(id).List) {
		if n := q.Links.Seq(link); n > seq {
			younger = append(younger, n)
		}
	}
	for _, n := range younger {
		s := q.Slots.Get(n)
		q.remove(s)
		q.enqueueInOrder(n, s)
	}
}

// recoverOwner lets a message that was delivered before the restart own its fairness key.
// A key has one such message, unless the queue was not ordered then, or the end of a
// message was not on disk.
func (q *schedule) recoverOwner(seq uint64, s *backlog.Slot) {
	if !q.Order.On {
		return
	}
	o := q.KeyOrder(s.Flow)
	younger := o.Owner
	if younger != 0 && q.Slots.Get(younger).State != backlog.Waiting {
		o.Also = append(o.Also, seq)
		return
	}
	o.Give(seq, s)
	if younger != 0 {
		y := q.Slots.Get(younger)
		q.remove(y)
		y.Owns = false
		q.enqueueInOrder(younger, y)
	}
}
