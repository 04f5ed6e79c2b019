package shard

import "sync"

// mailbox passes values from many posters to one taker. Posting never blocks: the slice grows,
// but admission limits what gets here.
type mailbox[T any] struct {
	wake chan struct{} // holds one token when there may be something to take

	mu struct {
		sync.Mutex
		items  []T
		closed bool
	}
}

func newMailbox[T any]() *mailbox[T] {
	return &mailbox[T]{wake: make(chan struct{}, 1)}
}

// post appends values and wakes the taker. It reports false, without effect, once the mailbox
// is closed.
func (m *mailbox[T]) post(values ...T) bool {
	first, ok := m.add(values...)
	if first {
		m.poke()
	}
	return ok
}

// add appends values without waking the taker; the caller wakes it if they are the first.
func (m *mailbox[T]) add(values ...T) (first, ok bool) {
	return m.extend(func(items []T) []T { return append(items, values...) })
}

// extend is [mailbox.add] of the values that a function appends. It must not block.
func (m *mailbox[T]) extend(more func(items []T) []T) (first, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.closed {
		return false, false
	}
	first = len(m.mu.items) == 0
	m.mu.items = more(m.mu.items)
	return first, true
}

// poke wakes the taker without a value.
func (m *mailbox[T]) poke() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// take returns all posted values. buf is an emptied buffer to reuse.
func (m *mailbox[T]) take(buf []T) []T {
	m.mu.Lock()
	items := m.mu.items
	m.mu.items = buf[:0]
	m.mu.Unlock()
	return items
}

// close refuses later posts; posted values can still be taken.
func (m *mailbox[T]) close() {
	m.mu.Lock()
	m.mu.closed = true
	m.mu.Unlock()
	m.poke()
}

// recycle clears a taken buffer for take, so that it keeps no values alive, and drops a buffer
// that a burst has grown.
func recycle[T any](items []T) []T {
	const keep = 8192
	if cap(items) > keep {
		return nil
	}
	clear(items)
	return items[:0]
}

// relay passes values to a goroutine that runs only while there are some. Posting never
// blocks.
type relay[T any] struct {
	mu struct {
		sync.Mutex
		waiting []T
		running bool // the goroutine will call take
	}
}

// post appends values. If it reports true, the caller starts the goroutine, which takes until
// nothing is left.
func (r *relay[T]) post(values []T) (start bool) {
	if len(values) == 0 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.waiting = append(r.mu.waiting, values...)
	start = !r.mu.running
	r.mu.running = true
	return start
}

// take returns all posted values; if there are none, the goroutine must end. buf is an emptied
// buffer to reuse.
func (r *relay[T]) take(buf []T) []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	values := r.mu.waiting
	r.mu.waiting = buf[:0]
	r.mu.running = len(values) > 0
	return values
}

// empty reports whether there is nothing to take.
func (r *relay[T]) empty() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.mu.waiting) == 0
}
