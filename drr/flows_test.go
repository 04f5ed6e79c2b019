package drr

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// serve serves what is next, and goes on with the same cost.
func serve(t require.TestingT, s *Scheduler, next int64) Flow {
	f, ok := s.Peek()
	require.True(t, ok)
	s.Take(next)
	return f
}

// places has a scheduler for each place where flow 0 may stand. Flow 1 is served
// once a round; where flow 0 waits, flow 1 is in its turn and goes first.
var places = []struct {
	name  string
	place place
	begin func() *Scheduler
}{
	{"current", nowhere, func() *Scheduler {
		s := New(1)
		s.Join(0, 3*one, one)
		s.Join(1, one, one)
		s.Peek()
		return s
	}},
	{"listed in this round", listed, func() *Scheduler {
		s := New(1)
		s.Join(1, one, one)
		s.Join(0, one, one)
		s.Peek()
		return s
	}},
	{"listed in the next round", listed, func() *Scheduler {
		s := New(1)
		s.Join(1, one, one)
		s.Peek()
		s.Join(0, one, one)
		return s
	}},
	{"heaped", heaped, func() *Scheduler {
		s := New(1)
		s.Join(1, one, one)
		s.Join(0, one, 3*one)
		for range 2 {
			s.Peek()
			s.Take(one)
		}
		s.Peek()
		return s
	}},
	{"filed", filed, func() *Scheduler {
		s := New(1)
		s.Join(1, one, one)
		s.Join(0, one, 70*one)
		for range 5 {
			s.Peek()
			s.Take(one)
		}
		s.Peek()
		return s
	}},
}

// inEachPlace runs a test on flow 0, which costs head, wherever it may stand.
func inEachPlace(t *testing.T, test func(t *testing.T, s *Scheduler, before Info, head int64)) {
	for _, p := range places {
		t.Run(p.name, func(t *testing.T) {
			s := p.begin()
			fl := s.flows.find(0)
			require.Equal(t, p.place, fl.place)
			require.Equal(t, p.place == nowhere, s.current == 0)
			checkInvariants(t, s)
			before, ok := s.Flow(0)
			require.True(t, ok)
			test(t, s, before, fl.head)
		})
	}
}

// requireServed holds flow 0 to what has been saved up of what its head costs, and
// counts how often flow 1 goes before it.
func requireServed(t *testing.T, s *Scheduler, weight, deficit, head int64) {
	t.Helper()
	checkInvariants(t, s)
	in, ok := s.Flow(0)
	require.True(t, ok)
	need := max(0, head-deficit+weight-1) / weight // turns after this one, or those that it waits for
	want := Info{Weight: weight, Deficit: deficit}
	if s.current != 0 {
		need = max(1, need)
		want.Turns = need
	}
	require.Equal(t, want, in)
	before := int64(0)
	for f := serve(t, s, one); f != 0; f = serve(t, s, one) {
		before++
		checkInvariants(t, s)
	}
	require.Equal(t, need, before, "how often flow 1 goes first")
	require.Equal(t, Flow(0), Flow(s.current), "it is charged in its turn")
}

func TestSetHead(t *testing.T) {
	for _, head := range []int64{1, one, 2 * one, 3*one + 1, 69 * one, 300 * one} {
		t.Run(fmt.Sprintf("head=%d", head), func(t *testing.T) {
			inEachPlace(t, func(t *testing.T, s *Scheduler, before Info, _ int64) {
				s.SetHead(0, head)
				requireServed(t, s, before.Weight, before.Deficit, head)
			})
		})
	}
}

func TestRefund(t *testing.T) {
	for _, cost := range []int64{1, one, 2 * one, 68 * one, 300 * one} {
		t.Run(fmt.Sprintf("cost=%d", cost), func(t *testing.T) {
			inEachPlace(t, func(t *testing.T, s *Scheduler, before Info, head int64) {
				s.Refund(0, cost)
				requireServed(t, s, before.Weight, before.Deficit+cost, head)
			})
		})
	}
}

// What comes back may be held back at once, behind others of its flow: then the flow
// is idle, and what it was charged is lost like the rest of its deficit.
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
