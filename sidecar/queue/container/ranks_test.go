package container

import (
	"cmp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestRanksAreReadAsOne list in the order of stamps.
func TestRanksAreReadAsOne(t *testing.T) {
	type entry struct {
		rank  uint8
		link  uint32
		stamp int64
		n     int
	}
	rapid.Check(t, func(rt *rapid.T) {
		var (
			x   Lists
			r   Ranks
			all []entry
		)
		ranks := rapid.SampledFrom([]uint8{0, 0, 1, 5, 9})
		for n := range rapid.IntRange(1, 60).Draw(rt, "steps") {
			if len(all) > 0 && rapid.IntRange(0, 2).Draw(rt, "remove") == 0 {
				i := rapid.IntRange(0, len(all)-1).Draw(rt, "which")
				x.RemoveRanked(&r, all[i].rank, all[i].link)
				all = slices.Delete(all, i, i+1)
			} else {
				rank, stamp := ranks.Draw(rt, "rank"), rapid.Int64Range(-9, 20).Draw(rt, "stamp")
				if rank > 0 && stamp >= 0 { // it is raised to the last one of its rank
					for _, e := range all {
						if e.rank == rank {
							stamp = max(stamp, e.stamp)
						}
					}
				}
				link := x.InsertRanked(&r, rank, uint64(n), stamp)
				require.Equal(rt, stamp, x.Stamp(link))
				all = append(all, entry{rank, link, stamp, n})
			}
			slices.SortFunc(all, func(a, b entry) int {
				return cmp.Or(cmp.Compare(a.stamp, b.stamp), cmp.Compare(a.rank, b.rank), cmp.Compare(a.n, b.n))
			})
			require.EqualValues(rt, len(all), x.Count(&r))
			if len(all) == 0 {
				require.Zero(rt, x.First(&r))
				require.Zero(rt, r)
				continue
			}
			require.Equal(rt, all[0].link, x.First(&r))
			second := uint32(0)
			if len(all) > 1 {
				second = all[1].link
			}
			require.Equal(rt, second, x.Second(&r))
			for i, e := range all {
				require.EqualValues(rt, min(i, 5), x.Ahead(&r, e.rank, e.link, 5))
			}
			links := 0
			for rank, link := range x.Links(&r) {
				require.Contains(rt, all, entry{rank, link, x.Stamp(link), int(x.Seq(link))})
				links++
			}
			require.Equal(rt, len(all), links)
		}
	})
}

// TestRanksAreGivenBack when many lists have had some and have none any more.
func TestRanksAreGivenBack(t *testing.T) {
	const many = 3 * maxSpareHighs
	var x Lists
	for range 2 {
		ranks := make([]Ranks, many)
		var links []uint32
		for i := range ranks {
			links = append(links, x.InsertRanked(&ranks[i], 9, uint64(i), 1))
		}
		require.Len(t, x.high, many+1)
		require.Empty(t, x.spareHighs)
		for i := range ranks {
			x.RemoveRanked(&ranks[i], 9, links[i])
		}
		require.Len(t, x.spareHighs, maxSpareHighs)
		require.Len(t, x.freeHigh, many)
		for _, h := range x.high {
			require.Nil(t, h)
		}
	}
}
