package inspect

import (
	"cmp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestTop: the first values in order are the beginning of all values in order.
func TestTop(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOf(rapid.IntRange(0, 20)).Draw(t, "values")
		n := rapid.IntRange(-1, 6).Draw(t, "n")
		first := top[int]{n: n, compare: cmp.Compare[int]}
		for _, v := range all {
			first.add(v)
			require.LessOrEqual(t, len(first.list), max(2*n+1, 0))
		}
		want := slices.Sorted(slices.Values(all))
		require.ElementsMatch(t, want[:min(len(want), max(n, 0))], first.first())
		require.True(t, slices.IsSorted(first.list))
	})
}
