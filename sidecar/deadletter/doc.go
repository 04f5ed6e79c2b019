// Package deadletter groups the dead letters of a queue by their errors.
//
// An [Index] lists the groups of one dead letter queue. [Rates] counts, by group and minute,
// how many messages became dead letters in the last hour. [Redrives] counts, by group, how
// many dead letters jobs have sent back to their queue; the counts are stored with the
// moves. All belong to one queue and may be used from any goroutine.
package deadletter

import (
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// Queue is the dead letter queue that an [Index] reads.
type Queue interface {
	Name() string
	ID() store.QueueID
	Store() store.Store
	// View calls fn between two steps of the machine, and reports false if it has ended.
	View(fn func(m *queue.Queue, role queue.Role, now int64)) bool
	// Gone is the error for requests to a queue that has ended.
	Gone() *wire.Error
}
