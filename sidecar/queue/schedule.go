package queue

import (
	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/sidecar/queue/backlog"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/store"
)

// schedule decides where the messages of a role wait, and which of them is next. It is
// the gates.Backlog of its gates.
type schedule struct {
	output
	backlog.Tables
	gates   gates.Gates
	monitor inspect.Monitor
	stamp   int64 // the last stamp given, see nextStamp; redelivered messages get one below 0
}

// leastCost is what a message counts as that has cost nothing, in thousandths: a flow
// served for nothing would be served for ever while others wait.
const leastCost = 1

// reweigh applies the present weight of a flow to the schedule and to the wait lists,
// after a change that may have brought another one.
func (q *schedule) reweigh(f drr.Flow) {
	if weight, changed := q.Keys.Reweigh(f); changed {
		q.Sched.SetWeight(f, weight)
		q.gates.Reweigh(f, weight)
	}
}

// pauseKey pauses a fairness key until a time; 0 resumes it. It affects the backlog of
// the key at once.
func (q *schedule) pauseKey(key string, until int64) {
	q.Pauses.SetKey(key, until)
	if f, ok := q.Keys.IDs[key]; ok {
		q.gates.KeyChanged(f, until != 0)
	}
}

// headCost is what the first message that a flow may send costs, 0 if there is none.
func (q *schedule) headCost(f drr.Flow) int64 {
	if _, link := q.gates.First(f); link != 0 {
		return q.Cost(link)
	}
	return 0
}

// FlowChanged tells the schedule what a flow sends next. FlowChanged and
// SubqueueBlocked are part of gates.Backlog.
func (q *schedule) FlowChanged(f drr.Flow) {
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
func (q *schedule) SubqueueBlocked(id gates.ID, f drr.Flow, kind gates.BlockKind, began bool) {
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
func (q *schedule) isBlocked(s *backlog.Slot) bool {
	return s.State == backlog.Waiting && q.gates.IsBlocked(q.Subqueue(s), s.Ref)
}

// addSlot makes the slot of message m, which is in no place yet. counted is where the
// message was counted by its key.
func (q *schedule) addSlot(m *store.Message, size int64, counted KeyCounts, now int64) *backlog.Slot {
	s := q.Add(m, size)
	q.reweigh(s.Flow)
	if !q.Order.On {
		s.Priority = m.Priority
	}
	var err error
	if s.Sub, err = q.gates.Acquire(s.Flow, &m.Class, now); err != nil {
		q.note(Note{Kind: NoteGates, ID: m.ID, Err: err}) // hooks and settings allow no more keys than a set does
	}
	if !q.isDead() && q.m.perKey != nil && q.m.perKey != counted {
		q.m.perKey.Add(m.Key, 1)
	}
	return s
}

// wait makes message seq ready, at once or when s.ReadyAt has come.
func (q *schedule) wait(seq uint64, s *backlog.Slot, now int64) {
	if s.ReadyAt <= now {
		q.ready(seq, s)
		return
	}
	s.State = backlog.Delayed
	q.Delays.Add(s.ReadyAt, seq)
	if q.Order.Skip {
		q.yield(s)
	}
}

// ready lets message seq wait for its delivery, at the end of its flow or, in strict
// order, at its place.
func (q *schedule) ready(seq uint64, s *backlog.Slot) {
	if q.Order.On && !q.MayOwn(seq, s) {
		q.enqueueInOrder(seq, s)
		return
	}
	q.scheduleLast(seq, s)
}

// scheduleLast puts message seq at the end of its flow.
func (q *schedule) scheduleLast(seq uint64, s *backlog.Slot) { q.insert(seq, s, q.nextStamp(s)) }

// pull takes a message that waits out of its place, and reports whether it waited. A
// delayed message keeps its state, which Remove needs.
func (q *schedule) pull(s *backlog.Slot) bool {
	switch s.State {
	case backlog.Waiting:
		q.remove(s)
	case backlog.Ordered:
		q.leaveOrder(s, q.Order.Keys[s.Flow])
	case backlog.Delayed:
	default:
		return false
	}
	return true
}

// insert puts message seq into the list where it waits, at the place of stamp.
func (q *schedule) insert(seq uint64, s *backlog.Slot, stamp int64) {
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
func (q *schedule) remove(s *backlog.Slot) {
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
func (q *schedule) take(id gates.ID, s *backlog.Slot, now int64) {
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

// Draw is part of gates.Backlog. It depends on the sequence and on the attempt, so that a
// retry may go by another route, and a restart changes nothing.
func (q *schedule) Draw(link uint32) uint64 {
	seq := q.Links.Seq(link)
	return seq | uint64(q.Slots.Get(seq).Attempts)<<48
}

// correct charges the flow of the leased message s for delta (thousandths) more, or less,
// than was estimated: in the schedule, and where it waits for gates that the message passed.
func (q *schedule) correct(s *backlog.Slot, delta int64) {
	if delta == 0 {
		return
	}
	if !q.Sched.Correct(s.Flow, delta) && q.Sched.Active() > 0 {
		q.carry(s.Flow, delta)
	}
	if s.Sub != 0 {
		q.gates.Correct(s.Sub, q.Leases.Items[s.Ref].Permits.Route(), s.Flow, delta)
	}
}

// carry adds to the deficit of a flow that is not in the schedule.
func (q *schedule) carry(f drr.Flow, deficit int64) {
	q.Deficits.Add(q.Name(f), deficit, q.Weight(f)*q.Sched.Quantum(), q.Sched.Round())
}

// dropDeficits forgets all carried deficits if the schedule is empty.
func (q *schedule) dropDeficits() {
	if q.Deficits.Len() > 0 && q.Sched.Active() == 0 {
		q.Deficits = backlog.Deficits{}
	}
}

// Priority with ageing. A message of priority p that has waited for t counts as one of
// priority p + t/age. The values of two waiting messages rise alike, so which one is higher
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
func (q *schedule) nextStamp(s *backlog.Slot) int64 {
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
