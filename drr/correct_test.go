package drr

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// carried returns the carried deficit of a flow: 0 if it has none or is idle.
func carried(s *Scheduler, f Flow) int64 {
	if fl := s.flows.get(flowID(f)); fl != nil && fl.head != 0 {
		return s.carriedBy(flowID(f), fl)
	}
	return 0
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

// A flow that owes pays by waiting. If its whole charge is refunded after that, it is behind by
// the service that the other flow got meanwhile, and the next messages that go are its own.
func TestBoundOfARefundToAFlowThatHasPaidAPart(t *testing.T) {
	const owes, other = Flow(0), Flow(1)
	var l Line
	b := newBoundChecker(t, 0)
	for f, weight := range []int64{owes: 2 * one, other: one} {
		l.Add(Flow(f), weight, uint32(f), one)
		b.put(Flow(f), weight, one)
	}
	correct := func(delta int64) {
		require.True(t, l.Correct(owes, delta))
		b.correct(owes, delta)
	}
	take := func(want Flow) {
		_, f, _ := l.Peek()
		require.Equal(t, want, f)
		l.Take(one, true)
		b.serve(f, one)
	}
	correct(10 * one)
	take(other)
	take(other)
	correct(-10 * one)
	for range 5 {
		take(owes)
	}
	take(other)
}
