package throttle

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Prefixes come, change and go, and the longest one counts.
func TestPrefixesAgainstAList(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	text := func() string {
		return strings.Repeat("ab", 4)[r.IntN(2):][:r.IntN(6)] + []string{"", "a", "b"}[r.IntN(3)]
	}
	g := newGates()
	p := &g.mu.prefixes
	list := map[string]Limits{}
	for step := range 5000 {
		prefix, l := text(), Limits{Concurrency: int64(r.IntN(3))}
		require.Equal(t, list[prefix], p.set(prefix, l))
		if list[prefix] = l; l == (Limits{}) {
			delete(list, prefix)
		}
		key := text() + text()
		want := Limits{}
		for _, prefix := range slices.SortedFunc(maps.Keys(list), func(a, b string) int { return len(a) - len(b) }) {
			if strings.HasPrefix(key, prefix) {
				want = list[prefix]
			}
		}
		require.Equal(t, want, p.of(key), "step %d, key %q", step, key)
	}
}

// A lookup takes one comparison for each length of prefixes, however many prefixes there are.
func TestManyPrefixesCostNothing(t *testing.T) {
	g := newGates()
	for i := range 2000 {
		prefix(t, g, fmt.Sprintf("tenant:%05d:", i), Limits{Concurrency: int64(i) + 1}, start)
	}
	require.Equal(t, []prefixLength{{13, 2000}}, g.mu.prefixes.lengths)
	require.Equal(t, Limits{Concurrency: 43}, g.Limits("tenant:00042:x"))
	for i := range 2000 {
		prefix(t, g, fmt.Sprintf("tenant:%05d:", i), Limits{}, start)
	}
	require.Empty(t, g.mu.prefixes.lengths)
}
