package queue

import (
	"maps"
	"slices"

	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/sidecar/queue/backlog"
	"github.com/filaq/fila/sidecar/queue/container"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/sidecar/queue/history"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/store"
)

// side is one role of a machine: its schedule, and the steps that change it.
type side struct {
	schedule
	reader  *inspect.Reader
	counted inspect.Cumulative
	failing map[uint64]judging  // messages whose last attempt is being judged, by sequence
	noWait  []*backlog.Consumer // fetches that end in this step
	more    bool                // the step left something to be done at once
}

// Bounds of the work of one kind in one step, so that a burst of one kind does not hold
// up the others.
const (
	timersPerStep  = 1024
	deliverPerStep = 1024
)

func (q *side) init(m *Queue, role Role, id store.QueueID, name string) {
	*q = side{schedule: schedule{output: output{m: m, role: role, id: id, name: name}}}
	q.Tables.Init(m.settings.Quantum, m.now+restoreGrace)
	q.gates.Init(&q.schedule, &q.Links, &m.shared)
	q.reader = q.monitor.Init(&q.Tables, &q.gates, func(e inspect.Event) {
		n := Note{Kind: NoteNoisy, Key: e.Key, Began: e.Began, Flows: e.Flows, InFlight: e.InFlight, Waited: e.Waited}
		if e.Starved {
			n.Kind = NoteStarved
		}
		q.note(n)
	})
	q.applySettings()
}

// visibility is the visibility timeout in nanoseconds.
func (q *side) visibility() int64 { return q.m.settings.VisibilityTimeoutMs * int64(1e6) }

// idle reports whether nothing can happen here without an input.
func (q *side) idle() bool {
	return q.Slots.Len() == 0 && len(q.Consumers.ByName) == 0 && len(q.Consumers.Fetches) == 0 && q.Pauses.Until == 0 &&
		!q.gates.Busy() && q.monitor.Idle()
}

// handle applies an input.
func (q *side) handle(in *Input) {
	now := q.m.now
	switch in.Kind {
	case Enqueue:
		q.enqueue(in.Message, now)
	case Duplicate:
		q.m.journal.reply(now, Reply{Kind: ReplyDuplicate, Confirmation: in.Confirm, ID: in.ID})
	case Acked:
		q.onAck(in, now)
	case Undelivered:
		if s := q.leased(in.Token); s != nil {
			q.takeBack(in.Token.Seq, s, now)
		}
	case Committed:
		q.m.committed(in.Commit, in.Err)
	case Judged:
		q.onVerdict(in.Verdict, now)
	case GateOpened:
		q.gates.GateOpened(in.Gate)
	case CircuitOpened:
		q.gates.CircuitOpened(in.Circuit)
	case Changed:
		in.Change.apply(q)
	}
}

// advance fires the timers that are due, and delivers as much as it can.
func (q *side) advance(now int64) {
	q.Consumers.EndAbsences(now)
	more := q.expire(now)
	more = q.serve(now) || more
	more = q.monitor.Step(q.m.settings.StarveAfterMs*1e6, now) || more
	q.endNoWait(more)
	q.storeLeases(now - backlog.LeaseWriteDelay)
	q.more = more
}

// next is when the side must be stepped even without inputs.
func (q *side) next(now int64) int64 {
	if q.more {
		return now
	}
	next := min(q.gates.Next(), q.monitor.Next(now))
	if le := q.Leases.First(); le != nil {
		next = min(next, le.Deadline)
	}
	for _, h := range []*container.Timers{&q.Delays, &q.TTLs, &q.Consumers.Expiring, &q.gates.Timers} {
		if it, ok := h.Next(); ok {
			next = min(next, it.At)
		}
	}
	for _, a := range q.Consumers.Absent {
		next = min(next, a.Until)
	}
	if since, ok := q.Leases.NextUnstored(); ok {
		next = min(next, since+backlog.LeaseWriteDelay)
	}
	if q.Pauses.Until != 0 {
		next = min(next, q.Pauses.Until)
	}
	return next
}

// expire ends leases, delays, TTLs and registrations that are due. It reports whether
// some are left.
func (q *side) expire(now int64) (more bool) {
	n := 0
	for ; n < timersPerStep; n++ {
		le := q.Leases.First()
		if le == nil || le.Deadline > now {
			break
		}
		q.onExpired(le.Seq, now)
	}
	more = n == timersPerStep
	more = runTimers(&q.Delays, now, q.onDelayOver) || more
	more = runTimers(&q.TTLs, now, q.onTTL) || more
	more = runTimers(&q.Consumers.Expiring, now, q.onConsumerEnd) || more
	return runTimers(&q.gates.Timers, now, q.gates.OnTimer) || more
}

// runTimers calls fn for the timers that are due, up to timersPerStep of them.
func runTimers(h *container.Timers, now int64, fn func(id uint64, now int64)) (more bool) {
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

// applySettings applies the settings of the machine.
func (q *side) applySettings() {
	s := &q.m.settings
	q.Sched.SetQuantum(s.Quantum)
	q.monitor.SetStarveAfter(s.StarveAfterMs * 1e6)
	q.setOrdering(s.Ordering == orderingKey && !q.isDead(), s.OnBlocked == onBlockedSkip)
	if !q.isDead() {
		q.countKeys(s.PerKey)
	}
}

// countKeys begins or ends the counting of messages per fairness key. It counts the
// messages that are here. Messages that are on their way were counted when they were
// accepted, or are counted when they arrive.
func (q *side) countKeys(counts KeyCounts) {
	if counts != nil && counts != q.m.perKey {
		for i := range q.Keys.Entries {
			if e := &q.Keys.Entries[i]; e.Refs > 0 {
				counts.Add(e.Name, int64(e.Refs))
			}
		}
	}
	q.m.perKey = counts
}

func (c Settings) apply(q *side) {
	q.m.settings = c
	for i := range q.m.sides {
		q.m.sides[i].applySettings()
	}
}

func (c Dispatch) apply(q *side) { q.m.dispatching = c.On }

func (c Weigh) apply(q *side) {
	if f, ok := q.Keys.Override(c.Key, c.Weight); ok {
		q.reweigh(f)
	}
}

func (p PauseQueue) apply(q *side) {
	q.Pauses.Until = p.Until
	if p.Until == 0 {
		q.Pauses.Intervals.End(q.m.now)
	} else {
		q.Pauses.Intervals.Begin(gates.ByPause.String(), history.PlaceQueue, q.name, true, q.m.now)
		q.gates.CancelReservation() // a pause must not keep permits from others
	}
}

func (p PauseKey) apply(q *side) { q.pauseKey(p.Key, p.Until) }

const defaultFailureWindowMs = 60_000

// countFailure pauses a fairness key that has failed too often.
func (q *side) countFailure(f drr.Flow, now int64) {
	s := &q.m.settings
	if s.MaxFailuresPerKey <= 0 || q.isDead() {
		return
	}
	span, key := s.FailureWindowMs, q.Name(f)
	if span == 0 {
		span = defaultFailureWindowMs
	}
	if !q.Pauses.CountFailure(key, s.MaxFailuresPerKey, span*1e6, now) {
		return
	}
	until := int64(Forever)
	if s.FailureHoldMs > 0 {
		until = now + s.FailureHoldMs*1e6
	}
	if q.Pauses.Keys[key] < until { // an operator's pause may be longer
		q.pauseKey(key, until)
	}
	q.note(Note{Kind: NoteKeyPaused, Key: key, Until: until})
}

// storeLeases writes the leases that have been open since a time or longer. A lease of
// a message that the store does not have yet waits for the message: otherwise both would
// be written, although an ack may be on its way.
func (q *side) storeLeases(since int64) {
	for {
		le := q.Leases.TakeUnstored(since)
		if le == nil {
			return
		}
		if s := q.Slots.Get(le.Seq); s.Open {
			le.Stored = false
			q.Leases.ToStore(s.Ref, q.m.now)
			continue
		}
		q.storeLease(le)
	}
}

func (q *side) storeLease(le *backlog.Lease) {
	le.Stored = true
	s := q.Slots.Get(le.Seq)
	s.Stored = true
	c := q.m.journal.change(q.m.now)
	c.State = append(c.State, store.State{
		Ref: q.ref(le.Seq), Attempts: s.Attempts, ReadyAt: s.ReadyAt, Lease: le.Record(),
	})
}

// leaveGates returns everything that the side holds of gates, when its queue has been
// deleted.
func (q *side) leaveGates(now int64) {
	q.gates.CancelReservation()
	for le := q.Leases.First(); le != nil; le = q.Leases.Next(le) {
		q.gates.Return(le.Permits, q.Slots.Get(le.Seq).Sub, neutral, now)
		le.Permits = nil
	}
	for _, seq := range slices.Sorted(maps.Keys(q.failing)) {
		q.gates.ReturnJudged(q.Slots.Get(seq).Sub, q.failing[seq].later, neutral.Outcome, gates.FailedCall{}, now)
	}
	q.gates.Close(now)
}
