package drr

import (
	"math/bits"

	"github.com/stretchr/testify/require"
)

// checkInvariants walks every structure of the scheduler and holds it against
// the invariants of rounds.go. O(everything).
func checkInvariants(t require.TestingT, s *Scheduler) {
	found := map[flowID]place{}
	checkList(t, s, s.now, s.round, found)
	checkList(t, s, s.next, s.round+1, found)
	checkHeap(t, s, s.due, 0, found)
	if s.due != none {
		require.Equal(t, none, s.flows.at(s.due).next, "the root of the heap has a sibling")
	}
	if s.wheel != nil {
		checkWheel(t, s, found)
	}
	active := checkRing(t, s, found)
	require.Len(t, found, active-b2i(s.current != none), "flows in the structures")
	require.Equal(t, s.active, active)
	checkSlab(t, s)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func checkList(t require.TestingT, s *Scheduler, l list, round uint64, found map[flowID]place) {
	prev, label := none, uint64(0)
	for id := l.head; id != none; id = s.flows.at(id).next {
		fl := s.flows.at(id)
		require.Equal(t, nowhere, found[id], "flow %d stands twice", id)
		found[id] = listed
		require.Equal(t, prev, fl.prev)
		require.Equal(t, round, s.dueRound(fl), "I1: flow %d stands in the list of another round", id)
		require.Equal(t, uint32(1), fl.wait)
		require.Less(t, label, fl.label, "I3: list of round %d is not sorted", round)
		prev, label = id, fl.label
	}
	require.Equal(t, prev, l.tail)
}

func checkHeap(t require.TestingT, s *Scheduler, id flowID, least uint64, found map[flowID]place) {
	for ; id != none; id = s.flows.at(id).next {
		fl := s.flows.at(id)
		require.Equal(t, nowhere, found[id], "flow %d stands twice", id)
		found[id] = heaped
		require.Equal(t, s.round, s.dueRound(fl))
		require.Less(t, least, fl.label, "heap order")
		checkHeap(t, s, fl.child, fl.label, found)
	}
}

func checkWheel(t require.TestingT, s *Scheduler, found map[flowID]place) {
	for slot, head := range s.wheel.slots {
		level := slot / slotsPer
		if level < wheelLevels {
			require.Equal(t, head != none, s.wheel.used[level]>>(slot%slotsPer)&1 == 1)
		}
		for id := head; id != none; {
			fl := s.flows.at(id)
			require.Equal(t, nowhere, found[id], "flow %d stands twice", id)
			found[id] = filed
			due := s.dueRound(fl)
			require.NotEqual(t, s.round, due)
			require.Equal(t, min(level, wheelLevels), int(fl.level))
			require.Equal(t, slot, slotOf(int(fl.level), due))
			require.Equal(t, min((bits.Len64(due^s.round)-1)/slotBits, wheelLevels), int(fl.level))
			require.Equal(t, id, s.flows.at(fl.next).prev)
			if id = fl.next; id == head {
				break
			}
		}
	}
}

func checkRing(t require.TestingT, s *Scheduler, found map[flowID]place) (active int) {
	before, label := none, uint64(0)
	for id := s.ring.first; id != none; id = s.flows.at(id).after {
		fl := s.flows.at(id)
		active++
		require.Equal(t, before, fl.before)
		require.Less(t, label, fl.label)
		require.Less(t, fl.label, uint64(maxLabel))
		require.Positive(t, fl.head, "I5: flow %d", id)
		if id == s.current {
			require.Equal(t, s.ring.seen, fl.before, "the current flow is behind seen")
			require.Equal(t, nowhere, fl.place)
		} else {
			checkWaiting(t, s, id, fl)
			require.Equal(t, found[id], fl.place)
			require.NotEqual(t, nowhere, fl.place)
		}
		before, label = id, fl.label
	}
	require.Equal(t, before, s.ring.last)
	return active
}

func checkWaiting(t require.TestingT, s *Scheduler, id flowID, fl *flow) {
	require.Equal(t, s.turns(fl), fl.wait, "I2: flow %d", id)
	ahead := int64(fl.base + fl.wait - uint32(s.round))
	require.LessOrEqual(t, ahead, int64(maxWait), "I6")
	if s.visited(fl) {
		require.Positive(t, ahead, "I1: flow %d was visited and is due in this round", id)
	}
}

func checkSlab(t require.TestingT, s *Scheduler) {
	flows := 0
	for c, n := range s.flows.active {
		require.Equal(t, n > 0, s.flows.chunks[c] != nil)
		flows += int(n)
	}
	require.Equal(t, s.active, flows)
}
