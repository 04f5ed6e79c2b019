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
