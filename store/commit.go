package store

import (
	"sync"
	"sync/atomic"
	"time"
)

// mailbox is where Submit leaves batches: it never blocks.
type mailbox struct {
	mu     sync.Mutex
	queue  []*Batch
	closed bool

	wake  chan struct{} // holds one token when there is something to see
	count atomic.Int64  // batches put and not yet done

	rest []*Batch // owned by the committer: taken, not yet committed
}

func (m *mailbox) init() { m.wake = make(chan struct{}, 1) }

func (m *mailbox) signal() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// put says false when the mailbox is closed.
func (m *mailbox) put(b *Batch) bool {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return false
	}
	m.queue = append(m.queue, b)
	m.count.Add(1)
	first := len(m.queue) == 1
	m.mu.Unlock()
	if first {
		m.signal()
	}
	return true
}

// take waits for batches and returns as many as fit into limit bytes, one at
// least; none at all means that the mailbox is closed and empty.
func (m *mailbox) take(limit int64) []*Batch {
	for len(m.rest) == 0 {
		m.mu.Lock()
		m.rest, m.queue = m.queue, nil
		closed := m.closed
		m.mu.Unlock()
		if len(m.rest) > 0 {
			break
		}
		if closed {
			return nil
		}
		<-m.wake
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

func (m *mailbox) close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.signal()
}

func (m *mailbox) waiting() int64 { return m.count.Load() }

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
	mu       sync.Mutex
	queue    []outcome
	closed   bool
	wake     chan struct{}
	onCommit func(CommitStats)
}

func (n *notifier) init(onCommit func(CommitStats)) {
	n.wake = make(chan struct{}, 1)
	n.onCommit = onCommit
}

func (n *notifier) post(o outcome) {
	n.mu.Lock()
	n.queue = append(n.queue, o)
	n.mu.Unlock()
	n.signal()
}

func (n *notifier) signal() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

func (n *notifier) close() {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.signal()
}

func (n *notifier) run() {
	for {
		n.mu.Lock()
		queue, closed := n.queue, n.closed
		n.queue = nil
		n.mu.Unlock()
		for _, o := range queue {
			if n.onCommit != nil {
				n.onCommit(o.stats)
			}
			for i, b := range o.batches {
				if b.Done != nil {
					b.Done(o.errs[i])
				}
			}
		}
		if len(queue) > 0 {
			continue
		}
		if closed {
			return
		}
		<-n.wake
	}
}

// Submit implements [Store].
func (s *Bolt) Submit(b *Batch) {
	if !s.box.put(b) && b.Done != nil {
		go b.Done(ErrClosed)
	}
}

// commitLoop is the committer: whatever waits goes into one transaction, and the
// next round begins at once.
func (s *Bolt) commitLoop() {
	defer s.notify.close()
	for {
		batches := s.box.take(s.o.MaxCommitBytes)
		if batches == nil {
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
	p := &s.plan
	o.stats = CommitStats{
		Duration: time.Since(start), Batches: len(batches), Messages: p.alive,
		Carried: len(p.carried), Finished: p.finished, Bytes: p.bytes, Err: err,
	}
	p.reset()
	s.box.count.Add(-int64(len(batches)))
	s.notify.post(o)
}
