package container

import (
	"maps"
	"math/bits"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestTableModel holds the table against a map. Sequences come nearly in
// order, some late, with gaps of whole chunks, and go in any order.
func TestTableModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var table Table[int64]
		model := make(map[uint64]int64)
		next := rapid.SampledFrom([]uint64{1, chunkSize, 1<<spanBits - 1, 1 << 60}).Draw(rt, "first")
		var reserved []uint64
		add := func(seq uint64) {
			v := table.Add(seq)
			require.Zero(rt, *v, "a new value is as if nothing had been there")
			*v = int64(seq) + 1
			model[seq] = *v
		}
		rt.Repeat(map[string]func(*rapid.T){
			"add": func(rt *rapid.T) {
				for range rapid.IntRange(1, 20*chunkSize).Draw(rt, "n") {
					add(next)
					next++
				}
			},
			"reserve": func(*rapid.T) { reserved = append(reserved, next); next++ },
			"gap": func(rt *rapid.T) {
				next += rapid.OneOf(rapid.Uint64Range(0, 5*chunkSize), rapid.Uint64Range(0, 3<<spanBits)).Draw(rt, "gap")
			},
			"late": func(*rapid.T) {
				if len(reserved) > 0 {
					add(reserved[0])
					reserved = reserved[1:]
				}
			},
			"remove": func(rt *rapid.T) {
				live := slices.Sorted(maps.Keys(model))
				for range min(len(live), rapid.IntRange(0, 10*chunkSize).Draw(rt, "n")) {
					i := rapid.IntRange(0, len(live)-1).Draw(rt, "which")
					table.Remove(live[i])
					delete(model, live[i])
					live = slices.Delete(live, i, i+1)
				}
			},
			"removeOldest": func(rt *rapid.T) {
				for _, seq := range slices.Sorted(maps.Keys(model))[:len(model)/2] {
					table.Remove(seq)
					delete(model, seq)
				}
			},
			"": func(rt *rapid.T) { checkTable(rt, &table, model, next) },
		})
		for seq := range model {
			table.Remove(seq)
		}
		checkTable(rt, &table, nil, next)
		require.LessOrEqual(rt, len(table.dirs), 1, "an empty table keeps one directory")
	})
}

func checkTable(rt *rapid.T, table *Table[int64], model map[uint64]int64, next uint64) {
	require.EqualValues(rt, len(model), table.Len())
	live := slices.Sorted(maps.Keys(model))
	var found []uint64
	for seq, v := range table.From(0) {
		require.Equal(rt, model[seq], *v)
		found = append(found, seq)
	}
	require.Equal(rt, live, found)
	if len(live) > 0 {
		from := rapid.SampledFrom(live).Draw(rt, "from")
		var rest []uint64
		for seq := range table.From(from) {
			if rest = append(rest, seq); len(rest) == 3 {
				break
			}
		}
		at, _ := slices.BinarySearch(live, from)
		require.Equal(rt, live[at:min(at+3, len(live))], rest)
	}
	chunks := make(map[uint64]int)
	for seq := range model {
		chunks[seq>>chunkBits]++
	}
	have := 0
	for no, d := range table.dirs {
		n := 0
		for i, c := range d.chunks {
			if c != nil {
				n++
			}
			require.Equal(rt, chunks[no<<dirBits|uint64(i)], bits.OnesCount16(d.used[i]))
			require.Equal(rt, d.used[i] != 0, c != nil)
		}
		require.Equal(rt, n, d.n)
		require.True(rt, n > 0 || no == table.newest)
		have += n
	}
	require.Equal(rt, len(chunks), have)
	require.LessOrEqual(rt, len(table.spare), spareChunks)
	for range 20 {
		seq := rapid.Uint64Range(0, next+2*chunkSize).Draw(rt, "seq")
		_, ok := model[seq]
		require.Equal(rt, ok, table.Get(seq) != nil)
	}
}

// TestTableLetsChunksGo: what passes by leaves nothing behind, also when a few
// stay for long.
func TestTableLetsChunksGo(t *testing.T) {
	var table Table[int64]
	size := func() (dirs, chunks int) {
		for _, d := range table.dirs {
			chunks += d.n
		}
		return len(table.dirs), chunks
	}
	const n, every, stay = 10 << spanBits, 1000, (10<<spanBits - 1) / 1000
	for seq := range uint64(n) {
		table.Add(seq + 1)
		if seq >= 10 && seq%every != 0 {
			table.Remove(seq - 9)
		}
	}
	_, chunks := size()
	require.LessOrEqual(t, chunks, stay+2)
	require.EqualValues(t, stay+10, table.Len())
	for seq := uint64(every); seq < n; seq += every {
		table.Remove(seq - 9)
	}
	var dirs int
	dirs, chunks = size()
	require.LessOrEqual(t, dirs, 2)
	require.LessOrEqual(t, chunks, 2)
	require.EqualValues(t, 10, table.Len())
}

// TestChunkSize: with values of 64 bytes, as slots of messages are, a chunk has a size
// that the allocator has.
func TestChunkSize(t *testing.T) {
	require.EqualValues(t, 1024, reflect.TypeFor[[chunkSize][64]byte]().Size())
}
