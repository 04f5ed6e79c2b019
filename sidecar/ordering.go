package sidecar

import "github.com/filaq/fila/drr"

// Strict order per key (ordering = "key"): the messages of a fairness key wait in
// the order of their sequences and are let into the scheduler one at a time. The
// one that is let in holds its key until it is finished, through its delivery, its
// failures and the delays of its retries, so nothing of the key passes it.
//
// With on_blocked = "skip" a message gives its key up while it waits for a gate
// or for a retry; when it can go on it takes its place again, in front of what
// has not been delivered by then. Never are two of a key in flight.
type keyOrder struct {
	waiting linkList
	holder  uint64 // the message that holds the key
	held    bool
	also    []uint64 // in flight beside it since before the queue was ordered
}

// setOrdering makes a change of the queue's settings count.
func (l *loop) setOrdering(on, skip bool) {
	l.skipBlocked = skip
	if l.ordered == on {
		return
	}
	l.ordered = on
	if on {
		// What is leased or decided about holds its key; what is pending is
		// put in order when its turn comes.
		l.slots.from(0, func(seq uint64, s *slot) bool {
			if s.state == slotLeased || s.state == slotFailing {
				if o := l.orderOf(s.flow); !o.held {
					o.held, o.holder, s.holds = true, seq, true
				} else {
					o.also = append(o.also, seq)
				}
			}
			return true
		})
		return
	}
	var free []uint64
	for _, o := range l.orders {
		for o.waiting.head != 0 {
			free = append(free, l.links.seq(o.waiting.head))
			l.links.remove(&o.waiting, o.waiting.head)
		}
	}
	clear(l.orders)
	l.orderWaiting = 0
	l.slots.from(0, func(_ uint64, s *slot) bool {
		s.holds = false
		return true
	})
	for _, seq := range free {
		l.pendNow(seq, l.slots.get(seq))
	}
}

func (l *loop) orderOf(f drr.Flow) *keyOrder {
	o := l.orders[f]
	if o == nil {
		o = &keyOrder{}
		l.orders[f] = o
	}
	return o
}

// queueUp puts message seq, which could be delivered as far as it is concerned,
// to its place among those of its key.
func (l *loop) queueUp(seq uint64, s *slot) {
	o := l.orderOf(s.flow)
	after := o.waiting.tail
	for after != 0 && l.links.seq(after) > seq {
		after = l.links.items[after].prev
	}
	s.state = slotOrdered
	s.ref = l.links.insert(&o.waiting, after, seq)
	l.orderWaiting++
	l.letIn(s.flow, o)
}

// letIn lets the first message of a key that nobody holds into the scheduler. One
// that is parked at once, behind others of its lane, does not hold the key if the
// next one may pass.
func (l *loop) letIn(f drr.Flow, o *keyOrder) {
	for !o.held {
		if o.waiting.n == 0 {
			delete(l.orders, f)
			return
		}
		seq := l.links.seq(o.waiting.head)
		s := l.slots.get(seq)
		l.leaveOrder(s, o)
		l.pendNow(seq, s)
		if s.state != slotParked || !l.skipBlocked {
			o.held, o.holder, s.holds = true, seq, true
		}
	}
}

// leaveOrder takes a message out of those that wait for their predecessors.
func (l *loop) leaveOrder(s *slot, o *keyOrder) {
	l.links.remove(&o.waiting, s.ref)
	l.orderWaiting--
	s.state = slotMoving
}

// yield ends the hold of s on its key.
func (l *loop) yield(s *slot) {
	if !s.holds {
		return
	}
	s.holds = false
	o := l.orders[s.flow]
	if o == nil {
		return
	}
	o.held = false
	for len(o.also) > 0 {
		seq := o.also[0]
		o.also = o.also[1:]
		if other := l.slots.get(seq); other != nil && (other.state == slotLeased || other.state == slotFailing) {
			o.held, o.holder, other.holds = true, seq, true
			return
		}
	}
	l.letIn(s.flow, o)
}

// inOrder decides whether message seq, which is next in the scheduler, may go as
// far as the order of its key is concerned; otherwise it takes it out. One that
// does not hold its key was called by a gate, or has been pending since before
// the queue was ordered.
func (l *loop) inOrder(h drr.Handle, seq uint64, s *slot) bool {
	if s.holds {
		return true
	}
	o := l.orderOf(s.flow)
	if o.held {
		holder := l.slots.get(o.holder)
		if holder.state != slotPending || o.holder < seq {
			l.sched.Remove(h)
			l.unready(seq, s)
			l.queueUp(seq, s)
			l.followLane(s.lane)
			return false
		}
		// The holder has not gone yet and is the younger one: it steps back.
		l.sched.Remove(drr.Handle(holder.ref))
		l.unready(o.holder, holder)
		holder.holds, o.held = false, false
		o.held, s.holds = true, true
		younger := o.holder
		o.holder = seq
		l.queueUp(younger, holder)
		l.followLane(holder.lane)
		return true
	}
	o.held, o.holder, s.holds = true, seq, true
	return true
}

// followLane puts what a lane has parked among those that wait for their
// predecessors, since an older message of the lane has just gone there: it must
// not be overtaken.
func (l *loop) followLane(lane laneID) {
	if lane == 0 {
		return
	}
	for ln := l.lanes.at(lane); ln.list.n > 0; {
		seq := l.links.seq(ln.list.head)
		s := l.slots.get(seq)
		l.unpark(s)
		l.queueUp(seq, s)
	}
}

// orderParked is told that a gate holds s back.
func (l *loop) orderParked(s *slot) {
	if l.skipBlocked {
		l.yield(s)
	}
}

// orderDelayed is told that message s waits for its retry.
func (l *loop) orderDelayed(s *slot) {
	if l.skipBlocked {
		l.yield(s)
	}
}
