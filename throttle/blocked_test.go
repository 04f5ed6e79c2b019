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
	set := func(key string, l Limits) {
		_, err := g.SetLimits(key, l, 0, nil)
		require.NoError(t, err)
	}
	_, err := g.SetPrefix("tenant:", Limits{Concurrency: 1}, 0, nil)
	require.NoError(t, err)
	set("b", Limits{Concurrency: 1})
	s, err := g.Set([]string{"b", "tenant:acme", "none"}, 0)
	require.NoError(t, err)
	require.Empty(t, g.BlockedCounts(10))
	for _, gate := range s.Gates() {
		gate.CountBlocked(ByInFlight)
		gate.CountBlocked(ByInFlight)
		gate.CountBlocked(ByRate)
	}
	g.CountBlocked("b", "paused")
	g.CountBlocked("b", "circuit")
	g.CountBlocked("unknown", "rate")
	b := []BlockedCount{{"b", ByRate, 1}, {"b", ByInFlight, 2}, {"b", ByPause, 1}}
	require.Equal(t, b, g.BlockedCounts(10))
	for i := range 3 {
		key := fmt.Sprint("a", i)
		set(key, Limits{Concurrency: 1})
		g.CountBlocked(key, "window")
	}
	require.Equal(t, []BlockedCount{{"a0", ByWindow, 1}, {"a1", ByWindow, 1}}, g.BlockedCounts(2))
	require.Len(t, g.BlockedCounts(4), 6)
	set("b", Limits{})
	require.Len(t, g.BlockedCounts(4), 3)
	g.Close(s, 0)
}
