package store

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestSeqIndex compares the location index with a map.
func TestSeqIndex(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var x seqIndex
		want := map[uint64]loc{}
		base := rapid.SampledFrom([]uint64{0, 1, 1 << 18, 1<<50 - 3}).Draw(rt, "base")
		seqs := rapid.OneOf(rapid.Uint64Range(0, 40), rapid.Uint64Range(0, 3<<spanBits))
		rt.Repeat(map[string]func(*rapid.T){
			"put": func(rt *rapid.T) {
				seq := base + seqs.Draw(rt, "seq")
				l := loc{seg: rapid.Uint32Range(1, 9).Draw(rt, "seg"), slot: uint32(seq)}
				require.True(rt, x.fits(seq))
				x.put(seq, l)
				want[seq] = l
			},
			"del": func(rt *rapid.T) {
				seq := base + seqs.Draw(rt, "seq")
				x.del(seq)
				delete(want, seq)
			},
			"clear": func(rt *rapid.T) {
				for seq := range x.all() {
					x.del(seq)
				}
				clear(want)
			},
			"": func(rt *rapid.T) {
				require.Equal(rt, int64(len(want)), x.live)
				got := map[uint64]loc{}
				var order []uint64
				for seq, l := range x.all() {
					got[seq] = l
					order = append(order, seq)
				}
				require.Equal(rt, want, got)
				require.Equal(rt, slices.Sorted(maps.Keys(want)), order)
				for range 5 {
					seq := base + seqs.Draw(rt, "look")
					l, ok := x.get(seq)
					w, has := want[seq]
					require.Equal(rt, has, ok)
					require.Equal(rt, w, l)
				}
				if len(want) == 0 {
					require.Zero(rt, x.memory())
				}
			},
		})
	})
}

// TestSeqIndexMemory holds the index to its size per message, and to letting go
// of what has passed.
func TestSeqIndexMemory(t *testing.T) {
	var x seqIndex
	const n = 1_000_000
	for seq := range uint64(n) {
		x.put(seq, loc{seg: 1})
	}
	require.Less(t, x.memory(), int64(n*12.5))
	for seq := range uint64(n) {
		x.put(n+seq, loc{seg: 1})
		x.del(seq)
	}
	require.Less(t, x.memory(), int64(n*12.5))
	require.LessOrEqual(t, len(x.dirs), n>>spanBits+2)
}

func TestSeqIndexFits(t *testing.T) {
	var x seqIndex
	require.True(t, x.fits(1<<63))
	x.put(1<<50, loc{seg: 1})
	require.True(t, x.fits(1<<50+(maxDirs-1)<<spanBits))
	require.False(t, x.fits(1<<50+maxDirs<<spanBits))
	require.False(t, x.fits(1))
	require.True(t, x.fits(1<<50-1))
}
