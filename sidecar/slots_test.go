package sidecar

import (
	"maps"
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
		next := rapid.Uint64Range(1, 3*chunkSize).Draw(rt, "first")
		var reserved []uint64
		add := func(seq uint64) {
			s := table.add(seq)
			require.Equal(rt, slot{state: slotWriting}, *s, "a new slot is zero")
			s.enqueuedAt = int64(seq) + 1
			model[seq] = s.enqueuedAt
		}
		rt.Repeat(map[string]func(*rapid.T){
			"add": func(rt *rapid.T) {
				for range rapid.IntRange(1, 2*chunkSize).Draw(rt, "n") {
					add(next)
					next++
				}
			},
			"reserve": func(*rapid.T) { reserved = append(reserved, next); next++ },
			"gap":     func(rt *rapid.T) { next += rapid.Uint64Range(0, 5*chunkSize).Draw(rt, "gap") },
			"late": func(*rapid.T) {
				if len(reserved) > 0 {
					add(reserved[0])
					reserved = reserved[1:]
				}
			},
			"remove": func(rt *rapid.T) {
				live := slices.Sorted(maps.Keys(model))
				for range min(len(live), rapid.IntRange(0, chunkSize).Draw(rt, "n")) {
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
		require.Empty(rt, table.chunks, "an empty table keeps no chunks but a spare")
		require.Zero(rt, table.live)
	})
}

func checkSlots(rt *rapid.T, table *slotTable, model map[uint64]int64, next uint64) {
	require.EqualValues(rt, len(model), table.live)
	live := slices.Sorted(maps.Keys(model))
	var found []uint64
	table.from(0, func(seq uint64, s *slot) bool {
		require.Equal(rt, model[seq], s.enqueuedAt)
		found = append(found, seq)
		return true
	})
	require.Equal(rt, live, found)
	var oldest int64
	if len(live) > 0 {
		oldest = model[live[0]]
		require.NotNil(rt, table.chunks[0], "a table begins with a chunk in use")
		from := rapid.SampledFrom(live).Draw(rt, "from")
		var rest []uint64
		table.from(from, func(seq uint64, _ *slot) bool { rest = append(rest, seq); return len(rest) < 3 })
		at, _ := slices.BinarySearch(live, from)
		require.Equal(rt, live[at:min(at+3, len(live))], rest)
	}
	require.Equal(rt, oldest, table.oldest())
	for range 20 {
		seq := rapid.Uint64Range(0, next+2*chunkSize).Draw(rt, "seq")
		_, ok := model[seq]
		require.Equal(rt, ok, table.get(seq) != nil)
	}
}

func TestSlotTableLetsChunksGo(t *testing.T) {
	var table slotTable
	const n = 100 * chunkSize
	for seq := range uint64(n) {
		table.add(seq + 1)
		if seq >= 10 {
			table.remove(seq - 9)
		}
	}
	require.LessOrEqual(t, len(table.chunks), 2, "a short backlog takes few chunks however long the queue lives")
	require.EqualValues(t, 10, table.live)
}

// TestSlotSize: memory per pending message is what lets a backlog grow.
func TestSlotSize(t *testing.T) {
	require.EqualValues(t, 64, reflect.TypeFor[slot]().Size())
}
