package throttle

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// step is one attempt of a message of a cost, at seconds since the start.
type step struct {
	at    float64
	cost  int64
	ok    bool
	opens float64 // if not ok: when, in seconds since the start; -1: Never
}

func TestSteps(t *testing.T) {
	const none = -1
	for name, tc := range map[string]struct {
		limits Limits
		steps  []step
	}{
		"half a message per second": {Limits{Rate: PerSecond(500)}, []step{
			{0, One, true, 0}, {0, One, false, 2}, {1.999, One, false, 2}, {2, One, true, 0}, {4, One, true, 0},
		}},
		"one in three seconds": {Limits{Rate: Rate{One, 3 * sec}}, []step{
			{0, One, true, 0}, {1, One, false, 3}, {2.999999999, One, false, 3}, {3, One, true, 0}, {3, One, false, 6},
		}},
		"burst": {Limits{Rate: PerSecond(One), Burst: 2500}, []step{
			{0, 2000, true, 0}, {0, 500, true, 0}, {0, 1, false, 0.001}, {1, 1001, false, 1.001}, {100, 2500, true, 0},
		}},
		"cost above the burst": {Limits{Rate: PerSecond(One), Burst: 2 * One}, []step{
			{0, 5 * One, true, 0}, {0, One, false, 4}, {3.5, 5 * One, false, 5}, {4, One, true, 0}, {5, 5 * One, false, 6}, {6, 5 * One, true, 0},
		}},
		"the clock jumps back a little": {Limits{Rate: PerSecond(One)}, []step{
			{10, One, true, 0}, {9.5, One, false, 11}, {10.5, One, false, 11}, {11, One, true, 0},
		}},
		"the clock jumps back far": {Limits{Rate: PerSecond(One)}, []step{
			{1000, One, true, 0}, {10, One, false, 11}, {10.5, One, false, 11}, {11, One, true, 0},
		}},
		"the clock jumps ahead and back": {Limits{Rate: PerSecond(One)}, []step{
			{0, One, true, 0}, {1e9, One, true, 0}, {1e9, One, false, 1e9 + 1}, {1, One, false, 2}, {2, One, true, 0}, {2.5, One, false, 3},
		}},
		"window": {Limits{Limit: 2, Window: sec}, []step{
			{0, One, true, 0}, {0.6, 5 * One, true, 0}, {0.9, One, false, 1}, {1, One, true, 0}, {1, One, false, 1.6}, {1.6, One, true, 0},
		}},
		"window, the clock jumps back far": {Limits{Limit: 1, Window: 10 * sec}, []step{
			{1000, One, true, 0}, {1004, One, false, 1010}, {10, One, false, 16}, {15.9, One, false, 16}, {16, One, true, 0},
		}},
		"window, the clock jumps ahead and back": {Limits{Limit: 1, Window: 10 * sec}, []step{
			{0, One, true, 0}, {1e6, One, true, 0}, {0, One, false, 10}, {10, One, true, 0},
		}},
		"concurrency": {Limits{Concurrency: 2}, []step{
			{0, One, true, 0}, {0, 9 * One, true, 0}, {5, One, false, none},
		}},
		"all three, the last to open is named": {Limits{Rate: PerSecond(One), Burst: 3 * One, Limit: 2, Window: 10 * sec}, []step{
			{0, One, true, 0}, {0, 2 * One, true, 0}, {0, One, false, 10}, {9, 99 * One, false, 10}, {10, One, true, 0},
		}},
		"none": {Limits{}, []step{{0, MaxCost, true, 0}, {0, MaxCost, true, 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGates()
			limit(t, g, "k", tc.limits, start)
			s := set(t, g, "k")
			at := func(seconds float64) int64 { return start + int64(math.Round(seconds*1e9)) }
			for i, st := range tc.steps {
				grant, block, ok := s.Acquire(at(st.at), st.cost, nil)
				require.Equal(t, st.ok, ok, "step %d: %+v", i, block)
				require.Equal(t, st.ok, grant.Active())
				if ok {
					require.Zero(t, block)
					continue
				}
				require.Equal(t, "k", block.Gate.Key())
				if st.opens == none {
					require.Equal(t, int64(Never), block.At, "step %d", i)
					require.Equal(t, ByInFlight, block.Kind)
				} else {
					require.Equal(t, at(st.opens)-start, block.At-start, "step %d", i)
				}
			}
		})
	}
}

func TestExtremes(t *testing.T) {
	for _, l := range []Limits{
		{Rate: Rate{1, MaxWindow}, Burst: MaxBurst},
		{Rate: Rate{1, MaxWindow}},
		{Rate: PerSecond(MaxRate * One), Burst: MaxBurst},
		{Rate: Rate{1_000_000_000_000_000_000, 1_000_000_000_000_000}},
		{Limit: MaxLimit, Window: MaxWindow},
		{Limit: 1, Window: 1},
	} {
		require.NoError(t, l.Validate(), "%+v", l)
		g := New(Start{}, math.MinInt64)
		limit(t, g, "k", l, math.MinInt64)
		s := setAt(t, g, math.MinInt64, "k")
		for _, now := range []int64{math.MinInt64, -1, 0, math.MaxInt64, math.MinInt64, start, math.MaxInt64, 0} {
			for range 3 {
				_, block, ok := s.Acquire(now, MaxCost, nil)
				if !ok {
					require.True(t, block.At > now || block.At == Never)
				}
			}
		}
		limit(t, g, "k", Limits{Rate: PerSecond(One)}, 0)
		info := s.Gates()[0].Info(0)
		require.LessOrEqual(t, info.Tokens, int64(One))
	}
	// The fastest bucket loses nothing in a nanosecond, nor the slowest in years.
	g := newGates()
	limit(t, g, "fast", Limits{Rate: PerSecond(MaxRate * One), Burst: One}, start)
	fast := set(t, g, "fast")
	for i := range int64(1000) {
		require.True(t, goes(fast, start+i, One, nil))
		_, block, ok := fast.Acquire(start+i, One, nil)
		require.False(t, ok)
		require.Equal(t, start+i+1, block.At)
	}
}

// Ten million calls at odd intervals do not add or lose a thousandth.
func TestNoDrift(t *testing.T) {
	b := &bucket{rate: Rate{1000, 3 * sec}, burst: MaxBurst, at: 0}
	for v := instant(0); v < 3_000_000*3*1000; v += 7919 {
		b.advance(v, 0)
	}
	b.advance(9_000_000_000_000, 0)
	require.Equal(t, int64(3_000_000), b.tokens)
	require.Zero(t, b.frac)
}

func TestUndo(t *testing.T) {
	all := Limits{Rate: PerSecond(One), Burst: 3 * One, Limit: 3, Window: 100 * sec, Concurrency: 3}
	g := newGates()
	limit(t, g, "k", all, start)
	s := set(t, g, "k")
	info := func(now int64) [3]int64 {
		i := s.Gates()[0].Info(now)
		return [3]int64{i.Tokens, i.InWindow, i.InFlight}
	}
	a, _, _ := s.Acquire(start, One, nil)
	b, _, _ := s.Acquire(start, 2*One, nil)
	require.Equal(t, [3]int64{0, 2, 2}, info(start))
	s.Undo(&a, start, nil)
	require.Equal(t, [3]int64{One, 1, 1}, info(start))
	s.Undo(&a, start, nil)
	require.Equal(t, [3]int64{One, 1, 1}, info(start), "a grant is good once")
	s.Undo(&b, start+sec, nil)
	require.Equal(t, [3]int64{3 * One, 0, 0}, info(start+sec))

	// Tokens that the clock has replaced already are not refunded.
	now := start + 10*sec
	c, _, _ := s.Acquire(now, 3*One, nil)
	now += 2 * sec
	d, _, ok := s.Acquire(now, 2*One, nil)
	require.True(t, ok)
	s.Undo(&c, now, nil) // there was room for 1 only when d went
	require.Equal(t, [3]int64{One, 1, 1}, info(now))
	s.Undo(&d, now, nil)
	require.Equal(t, [3]int64{3 * One, 0, 0}, info(now))
}

func TestAdopt(t *testing.T) {
	g := newGates()
	limit(t, g, "k", Limits{Rate: PerSecond(One), Concurrency: 1}, start)
	s := set(t, g, "k", "unlimited")
	a, b := s.Adopt(), s.Adopt()
	i := s.Gates()[0].Info(start)
	require.Equal(t, [2]int64{2, One}, [2]int64{i.InFlight, i.Tokens})
	require.Equal(t, ByInFlight, i.Kind)
	s.Undo(&a, start, nil)
	s.Release(&b, start, nil)
	require.Equal(t, Open, s.Gates()[0].Info(start).Kind)
	require.Zero(t, s.Gates()[1].Info(start).InFlight)
}

func TestNilSet(t *testing.T) {
	s, err := newGates().Set(nil, start)
	require.NoError(t, err)
	require.Nil(t, s)
	require.True(t, open(s, start, One))
	grant, _, ok := s.Acquire(start, One, 1)
	require.True(t, ok && grant.Active())
	require.Empty(t, s.Undo(&grant, start, nil))
	adopted := s.Adopt()
	require.Empty(t, s.Release(&adopted, start, nil))
}

func TestClock(t *testing.T) {
	var c clock
	for i, tc := range []struct {
		now  int64
		step uint64 // how far the instant goes
		last int64
	}{
		{start, 0, start},
		{start + 5, 5, start + 5},
		{start + 2, 0, start + 5},
		{start + 5 - stale, 0, start + 5},
		{start + 4 - stale, 0, start + 4 - stale},
		{start + 4, stale, start + 4},
		{math.MinInt64, 0, math.MinInt64},
		{math.MaxInt64, farAhead, math.MaxInt64},
		{math.MinInt64, 0, math.MinInt64},
		{math.MinInt64 + 1, 1, math.MinInt64 + 1},
	} {
		before := c.mu.at
		at, last := c.tick(tc.now)
		require.Equal(t, tc.step, at.since(before), i)
		require.Equal(t, tc.last, last, i)
	}
	require.Equal(t, int64(Never), later(math.MaxInt64-5, 5))
	require.Equal(t, int64(math.MaxInt64-1), later(math.MaxInt64-5, 4))
	require.Equal(t, int64(Never), later(-5, forever))
	require.Equal(t, int64(5), later(-5, 10))
}

// When lows is full it remembers too little room, never too much.
func TestLows(t *testing.T) {
	var s lows
	n := 3 * len(s.entries)
	for i := range n {
		s.note(instant(i+1), int64(10*i))
	}
	for i := range n {
		require.LessOrEqual(t, s.since(instant(i)), int64(10*i), "after %d", i)
	}
	require.Equal(t, int64(0), s.since(0))
	require.Equal(t, int64(10*(n-1)), s.since(instant(n-1)), "the newest are exact")
	require.Equal(t, int64(math.MaxInt64), s.since(instant(n)))
	s.note(instant(n), 5)
	require.Equal(t, int64(10*(n-1)), s.since(instant(n-1)), "the same moment")
	s.note(instant(n+1), 5)
	require.Equal(t, int64(5), s.since(instant(n-1)))
}

// A change of the rate keeps the fraction of a thousandth, rounded down.
func TestFractionSurvivesAChange(t *testing.T) {
	b := &bucket{rate: Rate{1, 1000}, burst: One}
	b.advance(999, 0)
	b.setLimits(Limits{Rate: Rate{1, 10}, Burst: One}, 0)
	require.Equal(t, [2]int64{0, 9}, [2]int64{b.tokens, int64(b.frac)})
	b.advance(1000, 0)
	require.Equal(t, [2]int64{1, 0}, [2]int64{b.tokens, int64(b.frac)})
}
