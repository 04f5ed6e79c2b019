package queue

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/sidecar/queue/container"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// T is what *testing.T and *rapid.T have in common.
type T interface {
	require.TestingT
	Helper()
}

// What a machine keeps of each message, and of each fairness key that has some.
const (
	SlotBytes = unsafe.Sizeof(slot{})
	KeyBytes  = unsafe.Sizeof(keyEntry{})
)

// Bounds of the work of one step.
const (
	DeliverPerStep   = deliverPerStep
	TimersPerStep    = timersPerStep
	MaxCommitBytes   = maxCommitBytes
	HoldAtMost       = holdAtMost
	PieceBytes       = pieceBytes
	MostBesideOthers = mostBesideOthers
	FailedMost       = failedMost
	FailedBeside     = failedBesideOthers
	LeaseExpired     = leaseExpired
	RestoreGrace     = restoreGrace
	AwayFor          = awayFor
)

// Leased reports whether a token names a lease in force.
func Leased(m *Queue, s Role, t wire.Token) bool { return m.sides[s].leased(t) != nil }

// Reserving reports whether a message of Main collects its gates.
func Reserving(m *Queue) bool { return m.sides[Main].gating.reserving != 0 }

// Subqueues is how many there are of Main.
func Subqueues(m *Queue) int { return len(m.sides[Main].gating.subs.ids) }

// Expiring is how many entries the heap of ends of consumers has.
func Expiring(m *Queue, s Role) int { return len(slices.Collect(m.sides[s].consumers.expiring.All())) }

// KeptUncommitted is how many messages are kept since they may not be on disk.
func KeptUncommitted(m *Queue) int { return len(m.journal.uncommitted.items) }

// Failed is how many bytes of failed attempts are under way.
func Failed(m *Queue) int64 { return m.journal.failed }

// AckTime is how long messages live, as far as is known (ns).
func AckTime(m *Queue) *int64 { return &m.journal.ackTime }

// SetAttempts sets how many attempts of a message have ended.
func SetAttempts(m *Queue, seq uint64, n uint32) { m.sides[Main].slots.Get(seq).attempts = n }

// SetSize sets the size of a message.
func SetSize(m *Queue, s Role, seq uint64, n uint32) { m.sides[s].slots.Get(seq).size = n }

// SetReadyAt sets when a message became ready.
func SetReadyAt(m *Queue, seq uint64, at int64) { m.sides[Main].slots.Get(seq).readyAt = at }

// Check looks whether everything that a machine keeps agrees. loose says that
// subqueues may wait at a gate which would admit one: the clock shows an earlier time
// than it did before, so that a timer is late, or another machine has the turn and a
// message that costs more.
func Check(t T, m *Queue, now int64, loose bool) {
	t.Helper()
	for i := range m.sides {
		checkSide(t, &m.sides[i], now, loose)
	}
	checkJournal(t, m)
}

// CheckEmpty looks whether nothing is left of what there was.
func CheckEmpty(t T, m *Queue) {
	t.Helper()
	for i := range m.sides {
		q := &m.sides[i]
		name := q.name
		require.Zero(t, q.slots.Len(), name)
		require.Empty(t, q.dying, name)
		require.Empty(t, q.ends, "%s: TTLs", name)
		require.Empty(t, q.keys.ids, name)
		require.Empty(t, q.gating.subs.ids, name)
		require.Empty(t, q.gating.subs.first, name)
		require.Len(t, q.gating.subs.free, len(q.gating.subs.items)-1, name)
		require.Empty(t, q.gating.waits.byGate, name)
		require.Empty(t, q.gating.waits.byCircuit, name)
		require.Empty(t, q.gating.waits.byFlow, name)
		require.Len(t, q.gating.waits.free, len(q.gating.waits.items)-1, name)
		require.Zero(t, q.gating.reserving, name)
		require.Empty(t, q.order.keys, name)
		require.Zero(t, q.links.Len(), "%s: links", name)
		require.Zero(t, q.sched.Active(), name)
		require.Empty(t, q.debts.order, "%s: debts", name)
		require.Len(t, q.keys.freeHeaps, len(q.keys.heaps)-1, name)
	}
}

// checkDebts holds what flows owe that are not in the schedule to debts.
func checkDebts(t T, q *side) {
	t.Helper()
	if len(q.debts.byKey) != len(q.debts.order) || len(q.debts.byKey) > 0 && q.sched.Active() == 0 {
		require.Fail(t, "debts", "%d by key, %d in order, %d in the schedule", len(q.debts.byKey), len(q.debts.order), q.sched.Active())
	}
	for _, key := range q.debts.order {
		d, ok := q.debts.byKey[key]
		f, live := q.keys.ids[key]
		if !ok || live && q.keys.entries[f].active && d.rest(q.sched.Round()) > 0 {
			require.Fail(t, "debts", "of %q: %+v", key, d)
		}
	}
}

func checkSide(t T, q *side, now int64, loose bool) {
	t.Helper()
	name := q.name
	checkDebts(t, q)
	states := make(map[slotState]int64)
	refs := make(map[uint32]int32)
	leasedBy := make(map[*consumer]int)
	for seq, s := range q.slots.From(0) {
		at := fmt.Sprintf("%s, message %d, state %d", name, seq, s.state)
		states[s.state]++
		refs[uint32(s.flow)]++
		switch s.state {
		case slotLeased:
			le := q.leases.items[s.ref]
			require.Equal(t, seq, le.seq, at)
			require.NotZero(t, le.id, at)
			leasedBy[le.consumer]++
			if le.deadline < now {
				require.Fail(t, "a lease has run out", at)
			}
		case slotDelayed:
			requireTimer(t, &q.delays, s.readyAt, seq, at)
			require.Greater(t, s.readyAt, now, at)
		case slotWaiting:
			require.Equal(t, seq, q.links.Seq(s.ref), at)
		case slotOrdered:
			require.Equal(t, seq, q.links.Seq(s.ref), at)
			require.NotNil(t, q.order.keys[s.flow], at)
		case slotFailing:
			require.Equal(t, s.attempts, q.failing[seq].attempts, at)
		case slotMoving:
		default:
			require.Fail(t, "no such state", at)
		}
		require.Equal(t, s.ttl, q.ends[seq] != 0, at)
		if s.ttl && (s.state == slotWaiting || s.state == slotDelayed || s.state == slotOrdered) {
			requireTimer(t, &q.ttls, q.expiresAt(seq, s), seq, at)
			require.Greater(t, q.expiresAt(seq, s), now, at)
		}
	}
	var live int64
	for _, n := range states {
		live += n
	}
	require.Equal(t, live, q.slots.Len(), name)
	require.Equal(t, states[slotWaiting]+states[slotOrdered], q.links.Len(), "%s: links", name)
	require.EqualValues(t, states[slotLeased], q.leases.live, "%s: leases", name)
	require.Len(t, q.failing, int(states[slotFailing]), "%s: failing", name)
	require.Len(t, q.moving, int(states[slotMoving]), "%s: moving", name)
	require.EqualValues(t, states[slotOrdered], q.order.waiting, "%s: ordered", name)
	checkKeys(t, &q.keys, refs)
	checkSubs(t, q)
	checkWaits(t, q, now, loose)
	checkOrder(t, q)
	checkLeases(t, &q.leases)
	checkConsumers(t, q, leasedBy)
	if q.m.dispatching && q.pauses.until == 0 && !q.m.journal.behind() {
		idle := q.sched.Active() == 0 || q.consumers.ring == nil
		require.True(t, idle, "%s: messages wait although there is credit", name)
	}
	require.Empty(t, q.consumers.noWait, name)
}

// checkJournal looks whether slots, the open commit and the messages kept for
// delivery before they are on disk agree.
func checkJournal(t T, m *Queue) {
	t.Helper()
	q, j := &m.sides[Main], &m.journal
	open, working := make(map[uint64]bool), 0
	for seq, s := range q.slots.From(0) {
		if !s.open {
			continue
		}
		open[seq] = true
		require.NotNil(t, j.uncommitted.get(seq), "%s, message %d: not on disk, and not in memory", q.name, seq)
		if s.state == slotLeased {
			working++
		}
	}
	require.Equal(t, working, j.working, q.name)
	waiting, waited, dropped, bytes := 0, 0, 0, int64(0)
	if c := j.open; c != nil {
		if !j.pacing.Hold {
			require.Fail(t, "the commit of a step was not handed in", q.name)
		}
		last := uint64(0)
		for i := range c.Add {
			require.Greater(t, c.Add[i].Seq, last, q.name)
			last = c.Add[i].Seq
			if c.gone(i) {
				dropped++
				continue
			}
			require.GreaterOrEqual(t, i, c.first, q.name)
			bytes += int64(q.slots.Get(last).size)
			waiting++
			require.True(t, open[c.Add[i].Seq], "%s, message %d: waits for the store", q.name, c.Add[i].Seq)
			if c.Confirm[i] != "" {
				waited++
			}
		}
		require.Equal(t, waited, c.waited, q.name)
		require.Equal(t, dropped, c.dropped, q.name)
		require.Equal(t, bytes, c.Bytes, q.name)
	}
	require.Len(t, open, waiting, q.name)
	failed := int64(0)
	for i := range m.sides {
		for _, u := range m.sides[i].failing {
			failed += u.bytes
		}
	}
	if j.open != nil {
		failed += j.open.failed
	}
	require.GreaterOrEqual(t, j.failed, failed, q.name)
	if j.committing == 0 {
		require.Equal(t, failed, j.failed, "%s: failed attempts under way", q.name)
	}
	for i, in := range j.uncommitted.items {
		if in != nil {
			require.NotNil(t, q.slots.Get(j.uncommitted.base+uint64(i)), "%s: kept for nothing", q.name)
		}
	}
}

// checkSubs looks whether subqueues, flows and slots agree.
func checkSubs(t T, q *side) {
	t.Helper()
	refs, waiting, ordered := make(map[subID]int32), make(map[subID]int32), make(map[subID]int32)
	plain := make(map[drr.Flow]int32)
	for _, s := range q.slots.From(0) {
		refs[s.sub]++
		if s.state == slotOrdered {
			ordered[s.sub]++
		}
		if s.state == slotWaiting {
			if id := q.subOf(s); id != 0 {
				waiting[id]++
			} else {
				plain[s.flow]++
			}
		}
	}
	used, named := 0, 0
	blockedBy := [BlockKinds]int64{}
	heaps := make(map[drr.Flow][]subID)
	for i := 1; i < len(q.gating.subs.items); i++ {
		id, sub := subID(i), &q.gating.subs.items[i]
		at := fmt.Sprintf("%s, subqueue %d", q.name, id)
		bare := sub.refs == 0 && q.keys.entries[sub.flow].bare == id
		if sub.refs == 0 && !bare {
			require.Contains(t, q.gating.subs.free, id, at)
			continue
		}
		used++
		if bare {
			require.Positive(t, q.links.Count(&sub.list), at)
		} else {
			named++
			require.Equal(t, refs[id], sub.refs, at)
			require.Equal(t, id, q.gating.subs.ids[sub.name], at)
		}
		q.checkRanks(t, &sub.list, waiting[id], at)
		require.Equal(t, q.eligible(sub), sub.pos != 0, at)
		if sub.pos != 0 {
			heaps[sub.flow] = append(heaps[sub.flow], id)
		}
		want := int32(0)
		if sub.wait != 0 {
			want = q.links.Count(&sub.list)
			if q.eligible(sub) {
				want--
			}
			require.Positive(t, want, "%s waits with nothing", at)
			require.True(t, q.gating.waits.at(sub.wait).line.Has(uint32(id)), "%s: not in the line where it waits", at)
			require.Equal(t, max(1, min(q.costOf(q.firstBlocked(sub)), drr.MaxCost)), q.gating.waits.at(sub.wait).line.Cost(uint32(id)), "%s: its cost in the line", at)
		}
		require.Equal(t, want, sub.counted, at)
		if sub.name != "" {
			require.Equal(t, ordered[id], sub.ordered, at)
		}
		blockedBy[sub.kind] += int64(want)
		if sub.probe.at != 0 {
			require.Positive(t, q.links.Count(&sub.list), at)
		}
	}
	require.Equal(t, len(q.gating.subs.items)-1, used+len(q.gating.subs.free), q.name)
	require.Len(t, q.gating.subs.ids, named, q.name)
	require.Equal(t, blockedBy, q.gating.blockedBy, q.name)
	for _, f := range q.keys.ids {
		e := &q.keys.entries[f]
		at := fmt.Sprintf("%s, key %s", q.name, e.name)
		q.checkRanks(t, &e.plain, plain[f], at)
		require.Equal(t, e.ready != 0, len(heaps[f]) > 0, at)
		if e.ready != 0 {
			h := q.keys.heaps[e.ready]
			require.ElementsMatch(t, heaps[f], h, at)
			for i, id := range h {
				require.EqualValues(t, i+1, q.gating.subs.at(id).pos, at)
				require.False(t, q.before(id, h[(i-1)/2]), "%s: not a heap", at)
			}
		}
		cost := q.headCost(f)
		require.Equal(t, cost != 0, e.active, at)
		info, ok := q.sched.Flow(f)
		require.Equal(t, e.active, ok, at)
		if ok {
			require.Equal(t, q.keys.weight(f), info.Weight, at)
		}
	}
}

// checkWaits looks whether wait lists agree with subqueues, and whether anything waits
// at a gate that would admit it.
func checkWaits(t T, q *side, now int64, loose bool) {
	t.Helper()
	probing, messages, subs := make(map[waitID]int32), make(map[waitID]int64), make(map[waitID]int)
	for i := range q.gating.subs.items {
		sub := &q.gating.subs.items[i]
		if sub.probe.at != 0 {
			probing[sub.probe.at]++
		}
		if sub.wait != 0 {
			messages[sub.wait] += int64(sub.counted)
			subs[sub.wait]++
		}
	}
	require.Empty(t, q.gating.looks, q.name)
	require.Empty(t, q.gating.touched, q.name)
	for i, wl := range q.gating.waits.items {
		if wl == nil || wl.kind == waitFree {
			continue
		}
		id := waitID(i)
		at := fmt.Sprintf("%s, wait list %d", q.name, id)
		require.Equal(t, probing[id], wl.probing, at)
		require.Equal(t, messages[id], wl.messages, at)
		require.Equal(t, subs[id], wl.line.Len(), at)
		require.True(t, wl.probing > 0 || wl.line.Len() > 0, "%s is not needed any more", at)
		if !wl.chain.mixed {
			for n := range wl.line.All() {
				sub := q.gating.subs.at(subID(n))
				require.True(t, sub.set == wl.chain.set && sub.circuit == wl.chain.via, "%s: subqueue %d passes other gates than it thinks", at, n)
			}
		}
		if wl.chain.follows != 0 && !wl.chain.mixed {
			other := q.gating.waits.at(wl.chain.follows)
			require.NotEqual(t, waitFree, other.kind, "%s follows one that is not there", at)
			require.Contains(t, other.chain.followers, id, at)
			require.True(t, other.line.Len() > 0 || other.probing > 0, "%s waits for nothing", at)
			continue
		}
		if wl.probing > 0 || wl.line.Len() == 0 || wl.notBefore > now || loose {
			continue
		}
		if n, _, _ := wl.line.Peek(); q.eligible(q.gating.subs.at(subID(n))) {
			continue // it has something in the schedule that tries first
		}
		switch wl.kind {
		case waitThrottle:
			require.NotEqual(t, throttle.Open, wl.gate.Info(now).Kind, "%s: subqueues wait although the gate is open", at)
		case waitPause:
			require.NotZero(t, q.keyPaused(wl.flow, now), "%s: subqueues wait although the key is not paused", at)
		}
		if wl.at != 0 {
			require.Greater(t, wl.at, now, at)
			require.Less(t, wl.at, int64(math.MaxInt64), at)
		}
	}
}

// checkOrder looks whether keys in strict order are owned by one message each, and
// whether none is in flight beside it.
func checkOrder(t T, q *side) {
	t.Helper()
	if !q.order.on {
		require.Empty(t, q.order.keys, q.name)
		return
	}
	also := make(map[uint64]bool) // in flight since before the queue was ordered
	for f, o := range q.order.keys {
		at := fmt.Sprintf("%s, key %q", q.name, q.keys.name(f))
		require.NotZero(t, o.owner, "%s waits for nothing", at)
		owner := q.slots.Get(o.owner)
		require.True(t, owner != nil && owner.owns && owner.flow == f, "%s: %d is no owner", at, o.owner)
		require.NotEqual(t, slotOrdered, owner.state, "%s: its owner %d waits for it", at, o.owner)
		last, plain := uint64(0), int64(0)
		for i := o.waiting.Head(); i != 0; i = q.links.Next(i) {
			if q.slots.Get(q.links.Seq(i)).sub == 0 {
				plain++
			}
			require.Greater(t, q.links.Seq(i), last, "key %q is out of order", q.keys.name(f))
			last = q.links.Seq(i)
		}
		require.Equal(t, plain, o.plain, at)
		for _, seq := range o.also {
			also[seq] = true
		}
	}
	flying := make(map[uint32]int)
	for seq, s := range q.slots.From(0) {
		at := fmt.Sprintf("%s, message %d", q.name, seq)
		o := q.order.keys[s.flow]
		if s.owns {
			require.NotNil(t, o, at)
			require.Equal(t, seq, o.owner, at)
		}
		if (s.state == slotLeased || s.state == slotFailing) && !also[seq] {
			flying[uint32(s.flow)]++
			require.Equal(t, 1, flying[uint32(s.flow)], "%s: two messages of a key in flight", at)
		}
	}
}

func checkKeys(t T, k *keyTable, refs map[uint32]int32) {
	t.Helper()
	used := 0
	for f, e := range k.entries {
		require.Equal(t, refs[uint32(f)], e.refs, "references of key %q", e.name)
		if e.refs > 0 {
			used++
			require.EqualValues(t, f, k.ids[e.name])
		} else {
			require.Contains(t, k.free, drr.Flow(f))
		}
	}
	require.Len(t, k.ids, used)
	require.Len(t, k.free, len(k.entries)-used)
}

func checkLeases(t T, lt *leaseTable) {
	t.Helper()
	n, last, prev := 0, int64(0), uint32(0)
	for i := lt.head; i != 0; i = lt.items[i-1].next {
		le := lt.items[i-1]
		require.GreaterOrEqual(t, le.deadline, last, "leases in the order of their deadlines")
		require.Equal(t, prev, le.prev)
		last, prev = le.deadline, i
		n++
		if !le.stored {
			require.True(t, slices.ContainsFunc(lt.unstored[lt.unstoredHead:], func(u unstoredLease) bool {
				return u.index == i-1 && u.id == le.id
			}), "a lease that is not stored is not to be stored either")
		}
	}
	require.Equal(t, prev, lt.tail)
	require.Equal(t, lt.live, n)
	require.Len(t, lt.free, len(lt.items)-n)
}

func checkConsumers(t T, q *side, leasedBy map[*consumer]int) {
	t.Helper()
	ring := make(map[*consumer]bool)
	for c := q.consumers.ring; c != nil && !ring[c]; c = c.next {
		ring[c] = true
		require.Same(t, c, c.next.prev)
	}
	ends := 0
	known := make(map[*consumer]bool)
	check := func(c *consumer) {
		known[c] = true
		require.Equal(t, leasedBy[c], c.inFlight, "in flight at %s", c.name)
		require.Equal(t, c.credit() > 0, ring[c], "consumer %s in the ring, credit %d", c.name, c.credit())
		if !c.gone && c.expiresAt != 0 {
			ends++
			require.Same(t, c, q.consumers.byReg[c.reg])
			requireTimer(t, &q.consumers.expiring, c.expiresAt, c.reg, "consumer "+c.name)
		}
	}
	for name, c := range q.consumers.byName {
		require.Equal(t, name, c.name)
		require.False(t, c.gone && c.inFlight == 0, "%s is gone and remembered for nothing", name)
		check(c)
	}
	wanted, owners := 0, map[string]int{}
	for c := range q.consumers.fetches {
		require.False(t, c.gone)
		check(c)
		if wanted += c.credit(); c.owner != "" {
			owners[c.owner]++
		}
	}
	require.Equal(t, wanted, q.consumers.wanted, "what fetches take")
	require.Equal(t, owners, q.consumers.owners, "fetches of each owner")
	require.Len(t, q.consumers.byReg, ends, "ends of consumers")
	for c := range leasedBy {
		if !known[c] {
			require.True(t, c.fetch && c.gone, "%s has leases and is not known", c.name)
			require.Equal(t, leasedBy[c], c.inFlight)
		}
	}
	for c := range ring {
		require.True(t, known[c], "%s in the ring is not known", c.name)
	}
}

func requireTimer(t T, timers *container.Timers, at int64, id uint64, what string) {
	t.Helper()
	for it := range timers.All() {
		if it == (container.Timer{At: at, ID: id}) {
			return
		}
	}
	require.Fail(t, "no timer is set", what)
}

// checkRanks holds the waiting messages of a subqueue to their order.
func (q *side) checkRanks(t T, r *container.Ranks, n int32, at string) {
	t.Helper()
	require.Equal(t, n, q.links.Count(r), at)
	type entry struct {
		stamp int64
		rank  uint8
		link  uint32
	}
	var all []entry
	for rank, i := range q.links.Links(r) {
		s := q.slots.Get(q.links.Seq(i))
		require.Equal(t, i, s.ref, at)
		require.Equal(t, rank, s.priority, at)
		if k := len(all); k > 0 && all[k-1].rank == rank {
			require.LessOrEqual(t, all[k-1].stamp, q.links.Stamp(i), "%s: out of order", at)
			require.Equal(t, all[k-1].link, q.links.Prev(i), at)
		}
		all = append(all, entry{q.links.Stamp(i), rank, i})
	}
	require.Len(t, all, int(n), at)
	slices.SortStableFunc(all, func(a, b entry) int { return cmp.Compare(a.stamp, b.stamp) })
	for i, want := range []func(*container.Ranks) uint32{q.links.First, q.links.Second} {
		if len(all) > i {
			require.Equal(t, all[i].link, want(r), "%s: message %d of the subqueue", at, i)
		}
	}
}
