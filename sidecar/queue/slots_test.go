package queue

import (
	"maps"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestSlotTableModel holds the table against a map. Sequences come nearly in
// order, some late, with gaps of whole chunks, and go in any order.
func TestSlotTableModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var table slotTable
		model := make(map[uint64]int64)
		next := rapid.SampledFrom([]uint64{1, chunkSize, 1<<spanBits - 1, 1 << 60}).Draw(rt, "first")
		var reserved []uint64
		add := func(seq uint64) {
			s := table.add(seq)
			require.Equal(rt, slot{state: slotMoving}, *s, "a new slot is in no place")
			s.enqueuedAt = int64(seq) + 1
			model[seq] = s.enqueuedAt
			if seq%3 == 0 {
				table.expire(seq, s, int64(seq)+7)
			}
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
					table.remove(live[i])
					delete(model, live[i])
					live = slices.Delete(live, i, i+1)
				}
			},
			"removeOldest": func(rt *rapid.T) {
				for _, seq := range slices.Sorted(maps.Keys(model))[:len(model)/2] {
					table.remove(seq)
					delete(model, seq)
				}
			},
			"": func(rt *rapid.T) { checkSlots(rt, &table, model, next) },
		})
		for seq := range model {
			table.remove(seq)
		}
		checkSlots(rt, &table, nil, next)
		require.LessOrEqual(rt, len(table.dirs), 1, "an empty table keeps one directory")
	})
}

func checkSlots(rt *rapid.T, table *slotTable, model map[uint64]int64, next uint64) {
	require.EqualValues(rt, len(model), table.live)
	live := slices.Sorted(maps.Keys(model))
	var found []uint64
	ttls := 0
	table.from(0, func(seq uint64, s *slot) bool {
		require.Equal(rt, model[seq], s.enqueuedAt)
		var end int64
		if seq%3 == 0 {
			end = int64(seq) + 7
			ttls++
		}
		require.Equal(rt, end, table.expiresAt(seq, s))
		require.Equal(rt, end != 0, table.expired(seq, s, math.MaxInt64))
		require.False(rt, table.expired(seq, s, end-1))
		found = append(found, seq)
		return true
	})
	require.Equal(rt, live, found)
	require.Len(rt, table.ends, ttls)
	var oldest int64
	if len(live) > 0 {
		oldest = model[live[0]]
		from := rapid.SampledFrom(live).Draw(rt, "from")
		var rest []uint64
		table.from(from, func(seq uint64, _ *slot) bool { rest = append(rest, seq); return len(rest) < 3 })
		at, _ := slices.BinarySearch(live, from)
		require.Equal(rt, live[at:min(at+3, len(live))], rest)
	}
	require.Equal(rt, oldest, table.oldest())
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
			require.Equal(rt, chunks[no<<dirBits|uint64(i)], int(d.live[i]))
			require.Equal(rt, d.live[i] > 0, c != nil)
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
		require.Equal(rt, ok, table.get(seq) != nil)
	}
}

// TestSlotTableLetsChunksGo: what passes by leaves nothing behind, also when a few
// stay for long.
func TestSlotTableLetsChunksGo(t *testing.T) {
	var table slotTable
	size := func() (dirs, chunks int) {
		for _, d := range table.dirs {
			chunks += d.n
		}
		return len(table.dirs), chunks
	}
	const n, every, stay = 10 << spanBits, 1000, (10<<spanBits - 1) / 1000
	for seq := range uint64(n) {
		table.add(seq + 1)
		if seq >= 10 && seq%every != 0 {
			table.remove(seq - 9)
		}
	}
	_, chunks := size()
	require.LessOrEqual(t, chunks, stay+2)
	require.EqualValues(t, stay+10, table.live)
	for seq := uint64(every); seq < n; seq += every {
		table.remove(seq - 9)
	}
	var dirs int
	dirs, chunks = size()
	require.LessOrEqual(t, dirs, 2)
	require.LessOrEqual(t, chunks, 2)
	require.EqualValues(t, 10, table.live)
}

// TestSlotSize: memory per pending message is what lets a backlog grow.
func TestSlotSize(t *testing.T) {
	require.EqualValues(t, 64, reflect.TypeFor[slot]().Size())
	require.EqualValues(t, 1024, reflect.TypeFor[slotChunk]().Size(), "a size that the allocator has")
}
