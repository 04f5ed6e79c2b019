package queue

// dueHeap is a binary heap of (time, sequence). An entry whose message has
// moved on is not searched for: it is recognised as stale when it comes up, and
// the heap is rebuilt without stale entries when they are more than half, so
// that a long TTL on short-lived messages costs no memory.
type dueHeap struct {
	items []dueItem
	stale int
}

type dueItem struct {
	at  int64
	seq uint64
}

func (h *dueHeap) push(at int64, seq uint64) {
	h.items = append(h.items, dueItem{at, seq})
	i := len(h.items) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !h.items[i].before(h.items[parent]) {
			break
		}
		h.items[i], h.items[parent] = h.items[parent], h.items[i]
		i = parent
	}
}

// next is the earliest entry.
func (h *dueHeap) next() (dueItem, bool) {
	if len(h.items) == 0 {
		return dueItem{}, false
	}
	return h.items[0], true
}

func (h *dueHeap) pop() {
	last := len(h.items) - 1
	h.items[0] = h.items[last]
	h.items = h.items[:last]
	h.down(0)
	if cap(h.items) > 4096 && last < cap(h.items)/4 {
		h.items = append(make([]dueItem, 0, 2*last), h.items...) // a crowd has passed
	}
}

// dropped notes that one entry has become stale; keep tells, when it is time
// to rebuild, which entries still count.
func (h *dueHeap) dropped(keep func(dueItem) bool) {
	const small = 1024
	if h.stale++; len(h.items) < small || h.stale*2 < len(h.items) {
		return
	}
	kept := h.items[:0]
	for _, it := range h.items {
		if keep(it) {
			kept = append(kept, it)
		}
	}
	h.items, h.stale = kept, 0
	for i := len(kept)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

func (h *dueHeap) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(h.items) {
			return
		}
		if r := child + 1; r < len(h.items) && h.items[r].before(h.items[child]) {
			child = r
		}
		if !h.items[child].before(h.items[i]) {
			return
		}
		h.items[i], h.items[child] = h.items[child], h.items[i]
		i = child
	}
}

func (a dueItem) before(b dueItem) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	return a.seq < b.seq
}
