package store

import (
	"maps"
	"reflect"
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
		base := rapid.SampledFrom([]uint64{0, 1, 1 << spanBits, 1<<50 - 3, MaxSeq - 4<<spanBits}).Draw(rt, "base")
		seqs := rapid.OneOf(rapid.Uint64Range(0, 40), rapid.Uint64Range(0, 3<<spanBits))
		rt.Repeat(map[string]func(*rapid.T){
			"put": func(rt *rapid.T) {
				seq := base + seqs.Draw(rt, "seq")
				l := loc{seg: rapid.Uint32Range(1, 9).Draw(rt, "seg"), slot: uint32(seq)}
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

// TestSeqIndexMemory checks the size per message, and that the index frees memory even
// if a few messages remain.
func TestSeqIndexMemory(t *testing.T) {
	var x seqIndex
	const n = 1_000_000
	for seq := range uint64(n) {
		x.put(seq, loc{seg: 1})
	}
	require.Less(t, x.memory(), int64(n*13))
	for seq := range uint64(n) {
		x.put(n+seq, loc{seg: 1})
		x.del(seq)
	}
	require.Less(t, x.memory(), int64(n*13))
	for seq := range uint64(n) {
		if seq%1000 != 0 {
			x.del(n + seq)
		}
	}
	require.EqualValues(t, 1000, x.live)
	require.Less(t, x.memory(), int64(n))
	x.put(1<<64-1, loc{seg: 1})
	require.Less(t, x.memory(), int64(n), "what lies far from the others")
	require.EqualValues(t, dirChunks*9+8, reflect.TypeFor[seqDir]().Size())
	require.EqualValues(t, 12<<chunkBits, reflect.TypeFor[seqChunk]().Size(), "a size that the allocator has")
}

// TestPlanFreesMemory: a plan frees the memory of a huge commit, and keeps the memory of
// usual commits.
func TestPlanFreesMemory(t *testing.T) {
	var p plan
	p.adds = append(p.adds, make([]added, 100)...)
	p.reset()
	require.GreaterOrEqual(t, cap(p.adds), 100)
	p.adds = append(p.adds, make([]added, opsKept+1)...)
	p.reset()
	require.Zero(t, cap(p.adds))
}
