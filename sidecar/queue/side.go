package queue

import (
	"math"

	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/sidecar/queue/container"
	"github.com/filaq/fila/store"
)

// side is one of the two queues of a machine: its messages, who holds them back and
// who works on them.
//
// Invariants:
//
//  1. Every live message has exactly one slot, and the slot's state says where else
//     it is: a waiting one is in the list of its subqueue or of its key, an ordered
//     one among those of its key, a leased one in leases, a delayed one in delays.
//  2. A message is in at most one of these places. Whatever takes it out of one puts
//     it into another, or removes the slot, in the same step.
type side struct {
	m     *Queue
	which Role
	id    store.QueueID
	name  string
	seq   uint64 // the last sequence given out

	backlog
	gating    gating
	order     order
	pauses    pauses
	consumers consumers
	leases    leaseTable
	work      work // of consumers, by fairness key
	totals    Cumulative
	watch     watch
	failing   map[uint64]undecided // messages whose last attempt is being judged, by sequence
	moving    map[uint64]drr.Flow  // messages that a job has picked, or that are held until another queue has them, by sequence
	dying     map[uint64]*arrival  // dead letters whose move to this side is not on disk yet, by sequence
	more      bool                 // the step left something to be done at once
}

// Work of one kind done in one step at most, so that a burst of one kind does not
// hold up the others.
const (
	timersPerStep  = 1024
	deliverPerStep = 1024
)

func (q *side) init(m *Queue, which Role, id store.QueueID, name string) {
	*q = side{
		m: m, which: which, id: id, name: name,
		backlog: backlog{
			keys: newKeyTable(), ends: make(map[uint64]int64), sched: drr.New(m.settings.Quantum),
		},
		gating:    newGating(),
		consumers: newConsumers(m.now + restoreGrace),
		order:     order{keys: make(map[drr.Flow]*keyOrder)},
	}
	q.delays = container.NewTimers(q.delayCounts)
	q.ttls = container.NewTimers(q.ttlCounts)
	q.consumers.expiring = container.NewTimers(q.consumers.endCounts)
	q.gating.timers = container.NewTimers(q.timerCounts)
	q.applySettings()
}

// isDead tells the dead letter queue from the queue itself.
func (q *side) isDead() bool { return q.which == Dead }

func (q *side) nextSeq() uint64 {
	q.seq++
	return q.seq
}

func (q *side) ref(seq uint64) store.Ref { return store.Ref{Queue: q.id, Seq: seq} }

func (q *side) tally() *Counters { return &q.m.out.Counters[q.which] }

func (q *side) note(n Note) {
	n.Role = q.which
	q.m.out.Notes = append(q.m.out.Notes, n)
}

// visibility is the visibility timeout in nanoseconds.
func (q *side) visibility() int64 { return q.m.settings.VisibilityTimeoutMs * int64(1e6) }

// idle reports whether nothing can happen here without an input.
func (q *side) idle() bool {
	return q.slots.Len() == 0 && len(q.consumers.byName) == 0 && len(q.consumers.fetches) == 0 && q.pauses.until == 0 &&
		len(q.gating.looks) == 0 && len(q.watch.loud) == 0
}

// handle takes an input.
func (q *side) handle(in *Input) {
	now := q.m.now
	switch in.Kind {
	case Enqueue:
		q.enqueue(in.Message, now)
	case Duplicate:
		q.m.journal.reply(now, Reply{Kind: ReplyDuplicate, Subject: in.Reply, ID: in.ID})
	case Acked:
		q.onAck(in, now)
	case Undelivered:
		q.onUndelivered(in.Token, now)
	case Committed:
		q.m.committed(in.Commit, in.Err)
	case Judged:
		q.onVerdict(in.Verdict, now)
	case GateOpened:
		q.onGate(in.Gate)
	case CircuitOpened:
		q.onCircuit(in.Circuit)
	case Changed:
		in.Change.apply(q)
	}
}

// pass lets time go by: what has ended ends, and what can go goes.
func (q *side) pass(now int64) {
	q.tryAgain(now)
	more := q.expire(now)
	more = q.serve(now) || more
	if now >= q.watch.at {
		more = q.watchFlows(now) || more
	}
	q.endNoWait(more)
	q.storeLeases(now)
	q.more = more
}

// next is when the side must be stepped even if nothing comes in.
func (q *side) next(now int64) int64 {
	if q.more {
		return now
	}
	next := int64(math.MaxInt64)
	if d, ok := q.leases.first(); ok {
		next = min(next, d.deadline)
	}
	for _, h := range []*container.Timers{&q.delays, &q.ttls, &q.consumers.expiring, &q.gating.timers} {
		if it, ok := h.Next(); ok {
			next = min(next, it.At)
		}
	}
	for _, a := range q.consumers.absent {
		next = min(next, a.until)
	}
	if at, ok := q.leases.nextUnstored(); ok {
		next = min(next, at)
	}
	if q.pauses.until != 0 {
		next = min(next, q.pauses.until)
	}
	if q.gating.reserving != 0 && q.gating.noCredit != 0 {
		next = min(next, q.gating.noCredit+reserveAfter)
	}
	if q.noiseMatters(now) {
		next = min(next, q.watch.noiseAt)
	}
	return next
}

// expire ends leases, delays, TTLs and registrations whose time has come. It reports
// whether some are left.
func (q *side) expire(now int64) (more bool) {
	n := 0
	for ; n < timersPerStep; n++ {
		le, ok := q.leases.first()
		if !ok || le.deadline > now {
			break
		}
		q.onExpired(le.seq, now)
	}
	more = n == timersPerStep
	more = q.due(&q.delays, now, q.onDelayOver) || more
	more = q.due(&q.ttls, now, q.onTTL) || more
	more = q.due(&q.consumers.expiring, now, q.onConsumerEnd) || more
	more = q.due(&q.gating.timers, now, q.onWaitTimer) || more
	return more
}

func (q *side) due(h *container.Timers, now int64, fn func(id uint64, now int64)) (more bool) {
	for range timersPerStep {
		it, ok := h.Next()
		if !ok || it.At > now {
			return false
		}
		if h.Pop() {
			fn(it.ID, now)
		}
	}
	return true
}

// Values of the settings ordering and on_blocked.
const (
	orderingKey   = "key"
	onBlockedSkip = "skip"
)

// applySettings makes the settings of the machine count.
func (q *side) applySettings() {
	s := &q.m.settings
	q.sched.SetQuantum(s.Quantum)
	if s.StarveAfterMs*1e6 != q.watch.after {
		q.watch.at, q.watch.starveAt = 0, 0
	}
	q.setOrdering(s.Ordering == orderingKey && !q.isDead(), s.OnBlocked == onBlockedSkip)
	if !q.isDead() {
		q.countKeys(s.PerKey)
	}
}

// countKeys begins or ends the counting of messages per fairness key. It counts what
// is here; what is on its way was counted by whoever accepted it, or is when it
// arrives.
func (q *side) countKeys(counts KeyCounts) {
	if counts == nil || counts == q.m.perKey {
		q.m.perKey = counts
		return
	}
	q.m.perKey = counts
	for _, e := range q.keys.entries {
		if e.refs > 0 {
			counts.Add(e.name, int64(e.refs))
		}
	}
}

// countKey counts a message of that key in, unless it was counted already.
func (q *side) countKey(key string, counted KeyCounts) {
	if !q.isDead() && q.m.perKey != nil && q.m.perKey != counted {
		q.m.perKey.Add(key, 1)
	}
}

func (c Settings) apply(q *side) {
	q.m.settings = c
	for i := range q.m.sides {
		q.m.sides[i].applySettings()
	}
}

func (c Dispatch) apply(q *side) { q.m.dispatching = c.On }

// Weigh overrides the weight of a flow, backlog included.
func (c Weigh) apply(q *side) {
	if f, ok := q.keys.override(c.Key, c.Weight); ok {
		q.reweigh(f)
	}
}
