package sidecar

import (
	"errors"
	"sync"

	"github.com/filaq/fila/store"
)

// batch is what one turn of a loop changes, with those who wait for it.
type batch struct {
	store.Batch
	q       *queue
	replies []reply
	confirm []string // who waits for the enqueue of Add[i]; empty: nobody
	dropped int      // of Add: finished before they were handed in
	first   int      // all before Add[first] are dropped
	waited  int      // of confirm: somebody waits
	loaded  bool     // it has had pacing.load messages at a time
	since   int64    // when it got its first change that is no Add; 0: it has none
	bytes   int64    // of Add, counted as uncommitted
}

// maxBatchBytes is where a batch takes no more messages, far below what a store
// takes at once: one that is too large would be refused as a whole.
const maxBatchBytes = 64 << 20

type replyKind uint8

const (
	replyEnqueued replyKind = iota
	replyDuplicate
	replyEmpty // a confirmed ack or nack
	replyData
)

// reply is an answer that waits for the disk.
type reply struct {
	kind    replyKind
	subject string
	id      store.ID
	data    []byte // replyData
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// open returns the batch of the changes that the store does not have yet.
func (l *loop) open() *batch {
	if l.main == nil {
		l.main = newBatch(l.q)
	}
	return l.main
}

// batch is open for a change that has to be written, or to be waited for, even if
// all messages that were added are finished before.
func (l *loop) batch() *batch {
	b := l.open()
	if b.since == 0 {
		b.since = l.now
	}
	return b
}

func newBatch(q *queue) *batch {
	b := batches.Get().(*batch)
	b.q = q
	b.Done = b.done
	return b
}

// flush hands the changes so far to the store.
func (l *loop) flush() {
	b := l.main
	if b == nil {
		return
	}
	l.main = nil
	l.young = 0
	b.compact()
	if b.empty() {
		b.release()
		return
	}
	for i := range b.Add {
		if s := l.slots.get(b.Add[i].Seq); s != nil {
			s.unsent = false
		}
	}
	l.committing++
	l.q.core.store.Submit(&b.Batch)
}

// drop takes Add[i] of that size out.
func (b *batch) drop(i int, size int64) {
	b.Add[i].ID = store.ID{}
	b.Add[i].Headers, b.Add[i].Payload = nil, nil
	if b.confirm[i] != "" {
		b.confirm[i] = ""
		b.waited--
	}
	b.bytes -= size
	if b.dropped++; b.dropped == len(b.Add) {
		b.loaded = false
	}
	if b.dropped >= compactFrom && 2*b.dropped >= len(b.Add) {
		b.compact()
	}
}

// compactFrom is from how many gaps on they are closed before the batch is handed
// in.
const compactFrom = 16

// gone reports whether Add[i] was dropped. Ids of messages are never zero.
func (b *batch) gone(i int) bool { return b.Add[i].ID == store.ID{} }

// compact closes the gaps.
func (b *batch) compact() {
	if b.dropped == 0 {
		return
	}
	n := 0
	for i := range b.Add {
		if !b.gone(i) {
			b.Add[n], b.confirm[n] = b.Add[i], b.confirm[i]
			n++
		}
	}
	b.cut(n)
	b.dropped, b.first = 0, 0
}

// cut keeps the first n messages.
func (b *batch) cut(n int) {
	clear(b.Add[n:])
	clear(b.confirm[n:])
	b.Add, b.confirm = b.Add[:n], b.confirm[:n]
}

// empty reports whether nothing has to be written and nobody waits for it.
func (b *batch) empty() bool {
	return len(b.Add)+len(b.Finish)+len(b.State)+len(b.Dedupe)+len(b.PutConsumers)+len(b.DeleteConsumers)+len(b.replies) == 0
}

// done runs on the store's notifier when the batch is on disk, or when it is
// known that it could not be written.
func (b *batch) done(err error) {
	q := b.q
	q.core.uncommitted.Add(-b.bytes)
	if err != nil {
		b.failed(err)
		return
	}
	for i, subject := range b.confirm {
		if subject != "" {
			q.core.publish(subject, enqueueReply(q.name, b.Add[i].ID, false))
		}
	}
	for i := range b.replies {
		r := &b.replies[i]
		if r.subject == "" {
			continue
		}
		switch r.kind {
		case replyEmpty, replyData:
			q.core.publish(r.subject, r.data)
		default:
			q.core.publish(r.subject, enqueueReply(q.name, r.id, r.kind == replyDuplicate))
		}
	}
	if !q.mail.post(event{kind: evCommitted, batch: b}) {
		b.release()
	}
}

// failed tells everybody who waits for the batch. A queue that was deleted
// meanwhile is nobody's fault; anything else means that memory and disk may
// disagree, and the server must stop.
func (b *batch) failed(err error) {
	c := b.q.core
	answer := c.commitError(err)
	if errors.Is(err, store.ErrNoQueue) {
		answer = b.q.gone()
	} else {
		c.fail(err)
	}
	for i := range b.replies {
		c.replyError(b.replies[i].subject, answer)
	}
	for _, subject := range b.confirm {
		c.replyError(subject, answer)
	}
	b.release()
}

// release gives the batch back for use, without what it referred to.
func (b *batch) release() {
	const keep = 4096
	if cap(b.Add) > keep || cap(b.Finish) > keep {
		return
	}
	clear(b.Add)
	clear(b.Dedupe)
	clear(b.State)
	clear(b.PutConsumers)
	clear(b.DeleteConsumers)
	clear(b.replies)
	clear(b.confirm)
	*b = batch{
		Batch: store.Batch{
			Add:             b.Add[:0],
			Finish:          b.Finish[:0],
			State:           b.State[:0],
			Dedupe:          b.Dedupe[:0],
			PutConsumers:    b.PutConsumers[:0],
			DeleteConsumers: b.DeleteConsumers[:0],
		},
		replies: b.replies[:0],
		confirm: b.confirm[:0],
	}
	batches.Put(b)
}

// enqueueReply is the confirmation of an enqueue. Queue names and ids need no
// escaping in JSON.
func enqueueReply(queue string, id store.ID, duplicate bool) []byte {
	b := make([]byte, 0, 80+len(queue))
	b = append(b, `{"id":"`...)
	b = appendID(b, id)
	b = append(b, `","queue":"`...)
	b = append(b, queue...)
	if duplicate {
		return append(b, `","duplicate":true}`...)
	}
	return append(b, `"}`...)
}
