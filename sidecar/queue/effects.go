package queue

import (
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// Effects is what has to happen after a step, in this order: Commits go to the
// store, Tallies are added up, Publish goes out, and then the rest in any order.
// It belongs to the caller, who resets it between steps; the machine keeps nothing
// of it.
type Effects struct {
	Commits  []*Commit        // for the store, in order
	Publish  []Delivery       // in order
	Judge    []Failure        // each comes back as a Verdict
	Wake     []*throttle.Wait // of other owners, whose turn it is at a gate
	Circuits []Circuit        // Announce them; one may be named twice
	Refuse   []Refusal
	Notes    []Note
	Ended    []Ended // attempts of watched messages
	Counters [Roles]Counters
	// Written is how many bytes of messages no longer wait for the disk, because
	// they never get there.
	Written int64
	Claimed *Claimed // answer to a Pick
	Handled *Handled // answer to a Purge, Remove, RunNow or Reserve
}

// Reset empties e for the next step and keeps its room.
func (e *Effects) Reset() {
	const keep = 8192
	*e = Effects{
		Commits: emptied(e.Commits, keep), Publish: emptied(e.Publish, keep), Judge: emptied(e.Judge, keep),
		Wake: emptied(e.Wake, keep), Circuits: emptied(e.Circuits, keep), Refuse: emptied(e.Refuse, keep),
		Notes: emptied(e.Notes, keep), Ended: emptied(e.Ended, keep),
	}
}

func emptied[T any](items []T, keep int) []T {
	if cap(items) > keep {
		return nil
	}
	clear(items)
	return items[:0]
}

// Tally is what a step adds to the figures of a side.
type Counters struct {
	Delivered, Acked, Nacked, Expired int64
	TTLExpired                        int64
	Redriven, TakenBack, Removed      int64
	Failed                            int64             // failures that nobody judges
	Messages, Bytes                   int64             // change of depth and of bytes
	Blocked                           [BlockKinds]int64 // subqueues that began to wait, by what for
}

// Ended is an attempt that somebody received and that has ended.
type Ended struct {
	Role    Role
	Outcome Outcome
	ID      store.ID
	Took    int64 // ns since the delivery
}

// Commit is a batch of changes, with those who wait for it. The owner sets Done,
// hands it to the store and, when it is done, publishes the answers and the notes,
// or refuses them all, and returns it as an input of kind Committed.
type Commit struct {
	store.Batch
	Confirm []string // Confirm[i]: who waits for Add[i]; empty: nobody
	Replies []Reply
	Notes   []Note // to be published if it succeeds
	Bytes   int64  // of Add: they no longer wait for the disk when it is done
	Ticket  any    // of a Settle, Keep, Purge, Remove or RunNow
	pending
}

// ReplyKind says what a [Reply] says.
type ReplyKind uint8

// Kinds of replies.
const (
	ReplyEnqueued  ReplyKind = iota // the confirmation of message ID
	ReplyDuplicate                  // message ID came before
	ReplyDone                       // an empty one: a confirmed ack or nack
	ReplyData                       // Data
)

// Reply is an answer to whoever waits at Subject, which may be empty.
type Reply struct {
	Kind    ReplyKind
	Subject string
	ID      store.ID
	Data    []byte
}

// DeliveryKind says what a [Delivery] is.
type DeliveryKind uint8

// Kinds of deliveries.
const (
	DeliverMessage DeliveryKind = iota
	DeliverStatus               // Status ends a fetch at Subject
	DeliverReply                // Reply, behind the deliveries before it
)

// Delivery is something to be published in order: a message that has been leased,
// the status that ends a fetch, or an answer.
type Delivery struct {
	Kind       DeliveryKind
	Role       Role
	Subject    string
	Status     string   // DeliverStatus
	Reply      Reply    // DeliverReply
	Fresh      *Message // the message, if it may not be on disk yet; nil: read it
	Token      wire.Token
	ID         store.ID
	Key        string
	Deadline   int64             // Unix ns
	EnqueuedAt int64             // Unix ns
	ReadyAt    int64             // Unix ns: when it became ready
	At         int64             // Unix ns: when it was leased
	Blocked    []BlockedInterval // what held it since it was ready, the longest first; shared with the machine, which does not change it
}

// Refusal is an answer that says no, and is counted.
type Refusal struct {
	Role  Role
	Reply string
	Err   *wire.Error
}

// NoteKind says what a [Note] tells.
type NoteKind uint8

// Kinds of notes, with the fields that each has beside Side.
const (
	NoteJoined       NoteKind = iota // Consumer, MaxInFlight: a registration is new
	NoteLost                         // Consumer, Reason, InFlight: a consumer is not there any more
	NoteDeadLettered                 // ID, Key, Dead: a message is a dead letter now
	NoteKeyPaused                    // Key, Until: max_failures_per_key is exceeded; the machine has paused the key
	NoteGates                        // ID, Err: throttle keys of a message are left out
	NoteMoveFailed                   // ID, Seq, Err: a message cannot be dead-lettered and stays in the store
	NoteNoisy                        // Key, Began, Flows, InFlight: a flow is noisy, or no longer
	NoteStarved                      // Key, Began, Flows, Waited: a flow starves, or no longer
)

// Note is news, for events and the log.
type Note struct {
	Kind        NoteKind
	Role        Role
	Consumer    string
	MaxInFlight int
	InFlight    int
	Reason      string
	Key         string
	Until       int64 // Unix ns, Forever: until it is resumed
	ID          store.ID
	Seq         uint64
	Dead        *store.Dead
	Err         error
	Began       bool
	Flows       int   // how many do now
	Waited      int64 // ns since its first message became ready
}

// Picked is the answer to a Pick.
type Claimed struct {
	Messages []ClaimedMessage       // in the order in which they were named
	Left     map[MessageState]int64 // how many were not taken, by where they are
	Gone     int64                  // how many are not there any more
}

// Handled is the answer to a Purge, Remove, RunNow or Reserve.
type Handled struct {
	Done  int64        // messages that were removed, or made ready
	Next  uint64       // of a Purge: where to go on; 0: there is nothing more; of a Reserve: the first
	Found bool         // of the others: the message is there
	State MessageState // and was so
}

// Letter is a message that has been picked.
type ClaimedMessage struct {
	Index   int // which of those that were named
	Seq     uint64
	Size    int64
	Message store.Message // as far as the machine knows it: no headers, payload or gates
}
