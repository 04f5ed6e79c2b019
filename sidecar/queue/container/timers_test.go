package container

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestTimersAreInOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		odd := func(it Timer) bool { return it.ID%2 == 1 }
		h := NewTimers(odd)
		var model []Timer
		rt.Repeat(map[string]func(*rapid.T){
			"push": func(rt *rapid.T) {
				it := Timer{rapid.Int64Range(0, 50).Draw(rt, "at"), uint64(len(model))}
				h.Add(it.At, it.ID)
				model = append(model, it)
			},
			"pop": func(rt *rapid.T) {
				if len(model) == 0 {
					_, ok := h.Next()
					require.False(rt, ok)
					return
				}
				slices.SortFunc(model, compareDue)
				first, ok := h.Next()
				require.True(rt, ok)
				require.Equal(rt, model[0].At, first.At)
				i := slices.Index(model, first)
				require.GreaterOrEqual(rt, i, 0, "an entry came twice or from nowhere")
				model = slices.Delete(model, i, i+1)
				require.Equal(rt, odd(first), h.Pop())
			},
			"": func(rt *rapid.T) {
				checkHeap(rt, &h)
				require.ElementsMatch(rt, model, slices.Collect(h.All()))
			},
		})
	})
}

// checkHeap holds the heap against its invariant.
func checkHeap(t require.TestingT, h *Timers) {
	for i := 1; i < len(h.items); i++ {
		require.False(t, h.items[i].before(h.items[(i-1)/2]), "heap order at %d", i)
	}
}

func compareDue(a, b Timer) int {
	switch {
	case a.before(b):
		return -1
	case b.before(a):
		return 1
	}
	return 0
}

// TestStaleTimersAreForgotten: a long TTL on short-lived messages costs no
// memory, and what counts is never thrown away.
func TestStaleTimersAreForgotten(t *testing.T) {
	const live, rounds = 100, 50_000
	counts := make(map[Timer]bool)
	h := NewTimers(func(it Timer) bool { return counts[it] })
	var order []Timer
	largest := 0
	for i := range rounds {
		it := Timer{At: int64(1_000_000 - i), ID: uint64(i)}
		h.Add(it.At, it.ID)
		counts[it] = true
		order = append(order, it)
		if len(order) > live {
			delete(counts, order[0])
			order = order[1:]
			h.Dropped()
		}
		largest = max(largest, len(h.items))
	}
	require.LessOrEqual(t, largest, 2048)
	checkHeap(t, &h)
	var found []Timer
	for {
		it, ok := h.Next()
		if !ok {
			break
		}
		if h.Pop() {
			found = append(found, it)
		}
	}
	slices.SortFunc(order, compareDue)
	require.Equal(t, order, found)
}

// TestTimersGiveRoomBack: a crowd of timers does not cost memory for ever.
func TestTimersGiveRoomBack(t *testing.T) {
	h := NewTimers(func(Timer) bool { return true })
	const n = 100_000
	for i := range int64(n) {
		h.Add(i*7919%n, uint64(i))
	}
	for i := range int64(n) {
		it, ok := h.Next()
		require.True(t, ok)
		require.Equal(t, i, it.At)
		require.True(t, h.Pop())
		require.LessOrEqual(t, cap(h.items), max(4096, 4*(len(h.items)+1)))
	}
	_, ok := h.Next()
	require.False(t, ok)
}
