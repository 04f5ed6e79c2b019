package queue

import (
	"errors"

	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/sidecar/queue/history"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// Effects is what has to happen after a step, in this order: Commits go to the store,
// Counters are added up, Publish goes out, and then the rest in any order. It belongs to
// the caller, who resets it between steps; the machine keeps nothing of it.
type Effects struct {
	gates.Effects           // owners to wake, circuits to announce
	Commits       []*Commit // for the store, in order
	Publish       []Delivery
	Judge         []Failure // each comes back as a Verdict
	Refuse        []Refusal
	Notes         []Note
	Ended         []Ended // attempts of watched messages
	Counters      [Roles]Counters
	// Written is how many bytes of messages no longer wait for the disk, because they
	// will never be written.
	Written int64
	Claimed *Claimed // answer to a Claim
	Handled *Handled // answer to a Purge, Remove, RunNow or Reserve
}

// Reset empties e for the next step and keeps its memory.
func (e *Effects) Reset() {
	const keep = 8192
	*e = Effects{
		Effects: gates.Effects{Wake: emptied(e.Wake, keep), Circuits: emptied(e.Circuits, keep)},
		Commits: emptied(e.Commits, keep), Publish: emptied(e.Publish, keep), Judge: emptied(e.Judge, keep),
		Refuse: emptied(e.Refuse, keep), Notes: emptied(e.Notes, keep), Ended: emptied(e.Ended, keep),
	}
}

func emptied[T any](items []T, keep int) []T {
	if cap(items) > keep {
		return nil
	}
	clear(items)
	return items[:0]
}

// Counters is what a step adds to the figures of a role.
type Counters struct {
	Delivered, Acked, Nacked, Expired int64
	TTLExpired                        int64
	Redriven, TakenBack, Removed      int64
	Failed                            int64                   // failures that are not judged
	Messages, Bytes                   int64                   // change of depth and of bytes
	Blocked                           [gates.BlockKinds]int64 // subqueues that began to wait, by kind
}

// Ended is an attempt that a consumer received and that has ended.
type Ended struct {
	Role    Role
	Outcome inspect.Outcome
	ID      store.ID
	Took    int64 // ns since the delivery
}

// Commit is a batch of changes, with the answers that wait for it. The owner sets Done and
// hands it to the store. When it is done the owner publishes the answers and the notes, or
// refuses them all, and returns the commit as an input of kind Committed.
type Commit struct {
	store.Batch
	Confirm []Confirmation // Confirm[i]: who waits for Add[i]
	Replies []Reply
	Notes   []Note // to publish if it succeeds
	Bytes   int64  // of Add: they no longer wait for the disk when it is done
	Ticket  any    // of a Complete, WriteEntries, Purge, Remove or RunNow
	pending
}

// CommitError is the answer to a request whose commit has failed, nil if it has not. The
// changes of a failed commit may be on disk.
func CommitError(err error) *wire.Error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrClosed):
		return wire.Draining()
	}
	return wire.OutcomeUnknown()
}

// Confirmation says who waits until a request is on disk; the zero value: nobody does. The
// machine only hands it back, in a commit, a reply or a refusal.
type Confirmation struct {
	Subject string // of the reply
	Batch   any    // what collects the answers to a batch; nil: the request is no part of one
	Index   int    // in the batch
}

// Awaited reports whether a client waits for the confirmation.
func (c Confirmation) Awaited() bool { return c.Subject != "" || c.Batch != nil }

// ReplyKind says what a [Reply] says.
type ReplyKind uint8

// Kinds of replies.
const (
	ReplyEnqueued  ReplyKind = iota // the confirmation of message ID
	ReplyDuplicate                  // message ID was enqueued before
	ReplyDone                       // an empty one: a confirmed ack or nack
	ReplyData                       // Data
)

// Reply is the answer to a request.
type Reply struct {
	Kind ReplyKind
	Confirmation
	ID   store.ID
	Data []byte
}

// DeliveryKind says what a [Delivery] is.
type DeliveryKind uint8

// Kinds of deliveries.
const (
	DeliverMessage DeliveryKind = iota
	DeliverStatus               // Status ends a fetch at Subject
	DeliverReply                // Reply, behind the deliveries before it
)

// Delivery is something to publish in order: a leased message, the status that ends a
// fetch, or an answer.
type Delivery struct {
	Kind       DeliveryKind
	Role       Role
	Subject    string
	Status     string   // DeliverStatus
	Reply      Reply    // DeliverReply
	Fresh      *Message // the message, if it may not be on disk yet; nil: read it
	Token      wire.Token
	Form       DeliveryForm
	ID         store.ID
	Key        string
	Route      string                    // by which it goes; empty: it had no choice
	Deadline   int64                     // Unix ns
	EnqueuedAt int64                     // Unix ns
	ReadyAt    int64                     // Unix ns: when it became ready
	At         int64                     // Unix ns: when it was leased
	Blocked    []history.BlockedInterval // what blocked it since, the longest first; shared with the machine, read-only
}

// Refusal is an error reply, which is counted.
type Refusal struct {
	Role    Role
	Confirm Confirmation
	Err     *wire.Error
}

// NoteKind says what a [Note] reports.
type NoteKind uint8

// Kinds of notes, with the fields that each has besides Role.
const (
	NoteJoined       NoteKind = iota // Consumer, MaxInFlight: a registration is new
	NoteLeft                         // Consumer, InFlight: a consumer has left
	NoteLost                         // Consumer, Reason, InFlight: a consumer is no longer there
	NoteDeadLettered                 // ID, Key, Dead: a message has become a dead letter
	NoteKeyPaused                    // Key, Until: max_failures_per_key is exceeded; the machine has paused the key
	NoteGates                        // ID, Err: throttle keys of a message are ignored
	NoteMoveFailed                   // ID, Seq, Err: a message cannot be dead-lettered and stays in the store
	NoteNoisy                        // Key, Began, Flows, InFlight: a flow is noisy, or no longer
	NoteStarved                      // Key, Began, Flows, Waited: a flow starves, or no longer
)

// Note is news for events and the log.
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
	Flows       int   // how many flows are noisy, or starve, now
	Waited      int64 // ns since its first message became ready
}

// Claimed is the answer to a Claim.
type Claimed struct {
	Messages []ClaimedMessage               // in the order of Claim.Messages
	Left     map[inspect.MessageState]int64 // how many were not claimed, by where they are
	Gone     int64                          // how many do not exist any more
}

// ClaimedMessage is a message that has been claimed.
type ClaimedMessage struct {
	Index   int // in Claim.Messages
	Seq     uint64
	Size    int64
	Message store.Message // as far as the machine knows it: without headers, payload and gates
}

// Handled is the answer to a Purge, Remove, RunNow or Reserve.
type Handled struct {
	Done  int64                // messages that were removed, or made ready
	Next  uint64               // Purge: where to go on, 0 at the end; Reserve: the first sequence
	Found bool                 // Remove, RunNow: the message exists
	State inspect.MessageState // and was in this state
}
