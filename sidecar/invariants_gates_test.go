package sidecar

import (
	"fmt"
	"math"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/throttle"
)

// checkLanes looks whether lanes and slots agree.
func checkLanes(t tester, l *loop) {
	t.Helper()
	type figures struct{ refs, ready, parked, returned int32 }
	want := make(map[laneID]figures)
	l.slots.from(0, func(_ uint64, s *slot) bool {
		f := want[s.lane]
		f.refs++
		switch s.state {
		case slotPending:
			f.ready++
			if ln := l.lanes.at(s.lane); s.front && !(ln.called && l.slots.get(ln.calledSeq) == s) {
				f.returned++
			}
		case slotParked:
			f.parked++
		}
		want[s.lane] = f
		return true
	})
	used := 0
	parkedBy := [blockKinds]int64{}
	for i := 1; i < len(l.lanes.items); i++ {
		id, ln := laneID(i), &l.lanes.items[i]
		at := fmt.Sprintf("%s, lane %d", l.q.name, id)
		if ln.refs == 0 {
			require.Contains(t, l.lanes.free, id, at)
			continue
		}
		used++
		require.Equal(t, want[id], figures{ln.refs, ln.ready, ln.list.n, ln.returned}, at)
		require.Equal(t, id, l.lanes.ids[ln.name], at)
		require.Equal(t, ln.list.n > 0, ln.site != 0, at)
		n, fronts := int32(0), int32(0)
		for link := ln.list.head; link != 0; link = l.links.items[link].next {
			s := l.slots.get(l.links.seq(link))
			require.Equal(t, slotParked, s.state, at)
			require.Equal(t, n < ln.fronts, s.front, "%s: the fronts come first", at)
			if s.front {
				fronts++
				if fronts == ln.fronts {
					require.Equal(t, ln.frontEnd, link, at)
				}
			}
			n++
		}
		require.Equal(t, n, ln.list.n, at)
		require.Equal(t, fronts, ln.fronts, at)
		if ln.called {
			s := l.slots.get(ln.calledSeq)
			require.NotNil(t, s, at)
			require.Equal(t, slotPending, s.state, at)
		}
		if ln.site != 0 {
			require.True(t, l.sites.at(ln.site).line.Has(uint32(id)), "%s: not in the line of its site", at)
			parkedBy[ln.kind] += int64(ln.list.n)
		}
	}
	require.Len(t, l.lanes.ids, used, l.q.name)
	require.Equal(t, parkedBy, l.parkedBy, l.q.name)
}

// checkSites looks whether sites agree with lanes, and whether anything waits at
// a gate that would admit it.
func checkSites(t tester, l *loop, loose bool) {
	t.Helper()
	now := l.q.core.clock.Now()
	called, messages, lanes := make(map[siteID]int32), make(map[siteID]int64), make(map[siteID]int)
	for i := range l.lanes.items {
		ln := &l.lanes.items[i]
		if ln.called {
			called[ln.calledBy]++
		}
		if ln.site != 0 {
			messages[ln.site] += int64(ln.list.n)
			lanes[ln.site]++
		}
	}
	require.Empty(t, l.looks, l.q.name)
	require.Empty(t, l.touched, l.q.name)
	for i, st := range l.sites.items {
		if st == nil || st.kind == siteFree {
			continue
		}
		id := siteID(i)
		at := fmt.Sprintf("%s, site %d", l.q.name, id)
		require.Equal(t, called[id], st.called, at)
		require.Equal(t, messages[id], st.messages, at)
		require.Equal(t, lanes[id], st.line.Len(), at)
		require.True(t, st.called > 0 || st.line.Len() > 0, "%s is not needed any more", at)
		if !st.mixed {
			for lane := range st.line.All() {
				ln := l.lanes.at(laneID(lane))
				require.True(t, ln.set == st.set && ln.circuit == st.via, "%s: lane %d passes other gates than the site thinks", at, lane)
			}
		}
		if st.follows != 0 && !st.mixed {
			other := l.sites.at(st.follows)
			require.NotEqual(t, siteFree, other.kind, "%s follows a site that is not there", at)
			require.Contains(t, other.followers, id, at)
			require.True(t, other.line.Len() > 0 || other.called > 0, "%s waits for nothing", at)
			continue
		}
		if st.called > 0 || st.line.Len() == 0 || st.notBefore > now || loose {
			continue
		}
		if lane, _, _ := st.line.Peek(); l.lanes.at(laneID(lane)).called || l.lanes.at(laneID(lane)).returned > 0 {
			continue // it has something in the scheduler that tries first
		}
		switch st.kind {
		case siteThrottle:
			require.NotEqual(t, throttle.Open, st.gate.Info(now).Kind, "%s: lanes wait although the gate is open", at)
		case siteCircuit:
			n, _ := st.circuit.admits(now)
			require.LessOrEqual(t, n, int64(0), "%s: lanes wait although the circuit admits", at)
		case sitePause:
			require.NotZero(t, l.keyPaused(st.flow, now), "%s: lanes wait although the key is not paused", at)
		}
		if st.at != 0 {
			require.Greater(t, st.at, now, at)
			require.Less(t, st.at, int64(math.MaxInt64), at)
		}
	}
}

// checkOrders looks whether keys in strict order are held by one message each, and
// whether none is in flight beside it.
func checkOrders(t tester, l *loop) {
	t.Helper()
	if !l.ordered {
		require.Empty(t, l.orders, l.q.name)
		return
	}
	flying := make(map[uint32]int)
	l.slots.from(0, func(seq uint64, s *slot) bool {
		at := fmt.Sprintf("%s, message %d", l.q.name, seq)
		o := l.orders[s.flow]
		if s.holds {
			require.NotNil(t, o, at)
			require.True(t, o.held && o.holder == seq, at)
		}
		if s.state == slotLeased || s.state == slotFailing {
			flying[uint32(s.flow)]++
			require.Equal(t, 1, flying[uint32(s.flow)], "%s: two messages of a key in flight", at)
		}
		return true
	})
	for f, o := range l.orders {
		require.True(t, o.held, "key %q waits for nothing", l.keys.name(f))
		last := uint64(0)
		for i := o.waiting.head; i != 0; i = l.links.items[i].next {
			require.Greater(t, l.links.seq(i), last, "key %q is out of order", l.keys.name(f))
			last = l.links.seq(i)
		}
	}
}
