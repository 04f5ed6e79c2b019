package queue

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestDueHeapIsInOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var h dueHeap
		var model []dueItem
		rt.Repeat(map[string]func(*rapid.T){
			"push": func(rt *rapid.T) {
				it := dueItem{rapid.Int64Range(0, 50).Draw(rt, "at"), uint64(len(model))}
				h.push(it.at, it.seq)
				model = append(model, it)
			},
			"pop": func(rt *rapid.T) {
				if len(model) == 0 {
					_, ok := h.next()
					require.False(rt, ok)
					return
				}
				slices.SortFunc(model, compareDue)
				first, ok := h.next()
				require.True(rt, ok)
				require.Equal(rt, model[0].at, first.at)
				i := slices.Index(model, first)
				require.GreaterOrEqual(rt, i, 0, "an entry came twice or from nowhere")
				model = slices.Delete(model, i, i+1)
				h.pop()
			},
			"": func(rt *rapid.T) { checkHeap(rt, &h); require.Len(rt, h.items, len(model)) },
		})
	})
}

func compareDue(a, b dueItem) int {
	switch {
	case a.before(b):
		return -1
	case b.before(a):
		return 1
	}
	return 0
}

// TestDueHeapForgetsStaleEntries: a long TTL on short-lived messages costs no
// memory, and what counts is never thrown away.
func TestDueHeapForgetsStaleEntries(t *testing.T) {
	const live, rounds = 100, 50_000
	var h dueHeap
	counts := make(map[dueItem]bool)
	var order []dueItem
	largest := 0
	for i := range rounds {
		it := dueItem{at: int64(1_000_000 - i), seq: uint64(i)}
		h.push(it.at, it.seq)
		counts[it] = true
		order = append(order, it)
		if len(order) > live {
			delete(counts, order[0])
			order = order[1:]
			h.dropped(func(it dueItem) bool { return counts[it] })
		}
		largest = max(largest, len(h.items))
	}
	require.LessOrEqual(t, largest, 2048)
	checkHeap(t, &h)
	var found []dueItem
	for {
		it, ok := h.next()
		if !ok {
			break
		}
		h.pop()
		if counts[it] {
			found = append(found, it)
		}
	}
	slices.SortFunc(order, compareDue)
	require.Equal(t, order, found)
}

// TestDueHeapGivesRoomBack: a crowd of timers does not cost memory for ever.
func TestDueHeapGivesRoomBack(t *testing.T) {
	var h dueHeap
	const n = 100_000
	for i := range int64(n) {
		h.push(i*7919%n, uint64(i))
	}
	for i := range int64(n) {
		it, ok := h.next()
		require.True(t, ok)
		require.Equal(t, i, it.at)
		h.pop()
		require.LessOrEqual(t, cap(h.items), max(4096, 4*(len(h.items)+1)))
	}
	_, ok := h.next()
	require.False(t, ok)
}
