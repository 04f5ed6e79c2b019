package drr

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const one = 1000 // weight 1, cost 1

func fill(s *items, f Flow, weight, cost int64, n int) {
	for i := range n {
		s.Push(f, weight, uint64(i), cost)
	}
}

func take(t require.TestingT, s *items) Item {
	it, ok := s.Next()
	require.True(t, ok)
	return it
}

func TestEmpty(t *testing.T) {
	s := newItems(1)
	_, ok := s.Next()
	require.False(t, ok)
	_, ok = s.Flow(7)
	require.False(t, ok)
	s.SetWeight(7, one)
	s.EndTurn()
	s.SetQuantum(3)
	require.Equal(t, int64(3), s.Quantum())
	require.Zero(t, s.Len()+s.Active())
	for range s.All() {
		require.Fail(t, "an empty scheduler has no flows")
	}
	s.check(t)
}

// With nothing arriving, the visit in which an item goes is known without
// visiting: the first whose turns pay for it and all before it. This takes k up
// to 1e9, far beyond what the model can walk.
func TestStandingBacklogAgainstTheFormula(t *testing.T) {
	type sent struct {
		flow  Flow
		visit int64
		value uint64
	}
	rapid.Check(t, func(t *rapid.T) {
		quantum := rapid.SampledFrom([]int64{1, 3, 1000, MaxQuantum}).Draw(t, "quantum")
		s := newItems(quantum)
		s.round = rapid.Uint64().Draw(t, "round")
		most := rapid.SampledFrom([]int64{one, 100 * one, MaxCost}).Draw(t, "most")
		var want []sent
		for f := range Flow(rapid.IntRange(1, 30).Draw(t, "flows")) {
			weight := rapid.Int64Range(1, most).Draw(t, "weight")
			sum := int64(0)
			for v := range uint64(rapid.IntRange(1, 20).Draw(t, "items")) {
				cost := rapid.Int64Range(1, MaxCost).Draw(t, "cost")
				sum += cost
				turn := weight * quantum
				want = append(want, sent{f, (sum + turn - 1) / turn, v})
				s.Push(f, weight, v, cost)
			}
		}
		slices.SortStableFunc(want, func(a, b sent) int {
			return cmp.Or(cmp.Compare(a.visit, b.visit), cmp.Compare(a.flow, b.flow))
		})
		for i, w := range want {
			it := take(t, s)
			require.Equal(t, [2]uint64{uint64(w.flow), w.value}, [2]uint64{uint64(it.Flow), it.Value}, "item %d", i)
		}
		s.check(t)
	})
}

// Hundreds of flows, joining in bursts at one place of the ring, so that labels
// must be spread, and chunks come and go.
func TestManyFlowsAgainstModel(t *testing.T) {
	for seed := range uint64(3) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		s, m := newItems(1), &model{quantum: 1}
		handles := map[uint64]Handle{}
		value := uint64(0)
		for step := range 300 {
			for range rnd.IntN(150) {
				f, w, c := Flow(rnd.IntN(3000)), 500*(1+rnd.Int64N(6)), 1+rnd.Int64N(4000)
				if rnd.IntN(10) == 0 {
					c *= 100
				}
				value++
				handles[value] = s.Push(f, w, value, c)
				m.push(f, w, modelItem{value, c})
			}
			for range rnd.IntN(170) {
				f, want, wantOK := m.next()
				got, ok := s.Next()
				require.Equal(t, wantOK, ok)
				require.Equal(t, Item{f, want.value, want.cost}, got)
				delete(handles, got.Value)
			}
			for v, h := range handles {
				if rnd.IntN(50) == 0 {
					require.Equal(t, v, s.Remove(h))
					m.remove(v)
					delete(handles, v)
				}
			}
			if step%50 == 0 {
				s.SetQuantum(int64(1 + step/50%3))
				m.quantum = int64(1 + step/50%3)
				s.check(t)
			}
		}
		s.check(t)
	}
}

func TestArgumentsAreClamped(t *testing.T) {
	s := newItems(-5)
	require.Equal(t, int64(1), s.Quantum())
	s.SetQuantum(math.MaxInt64)
	require.Equal(t, int64(MaxQuantum), s.Quantum())
	s.Push(0, math.MaxInt64, 1, math.MaxInt64)
	in, _ := s.Flow(0)
	require.Equal(t, int64(MaxWeight), in.Weight)
	require.Equal(t, Item{Flow: 0, Value: 1, Cost: MaxCost}, take(t, s))
	s.Push(0, -1, 2, 0)
	in, _ = s.Flow(0)
	require.Equal(t, int64(1), in.Weight)
	require.Equal(t, Item{Flow: 0, Value: 2, Cost: 1}, take(t, s))
}

func TestDeficitSaturates(t *testing.T) {
	s := newItems(MaxQuantum)
	fill(s, 0, MaxWeight, MaxCost, 2)
	take(t, s)
	s.flows.at(0).deficit = maxDeficit - 1
	s.Return(0, one, 1, MaxCost)
	in, _ := s.Flow(0)
	require.Equal(t, int64(maxDeficit+MaxWeight*MaxQuantum), in.Deficit)
	take(t, s)
	s.check(t)
}

func TestAllMayStopEarly(t *testing.T) {
	s := newItems(1)
	fill(s, 3, one, one, 1)
	fill(s, 5, one, one, 1)
	for f := range s.All() {
		require.Equal(t, Flow(3), f)
		break
	}
}
