package queue

import (
	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/sidecar/queue/backlog"
	"github.com/filaq/fila/sidecar/queue/gates"
)

// leastCost is what a message counts as that has cost nothing, in thousandths: a flow
// served for nothing would be served for ever while others wait.
const leastCost = 1

// reweigh applies the present weight of a flow to the schedule and to the wait lists,
// after a change that may have brought another one.
func (q *side) reweigh(f drr.Flow) {
	if weight, changed := q.Keys.Reweigh(f); changed {
		q.Sched.SetWeight(f, weight)
		q.gates.Reweigh(f, weight)
	}
}

// headCost is what the first message that a flow may send costs, 0 if there is none.
func (q *side) headCost(f drr.Flow) int64 {
	if _, link := q.gates.First(f); link != 0 {
		return q.Cost(link)
	}
	return 0
}

// FlowChanged tells the schedule what a flow sends next. FlowChanged and
// SubqueueBlocked are part of gates.Backlog.
func (q *side) FlowChanged(f drr.Flow) {
	e, cost := &q.Keys.Entries[f], q.headCost(f)
	active := e.Active
	e.Active = cost != 0
	switch {
	case e.Active && active:
		q.Sched.SetHead(f, cost)
	case e.Active:
		q.Sched.Join(f, q.Weight(f), cost)
		e.Unserved = 0
		if q.Deficits.Len() > 0 {
			q.Sched.Correct(f, q.Deficits.Take(e.Name, q.Sched.Round()))
		}
	case active:
		q.monitor.EndStarving(e)
		if deficit := q.Sched.Leave(f); deficit > 0 {
			q.carry(f, deficit)
		}
		q.dropDeficits()
	}
}

// SubqueueBlocked counts a subqueue that has been blocked, and with on_blocked = "skip"
// makes its message give up its key.
func (q *side) SubqueueBlocked(id gates.ID, f drr.Flow, kind gates.BlockKind, began bool) {
	if began {
		q.count().Blocked[kind]++
	}
	if q.Order.On && q.Order.Skip {
		if o := q.Order.Keys[f]; o != nil && o.Owner != 0 {
			if s := q.Slots.Get(o.Owner); q.Subqueue(s) == id && q.isBlocked(s) {
				q.yield(s)
			}
		}
	}
}

// isBlocked reports whether a gate blocks message s.
func (q *side) isBlocked(s *backlog.Slot) bool {
	return s.State == backlog.Waiting && q.gates.IsBlocked(q.Subqueue(s), s.Ref)
}

// insert puts message seq into the list where it waits, at the place of stamp.
func (q *side) insert(seq uint64, s *backlog.Slot, stamp int64) {
	s.State = backlog.Waiting
	id := q.Subqueue(s)
	if id == 0 {
		plain := &q.Keys.Entries[s.Flow].Flow.Plain
		s.Ref = q.Links.InsertRanked(plain, s.Priority, seq, stamp)
		if q.Links.First(plain) == s.Ref {
			q.FlowChanged(s.Flow)
		}
		return
	}
	s.Ref = q.gates.Insert(id, s.Priority, seq, stamp, s.Cost)
	if q.Order.On && q.Order.Skip && q.isBlocked(s) {
		q.yield(s)
	}
}

// remove takes message s out of the list where it waits, without charging its flow.
func (q *side) remove(s *backlog.Slot) {
	s.State = backlog.Moving
	if id := q.Subqueue(s); id != 0 {
		q.gates.Remove(id, s.Priority, s.Ref)
		return
	}
	plain := &q.Keys.Entries[s.Flow].Flow.Plain
	first := q.Links.First(plain) == s.Ref
	q.Links.RemoveRanked(plain, s.Priority, s.Ref)
	if first {
		q.FlowChanged(s.Flow)
	}
}

// take takes s, the message that the schedule serves next, out for delivery.
func (q *side) take(id gates.ID, s *backlog.Slot, now int64) {
	e := &q.Keys.Entries[s.Flow]
	var probed gates.WaitID
	if id == 0 {
		q.Links.RemoveRanked(&e.Flow.Plain, s.Priority, s.Ref)
	} else {
		probed = q.gates.Take(id, s.Priority, s.Ref, now)
	}
	q.monitor.EndStarving(e)
	e.Unserved = 0
	cost := q.headCost(s.Flow)
	q.Sched.Take(cost)
	if e.Active = cost != 0; !e.Active {
		q.dropDeficits()
	}
	q.gates.EndProbe(probed)
}

// correct charges the flow of message s for delta (thousandths) more, or less, than was
// estimated: in the schedule, and where it waits for gates that the message passed.
func (q *side) correct(s *backlog.Slot, delta int64) {
	if delta == 0 {
		return
	}
	if !q.Sched.Correct(s.Flow, delta) && q.Sched.Active() > 0 {
		q.carry(s.Flow, delta)
	}
	if s.Sub != 0 {
		q.gates.Correct(s.Sub, s.Flow, delta)
	}
}

// carry adds to the deficit of a flow that is not in the schedule.
func (q *side) carry(f drr.Flow, deficit int64) {
	q.Deficits.Add(q.Name(f), deficit, q.Weight(f)*q.Sched.Quantum(), q.Sched.Round())
}

// dropDeficits forgets all carried deficits if the schedule is empty.
func (q *side) dropDeficits() {
	if q.Deficits.Len() > 0 && q.Sched.Active() == 0 {
		q.Deficits = backlog.Deficits{}
	}
}

// Priority with ageing. A message of priority p that has waited for t counts as one of
// priority p + t/age. Both of two waiting messages grow alike, so which one counts more
// does not depend on the time: it is the one with the smaller
//
//	(time from which it waits) - p * age
//
// The messages of a flow are sorted by such a stamp in any case, so priorities cost
// nothing where there are none, and one of ten lists where there are some
// (container.Ranks). A message is overtaken only by messages that came less than age
// times the difference of their priorities after it, and by reserved ones, which
// follow the same rule among themselves.

// defaultPriorityAge is the meaning of priority_age_ms = 0.
const defaultPriorityAge = int64(60e9)

// nextStamp is the place of a message that begins to wait.
func (q *side) nextStamp(s *backlog.Slot) int64 {
	q.stamp = max(q.stamp+1, min(s.ReadyAt, q.m.now))
	if s.Priority == 0 {
		return q.stamp
	}
	settings, p := &q.m.settings, int64(s.Priority)
	age := settings.PriorityAgeMs * 1e6
	if age == 0 {
		age = defaultPriorityAge
	}
	stamp := max(q.stamp-p*age, 1)
	if r := settings.PriorityReserved; r != 0 && p >= r {
		return stamp >> 2 // before all others of the last decades
	}
	return stamp
}
