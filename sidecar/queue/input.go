package queue

import (
	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// Role names one of the two queues of a machine.
type Role uint8

// The roles.
const (
	Main  Role = iota // the queue itself
	Dead              // its dead letter queue
	Roles             // the number of roles
)

// Kind says what an [Input] is.
type Kind uint8

// Kinds of inputs, with the fields that each has besides Role.
const (
	Enqueue       Kind = iota // Message: an accepted message, Main only
	Duplicate                 // ID, Confirm: a message whose dedupe id is known
	Acked                     // Token, Ack, Confirm: what came on a reply subject
	Undelivered               // Token: a delivery that could not be published
	Committed                 // Commit, Err: the outcome of a commit
	Judged                    // Verdict: the answer to a Failure
	GateOpened                // Gate: a throttle key may admit more
	CircuitOpened             // Circuit: a circuit may admit more
	Changed                   // Change: from operators, consumers, jobs and settings
)

// Input is one event for a machine.
type Input struct {
	Kind    Kind
	Role    Role
	Message *Message
	ID      store.ID
	Confirm Confirmation
	Token   wire.Token
	Ack     wire.Ack
	Commit  *Commit
	Err     error
	Verdict *Verdict
	Gate    *throttle.Gate
	Circuit gates.Circuit
	Change  Change
}

// Message is a message that has been accepted. It is counted in the depth and bytes of
// its queue and in the uncommitted bytes of its shard. The machine owns it from then on,
// except HeaderMap, which is for the publisher.
type Message struct {
	store.Message
	HeaderMap   map[string][]string // its headers, for deliveries from memory; nil: not decoded yet
	Size        int64               // bytes of headers and payload
	DedupeID    string              // empty: none to remember
	DedupeUntil int64               // Unix ns
	Confirm     Confirmation
	Counted     KeyCounts // where it was counted by its fairness key; nil: nowhere
	Watched     bool      // Effects.Ended reports its attempts
}

// Failure is a failed attempt that is to be judged, by error rules and on_failure. Its
// credit and throttle keys have been returned; its circuit waits for the verdict.
type Failure struct {
	Role     Role
	Seq      uint64
	ID       store.ID
	Attempts uint32   // ended ones, this one included
	Key      string   // fairness key
	Route    string   // by which the message went; empty: it had no choice
	Fresh    *Message // if it may not be on disk yet
	Error    string
	Code     string
	HasDelay bool         // the nack has a Delay
	Delay    int64        // ns
	Confirm  Confirmation // of the outcome
}

func (f *Failure) failedCall() gates.FailedCall {
	return gates.FailedCall{ID: f.ID, Attempt: f.Attempts, Code: f.Code, Error: f.Error}
}

// Verdict says what becomes of a failed attempt.
type Verdict struct {
	Failure
	Outcome breaker.Outcome // for the circuit: Failure, or Neutral if the message itself is at fault
	// Overload says that the destination has too much to do: limits that learn are cut.
	Overload bool
	Reason   string // one of wire.Reason...: it becomes a dead letter; empty: it is retried
	Delay    int64  // ns until the retry

	DecidedBy string // one of wire.DecidedBy...
	Rule      string // error rule that matched; empty: none
}

// ByHook reports whether on_failure has decided: then the default of max_deliveries does
// not apply.
func (v *Verdict) ByHook() bool { return v.DecidedBy == wire.DecidedByHook }

// DeliveryForm is how a consumer wants its deliveries.
type DeliveryForm = store.DeliveryForm

// Change is a rare input. Its implementations are in this file.
type Change interface{ apply(s *side) }

// Register makes or renews the registration of a consumer. Answer confirms it
// when it is on disk.
type Register struct {
	Consumer    string
	Subject     string // where its deliveries go
	MaxInFlight int
	TTL         int64 // ns; 0: it does not expire
	Form        DeliveryForm
	Confirm     Confirmation
	Answer      []byte
}

// Leave ends a registration. Its leases continue. Left or NotThere confirms it.
type Leave struct {
	Consumer       string
	Confirm        Confirmation
	Left, NotThere []byte
}

// Fetch requests up to Batch messages at Inbox.
type Fetch struct {
	Inbox   string
	Batch   int
	Expires int64  // ns; 0: only messages that can be delivered at once
	Owner   string // the consumer that fetches; empty: not known
	Form    DeliveryForm
	Limits  FetchLimits
}

// FetchLimits bound how many fetches wait; 0: any number. A fetch beyond them is refused.
type FetchLimits struct {
	Most        int64
	MostOfOwner int64 // fetches with the same Owner, if that is known
}

// PauseQueue pauses the role until a time (Unix ns), [Forever] until it is resumed; 0
// resumes it.
type PauseQueue struct{ Until int64 }

// PauseKey is PauseQueue for a fairness key.
type PauseKey struct {
	Key   string
	Until int64
}

// Weigh overrides the weight of a fairness key (thousandths), backlog included; 0 returns
// it to the producers.
type Weigh struct {
	Key    string
	Weight uint32
}

// Settings replace the settings of both roles.
type Settings struct {
	wire.QueueSettings
	// Judge says that failures of Main are judged outside: there are rules, a retry policy,
	// on_failure, or a wait before retries. Otherwise they are retried at once, or after
	// the delay of the nack.
	Judge bool
	// PerKey counts the unfinished messages of Main by fairness key; nil: not wanted. The
	// messages that are there are added to a new one.
	PerKey KeyCounts
}

// Dispatch switches the deliveries of both roles on, or off while acks or deliveries could
// not be received.
type Dispatch struct{ On bool }

// MessageRef is a message by its sequence and id. A message with that sequence and
// another id is another message.
type MessageRef struct {
	Seq uint64
	ID  store.ID
}

// Claim takes the named messages that wait out of their places; if Delayed is set, only
// the delayed ones. Effects.Claimed has them. The claimer returns each of
// them in a Complete.
type Claim struct {
	Messages []MessageRef
	Delayed  bool
}

// Complete says what becomes of claimed messages, in one commit with Put, Delete and
// Ticket. It has one of Move, Finish and Ready, since a commit with moves can be refused.
// Parked messages stay claimed, also after a restart, until another Complete has them in
// Transferred or Unpark.
type Complete struct {
	Move        []Moved
	To          string   // name of the queue to which Move moves messages, if it is another machine
	Finish      []uint64 // are removed
	Ready       []uint64 // no longer delayed
	Unclaim     []uint64 // wait again, each at its place
	Park        []uint64 // another queue may store them before this one learns of it
	Transferred []uint64 // parked messages that are elsewhere: they are removed
	Unpark      []uint64 // parked messages that wait again, each at its place
	Put         []store.Entry
	Delete      []string // keys of entries; written only together with something else
	Ticket      any      // handed back in Commit.Ticket; there is no commit if there is nothing to write
}

// Moved is a message that goes to the end of a role of this machine, or to another
// machine of the same store.
type Moved struct {
	From    uint64
	Message store.Message // Queue is the target; Seq is set here if the target is in this machine, else it was reserved
	Edited  bool          // Headers and Payload replace the stored ones, and History is its history
	History [][]byte
	Size    int64
	Counted KeyCounts
}

// Reserve takes sequences out of use: a Complete of another machine gives them to
// messages. Effects.Handled has the first one.
type Reserve struct{ Count int }

// Accept adds messages whose move from another machine is on disk, under reserved
// sequences. They have been counted in depth and bytes.
type Accept struct{ Messages []Moved }

// WriteEntries writes entries of the owner in one commit of its own with Ticket, behind
// all changes so far. Message, if there is one, is enqueued by it: it is on disk with the
// entries, or not at all. Answer confirms it.
type WriteEntries struct {
	Message *Message
	Put     []store.Entry
	Delete  []string
	Confirm Confirmation
	Answer  []byte
	Ticket  any // handed back in Commit.Ticket
}

// EnqueueAll enqueues messages in one commit of their own: all are on disk, or none.
type EnqueueAll struct{ Messages []*Message }

// Purge removes waiting messages (ready, blocked, ordered and delayed ones) with
// sequences from From to Last, the oldest first. It visits Max messages at most. Leased,
// judged and moving messages stay. The removals are one commit with Ticket. Effects.Handled
// answers, as it does for Remove and RunNow.
type Purge struct {
	From, Last uint64
	Max        int
	Ticket     any // handed back in Commit.Ticket; there is no commit if there is nothing to write
}

// Remove removes the message of that sequence and id, if it waits.
type Remove struct {
	Seq    uint64
	ID     store.ID
	Ticket any // as in Purge
}

// RunNow ends the delay of the message of that sequence and id. Other reasons to wait
// still apply.
type RunNow struct {
	Seq    uint64
	ID     store.ID
	Ticket any // as in Purge
}
