package sidecar

import (
	"fmt"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/drr"
)

// checkLoop looks whether everything that a loop keeps of its messages agrees:
// invariants 1 to 3 of loop.go. moving is how many messages (and bytes) are
// counted for the queue without a slot, because their move is not on disk.
func checkLoop(t tester, l *loop, moving, movingBytes int64) {
	t.Helper()
	checkLoopAt(t, l, moving, movingBytes, false)
}

// checkLoopAt is checkLoop; loose says that lanes may wait at a gate which would
// admit one: the clock shows an earlier time than it did before, so that a timer is
// late, or another queue has the turn and a message that costs more.
func checkLoopAt(t tester, l *loop, moving, movingBytes int64, loose bool) {
	t.Helper()
	now := l.q.core.clock.Now()
	name := l.q.name
	states := make(map[slotState]int64)
	refs := make(map[uint32]int32)
	leasedBy := make(map[*consumer]int)
	var bytes int64
	l.slots.from(0, func(seq uint64, s *slot) bool {
		at := fmt.Sprintf("%s, message %d, state %d", name, seq, s.state)
		states[s.state]++
		refs[uint32(s.flow)]++
		bytes += int64(s.size)
		switch s.state {
		case slotLeased:
			le := l.leases.items[s.ref]
			require.Equal(t, seq, le.seq, at)
			require.NotZero(t, le.id, at)
			leasedBy[le.consumer]++
			if le.deadline < now {
				require.Fail(t, "a lease has run out", at)
			}
		case slotDelayed:
			require.Contains(t, l.delays.items, dueItem{s.readyAt, seq}, at)
			require.Greater(t, s.readyAt, now, at)
		case slotParked:
			require.Equal(t, seq, l.links.seq(s.ref), at)
			require.NotZero(t, s.lane, at)
		case slotOrdered:
			require.Equal(t, seq, l.links.seq(s.ref), at)
			require.NotNil(t, l.orders[s.flow], at)
		case slotPending, slotWriting, slotFailing, slotMoving:
		default:
			require.Fail(t, "no such state", at)
		}
		require.Equal(t, s.ttl, l.slots.ends[seq] != 0, at)
		if s.ttl && (s.state == slotPending || s.state == slotDelayed || s.state == slotParked || s.state == slotOrdered) {
			require.Contains(t, l.ttls.items, dueItem{l.slots.expiresAt(seq, s), seq}, at)
			require.Greater(t, l.slots.expiresAt(seq, s), now, at)
		}
		return true
	})
	var live int64
	for _, n := range states {
		live += n
	}
	require.Equal(t, live, l.slots.live, name)
	require.Equal(t, live+moving, l.q.depth.Load(), "%s: depth", name)
	require.Equal(t, bytes+movingBytes, l.q.bytes.Load(), "%s: bytes", name)
	require.EqualValues(t, states[slotPending], l.sched.Len(), "%s: scheduler", name)
	require.EqualValues(t, states[slotLeased], l.leases.live, "%s: leases", name)
	require.EqualValues(t, states[slotFailing], l.failing, "%s: failing", name)
	require.EqualValues(t, states[slotParked], l.parked, "%s: parked", name)
	require.EqualValues(t, states[slotOrdered], l.orderWaiting, "%s: ordered", name)
	checkKeys(t, &l.keys, refs)
	checkLanes(t, l)
	checkSites(t, l, loose)
	checkOrders(t, l)
	checkLeases(t, &l.leases)
	checkConsumers(t, l, leasedBy)
	for _, h := range []*dueHeap{&l.delays, &l.ttls, &l.expiring, &l.siteTimers} {
		checkHeap(t, h)
	}
	if !l.q.core.pacing.hold {
		require.Nil(t, l.main, "%s: the turn's batch was not handed in", name)
	}
	checkFresh(t, l)
	if l.q.core.dispatching() && l.pausedTo == 0 {
		idle := l.sched.Len() == 0 || l.consumers.ring == nil
		require.True(t, idle, "%s: messages wait although there is credit", name)
	}
	require.Empty(t, l.noWait, name)
}

func checkKeys(t tester, k *keyTable, refs map[uint32]int32) {
	t.Helper()
	used := 0
	for f, e := range k.entries {
		require.Equal(t, refs[uint32(f)], e.refs, "references of key %q", e.name)
		if e.refs > 0 {
			used++
			require.EqualValues(t, f, k.ids[e.name])
		} else {
			require.Contains(t, k.free, drrFlow(f))
		}
	}
	require.Len(t, k.ids, used)
	require.Len(t, k.free, len(k.entries)-used)
}

func checkLeases(t tester, lt *leaseTable) {
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

func checkConsumers(t tester, l *loop, leasedBy map[*consumer]int) {
	t.Helper()
	ring := make(map[*consumer]bool)
	for c := l.consumers.ring; c != nil && !ring[c]; c = c.next {
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
			require.Same(t, c, l.byReg[c.reg])
			require.Contains(t, l.expiring.items, dueItem{c.expiresAt, c.reg})
		}
	}
	for name, c := range l.consumers.byName {
		require.Equal(t, name, c.name)
		require.False(t, c.gone && c.inFlight == 0, "%s is gone and remembered for nothing", name)
		check(c)
	}
	for c := range l.consumers.fetches {
		require.False(t, c.gone)
		check(c)
	}
	require.Len(t, l.byReg, ends, "ends of consumers")
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

func checkHeap(t tester, h *dueHeap) {
	t.Helper()
	for i := 1; i < len(h.items); i++ {
		require.False(t, h.items[i].before(h.items[(i-1)/2]), "heap order at %d", i)
	}
}

func drrFlow(f int) drr.Flow { return drr.Flow(f) }
