package drr

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// carried is what a flow owes; 0: nothing, or it is idle.
func carried(s *Scheduler, f Flow) int64 {
	if fl := s.flows.get(flowID(f)); fl != nil && fl.head != 0 {
		return s.carriedBy(flowID(f), fl)
	}
	return 0
}

func TestCorrect(t *testing.T) {
	for _, delta := range []int64{1, one, 2 * one, 68 * one, 300 * one, -1, -one, -300 * one} {
		t.Run(fmt.Sprintf("delta=%d", delta), func(t *testing.T) {
			inEachPlace(t, func(t *testing.T, s *Scheduler, before Info, head int64) {
				s.Correct(0, delta)
				require.Equal(t, max(0, delta-before.Deficit), carried(s, 0))
				requireServed(t, s, before.Weight, before.Deficit-delta, head)
				require.Zero(t, carried(s, 0), "a flow that owes is not served")
			})
		})
	}
}

// A flow whose messages cost ten times what they were said to gets a tenth of the
// messages, however late that is said.
func TestCorrectedCostsAreShared(t *testing.T) {
	s := New(1)
	s.Join(0, one, one)
	s.Join(1, one, one)
	var inFlight []Flow
	var served [2]int
	for i := range 22_000 {
		f := serve(t, s, one)
		served[f]++
		if inFlight = append(inFlight, f); len(inFlight) == 5 {
			if inFlight[0] == 0 {
				s.Correct(0, 9*one)
			}
			inFlight = inFlight[1:]
		}
		if i%101 == 0 {
			checkInvariants(t, s)
		}
	}
	require.InDelta(t, 2000, served[0], 10)
}

func TestCorrectOfAnIdleFlowDoesNothing(t *testing.T) {
	s := New(1)
	s.Correct(5, one)
	s.Join(5, one, one)
	s.Correct(5, 3*one)
	require.Equal(t, int64(3*one), s.Leave(5))
	s.Correct(5, one)
	require.Zero(t, carried(s, 5))
	require.Zero(t, carried(s, 1<<20))
	s.Join(5, one, one)
	in, _ := s.Flow(5)
	require.Equal(t, Info{Weight: one, Turns: 1}, in)
}

// A charge beyond a turn that is cut short is forgiven, a carried deficit is not.
func TestACarriedDeficitOutlivesItsTurn(t *testing.T) {
	s := New(1)
	s.Join(0, 10*one, one)
	s.Join(1, one, one)
	for range 8 {
		require.Equal(t, Flow(0), serve(t, s, one))
	}
	s.Correct(0, 5*one) // 2 of the turn are left, 3 are carried
	require.Equal(t, 3*one, int(carried(s, 0)))
	s.SetWeight(0, one)
	require.Equal(t, 5*one, int(carried(s, 0)), "nothing of the turn is left")
	for range 6 {
		require.Equal(t, Flow(1), serve(t, s, one))
		checkInvariants(t, s)
	}
	require.Equal(t, Flow(0), serve(t, s, one))
}

// A flow that gives up its turn pays its carried deficit with it.
func TestEndTurnPaysDeficits(t *testing.T) {
	s := New(1)
	s.Join(0, 3*one, one)
	s.Join(1, one, one)
	s.Peek()
	s.Correct(0, 2*one)
	s.EndTurn()
	checkInvariants(t, s)
	require.Zero(t, carried(s, 0))
	in, _ := s.Flow(0)
	require.Zero(t, in.Deficit)
}

// A flow carries its deficit even if paying it takes more rounds than a flow can be filed for.
func TestAVeryLargeCarriedDeficit(t *testing.T) {
	s := New(1)
	s.Join(0, 1, one)
	for range 5 {
		s.Correct(0, MaxCost)
	}
	checkInvariants(t, s)
	require.Equal(t, int64(5*MaxCost), carried(s, 0))
	s.Join(1, one, MaxCost)
	require.Equal(t, Flow(1), serve(t, s, MaxCost))
	checkInvariants(t, s)
	s.Leave(1)
	require.Equal(t, Flow(0), serve(t, s, one), "nobody waits for what it owes")
	require.Zero(t, carried(s, 0))
}
