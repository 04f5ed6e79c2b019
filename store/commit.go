package store

import (
	"sync"
	"sync/atomic"
	"time"
)

// inbox hands things on from many goroutines to one. put never blocks.
type inbox[T any] struct {
	mu     sync.Mutex
	some   sync.Cond // on mu: there are items, or it is closed
	items  []T
	closed bool
}

func (q *inbox[T]) init() { q.some.L = &q.mu }

// put says false when the inbox is closed.
func (q *inbox[T]) put(x T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.items = append(q.items, x)
	q.some.Signal()
	return true
}

// takeAll waits for items and returns all of them; none at all means that the
// inbox is closed and empty.
func (q *inbox[T]) takeAll() []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.items) == 0 && !q.closed {
		q.some.Wait()
	}
	items := q.items
	q.items = nil
	return items
}

func (q *inbox[T]) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.some.Signal()
}

// mailbox is where Submit leaves batches.
type mailbox struct {
	inbox[*Batch]
	count atomic.Int64 // batches put and not yet done
	rest  []*Batch     // owned by the committer: taken, not yet committed
}

// take waits for batches and returns as many as fit into limit bytes, one at
// least; none at all means that the mailbox is closed and empty.
func (m *mailbox) take(limit int64) []*Batch {
	if len(m.rest) == 0 {
		m.rest = m.takeAll()
	}
	var size int64
	n := 0
	for n < len(m.rest) {
		size += batchBytes(m.rest[n])
		if n > 0 && size > limit {
			break
		}
		n++
	}
	out := m.rest[:n:n]
	m.rest = m.rest[n:]
	return out
}

func batchBytes(b *Batch) int64 {
	var n int64
	for i := range b.Add {
		n += int64(len(b.Add[i].Headers) + len(b.Add[i].Payload))
	}
	return n
}

// outcome is what a commit has to tell.
type outcome struct {
	batches []*Batch
	errs    []error
	stats   CommitStats
}

// notifier calls Done, so that the committer can go on meanwhile.
type notifier struct {
	inbox[outcome]
	onCommit func(CommitStats)
}

func (n *notifier) run() {
	for outcomes := n.takeAll(); len(outcomes) > 0; outcomes = n.takeAll() {
		for _, o := range outcomes {
			if n.onCommit != nil {
				n.onCommit(o.stats)
			}
			for i, b := range o.batches {
				if b.Done != nil {
					b.Done(o.errs[i])
				}
			}
		}
	}
}

// Submit implements [Store].
func (s *Bolt) Submit(b *Batch) {
	s.box.count.Add(1)
	if s.box.put(b) {
		return
	}
	s.box.count.Add(-1)
	if b.Done != nil {
		go b.Done(ErrClosed)
	}
}

// commitLoop is the committer: whatever waits goes into one transaction, and the
// next round begins at once.
func (s *Bolt) commitLoop() {
	defer s.notify.close()
	for {
		batches := s.box.take(s.o.MaxCommitBytes)
		if len(batches) == 0 {
			return
		}
		s.commit(batches)
	}
}

func (s *Bolt) commit(batches []*Batch) {
	o := outcome{batches: batches, errs: make([]error, len(batches))}
	start := time.Now()
	err := s.Err()
	if err == nil {
		err = s.guard("commit", func() error { return s.transact(batches, o.errs) })
		if err != nil {
			err = s.fail(err)
		}
	}
	if err != nil {
		for i := range o.errs {
			o.errs[i] = err
		}
	}
	o.stats = CommitStats{Duration: time.Since(start), Batches: len(batches)}
	s.plan.reset()
	s.box.count.Add(-int64(len(batches)))
	s.notify.put(o)
}
