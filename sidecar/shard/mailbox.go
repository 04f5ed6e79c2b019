package shard

import "sync"

// mailbox hands values from many posters to one taker. Posting never blocks:
// the slice grows, and admission is limited before work gets here.
type mailbox[T any] struct {
	wake chan struct{} // one token: there may be something to take

	mu struct {
		sync.Mutex
		items  []T
		closed bool
	}
}

func newMailbox[T any]() *mailbox[T] {
	return &mailbox[T]{wake: make(chan struct{}, 1)}
}

// post appends values and wakes the taker. It reports false, and does nothing, once
// the mailbox is closed.
func (m *mailbox[T]) post(values ...T) bool {
	m.mu.Lock()
	first, ok := len(m.mu.items) == 0, !m.mu.closed
	if ok {
		m.mu.items = append(m.mu.items, values...)
	}
	m.mu.Unlock()
	if first && ok {
		m.poke()
	}
	return ok
}

// add appends v without waking the taker, which is the caller's business if v is the
// first value of the mailbox.
func (m *mailbox[T]) add(v T) (first, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.closed {
		return false, false
	}
	m.mu.items = append(m.mu.items, v)
	return len(m.mu.items) == 1, true
}

// poke wakes the taker without a value.
func (m *mailbox[T]) poke() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// take returns everything posted and gives buf, emptied by the caller, back as
// the next buffer.
func (m *mailbox[T]) take(buf []T) []T {
	m.mu.Lock()
	items := m.mu.items
	m.mu.items = buf[:0]
	m.mu.Unlock()
	return items
}

// close refuses later posts; what has been posted can still be taken.
func (m *mailbox[T]) close() {
	m.mu.Lock()
	m.mu.closed = true
	m.mu.Unlock()
	m.poke()
}

// recycle empties a taken buffer for take. Values are cleared so that the
// buffer keeps nothing alive; a buffer grown by a burst is let go.
func recycle[T any](items []T) []T {
	const keep = 8192
	if cap(items) > keep {
		return nil
	}
	clear(items)
	return items[:0]
}

// relay hands values to a goroutine that is there only while there are some. Posting
// never blocks.
type relay[T any] struct {
	mu struct {
		sync.Mutex
		waiting []T
		running bool // the goroutine is about to take what waits
	}
}

// post appends values. If it reports true its caller starts the goroutine, which takes
// until nothing is left.
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

// take returns everything posted and gives buf, emptied by the caller, back as the next
// buffer. If that is nothing, the goroutine must end.
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
