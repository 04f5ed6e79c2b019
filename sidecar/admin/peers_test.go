package admin

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/filaq/fila/wire/api"
)

// Merged pages of several nodes are one sorted list: each item is on exactly one page, also
// if two nodes have it, and if a node's page is shorter than the limit.
func TestMergedPagesAreOneList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		item := rapid.StringMatching("[a-z]{1,2}")
		nodes := rapid.SliceOfN(rapid.SliceOfNDistinct(item, 0, 20, rapid.ID[string]), 1, 4).Draw(t, "nodes")
		limit := rapid.IntRange(1, 30).Draw(t, "limit")
		var want, got []string
		for _, items := range nodes {
			slices.Sort(items)
			want = append(want, items...)
		}
		slices.Sort(want)
		want = slices.Compact(want)
		for after, more := "", true; more; more = after != "" {
			var pages []api.PageOf[string]
			for _, items := range nodes {
				from, found := slices.BinarySearch(items, after)
				if found {
					from++
				}
				rest := items[from:]
				n := min(len(rest), rapid.IntRange(1, limit).Draw(t, "length of a page"))
				page, next := rest[:n], rest[n:]
				pages = append(pages, api.PageOf[string]{Items: &page, Next: new(strings.Join(next, ""))})
			}
			var merged []string
			after = ""
			merge(api.PageOf[string]{Items: &merged, Next: &after, Cursor: func(s *string) string { return *s }}, pages, limit, cmp.Compare[string])
			require.LessOrEqual(t, len(merged), limit)
			got = append(got, merged...)
		}
		require.Equal(t, want, got)
	})
}
