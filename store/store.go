package store

import (
	"time"

	"github.com/filaq/fila/store/storefile"
)

// The records of a store, see package storefile.
type (
	ID             = storefile.ID
	QueueID        = storefile.QueueID
	Ref            = storefile.Ref
	Message        = storefile.Message
	Dead           = storefile.Dead
	Lease          = storefile.Lease
	State          = storefile.State
	Dedupe         = storefile.Dedupe
	QueueRecord    = storefile.QueueRecord
	ConsumerRecord = storefile.ConsumerRecord
	Entry          = storefile.Entry
	Snapshot       = storefile.Snapshot
)

// Move takes a message to another queue: To is added with the headers and the
// payload of From (its own are ignored), and From is finished.
type Move struct {
	From Ref
	To   Message
}

// Attempt is an attempt at a message that has ended, or what else there is to say of
// its past: Record, which is opaque, is added to the history of the message. A history
// goes with its message when that moves, and ends with it. It is bounded: when a record
// would make it longer than [MaxHistory] or [MaxHistoryBytes], the oldest but the first
// are forgotten. A record may be joined with the newest (Options.Join), or be kept for
// longer than others (Options.Keep).
type Attempt struct {
	Ref
	Record []byte
}

// Batch is a set of changes that takes effect as a whole or not at all.
//
// They apply in this order: PutQueues, Add, Move, History, State, Finish, Dedupe,
// consumers, configuration (puts before deletes in both), DeleteQueues. To
// finish a message that the store does not know, to set its state or to add to its
// history, does nothing. A State for a finished message is forgotten.
//
// A batch that cannot be taken is refused alone, before anything of it is
// written, and the batches around it are not touched:
//
//   - [ErrDuplicate]: an Add or a Move to a Ref that holds a live message
//   - [ErrNotFound]: a Move from a Ref that holds none
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

	// Queue is the queue that the batch is about; 0: none. Batches of one queue
	// take effect in the order of submission, and those of another may overtake
	// them: a queue with much to write does not hold up the rest.
	Queue QueueID

	// Waited is set by the store before Done: when the batch was submitted, a commit
	// with changes of others was under way, for which it had to wait.
	Waited bool

	// Done is called once with the outcome: nil when the batch is on disk. It
	// may be nil. All Done calls come from one goroutine, for batches of one Queue
	// in the order of submission; a slow one delays the others, but not the disk.
	Done func(err error)
}

// Limits of what a store takes. They keep every offset within 32 bits and every
// value within what bbolt can hold.
const (
	MaxMessageBytes = 128 << 20 // headers and payload of one message
	MaxHeaderBytes  = 1 << 20   // everything else of one message, and one state
	MaxBatchBytes   = 1 << 30   // headers and payloads of one batch
	MaxPriority     = storefile.MaxPriority
	MaxSeq          = storefile.MaxSeq
	MaxAttemptBytes = storefile.MaxAttemptBytes
	MaxHistoryBytes = storefile.MaxHistoryBytes
	MaxHistory      = storefile.MaxHistory
)

// Visitor receives what [Store.Recover] finds. A nil function skips its part. An
// error from one of them stops the recovery and is returned.
type Visitor struct {
	// Message gets a live message without headers and payload, the size of
	// these in bytes, and its state or nil. m and st are good during the call
	// only; their strings and slices may be kept, but not changed, as messages
	// may share them.
	Message func(m *Message, size int, st *State) error
	// Dedupe gets a dedupe id that has not expired.
	Dedupe func(Dedupe) error
	// Progress is called now and then with the number of messages.
	Progress func(done, total int64)
}

// RecoveryStats sums up a recovery.
type RecoveryStats struct {
	Messages int64
	Bytes    int64 // headers and payloads of the messages
	States   int64
	Dedupes  int64
	Segments int64
	Duration time.Duration
	Corrupt  []*CorruptError // records that could not be read, 100 at most
	CorruptN int64           // all of them
}

// Store is durable storage for queues and their messages. All methods may be
// called from any goroutine.
//
// Delays and leases keep what remains of them when the clock has been set back by more
// than a second between a Close and the next start: a message's NotBefore, if it is
// Delayed, and the ReadyAt and the lease's Deadline of a state are visited by Recover
// as much earlier as the clock is behind the last commit or the Close. All other times
// stay what they were.
type Store interface {
	// Snapshot returns queues, consumers and configuration as committed.
	Snapshot() (Snapshot, error)

	// Recover visits every live message in the order of queue id and sequence
	// number, and then every dedupe id. It is meant to be called once, before
	// the first Submit. A record that cannot be read does not stop it: the
	// others are visited, and in the end the first [*CorruptError] is returned
	// together with the stats that list them. A message whose state is the
	// broken record may be visited without it.
	Recover(v Visitor) (RecoveryStats, error)

	// Submit hands in a batch and never waits for the disk. Among batches of one
	// [Batch].Queue the order of submission is the order of effect and of the Done
	// calls. The store reads
	// the batch until Done is called; the caller leaves it alone until then.
	Submit(b *Batch)

	// Read calls fn in order with the headers and the payload of every
	// committed message of refs. The slices are good during the call only, and
	// fn must not block or call the store. A message that is missing
	// ([ErrNotFound]) or cannot be read ([*CorruptError]) is skipped; the
	// first such error, one that is not [ErrNotFound] before all, is returned
	// after the others have been served. A message can be read from the moment
	// its Done is called until it is finished.
	Read(refs []Ref, fn func(i int, headers, payload []byte)) error

	// Dead calls fn in order with why every committed message of refs is a dead
	// letter, nil for one that is none. All else is as with Read, but that d may
	// be kept.
	Dead(refs []Ref, fn func(i int, d *Dead)) error

	// History calls fn in order with the history of every committed message of refs,
	// the oldest record first; none for a message that has no past. The records are
	// good during the call only. All else is as with Read. It waits for a commit that
	// is being written.
	History(refs []Ref, fn func(i int, records [][]byte)) error

	// Stats returns sizes and counters; it is cheap.
	Stats() Stats

	// Failed is closed when a commit has failed. From then on every batch gets
	// [ErrFailed] and every read too.
	Failed() <-chan struct{}

	// Err is nil until a commit fails, then an error that wraps ErrFailed and
	// the cause.
	Err() error

	// Close commits what was submitted, waits for its Done calls, and closes
	// the store. Later batches get [ErrClosed]. Close must not be called from
	// a Done function. A second Close returns nil.
	Close() error
}
