package shard

import (
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

const (
	// purgeChunk is how many messages a step of a purge looks at.
	purgeChunk = 1024
	// purgeChunks is how many of these steps one purge makes.
	purgeChunks = 64
)

// Purge removes what waits in q, which may be a dead letter queue, among the messages
// with sequences from from to last; last 0 is all that are there now. Those that are in
// flight stay. It looks at so many that it is soon done, and returns how many are gone,
// which is on disk, and where to go on, with last: 0 is the end.
func (q *Queue) Purge(from, last uint64) (removed int64, next, until uint64, werr *wire.Error) {
	main := q.main()
	main.admin.Lock()
	defer main.admin.Unlock()
	if main.deleted.Load() {
		return 0, 0, 0, wire.QueueNotFound(q.name)
	}
	if last == 0 {
		q.View(func(m *queue.Queue, side queue.Role, _ int64) { last = m.LastSeq(side) })
	}
	done := make(chan error, purgeChunks)
	var commits []int64 // how many are gone with each
	next = from
	for range purgeChunks {
		said, ok := q.run.do(q.changed(queue.Purge{From: next, Last: last, Max: purgeChunk, Ticket: done}))
		if !ok {
			werr = q.Gone()
			break
		}
		if said.handled.Done > 0 {
			commits = append(commits, said.handled.Done)
		}
		if next = said.handled.Next; next == 0 {
			break
		}
	}
	for _, n := range commits { // in their order
		if err := <-done; err != nil {
			werr = commitError(err)
		} else {
			removed += n
		}
	}
	return removed, next, last, werr
}

// Remove removes message seq of q, if it has that id and waits. The answer is on disk.
func (q *Queue) Remove(seq uint64, id store.ID) (queue.Handled, *wire.Error) {
	done := make(chan error, 1)
	return q.handle(queue.Remove{Seq: seq, ID: id, Ticket: done}, done)
}

// RunNow ends the delay of message seq of q, if it has that id. The answer is on disk.
func (q *Queue) RunNow(seq uint64, id store.ID) (queue.Handled, *wire.Error) {
	done := make(chan error, 1)
	return q.handle(queue.RunNow{Seq: seq, ID: id, Ticket: done}, done)
}

// handle makes a change of one message, and waits for the disk.
func (q *Queue) handle(c queue.Change, done <-chan error) (queue.Handled, *wire.Error) {
	main := q.main()
	main.admin.Lock() // a redrive that has picked the message is over
	defer main.admin.Unlock()
	said, ok := q.run.do(q.changed(c))
	if !ok {
		return queue.Handled{}, q.Gone()
	}
	if said.handled.Done > 0 {
		if err := <-done; err != nil {
			return queue.Handled{}, commitError(err)
		}
	}
	return *said.handled, nil
}

// main is the queue itself of both sides.
func (q *Queue) main() *Queue {
	if q.source != nil {
		return q.source
	}
	return q
}
