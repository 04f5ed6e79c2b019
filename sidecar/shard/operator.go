package shard

import (
	"errors"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

const (
	// purgeChunk is how many messages a step of a purge checks.
	purgeChunk = 1024
	// purgeChunks is how many steps one purge makes.
	purgeChunks = 64
)

// Purge removes waiting messages with sequences from from to last; last 0 means all that are
// there now. Leased messages stay. It works for a bounded time and returns how many messages
// it removed, which is on disk, and the arguments to continue with; next 0 is the end.
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
	var commits []int64 // messages that each commit removes
	next = from
	for range purgeChunks {
		answer, ok := q.run.do(q.changed(queue.Purge{From: next, Last: last, Max: purgeChunk, Ticket: done}))
		if !ok {
			werr = q.Gone()
			break
		}
		if answer.Handled.Done > 0 {
			commits = append(commits, answer.Handled.Done)
		}
		if next = answer.Handled.Next; next == 0 {
			break
		}
	}
	for _, n := range commits { // in the order of the commits
		err := q.shard.wait(done)
		if err == nil {
			removed += n
			continue
		}
		werr = queue.CommitError(err)
		if errors.Is(err, store.ErrFenced) {
			break // the next outcome would belong to another commit
		}
	}
	return removed, next, last, werr
}

// Remove removes message seq of q if it has that id and waits. It waits for the disk.
func (q *Queue) Remove(seq uint64, id store.ID) (queue.Handled, *wire.Error) {
	done := make(chan error, 1)
	return q.handle(queue.Remove{Seq: seq, ID: id, Ticket: done}, done)
}

// RunNow ends the delay of message seq of q if it has that id. It waits for the disk.
func (q *Queue) RunNow(seq uint64, id store.ID) (queue.Handled, *wire.Error) {
	done := make(chan error, 1)
	return q.handle(queue.RunNow{Seq: seq, ID: id, Ticket: done}, done)
}

// handle changes one message and waits for the disk.
func (q *Queue) handle(c queue.Change, done <-chan error) (queue.Handled, *wire.Error) {
	main := q.main()
	main.admin.Lock() // no job has claimed the message any more
	defer main.admin.Unlock()
	answer, ok := q.run.do(q.changed(c))
	if !ok {
		return queue.Handled{}, q.Gone()
	}
	if answer.Handled.Done > 0 {
		if werr := queue.CommitError(q.shard.wait(done)); werr != nil {
			return queue.Handled{}, werr
		}
	}
	return *answer.Handled, nil
}

// main returns the queue itself, also for its dead letter queue.
func (q *Queue) main() *Queue {
	if q.source != nil {
		return q.source
	}
	return q
}
