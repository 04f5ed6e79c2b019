package queue

import (
	"slices"

	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/sidecar/queue/container"
)

// order is strict order per key (ordering = "key"): the messages of a fairness key
// wait in the order of their sequences and are let into the schedule one at a time.
// The one that is let in owns its key until it is finished, through its delivery,
// its failures and the delays of its retries, so nothing of the key passes it.
//
// With on_blocked = "skip" a message gives its key up while it waits for a gate or
// for a retry; when it can go on it takes its place again, in front of what has not
// been delivered by then. Never are two of a key in flight.
type order struct {
	on, skip bool
	keys     map[drr.Flow]*keyOrder
	waiting  int64 // messages that wait for their predecessors
}

// keyOrder is a fairness key with something to put in order.
type keyOrder struct {
	waiting container.List
	plain   int64    // of waiting, those without gates
	owner   uint64   // the message that owns the key; 0: none
	also    []uint64 // in flight beside it, since before the queue was ordered or after a crash
}

// setOrdering makes a change of the queue's settings count.
func (q *side) setOrdering(on, skip bool) {
	begin := skip && !q.order.skip
	q.order.skip = skip
	if q.order.on == on {
		if on && begin {
			q.yieldIdle()
		}
		return
	}
	q.order.on = on
	if on {
		// What is leased or judged owns its key; what is pending is
		// put in order when its turn comes.
		for seq, s := range q.slots.From(0) {
			if s.state == slotLeased || s.state == slotFailing {
				if o := q.orderOf(s.flow); o.owner == 0 {
					o.give(seq, s)
				} else {
					o.also = append(o.also, seq)
				}
			}
		}
		return
	}
	var free []uint64
	for _, o := range q.order.keys {
		for o.waiting.Head() != 0 {
			seq := q.links.Seq(o.waiting.Head())
			free = append(free, seq)
			q.leaveOrder(q.slots.Get(seq), o)
		}
	}
	slices.Sort(free) // not in the order of a map
	clear(q.order.keys)
	for _, s := range q.slots.From(0) {
		s.owns = false
	}
	for _, seq := range free {
		q.pendNow(seq, q.slots.Get(seq))
	}
}

// yieldIdle has messages that wait for a gate or for their retry give up their keys.
func (q *side) yieldIdle() {
	var idle []uint64
	for _, o := range q.order.keys {
		if s := q.slots.Get(o.owner); s != nil && (s.state == slotDelayed || q.isBlocked(s)) {
			idle = append(idle, o.owner)
		}
	}
	slices.Sort(idle) // not in the order of a map
	for _, seq := range idle {
		q.yield(q.slots.Get(seq))
	}
}

func (q *side) orderOf(f drr.Flow) *keyOrder {
	o := q.order.keys[f]
	if o == nil {
		o = &keyOrder{}
		q.order.keys[f] = o
	}
	return o
}

// give makes message seq the owner of its key.
func (o *keyOrder) give(seq uint64, s *slot) { o.owner, s.owns = seq, true }

// queueUp puts message seq, which could be delivered as far as it is concerned,
// to its place among those of its key. If it owns the key it hands it over.
func (q *side) queueUp(seq uint64, s *slot) {
	o := q.orderOf(s.flow)
	o.also = slices.DeleteFunc(o.also, func(other uint64) bool { return other == seq })
	s.state = slotOrdered
	s.ref = q.links.Insert(&o.waiting, seq, int64(seq))
	q.countOrdered(s, o, 1)
	if s.owns {
		q.yield(s)
	} else {
		q.letIn(s.flow, o)
	}
}

// letIn lets the first message of a key that nobody owns into the schedule. One
// that is blocked at once, behind others of its subqueue, does not own the key if the
// next one may pass.
func (q *side) letIn(f drr.Flow, o *keyOrder) {
	for o.owner == 0 {
		if o.waiting.Len() == 0 {
			delete(q.order.keys, f)
			return
		}
		seq := q.links.Seq(o.waiting.Head())
		s := q.slots.Get(seq)
		q.leaveOrder(s, o)
		q.pendNow(seq, s)
		if !q.order.skip || !q.isBlocked(s) {
			o.give(seq, s)
		}
	}
}

// leaveOrder takes a message out of those that wait for their predecessors.
func (q *side) leaveOrder(s *slot, o *keyOrder) {
	q.links.Remove(&o.waiting, s.ref)
	q.countOrdered(s, o, -1)
	s.state = slotMoving
}

// countOrdered counts messages that wait for their predecessors.
func (q *side) countOrdered(s *slot, o *keyOrder, n int32) {
	q.order.waiting += int64(n)
	if s.sub != 0 {
		q.gating.subs.at(s.sub).ordered += n
	} else {
		o.plain += int64(n)
	}
}

// yield ends the ownership of s of its key.
func (q *side) yield(s *slot) {
	if !s.owns {
		return
	}
	s.owns = false
	o := q.order.keys[s.flow]
	if o == nil {
		return
	}
	o.owner = 0
	if i := q.heir(o); i >= 0 {
		o.give(o.also[i], q.slots.Get(o.also[i]))
		o.also = slices.Delete(o.also, i, i+1)
		return
	}
	q.letIn(s.flow, o)
}

// heir returns which of the messages beside the owner of a key owns it next: one in
// flight, or the first that waits for its retry and keeps its place so; -1: none.
func (q *side) heir(o *keyOrder) int {
	o.also = slices.DeleteFunc(o.also, func(seq uint64) bool {
		s := q.slots.Get(seq)
		return s == nil || s.state != slotDelayed && !q.inFlight(seq)
	})
	if i := slices.IndexFunc(o.also, q.inFlight); i >= 0 || q.order.skip || len(o.also) == 0 {
		return i
	}
	if o.waiting.Len() > 0 && q.links.Seq(o.waiting.Head()) < o.also[0] {
		return -1
	}
	return 0
}

// mayOwn reports whether message seq owns its key and may be delivered again: no
// other of the key is in flight beside it, and none that is older waits. Such others
// are from before the queue was ordered.
func (q *side) mayOwn(seq uint64, s *slot) bool {
	if !s.owns {
		return false
	}
	o := q.order.keys[s.flow]
	return !slices.ContainsFunc(o.also, q.inFlight) && (o.waiting.Len() == 0 || q.links.Seq(o.waiting.Head()) > seq)
}

// inFlight reports whether message seq is with a consumer, or being judged.
func (q *side) inFlight(seq uint64) bool {
	s := q.slots.Get(seq)
	return s != nil && (s.state == slotLeased || s.state == slotFailing)
}

// inOrder decides whether message seq, which is next in the schedule, may go as
// far as the order of its key is concerned; otherwise it takes it out. One that
// does not own its key is probing a gate, or has been pending since before
// the queue was ordered.
func (q *side) inOrder(seq uint64, s *slot) bool {
	if s.owns {
		return true
	}
	o := q.orderOf(s.flow)
	if o.owner != 0 {
		owner := q.slots.Get(o.owner)
		if owner.state != slotWaiting || o.owner < seq {
			q.unlist(s)
			q.queueUp(seq, s)
			q.followSub(q.subOf(s), seq)
			return false
		}
		// The owner has not gone yet and is the younger one: it steps back.
		q.unlist(owner)
		younger := o.owner
		owner.owns = false
		o.give(seq, s)
		q.queueUp(younger, owner)
		q.followSub(q.subOf(owner), younger)
		return true
	}
	o.give(seq, s)
	return true
}

// followSub puts what waits in a subqueue and is younger than message seq among those
// that wait for their predecessors, since that message has just gone there: it must
// not be overtaken.
func (q *side) followSub(id subID, seq uint64) {
	if id == 0 {
		return
	}
	var younger []uint64
	for _, link := range q.links.Links(&q.gating.subs.at(id).list) {
		if n := q.links.Seq(link); n > seq {
			younger = append(younger, n)
		}
	}
	for _, n := range younger {
		s := q.slots.Get(n)
		q.unlist(s)
		q.queueUp(n, s)
	}
}

// orderBlocked is told that a gate holds s back.
func (q *side) orderBlocked(s *slot) {
	if q.order.skip {
		q.yield(s)
	}
}

// orderSubBlocked is told that a gate holds a subqueue of a flow back.
func (q *side) orderSubBlocked(id subID, f drr.Flow) {
	if o := q.order.keys[f]; o != nil && o.owner != 0 {
		if s := q.slots.Get(o.owner); q.subOf(s) == id && q.isBlocked(s) {
			q.orderBlocked(s)
		}
	}
}

// orderDelayed is told that message s waits for its retry.
func (q *side) orderDelayed(s *slot) {
	if q.order.skip {
		q.yield(s)
	}
}
