package queue

import (
	"github.com/filaq/fila/sidecar/queue/backlog"
	"github.com/filaq/fila/sidecar/queue/history"
	"github.com/filaq/fila/store"
)

// output identifies a role, and adds its changes, answers, counters and notes to the effects
// of the step and to the journal.
type output struct {
	m    *Queue
	role Role
	id   store.QueueID
	name string
	seq  uint64 // the last sequence given out
}

// isDead reports whether the side is the dead letter queue.
func (q *output) isDead() bool { return q.role == Dead }

func (q *output) nextSeq() uint64 {
	q.seq++
	return q.seq
}

func (q *output) ref(seq uint64) store.Ref { return store.Ref{Queue: q.id, Seq: seq} }

// count returns the counters of this step.
func (q *output) count() *Counters { return &q.m.out.Counters[q.role] }

// countMessage counts a message of that size in depth and bytes; n is 1 or -1.
func (q *output) countMessage(n, size int64) {
	t := q.count()
	t.Messages += n
	t.Bytes += n * size
}

func (q *output) note(n Note) {
	n.Role = q.role
	q.m.out.Notes = append(q.m.out.Notes, n)
}

// uncommitted returns message seq if it may not be on disk yet, or else nil.
func (q *output) uncommitted(seq uint64) *Message {
	if q.isDead() {
		return nil
	}
	return q.m.journal.uncommitted.get(seq)
}

// storeState writes the state of a message that is not leased.
func (q *output) storeState(seq uint64, s *backlog.Slot, lastError string) {
	s.Stored = true
	c := q.m.journal.change(q.m.now)
	c.State = append(c.State, store.State{Ref: q.ref(seq), Attempts: s.Attempts, ReadyAt: s.ReadyAt, LastError: lastError})
}

// storeRecord adds a record to the history of message seq.
func (q *output) storeRecord(seq uint64, r *history.AttemptRecord) {
	j := &q.m.journal
	j.addHistory(j.change(q.m.now), q.ref(seq), r)
}

// publish answers at once, behind the deliveries so far.
func (q *output) publish(r Reply) {
	q.m.out.Publish = append(q.m.out.Publish, Delivery{Kind: DeliverReply, Role: q.role, Reply: r})
}

// answer confirms when the changes of this step are on disk.
func (q *output) answer(c Confirmation) {
	if c.Awaited() {
		q.m.journal.reply(q.m.now, Reply{Kind: ReplyDone, Confirmation: c})
	}
}

// answerWith is answer with data.
func (q *output) answerWith(c Confirmation, data []byte) {
	if c.Awaited() {
		q.m.journal.reply(q.m.now, Reply{Kind: ReplyData, Confirmation: c, Data: data})
	}
}

// publishStatus ends a fetch with a status behind the deliveries so far.
func (q *output) publishStatus(c *backlog.Consumer, status string) {
	q.m.out.Publish = append(q.m.out.Publish, Delivery{Kind: DeliverStatus, Role: q.role, Subject: c.Subject, Status: status})
}
