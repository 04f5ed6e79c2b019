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

// takeNow returns all items that are there.
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

// mailbox is where Submit leaves batches. Queues take turns: each gives a batch of
// its own to a commit before one of them gives the second.
type mailbox struct {
	inbox[*Batch]
	count atomic.Int64 // batches put and not yet done
	// about is the queue that the commit under way is about, or one of the following.
	// Written by the committer.
	about atomic.Int64

	// Owned by the committer: what was taken from the inbox and is not yet committed.
	lines map[QueueID]*line
	turns []*line // those with batches, the next one first
	spare []*line
}

// Ids that no queue has.
const (
	nothing = -iota // no commit is under way
	several         // it is about several queues, or about none
)

// line is the batches of one queue, oldest first; never empty while it has a turn.
type line struct {
	queue   QueueID
	batches []*Batch
}

// take waits for batches and returns as many as fit into limit bytes, of which each
// has so many, one at least; none at all means that the mailbox is closed and empty.
func (m *mailbox) take(limit int64, bytes func(*Batch) int64) []*Batch {
	if len(m.turns) == 0 {
		m.file(m.takeAll())
	} else {
		m.file(m.takeNow())
	}
	var out []*Batch
	var next []*line // whose batches do not fit: the first of the next commit
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
		l.batches[0] = nil // it is gone when it is done
		if l.batches = l.batches[1:]; len(l.batches) > 0 {
			m.turns = append(m.turns, l)
		} else {
			delete(m.lines, l.queue)
			m.spare = append(m.spare, l)
		}
	}
	m.turns = append(m.turns, next...)
	m.begin(out)
	return out
}

// begin notes which queue the batches of a commit are about.
func (m *mailbox) begin(batches []*Batch) {
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

// end notes that the commit is done.
func (m *mailbox) end() { m.about.Store(nothing) }

// busyWithOthers reports whether a commit is under way that is about another queue.
func (m *mailbox) busyWithOthers(id QueueID) bool {
	at := m.about.Load()
	return at != nothing && at != int64(id)
}

// file puts batches into the lines of their queues.
func (m *mailbox) file(batches []*Batch) {
	for _, b := range batches {
		l := m.lines[b.Queue]
		if l == nil {
			l = m.newLine(b.Queue)
			m.turns = append(m.turns, l)
		}
		l.batches = append(l.batches, b)
	}
}

func (m *mailbox) newLine(queue QueueID) *line {
	l := new(line)
	if n := len(m.spare); n > 0 {
		l, m.spare = m.spare[n-1], m.spare[:n-1]
	}
	if m.lines == nil {
		m.lines = make(map[QueueID]*line)
	}
	*l = line{queue: queue}
	m.lines[queue] = l
	return l
}

// addedBytes is how many bytes of new messages a batch has.
func addedBytes(b *Batch) int64 {
	var n int64
	for i := range b.Add {
		n += int64(len(b.Add[i].Headers) + len(b.Add[i].Payload))
	}
	return n
}

// batchBytes is how many bytes of messages and histories a batch writes at most: what it
// moves is written again, and so is the history to which it adds a record. It is for the
// committer.
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

// outcome is what a commit has to tell.
type outcome struct {
	batches []*Batch
	errs    []error
	stats   CommitStats

	start time.Time
	told  bool // the notifier has it: nothing changes any more
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
	b.Waited = s.box.busyWithOthers(b.Queue)
	if s.box.put(b) {
		return
	}
	s.box.count.Add(-1)
	if b.Done != nil {
		go b.Done(ErrClosed)
	}
}

// pace learns what commits cost, to say how large one may be: whoever comes waits for
// the commit that is under way and then for its own.
type pace struct {
	sync    float64 // seconds that a commit of next to nothing takes
	perByte float64 // seconds on top, for each byte
}

const (
	// Until commits have been seen, the disk is reckoned to be an SSD of the modest
	// kind.
	firstSync    = 1e-3
	firstPerByte = 1 / 400e6

	// A commit is to take commitTime, or commitSyncs times what a sync takes if that
	// is longer. What a commit takes beside its bytes grows under load; with half of
	// this, a flood of large messages loses a third of its throughput to it, and nobody
	// waits for less.
	commitTime  = 10e-3
	commitSyncs = 20
	// leastCommitBytes is taken at once, however slow the disk.
	leastCommitBytes = 1 << 20

	// Commits up to syncBytes tell what a sync takes, those from writeBytes what a
	// byte takes.
	syncBytes  = 64 << 10
	writeBytes = 256 << 10
)

func newPace() pace { return pace{sync: firstSync, perByte: firstPerByte} }

// limit is how many bytes a commit takes, at most so many.
func (p *pace) limit(most int64) int64 {
	n := (max(commitTime, commitSyncs*p.sync) - p.sync) / max(p.perByte, 1e-12)
	return min(max(int64(n), leastCommitBytes), most)
}

// learn is told how long a commit of so many bytes took: moving averages. That of
// syncs believes what is quick sooner than what is slow, which may be the work of
// others on the machine, and hardly a single one that is very slow: a time that is too
// long would let commits grow, and large commits do not correct it.
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

// commitLoop is the committer: what waits goes into one transaction, as far as pace
// lets it, and the next round begins at once.
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
	s.box.end() // before anybody hears of it and hands in more
	if o.told {
		return
	}
	if err != nil {
		for i := range o.errs {
			o.errs[i] = err
		}
	}
	s.tell(&o)
}

// tell has the notifier pass on an outcome.
func (s *Bolt) tell(o *outcome) {
	o.stats = CommitStats{Duration: time.Since(o.start), Batches: len(o.batches)}
	o.told = true
	s.box.count.Add(-int64(len(o.batches)))
	s.notify.put(*o)
}
