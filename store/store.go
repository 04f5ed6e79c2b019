package store

import (
	"time"

	"github.com/filaq/fila/store/storefile"
)

// The types of stored records. Package storefile describes them and their encoding.
type (
	// ID is a message id.
	ID = storefile.ID
	// QueueID identifies a queue in the store.
	QueueID = storefile.QueueID
	// Ref identifies a message: its queue and its sequence there.
	Ref = storefile.Ref
	// Message is a message.
	Message = storefile.Message
	// Class is what classifies a message.
	Class = storefile.Class
	// Route is one of several ways through gates that a message may go.
	Route = storefile.Route
	// Dead is what a dead letter has beside its message.
	Dead = storefile.Dead
	// Lease is a delivery that has no outcome yet.
	Lease = storefile.Lease
	// State is the delivery state of a message.
	State = storefile.State
	// Dedupe is a remembered Nats-Msg-Id.
	Dedupe = storefile.Dedupe
	// QueueRecord is a queue.
	QueueRecord = storefile.QueueRecord
	// ConsumerRecord is a registered consumer.
	ConsumerRecord = storefile.ConsumerRecord
	// DeliveryForm is how a consumer wants its deliveries.
	DeliveryForm = storefile.DeliveryForm
	// Entry is a key of the configuration with its value.
	Entry = storefile.Entry
	// Snapshot is everything in a store except payloads.
	Snapshot = storefile.Snapshot
)

// Move moves a message to another queue: To is added with the headers and the payload
// of From (headers and payload in To are ignored), and From is finished.
type Move struct {
	From Ref
	To   Message
}

// Attempt adds an opaque record to the history of a message, for example a finished
// attempt. A history moves with its message and ends with it. Its length is bounded:
// beyond [MaxHistory] or [MaxHistoryBytes] the oldest records but the first are
// dropped. Options.Join may join a record with the newest one, and Options.Keep may
// keep a record for longer than others.
type Attempt struct {
	Ref
	Record []byte
}

// Batch is an atomic set of changes.
//
// They apply in this order: PutQueues, Add, Move, History, State, Finish, Dedupe,
// consumers, configuration (puts before deletes in both), DeleteQueues. Finish, State
// and History of a message that does not exist do nothing. A State for a message that
// the batch finishes is dropped.
//
// An invalid batch is refused before anything of it is written. Other batches are not
// affected. The errors:
//
//   - [ErrDuplicate]: an Add or a Move to the Ref of a live message
//   - [ErrNotFound]: a Move from a Ref without a message
//   - [ErrNoQueue]: a message, consumer or dedupe id of a queue that does not exist
//   - [ErrTooBig]: a message above [MaxMessageBytes], a header above
//     [MaxHeaderBytes], an Attempt above [MaxAttemptBytes], a batch above
//     [MaxBatchBytes]
//   - [ErrInvalid]: a queue id that was used before, an empty name or Attempt, a
//     sequence number above [MaxSeq]
//   - [*CorruptError]: the source of a Move cannot be read
type Batch struct {
	Add             []Message
	Move            []Move
	History         []Attempt
	Finish          []Ref
	State           []State
	Dedupe          []Dedupe
	PutQueues       []QueueRecord
	DeleteQueues    []QueueID // with all their messages, states, consumers and dedupe ids
	PutConsumers    []ConsumerRecord
	DeleteConsumers []ConsumerRecord // Queue and Name count
	PutConfig       []Entry
	DeleteConfig    []string

	// Queue is the queue of the batch; 0: none. Batches of one queue take effect in the
	// order of submission. Batches of other queues may overtake them, so that a queue
	// with many changes does not delay the others.
	Queue QueueID

	// Waited is set by the store before Done: at submission a commit of other queues was
	// running, and the batch had to wait for it.
	Waited bool

	// Done is called once with the outcome: nil when the batch is on disk. It may be
	// nil. One goroutine makes all Done calls, for batches of one Queue in the order of
	// submission. A slow one delays the others, but not the disk.
	Done func(err error)
}

// Limits of a batch. They keep every offset within 32 bits and every value within what
// bbolt can hold.
const (
	MaxMessageBytes = 128 << 20 // headers and payload of one message
	MaxHeaderBytes  = 1 << 20   // everything else of one message, and one state
	MaxBatchBytes   = 1 << 30   // headers and payloads of one batch
	MaxPriority     = storefile.MaxPriority
	MaxRoutes       = storefile.MaxRoutes
	MaxSeq          = storefile.MaxSeq
	MaxAttemptBytes = storefile.MaxAttemptBytes
	MaxHistoryBytes = storefile.MaxHistoryBytes
	MaxHistory      = storefile.MaxHistory
)

// Visitor receives the records that [Store.Recover] finds. A nil function skips its
// part. An error from a function stops the recovery and is returned.
type Visitor struct {
	// Message is called with a live message without headers and payload, the size of
	// both in bytes, and its state or nil. m and st are valid during the call only.
	// Their strings and slices may be kept, but not changed, because messages may share
	// them.
	Message func(m *Message, size int, st *State) error
	// Dedupe is called with a dedupe id that has not expired.
	Dedupe func(Dedupe) error
	// Progress is called at intervals with the number of messages.
	Progress func(done, total int64)
}

// RecoveryStats are the figures of a recovery.
type RecoveryStats struct {
	Messages int64
	Bytes    int64 // headers and payloads of the messages
	States   int64
	Dedupes  int64
	Segments int64
	Duration time.Duration
	Corrupt  []*CorruptError // records that could not be read, 100 at most
	CorruptN int64           // number of all records that could not be read
}

// Store is durable storage for queues and their messages. Its methods are safe for
// concurrent use.
//
// Delays and leases keep their remaining time if the clock was set back by more than a
// second between a Close and the next start: Recover moves NotBefore of Delayed messages,
// and ReadyAt and lease deadlines of states, back by the time that the clock is behind the
// last commit or the Close. Other times do not change.
type Store interface {
	// Snapshot returns queues, consumers and configuration as committed.
	Snapshot() (Snapshot, error)

	// Recover visits every live message in the order of queue id and sequence number,
	// and then every dedupe id. Call it once, before the first Submit. It skips records
	// that cannot be read and returns the first [*CorruptError] at the end; the stats
	// list the others. A message whose state cannot be read may be visited without it.
	Recover(v Visitor) (RecoveryStats, error)

	// Submit submits a batch and never waits for the disk. Batches of one [Batch].Queue
	// take effect, and their Done is called, in the order of submission. The caller must
	// not change the batch until Done is called.
	Submit(b *Batch)

	// Read calls fn in order with the headers and the payload of every committed message
	// of refs. The slices are valid during the call only, and fn must not block or call
	// the store. Read skips a message that does not exist ([ErrNotFound]) or cannot be
	// read ([*CorruptError]), and returns the first such error at the end; other errors
	// take precedence over [ErrNotFound]. A message can be read from its Done call until
	// it is finished.
	Read(refs []Ref, fn func(i int, headers, payload []byte)) error

	// Dead is like Read with the reason why a message is a dead letter, nil if it is none.
	// d may be kept.
	Dead(refs []Ref, fn func(i int, d *Dead)) error

	// History is like Read with the records of the history of a message, the oldest
	// first. It waits for a commit that is being written.
	History(refs []Ref, fn func(i int, records [][]byte)) error

	// Stats returns the current figures. It is cheap.
	Stats() Stats

	// Failed is closed when a commit fails. From then on every batch and every read gets
	// [ErrFailed].
	Failed() <-chan struct{}

	// Err is nil until a commit fails, then an error that wraps ErrFailed and
	// the cause.
	Err() error

	// Close commits the submitted batches, waits for their Done calls, and closes the
	// store. Later batches get [ErrClosed]. It must not be called from a Done function.
	// A second Close returns nil.
	Close() error
}
