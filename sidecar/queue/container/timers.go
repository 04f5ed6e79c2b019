package container

import (
	"iter"
	"slices"
)

// Timer is an entry of Timers.
type Timer struct {
	At int64
	ID uint64
}

// Timers is a binary heap of timers, by time and id. One that does not count any more is
// not searched for: it is recognised when it comes up, and the heap is rebuilt without
// those when they are more than half, so that a long time for what is soon over costs no
// memory.
type Timers struct {
	items  []Timer
	stale  int // how many do not count any more, as far as was said
	counts func(Timer) bool
}

// NewTimers returns an empty heap. counts reports whether a timer still counts.
func NewTimers(counts func(Timer) bool) Timers { return Timers{counts: counts} }

// Add sets a timer.
func (h *Timers) Add(at int64, id uint64) {
	h.items = append(h.items, Timer{at, id})
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

// Next is the earliest timer, whether it counts or not.
func (h *Timers) Next() (Timer, bool) {
	if len(h.items) == 0 {
		return Timer{}, false
	}
	return h.items[0], true
}

// Pop removes the earliest timer, which must be there, and reports whether it counts.
func (h *Timers) Pop() (counts bool) {
	it, last := h.items[0], len(h.items)-1
	h.items[0] = h.items[last]
	h.items = h.items[:last]
	h.down(0)
	if cap(h.items) > 4096 && last < cap(h.items)/4 {
		h.items = append(make([]Timer, 0, 2*last), h.items...) // a crowd has passed
	}
	counts = h.counts(it)
	if !counts && h.stale > 0 {
		h.stale--
	}
	return counts
}

// Dropped notes that a timer does not count any more.
func (h *Timers) Dropped() {
	const small = 1024
	if h.stale++; len(h.items) < small || h.stale*2 < len(h.items) {
		return
	}
	h.items = slices.DeleteFunc(h.items, func(it Timer) bool { return !h.counts(it) })
	h.stale = 0
	for i := len(h.items)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

// All yields the timers, those that do not count included, in any order.
func (h *Timers) All() iter.Seq[Timer] { return slices.Values(h.items) }

func (h *Timers) down(i int) {
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

func (a Timer) before(b Timer) bool {
	if a.At != b.At {
		return a.At < b.At
	}
	return a.ID < b.ID
}
