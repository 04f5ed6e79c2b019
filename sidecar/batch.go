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
	bytes   int64 // of Add, counted as uncommitted
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

// batch returns the batch of this turn.
func (l *loop) batch() *batch {
	if l.main == nil {
		b := batches.Get().(*batch)
		b.q = l.q
		b.Done = b.done
		l.main = b
	}
	return l.main
}

// flush hands the turn's changes to the store.
func (l *loop) flush() {
	if b := l.main; b != nil {
		l.main = nil
		l.q.core.store.Submit(&b.Batch)
	}
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
	if len(b.Add) == 0 || !q.mail.post(event{kind: evCommitted, batch: b}) {
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
