package store

import "time"

// ID is a message id, a UUIDv7 in its 16 byte form.
type ID [16]byte

// QueueID names a queue within one store. Ids are handed out by the caller,
// starting with [Snapshot].NextQueueID, and are never used again.
type QueueID uint32

// Ref names a message: its queue and its number there. The caller hands the
// numbers out, dense and increasing within a queue. The number of a finished
// message may be given to a new one.
type Ref struct {
	Queue QueueID
	Seq   uint64
}

// Message is what is stored of a message when it comes in. Nothing of it changes
// until it is finished; what does change is its [State].
type Message struct {
	Ref
	ID           ID
	EnqueuedAt   int64 // Unix nanoseconds
	NotBefore    int64 // Unix nanoseconds, 0 = at once
	Delayed      bool  // NotBefore is the end of a delay and no time of day that was asked for
	ExpiresAt    int64 // Unix nanoseconds, 0 = never
	Weight       uint32
	Cost         uint32
	Key          string // fairness key
	ThrottleKeys []string
	CircuitKey   string
	Priority     uint8 // 0 to 9
	Attempts     uint32
	Dead         *Dead  // set in a dead letter queue
	Headers      []byte // opaque
	Payload      []byte // opaque
}

// Dead says why and from where a message came to its dead letter queue.
type Dead struct {
	Reason      string
	Error       string
	ErrorCode   string
	SourceQueue string
	At          int64 // Unix nanoseconds
	Attempts    uint32
}

// Lease is the right of one consumer to work on a message. ID 0 is no lease.
type Lease struct {
	ID          uint64
	Consumer    string
	Deadline    int64  // Unix nanoseconds
	DeliveredAt int64  // Unix nanoseconds; 0: not known
	Held        string // opaque: what held the message before
}

// State is the part of a message that changes. It replaces the previous State of
// the same message as a whole.
type State struct {
	Ref
	Attempts  uint32
	ReadyAt   int64 // Unix nanoseconds, 0 = at once
	Lease     Lease
	LastError string
}

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

// Dedupe remembers that a queue has seen a dedupe id, and in which message,
// until a time in Unix nanoseconds. It outlives its message. An id that comes
// again while it is remembered is remembered twice.
type Dedupe struct {
	Queue    QueueID
	DedupeID string
	ID       ID
	Until    int64
}

// QueueRecord is a queue. Settings are opaque here.
type QueueRecord struct {
	ID       QueueID
	Name     string
	Settings []byte
}

// ConsumerRecord is a consumer registered with a queue; queue and name are its
// key.
type ConsumerRecord struct {
	Queue       QueueID
	Name        string
	MaxInFlight uint32
	ExpiresAt   int64 // Unix nanoseconds
	Reg         uint64
}

// Entry is one key of the runtime configuration.
type Entry struct {
	Key, Value string
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
	MaxPriority     = 9
	MaxSeq          = 1 << 62 // sequence number: what comes after it must not begin again at 0
	MaxAttemptBytes = 2 << 10 // one record of a history
	MaxHistoryBytes = 8 << 10 // all of them
	MaxHistory      = 16      // records of a history
)

// Snapshot is what a server needs before it looks at messages.
type Snapshot struct {
	Queues      []QueueRecord    // by id
	Consumers   []ConsumerRecord // by queue and name
	Config      []Entry          // by key
	Secret      []byte           // 32 random bytes, made with the store
	NextQueueID QueueID          // no queue had this id or a higher one
	CreatedAt   int64            // Unix nanoseconds
}

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
