package queue

import (
	"slices"
	"sort"

	"github.com/filaq/fila/sidecar/queue/backlog"
	"github.com/filaq/fila/sidecar/queue/history"
	"github.com/filaq/fila/store"
)

// journal decides what is written to the disk, and when.
//
// Delivery does not wait for the commit. Besides its backlog.State, a message of Main
// is in one of three conditions:
//
//	open        its Add is in the open commit, which the store does not have yet
//	committing  the store has it, but has not reported it on disk
//	durable     it is on disk
//
// Until it is durable it is delivered from memory (uncommitted). It is finished as
// follows:
//
//	open        it is withdrawn from the open commit: nothing of it is ever written,
//	            and producer and consumer are answered at once. A dedupe id is still
//	            written, and then the answers wait for it
//	committing  by a Finish in a later commit; the store writes neither if both are in
//	            one group
//	durable     by a Finish
//
// Attempts, delays and leases are a State in the batch of the Add, or in a later one. A
// move to the other role submits the open commit first. Changes go to the store in the
// order of the steps, so the store's order is the machine's. An answer leaves with its
// commit, or when nothing that it confirms has to be on disk. A failed commit is final:
// no further step follows.
//
// The open commit is submitted when an earlier one is done; if there is none, at once
// if a client waits for it, or after a moment (see Pacing) if consumers are working on
// its messages. While other queues keep the disk busy, several commits may be under way.
type journal struct {
	pacing      Pacing
	open        *Commit // changes that the store does not have yet; nil: none
	committing  int     // commits that the store has and that are not on disk
	contended   bool    // the last commit on disk had waited for commits of other queues
	working     int     // leased messages whose Add is in the open commit
	ackTime     int64   // average time (ns) from ready to acked, see countAck
	uncommitted window
	failed      int64 // bytes of failed attempts that are being judged, or whose records are not on disk
	spare       []*Commit
}

const (
	// failedMost bounds the bytes of failed attempts under way; beyond it nothing is
	// delivered. Consumers may fail faster than the disk takes the records, and each
	// failure allows another delivery. While any number of other queues keep the disk busy
	// the bound is failedBesideOthers.
	failedMost         = 64 << 20
	failedBesideOthers = 8 << 20
	// failedBytes is roughly the size of a failed attempt without its texts.
	failedBytes = 256
)

// Pacing says when changes are submitted to the store. The zero value submits them at
// the end of each step.
type Pacing struct {
	// Hold keeps changes back while an earlier commit of the queue is under way (or
	// several, see mostBesideOthers): messages that are enqueued and acked meanwhile are
	// never written.
	Hold bool
	// Linger (ns) is how long a message waits while messages of its commit are with
	// consumers: if they are acked soon they are never written.
	Linger int64
	// LingerMost (ns) bounds that wait under load, which is four times the average time
	// from ready to acked: writing messages that are acked a moment later would make
	// everybody wait longer. A commit with Load messages counts as load; a producer that
	// waits for each confirmation does not reach it.
	LingerMost int64
	Load       int
	// Idle (ns) is how long changes wait for which no client waits.
	Idle int64
}

// DefaultPacing is the pacing of a server.
var DefaultPacing = Pacing{Hold: true, Linger: 1e6, LingerMost: 20e6, Load: 16, Idle: 5e6}

// spareCommits bounds the commits that are kept for reuse.
const spareCommits = 8

// pending is the machine's own part of a commit.
type pending struct {
	dropped      int               // of Add: finished before they were submitted
	first        int               // all before Add[first] are dropped
	waited       int               // of Confirm: awaited
	whole        bool              // its messages are not divided
	loaded       bool              // it has had Pacing.Load messages at once
	since        int64             // when it got its first change besides Adds; 0: it has none
	historyBytes int64             // of History
	failed       int64             // share of History in journal.failed
	dead         []backlog.Arrival // moves to the DLQ
	completes    *Complete         // whose moves it has; nil: none
	from         Role              // that these moves leave
}

// maxCommitBytes is the size at which a commit takes no more messages, far below the
// limit of a store, which would refuse the whole commit.
const maxCommitBytes = 64 << 20

// get returns the open commit.
func (j *journal) get() *Commit {
	if j.open == nil {
		j.open = j.fresh()
	}
	return j.open
}

// change is get for a change that has to be written even if all messages that were added
// are finished before.
func (j *journal) change(now int64) *Commit {
	c := j.get()
	if c.since == 0 {
		c.since = now
	}
	return c
}

// reply answers with the open commit.
func (j *journal) reply(now int64, r Reply) {
	c := j.change(now)
	c.Replies = append(c.Replies, r)
}

func (j *journal) fresh() *Commit {
	if n := len(j.spare); n > 0 {
		c := j.spare[n-1]
		j.spare = j.spare[:n-1]
		return c
	}
	return new(Commit)
}

// recycle keeps a finished commit for reuse.
func (j *journal) recycle(c *Commit) {
	const keep = 4096
	if len(j.spare) == spareCommits || cap(c.Add) > keep || cap(c.Finish) > keep {
		return
	}
	*c = Commit{
		Batch: store.Batch{
			Add:             emptied(c.Add, keep),
			Move:            emptied(c.Move, keep),
			Finish:          c.Finish[:0],
			History:         emptied(c.History, keep),
			State:           emptied(c.State, keep),
			Dedupe:          emptied(c.Dedupe, keep),
			PutConsumers:    emptied(c.PutConsumers, keep),
			DeleteConsumers: emptied(c.DeleteConsumers, keep),
		},
		Replies: emptied(c.Replies, keep),
		Confirm: emptied(c.Confirm, keep),
	}
	j.spare = append(j.spare, c)
}

// flush submits the open commit.
func (m *Queue) flush() {
	j := &m.journal
	c := j.open
	if c == nil {
		return
	}
	j.open, j.working = nil, 0
	c.compact()
	if c.empty() {
		j.recycle(c)
		return
	}
	main := &m.sides[Main]
	for i := range c.Add {
		if s := main.Slots.Get(c.Add[i].Seq); s != nil {
			s.Open = false
		}
	}
	m.divide(c)
	m.submit(c)
}

// pieceBytes is the approximate size of a batch of messages: queues take turns at the
// disk by batches.
const pieceBytes = 1 << 20

// divide submits the messages of a large commit in pieces, except the last piece. A piece
// has messages and their dedupe ids; all other changes are in the last one, behind the
// messages that they may be about.
func (m *Queue) divide(c *Commit) {
	if c.Bytes <= pieceBytes || c.whole {
		return
	}
	j := &m.journal
	where := make(map[store.ID]int, len(c.Dedupe)) // in Add
	if len(c.Dedupe) > 0 {
		for i := range c.Add {
			where[c.Add[i].ID] = i
		}
	}
	from, ids := 0, 0
	for c.Bytes > pieceBytes && from < len(c.Add)-1 {
		to, bytes := from, int64(0)
		for bytes < pieceBytes && to < len(c.Add)-1 {
			bytes += int64(len(c.Add[to].Headers) + len(c.Add[to].Payload))
			to++
		}
		if bytes < pieceBytes {
			break
		}
		piece := j.fresh()
		piece.Bytes = bytes
		piece.Add = append(piece.Add, c.Add[from:to]...)
		piece.Confirm = append(piece.Confirm, c.Confirm[from:to]...)
		// Dedupe is in the order of Add; some of its messages may be finished.
		for ids < len(c.Dedupe) && where[c.Dedupe[ids].ID] < to {
			piece.Dedupe = append(piece.Dedupe, c.Dedupe[ids])
			ids++
		}
		c.Bytes -= bytes
		from = to
		m.submit(piece)
	}
	c.Add = slices.Delete(c.Add, 0, from)
	c.Confirm = slices.Delete(c.Confirm, 0, from)
	c.Dedupe = slices.Delete(c.Dedupe, 0, ids)
}

func (m *Queue) submit(c *Commit) {
	m.journal.committing++
	m.out.Commits = append(m.out.Commits, c)
}

// committed handles the outcome of a commit. A refused commit has moved nothing; any
// other error ends the owner.
func (m *Queue) committed(c *Commit, err error) {
	j := &m.journal
	j.committing--
	j.contended = c.Waited
	j.failed -= c.failed
	for i := range c.Add {
		if c.Add[i].Queue == m.sides[Main].id { // a dead letter may have been edited
			j.uncommitted.forget(c.Add[i].Seq)
		}
	}
	switch {
	case c.completes != nil:
		m.sides[c.from].completed(c, err)
	case len(c.dead) > 0:
		m.sides[Main].deadLettered(c, err)
	}
	j.recycle(c)
}

// drop removes Add[i], which has that size.
func (c *Commit) drop(i int, size int64) {
	c.Add[i].ID = store.ID{}
	c.Add[i].Headers, c.Add[i].Payload = nil, nil
	if c.Confirm[i].Awaited() {
		c.Confirm[i] = Confirmation{}
		c.waited--
	}
	c.Bytes -= size
	if c.dropped++; c.dropped == len(c.Add) {
		c.loaded = false
	}
	if c.dropped >= compactFrom && 2*c.dropped >= len(c.Add) {
		c.compact()
	}
}

// compactFrom is the number of gaps from which on they are closed before the commit is
// submitted.
const compactFrom = 16

// gone reports whether Add[i] was dropped. Ids of messages are never zero.
func (c *Commit) gone(i int) bool { return c.Add[i].ID == store.ID{} }

// compact closes the gaps.
func (c *Commit) compact() {
	if c.dropped == 0 {
		return
	}
	n := 0
	for i := range c.Add {
		if !c.gone(i) {
			c.Add[n], c.Confirm[n] = c.Add[i], c.Confirm[i]
			n++
		}
	}
	c.cut(n)
	c.dropped, c.first = 0, 0
}

// cut keeps the first n messages.
func (c *Commit) cut(n int) {
	clear(c.Add[n:])
	clear(c.Confirm[n:])
	c.Add, c.Confirm = c.Add[:n], c.Confirm[:n]
}

// empty reports whether there is nothing to write and no answer that waits.
func (c *Commit) empty() bool {
	return len(c.Add)+len(c.Move)+len(c.History)+len(c.Finish)+len(c.State)+len(c.Dedupe)+
		len(c.PutConsumers)+len(c.DeleteConsumers)+len(c.PutConfig)+len(c.DeleteConfig)+len(c.Replies) == 0 && c.Ticket == nil
}

// withdraw takes message seq, which is finished, out of the open commit, if it is there:
// then it is never written. It returns its confirmation.
func (q *side) withdraw(seq uint64, s *backlog.Slot) (confirm Confirmation, found bool) {
	if !s.Open {
		return confirm, false
	}
	j := &q.m.journal
	c := j.open
	i := sort.Search(len(c.Add), func(i int) bool { return c.Add[i].Seq >= seq })
	s.Open = false
	if s.State == backlog.Leased {
		j.working--
	}
	size := int64(s.Size)
	confirm = c.Confirm[i]
	c.drop(i, size)
	q.m.out.Written += size
	return confirm, true
}

// holdAtMost bounds the changes that are kept back.
const holdAtMost = 8192

// flushAt is when to submit the open commit; 0: not before another input.
func (m *Queue) flushAt(now int64) int64 {
	j := &m.journal
	c, p := j.open, &j.pacing
	if c == nil {
		return 0
	}
	live := len(c.Add) - c.dropped
	if live == 0 && c.since == 0 {
		return 0
	}
	wait := p.Idle
	switch {
	case c.full():
		return now
	case p.Hold && j.committing >= j.mostCommitting():
		return 0
	case len(c.Replies)+len(c.PutConsumers)+len(c.DeleteConsumers) > 0:
		return now
	case j.working > 0:
		wait = j.linger()
	case c.waited > 0:
		return now
	}
	at := c.oldest(now) + wait
	if c.since != 0 {
		at = min(at, c.since+p.Idle)
	}
	return at
}

// mostBesideOthers is how many commits of a queue may be under way while other queues
// keep the disk busy. With a single one, changes that come while it is written miss the
// group after it, which begins before the machine learns of the commit: they would wait
// for two groups of others.
const mostBesideOthers = 8

// mostCommitting is the number of commits under way from which on changes are kept back.
func (j *journal) mostCommitting() int {
	if j.contended {
		return mostBesideOthers
	}
	return 1
}

// linger is how long messages wait for their acks before they are written.
func (j *journal) linger() int64 {
	c, p := j.open, &j.pacing
	live := len(c.Add) - c.dropped
	if live >= p.Load {
		c.loaded = true // until nothing is left: the last of many are as close to their acks
	}
	if !c.loaded || 2*j.working < live || j.ackTime > p.LingerMost {
		return p.Linger // what waits is few, not with consumers, or with slow ones
	}
	return max(p.Linger, min(4*j.ackTime, p.LingerMost))
}

// countAck updates ackTime, a moving average, with at most twice Pacing.LingerMost for
// each ack.
func (j *journal) countAck(s *backlog.Slot, now int64) {
	const latest = 64
	lived := min(max(now-s.ReadyAt, 0), 2*j.pacing.LingerMost) // the clock may have been set back
	j.ackTime += (lived - j.ackTime) / latest
}

// flushIfDue submits the open commit if it is due.
func (m *Queue) flushIfDue(now int64) {
	if at := m.flushAt(now); at == 0 || at > now {
		return
	}
	rest, working := m.keepWorking(now)
	m.flush()
	m.journal.open, m.journal.working = rest, working
}

// keepWorking takes the messages whose acks may come soon out of the open commit, when
// something else in it is due. States, histories and dedupe ids must not be on disk
// before their messages.
func (m *Queue) keepWorking(now int64) (rest *Commit, working int) {
	j, main := &m.journal, &m.sides[Main]
	c := j.open
	if j.working == 0 || c.full() || len(c.History)+len(c.State)+len(c.Dedupe) > 0 {
		return nil, 0
	}
	since := now - j.linger()
	c.compact()
	n := 0
	for i := range c.Add {
		msg := &c.Add[i]
		if s := main.Slots.Get(msg.Seq); msg.EnqueuedAt <= since || s == nil || s.State != backlog.Leased {
			c.Add[n], c.Confirm[n] = *msg, c.Confirm[i]
			n++
			continue
		}
		if rest == nil {
			rest = j.fresh()
			rest.loaded = c.loaded
		}
		rest.Add = append(rest.Add, *msg)
		rest.Confirm = append(rest.Confirm, c.Confirm[i])
		rest.Bytes += int64(len(msg.Headers) + len(msg.Payload))
		if c.Confirm[i].Awaited() {
			rest.waited++
		}
		working++
	}
	if rest != nil {
		c.cut(n)
		c.Bytes -= rest.Bytes
		c.waited -= rest.waited
	}
	return rest, working
}

// full reports whether a commit is submitted for its size alone.
func (c *Commit) full() bool {
	// A retry has a state and a record, a delivery that reached nobody has a record alone.
	n := len(c.Add) - c.dropped + len(c.Finish) + max(len(c.State), len(c.History))
	return n >= holdAtMost || c.Bytes > maxCommitBytes/8 || c.historyBytes > pieceBytes
}

// behind reports whether too many failed attempts are under way to deliver more. A
// verdict or a commit changes that, in a step.
func (j *journal) behind() bool {
	if j.contended {
		return j.failed > failedBesideOthers
	}
	return j.failed > failedMost
}

// addHistory adds a record to the history of a message.
func (j *journal) addHistory(c *Commit, ref store.Ref, r *history.AttemptRecord) {
	record := r.Append(nil)
	n := int64(len(record))
	c.History = append(c.History, store.Attempt{Ref: ref, Record: record})
	c.historyBytes += n
	c.failed += n + failedBytes
	j.failed += n + failedBytes
}

// oldest is when the oldest message to be added was enqueued; now if there is none.
func (c *Commit) oldest(now int64) int64 {
	for c.first < len(c.Add) && c.gone(c.first) {
		c.first++
	}
	if c.first == len(c.Add) {
		return now
	}
	return c.Add[c.first].EnqueuedAt
}

// window holds the messages that are not known to be on disk, by sequence: they are
// delivered from here, since the store cannot read them yet. Their sequences are close
// together.
type window struct {
	items []*Message // items[i] has sequence base+i; nil: none
	base  uint64
}

func (w *window) put(seq uint64, m *Message) {
	if len(w.items) == 0 {
		w.base = seq
	}
	// A redrive takes sequences between sequences of enqueues.
	for seq > w.base+uint64(len(w.items)) {
		w.items = append(w.items, nil)
	}
	w.items = append(w.items, m)
}

// get returns the message of seq, or nil if it is on disk, or gone.
func (w *window) get(seq uint64) *Message {
	if i := seq - w.base; seq >= w.base && i < uint64(len(w.items)) {
		return w.items[i]
	}
	return nil
}

// forget removes seq, and the space in front of the oldest message that is left.
func (w *window) forget(seq uint64) {
	if w.get(seq) == nil {
		return
	}
	w.items[seq-w.base] = nil
	n := 0
	for n < len(w.items) && w.items[n] == nil {
		n++
	}
	w.items = w.items[n:]
	w.base += uint64(n)
	if len(w.items) == 0 {
		w.items = nil
	}
}
