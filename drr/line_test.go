package drr

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestEmptyLine(t *testing.T) {
	var l Line
	_, _, ok := l.Peek()
	require.False(t, ok)
	require.False(t, l.Has(0))
	require.False(t, l.Remove(0, 0))
	l.SetCost(1, 1)
	l.SetWeight(1, 1)
	require.Zero(t, l.Len())
	for range l.All() {
		require.Fail(t, "nobody waits")
	}
	require.PanicsWithValue(t, "drr: no lane waits", func() { l.Take(1, true) })
	l.Add(0, one, 7, one)
	require.PanicsWithValue(t, "drr: the lane waits already", func() { l.Add(1, one, 7, one) })
	require.PanicsWithValue(t, "drr: the lane waits already", func() { l.PutBack(1, one, 7, one) })
	l.Add(1, one, 8, one)
	require.PanicsWithValue(t, "drr: the lane waits in another flow", func() { l.PutBack(1, one, 7, one) })
}

// Flows that join with one message at a time, and leave after each delivery, get their share by
// weight and no more, however many they are.
func TestLeavingAndComingBackGainsNothing(t *testing.T) {
	for name, tc := range map[string]struct{ stay, come, trickles, weight int64 }{
		"a light one against a heavy one": {10 * one, one, 1, one},
		"equal ones":                      {one, one, 1, one},
		"a heavy one":                     {one, 5 * one, 1, 5 * one},
		"many":                            {one, one, 50, one},
		"fractions":                       {one, 333, 7, 333},
	} {
		t.Run(name, func(t *testing.T) {
			var l Line
			const stays = 3
			for f := range Flow(stays) {
				l.Add(f, tc.stay, uint32(f), one)
			}
			come := func(f Flow) { l.Add(f, tc.come, uint32(f), one) }
			for f := range Flow(tc.trickles) {
				come(stays + f)
			}
			served := make([]int64, stays+tc.trickles)
			for range 20_000 {
				_, f, _ := l.Peek()
				served[f]++
				if f < stays {
					l.Take(one, true)
					continue
				}
				l.Take(0, false)
				come(f)
			}
			for f, n := range served {
				weight := tc.stay
				if f >= stays {
					weight = tc.come
				}
				// All flows of this weight got that much, give or take a message each.
				want := 20_000 * weight / (stays*tc.stay + tc.trickles*tc.come)
				require.InDelta(t, want, n, 2+float64(weight)/float64(tc.stay), "flow %d", f)
			}
		})
	}
}

// The bound over the whole range of weights and costs, where only big numbers
// hold the sums.
func TestLineBoundOverTheWholeRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l Line
		l.now = rapid.Uint64().Draw(t, "now")
		type state struct {
			weight, largest int64
			sum             *big.Int
		}
		draw := func(label string) int64 {
			exp := rapid.IntRange(0, 30).Draw(t, label)
			return min(MaxCost, max(1, int64(1)<<exp-rapid.Int64Range(0, 1<<max(0, exp-1)).Draw(t, label)))
		}
		var flows []*state
		for f := range Flow(rapid.IntRange(2, 6).Draw(t, "flows")) {
			s := &state{weight: draw("weight"), largest: draw("cost"), sum: new(big.Int)}
			flows = append(flows, s)
			l.Add(f, s.weight, uint32(f), s.largest)
		}
		type pair [2]int
		least, most := map[pair]*big.Int{}, map[pair]*big.Int{}
		look := func() {
			for i, a := range flows {
				for j, b := range flows[:i] {
					// x = S_a*w_b - S_b*w_a
					wa, wb := big.NewInt(a.weight), big.NewInt(b.weight)
					x := new(big.Int).Mul(a.sum, wb)
					x.Sub(x, new(big.Int).Mul(b.sum, wa))
					p := pair{i, j}
					if least[p] == nil || x.Cmp(least[p]) < 0 {
						least[p] = x
					}
					if most[p] == nil || x.Cmp(most[p]) > 0 {
						most[p] = x
					}
					bound := new(big.Int).Mul(big.NewInt(a.largest), wb)
					bound.Add(bound, new(big.Int).Mul(big.NewInt(b.largest), wa))
					// Two tags are rounded, each by less than 2^-32.
					rounding := new(big.Int).Mul(wa, wb)
					bound.Add(bound, rounding.Rsh(rounding, 31).Add(rounding, big.NewInt(1)))
					spread := new(big.Int).Sub(most[p], least[p])
					require.LessOrEqual(t, spread.Cmp(bound), 0, "flows %d and %d: %v > %v", i, j, spread, bound)
				}
			}
		}
		look()
		cost := make([]int64, len(flows))
		for f := range flows {
			cost[f] = flows[f].largest
		}
		for range 150 {
			_, f, _ := l.Peek()
			s := flows[f]
			s.sum.Add(s.sum, big.NewInt(cost[f]))
			look() // the largest counts from when it is at the head
			cost[f] = draw("next")
			s.largest = max(s.largest, cost[f])
			l.Take(cost[f], true)
			checkLine(t, &l)
		}
	})
}

func TestLineArgumentsAreClamped(t *testing.T) {
	var l Line
	l.Add(0, math.MaxInt64, 1, -5)
	l.Add(1, -5, 2, math.MaxInt64)
	l.Take(math.MaxInt64, true)
	l.SetCost(2, 0)
	l.SetWeight(1, math.MaxInt64)
	l.PutBack(0, 0, 1, math.MaxInt64)
	l.PutBack(2, math.MinInt64, 3, math.MaxInt64)
	checkLine(t, &l)
	for range 3 {
		l.Take(0, false)
		checkLine(t, &l)
	}
	require.Zero(t, l.Len())
}

// Credit without end, which only a caller's mistake gives, does not break the
// order of tags.
func TestPutBackWithoutTake(t *testing.T) {
	var l Line
	l.Add(0, 1, 1, one)
	l.Add(1, 1, 2, MaxCost)
	for range 100 {
		l.PutBack(0, 1, 1, MaxCost)
		checkLine(t, &l)
	}
	for _, want := range []Flow{0, 1, 0, 1} { // one message of the largest cost
		_, f, _ := l.Peek()
		require.Equal(t, want, f)
		l.Take(MaxCost, true)
		checkLine(t, &l)
	}
}

// Hundreds of flows with lanes, so that the index comes and goes.
func TestLongLineAgainstModel(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 7))
	var l Line
	m := newLineModel()
	lanes := uint32(0)
	for phase := range 6 {
		grow := phase%2 == 0
		for range 900 {
			if rnd.IntN(3) > 0 == grow {
				lanes++
				f, w, c := Flow(rnd.IntN(300)), 500*(1+rnd.Int64N(6)), 1+rnd.Int64N(4000)
				l.Add(f, w, lanes, c)
				m.add(f, w, lanes, c)
				continue
			}
			best := m.peek()
			lane, f, ok := l.Peek()
			require.Equal(t, best != nil, ok)
			if !ok {
				continue
			}
			require.Equal(t, best.id, f)
			require.Equal(t, best.lanes[0].lane, lane)
			if rnd.IntN(8) == 0 {
				mf := m.flows[rnd.IntN(len(m.flows))]
				lane := mf.lanes[rnd.IntN(len(mf.lanes))].lane
				require.True(t, l.Remove(mf.id, lane))
				m.remove(lane)
				continue
			}
			more := rnd.IntN(4) == 0
			l.Take(one, more)
			m.take(one, more)
		}
		checkLine(t, &l)
		require.Equal(t, m.len(), l.Len())
	}
}

// The weight of a waiting flow with much credit falls to the smallest. The flow keeps as much
// credit as a tag can hold, and carries no deficit.
func TestLineWeightFallsOfAFlowWithCredit(t *testing.T) {
	var l Line
	l.Add(1, MaxWeight, 1, MaxCost)
	l.Add(2, 1, 2, MaxCost)
	l.Take(MaxCost, true)
	for range 3 {
		l.PutBack(1, MaxWeight, 1, MaxCost)
	}
	l.SetWeight(1, 1)
	i, ok := l.find(1)
	require.True(t, ok)
	require.Equal(t, uint64(maxLag), l.now-l.flows[i].start)
	_, f, _ := l.Peek()
	require.Equal(t, Flow(1), f)
}
