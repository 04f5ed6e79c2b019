package store

import (
	"sync"
	"sync/atomic"
	"time"
)

// inbox is an unbounded queue from many goroutines to one. put never blocks.
type inbox[T any] struct {
	mu     sync.Mutex
	some   sync.Cond // on mu: there are items, or the inbox is closed
	items  []T
	closed bool
}

func (q *inbox[T]) init() { q.some.L = &q.mu }

// put returns false if the inbox is closed.
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

// takeAll waits for items and returns all of them, none if the inbox is closed and
// empty.
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

// takeNow returns all items without waiting.
func (q *inbox[T]) takeNow() []T {
	q.mu.Lock()
	defer q.mu.Unlock()
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

// mailbox receives submitted batches. Queues take turns: each gives one batch to a
// commit before any gives a second.
type mailbox struct {
	inbox[*Batch]
	count atomic.Int64 // batches submitted and not yet done
	// about is the queue of the running commit, or nothing or several. Written by the
	// committer.
	about atomic.Int64

	// Owned by the committer: batches taken from the inbox and not yet committed.
	queues map[QueueID]*batchQueue
	turns  []*batchQueue // those with batches, the next one first
	spare  []*batchQueue
}

// Values of about that are no queue.
const (
	nothing = -iota // no commit is running
	several         // the commit has batches of several queues, or of none
)

// batchQueue has the batches of one queue, oldest first. It is not empty while it is in turns.
type batchQueue struct {
	queue   QueueID
	batches []*Batch
}

// take waits for batches and returns as many as fit into limit bytes, but at least
// one. It returns none if the mailbox is closed and empty.
func (m *mailbox) take(limit int64, bytes func(*Batch) int64) []*Batch {
	if len(m.turns) == 0 {
		m.enqueue(m.takeAll())
	} else {
		m.enqueue(m.takeNow())
	}
	var out []*Batch
	var next []*batchQueue // their batches do not fit: the first of the next commit
	var size int64
	for len(m.turns) > 0 {
		l := m.turns[0]
		m.turns[0] = nil
		m.turns = m.turns[1:]
		b := l.batches[0]
		n := bytes(b)
		if len(out) > 0 && size+n > limit {
			next = append(next, l)
			continue
		}
		size += n
		out = append(out, b)
		l.batches[0] = nil // let it be collected when it is done
		if l.batches = l.batches[1:]; len(l.batches) > 0 {
			m.turns = append(m.turns, l)
		} else {
			delete(m.queues, l.queue)
			m.spare = append(m.spare, l)
		}
	}
	m.turns = append(m.turns, next...)
	m.beginCommit(out)
	return out
}

// beginCommit notes the queues of a commit.
func (m *mailbox) beginCommit(batches []*Batch) {
	id := int64(nothing)
	for i, b := range batches {
		if i == 0 && b.Queue != 0 {
			id = int64(b.Queue)
		} else if id != int64(b.Queue) || b.Queue == 0 {
			id = several
		}
	}
	m.about.Store(id)
}

// endCommit notes the end of a commit.
func (m *mailbox) endCommit() { m.about.Store(nothing) }

// busyWithOthers reports whether a commit of other queues is running.
func (m *mailbox) busyWithOthers(id QueueID) bool {
	at := m.about.Load()
	return at != nothing && at != int64(id)
}

// enqueue adds batches to their queues.
func (m *mailbox) enqueue(batches []*Batch) {
	for _, b := range batches {
		l := m.queues[b.Queue]
		if l == nil {
			l = m.newQueue(b.Queue)
			m.turns = append(m.turns, l)
		}
		l.batches = append(l.batches, b)
	}
}

func (m *mailbox) newQueue(queue QueueID) *batchQueue {
	l := new(batchQueue)
	if n := len(m.spare); n > 0 {
		l, m.spare = m.spare[n-1], m.spare[:n-1]
	}
	if m.queues == nil {
		m.queues = make(map[QueueID]*batchQueue)
	}
	*l = batchQueue{queue: queue}
	m.queues[queue] = l
	return l
}

// addedBytes is the size of the new messages of a batch.
func addedBytes(b *Batch) int64 {
	var n int64
	for i := range b.Add {
		n += int64(len(b.Add[i].Headers) + len(b.Add[i].Payload))
	}
	return n
}

// batchBytes is an upper bound of the bytes of messages and histories that a batch writes,
// including moved messages and changed histories. Only the committer calls it.
func (s *Bolt) batchBytes(b *Batch) int64 {
	n := addedBytes(b)
	for i := range b.History {
		n += int64(min(MaxHistory*len(b.History[i].Record), MaxHistoryBytes))
	}
	for i := range b.Move {
		if _, l, ok := s.find(b.Move[i].From); ok {
			n += int64(l.size)
		}
	}
	return n
}

// outcome is the outcome of a commit.
type outcome struct {
	batches []*Batch
	errs    []error
	stats   CommitStats

	start    time.Time
	notified bool // the notifier has it: it must not change
}

// notifier calls Done, so that the committer does not wait for it.
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
	b.Waited = s.box.busyWithOthers(b.Queue)
	if s.box.put(b) {
		return
	}
	s.box.count.Add(-1)
	if b.Done != nil {
		go b.Done(ErrClosed)
	}
}

// pace estimates the cost of commits and bounds their size, because a batch waits for the
// running commit and then for its own.
type pace struct {
	sync    float64 // seconds of a minimal commit
	perByte float64 // additional seconds per byte
}

const (
	// Initial estimates: a modest SSD.
	firstSync    = 1e-3
	firstPerByte = 1 / 400e6

	// A commit should take commitTime, or commitSyncs times a sync if that is longer. The
	// fixed cost of a commit grows under load: with half of these values a flood of large
	// messages loses a third of its throughput, and no batch waits for a shorter time.
	commitTime  = 10e-3
	commitSyncs = 20
	// leastCommitBytes is the smallest bound, however slow the disk is.
	leastCommitBytes = 1 << 20

	// Commits up to syncBytes update the time of a sync, commits from writeBytes on the
	// time per byte.
	syncBytes  = 64 << 10
	writeBytes = 256 << 10
)

func newPace() pace { return pace{sync: firstSync, perByte: firstPerByte} }

// limit returns the bound for the bytes of a commit, at most most.
func (p *pace) limit(most int64) int64 {
	n := (max(commitTime, commitSyncs*p.sync) - p.sync) / max(p.perByte, 1e-12)
	return min(max(int64(n), leastCommitBytes), most)
}

// learn updates the estimates with the duration of a commit. The estimate of sync times
// follows fast samples quickly and slow ones slowly, and clips outliers: slow samples may
// be due to other work on the machine, an estimate that is too long lets commits grow,
// and large commits do not correct it.
func (p *pace) learn(bytes int64, took time.Duration) {
	const latest, slow, quick = 8, 64, 4
	switch more := took.Seconds() - p.sync; {
	case bytes <= syncBytes && more > 0:
		p.sync += min(more, max(p.sync, firstSync)) / slow
	case bytes <= syncBytes:
		p.sync += more / quick
	case bytes >= writeBytes:
		p.perByte += (max(took.Seconds()-p.sync, 0)/float64(bytes) - p.perByte) / latest
	}
}

// commitLoop is the committer: it commits the waiting batches, as many as pace allows, in
// one transaction, and starts again.
func (s *Bolt) commitLoop() {
	defer s.notify.close()
	for {
		batches := s.box.take(s.pace.limit(s.o.MaxCommitBytes), s.batchBytes)
		if len(batches) == 0 {
			return
		}
		s.commit(batches)
	}
}

func (s *Bolt) commit(batches []*Batch) {
	s.committing.Lock()
	defer s.committing.Unlock()
	o := outcome{batches: batches, errs: make([]error, len(batches)), start: time.Now()}
	err := s.Err()
	if err == nil {
		err = s.path.Guard("commit", func() error { return s.transact(&o, nil) })
		if err != nil {
			err = s.fail(err)
		}
	}
	if err == nil && !s.plan.empty() {
		s.pace.learn(s.plan.written(), time.Since(o.start))
	}
	s.endPlan()
	s.box.endCommit() // before Done calls, which submit more
	if o.notified {
		return
	}
	if err != nil {
		for i := range o.errs {
			o.errs[i] = err
		}
	}
	s.notifyDone(&o)
}

// notifyDone passes an outcome to the notifier.
func (s *Bolt) notifyDone(o *outcome) {
	o.stats = CommitStats{Duration: time.Since(o.start), Batches: len(o.batches)}
	o.notified = true
	s.box.count.Add(-int64(len(o.batches)))
	s.notify.put(*o)
}
