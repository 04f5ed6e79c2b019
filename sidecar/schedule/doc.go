// Package schedule makes messages at set times.
//
// [Schedules] are the schedules of one queue. A [Runner] makes the runs of all queues of a
// shard: one goroutine takes the schedule that is due next and has the queue, an
// [Enqueuer], enqueue its message. The state of the schedule is written in the commit of
// the message, so each run makes exactly one message, over restarts and moves to other
// nodes. Package calendar computes when runs are due.
//
// The order of locks is: Schedules, the queue's intake, the Runner. Nobody holds one while
// searching a calendar or waiting for the disk.
package schedule

import (
	"time"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// Enqueuer is the queue that schedules make messages for. Its methods may be called from
// any goroutine and do not wait for the disk.
type Enqueuer interface {
	Name() string
	ID() store.QueueID
	// Deleted reports whether the queue has been deleted, or is about to be.
	Deleted() bool
	// EnqueueRun enqueues the message of a run and performs, in the same commit, the write
	// that describe returns for the id of the message. If the queue remembers the dedupe
	// id, it only performs the write, for the id of the earlier message.
	EnqueueRun(m *Message, describe func(id store.ID) queue.WriteEntries) *wire.Error
	// WriteEntries performs w in a commit of its own, unless the queue has ended.
	WriteEntries(w queue.WriteEntries) *wire.Error
}

// Message is the message of a run.
type Message struct {
	ID       store.ID
	DedupeID string
	TTL      time.Duration
	Headers  map[string][]string // the Enqueuer may keep it; the values are shared
	Payload  []byte
}

// Metrics count what schedules do.
type Metrics interface {
	Scheduled()
	Missed(runs int)
	Refused(errCode int)
}
