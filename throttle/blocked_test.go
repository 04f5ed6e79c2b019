package throttle

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// A gate counts what it blocks while its key has limits of its own. BlockedCounts returns
// the first keys only.
func TestBlockedCounts(t *testing.T) {
	g := New(Start{}, 0)
	prefix(t, g, "tenant:", Limits{Concurrency: 1}, 0)
	limit(t, g, "b", Limits{Concurrency: 1}, 0)
	s := set(t, g, "b", "tenant:acme", "none")
	require.Empty(t, g.BlockedCounts(10))
	for _, gate := range s.Gates() {
		gate.CountBlocked(ByInFlight)
		gate.CountBlocked(ByInFlight)
		gate.CountBlocked(ByRate)
	}
	g.CountBlocked("b", "paused")
	g.CountBlocked("b", "circuit")
	g.CountBlocked("unknown", "rate")
	require.EqualValues(t, 3, s.Gates()[2].Info(0).Blocked, "of a prefix")
	require.EqualValues(t, 4, s.Gates()[0].Info(0).Blocked)
	b := []BlockedCount{{"b", ByRate, 1}, {"b", ByInFlight, 2}, {"b", ByPause, 1}}
	require.Equal(t, b, g.BlockedCounts(10))
	for i := range 3 {
		key := fmt.Sprint("a", i)
		limit(t, g, key, Limits{Concurrency: 1}, 0)
		g.CountBlocked(key, "window")
	}
	require.Equal(t, []BlockedCount{{"a0", ByWindow, 1}, {"a1", ByWindow, 1}}, g.BlockedCounts(2))
	require.Len(t, g.BlockedCounts(4), 6)
	limit(t, g, "b", Limits{}, 0)
	require.Len(t, g.BlockedCounts(4), 3)
}

// The counts of a key outlive its gate, also one that is dormant for a while.
func TestCountsOutliveGates(t *testing.T) {
	for _, awake := range []int{awakeIdle, 0} {
		g := newGates()
		g.mu.awakeIdle = awake
		prefix(t, g, "t:", Limits{Rate: PerSecond(One), Burst: One}, start)
		now := start
		admitted := func() int64 {
			if i, gate, _ := g.Look("t:a", now); gate {
				return i.Admitted
			}
			n, blocked := g.Counts("t:a")
			require.EqualValues(t, n, blocked, "each was blocked once")
			return n
		}
		for n := range int64(5) {
			s, err := g.Set([]string{"t:a"}, now)
			require.NoError(t, err)
			grant, _, ok := s.Acquire(now, One, nil)
			require.True(t, ok)
			s.Gates()[0].CountBlocked(ByRate)
			s.Release(&grant, now, nil)
			g.Close(s, now)
			for range 3 {
				g.sweep(now, 10)
			}
			require.Equal(t, n+1, admitted(), "its bucket is not full")
			now += 2 * sec
			for range 3 {
				g.sweep(now, 10)
			}
			require.Zero(t, g.Count())
			require.Equal(t, n+1, admitted(), "no gate is left")
		}
		for i := range 2 * pastKeys {
			use(t, g, fmt.Sprint("t:", i), 1, now)
		}
		now += 2 * sec
		for range 10 * pastKeys {
			g.sweep(now, 10)
		}
		require.LessOrEqual(t, g.mu.past.recent.Len(), 2*pastKeys)
		n, _ := g.Counts("t:a")
		require.Zero(t, n, "others went since")
	}
}

// A gate counts what it admits, also by a reservation. An undone message stays counted.
func TestAdmitted(t *testing.T) {
	g := newGates()
	limit(t, g, "a", Limits{Concurrency: 2}, start)
	limit(t, g, "b", Limits{Concurrency: 1}, start)
	both, b := set(t, g, "a", "b"), set(t, g, "b")
	counts := func() (all [2]int64) {
		for i, gate := range both.Gates() {
			all[i] = gate.Info(start).Admitted
		}
		return all
	}
	grant, _, ok := both.Acquire(start, One, nil)
	require.True(t, ok)
	require.Equal(t, [2]int64{1, 1}, counts())
	_, _, ok = b.Acquire(start, One, nil)
	require.False(t, ok)
	require.Equal(t, [2]int64{1, 1}, counts())
	both.Undo(&grant, start, nil)
	require.Equal(t, [2]int64{1, 1}, counts())
	r, ok := g.Reserve(both, One)
	require.True(t, ok)
	grant, block, _ := r.Acquire(start, nil, nil)
	require.Equal(t, Open, block.Kind)
	require.Equal(t, [2]int64{2, 2}, counts())
	both.Release(&grant, start, nil)
	require.Equal(t, [2]int64{2, 2}, counts())
}
