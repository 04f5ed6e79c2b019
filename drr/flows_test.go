package drr

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// serve serves the next head, and continues with the same cost.
func serve(t require.TestingT, s *Scheduler, next int64) Flow {
	f, ok := s.Peek()
	require.True(t, ok)
	s.Take(next)
	return f
}

// A returned message may be blocked at once, behind others of its flow: then the flow is idle, and
// its charge is lost like the rest of its deficit.
func TestRefundOfAnIdleFlowDoesNothing(t *testing.T) {
	s := New(1)
	s.Refund(5, one) // it has no record yet
	require.Zero(t, s.Active())
	s.Join(1, one, one)
	s.Join(0, one, one)
	require.Equal(t, Flow(1), serve(t, s, one))
	require.Equal(t, Flow(0), serve(t, s, 0))
	s.Refund(0, one) // it has one still
	checkInvariants(t, s)
	_, ok := s.Flow(0)
	require.False(t, ok)
	require.Equal(t, Flow(1), serve(t, s, one))
	s.Join(0, one, one)
	in, _ := s.Flow(0)
	require.Equal(t, Info{Weight: one, Turns: 1}, in)
}

// Others may join, leave and change between Peek and Take.
func TestTakeChargesTheFlowOfPeek(t *testing.T) {
	s := New(1)
	s.Join(0, one, one)
	s.Join(1, one, one)
	f, _ := s.Peek()
	require.Equal(t, Flow(0), f)
	s.Join(2, one, one)
	s.SetHead(1, 2*one)
	s.Leave(2)
	s.Leave(1)
	s.Join(1, one, one)
	s.Take(7 * one)
	checkInvariants(t, s)
	in, _ := s.Flow(0)
	require.Equal(t, Info{Weight: one}, in)
	require.Equal(t, Flow(1), serve(t, s, one))
	in, _ = s.Flow(0)
	require.Equal(t, Info{Weight: one, Turns: 7}, in)
}

func TestContradictoryCallsPanic(t *testing.T) {
	const idle, active = "drr: the flow is idle", "drr: the flow is active already"
	s := New(1)
	s.Join(0, one, one)
	s.Join(1, one, one)
	s.Join(1000, one, one)
	s.Leave(1)
	s.Leave(1000)
	for _, f := range []Flow{1, 1000, 5000, math.MaxUint32} {
		require.PanicsWithValue(t, idle, func() { s.SetHead(f, one) })
		require.PanicsWithValue(t, idle, func() { s.Leave(f) })
	}
	require.PanicsWithValue(t, active, func() { s.Join(0, one, one) })
	require.PanicsWithValue(t, "drr: flow number out of range", func() { s.Join(math.MaxUint32, one, one) })
	require.PanicsWithValue(t, "drr: Take without Peek", func() { s.Take(one) })
	s.Peek()
	s.Take(0)
	require.PanicsWithValue(t, "drr: Take without Peek", func() { s.Take(0) })
	checkInvariants(t, s)
}
