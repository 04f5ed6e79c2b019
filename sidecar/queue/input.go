package queue

import (
	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// Side is one of the two queues of a machine.
type Role uint8

// The sides.
const (
	Main  Role = iota // the queue itself
	Dead              // its dead letter queue
	Roles             // the number of sides
)

// Kind says what an [Input] is.
type Kind uint8

// Kinds of inputs, with the fields that each has beside Side.
const (
	Enqueue       Kind = iota // Message: an accepted message, Main only
	Duplicate                 // ID, Reply: a message whose dedupe id is known
	Acked                     // Token, Ack, Reply: what came on a reply subject
	Undelivered               // Token: a delivery that could not be published
	Committed                 // Commit, Err: the outcome of a commit
	Judged                    // Verdict: the answer to a Failure
	GateOpened                // Gate: a throttle key may admit more
	CircuitOpened             // Circuit: a circuit may admit more
	Changed                   // Change: what operators, consumers and settings do
)

// Input is one thing that a machine is told.
type Input struct {
	Kind    Kind
	Role    Role
	Message *Message
	ID      store.ID
	Reply   string // where an answer is expected; empty: nowhere
	Token   wire.Token
	Ack     wire.Ack
	Commit  *Commit
	Err     error
	Verdict *Verdict
	Gate    *throttle.Gate
	Circuit Circuit
	Change  Change
}

// Message is a message that has been accepted, and is counted in the depth and
// bytes of its queue and in the uncommitted bytes of its shard. It is the
// machine's from then on, but for Headers, which are for whoever publishes it.
type Message struct {
	store.Message
	HeaderMap   map[string][]string // its headers, for deliveries from memory
	Size        int64               // of headers and payload, in bytes
	DedupeID    string              // empty: none to be remembered
	DedupeUntil int64               // Unix ns
	Reply       string              // who waits for the confirmation; empty: nobody
	Counted     KeyCounts           // where its fairness key was counted; nil: nowhere
	Watched     bool                // Effects.Ended tells of its attempts
}

// Failure is an ended attempt that has to be judged: by error rules and
// on_failure. What it held of credit and throttle keys has been given back; its
// circuit waits for the verdict.
type Failure struct {
	Role     Role
	Seq      uint64
	ID       store.ID
	Attempts uint32   // ended ones, this one included
	Key      string   // fairness key
	Fresh    *Message // if it may not be on disk yet
	Error    string
	Code     string
	HasDelay bool   // the nack named Delay
	Delay    int64  // ns
	Reply    string // who waits for the outcome; empty: nobody
}

// Verdict says what becomes of a failed attempt.
type Verdict struct {
	Failure
	Outcome breaker.Outcome // for the circuit: Failure, or Neutral if the message itself is at fault
	Reason  string          // one of wire.Reason...: it is a dead letter; empty: it is retried
	Delay   int64           // ns until the retry

	DecidedBy string // one of wire.DecidedBy...
	Rule      string // error rule that the failure fits; empty: none
}

// ByHook reports whether on_failure has decided: then the default of max_deliveries does
// not count.
func (v *Verdict) ByHook() bool { return v.DecidedBy == wire.DecidedByHook }

// Change is a rare input. The types that implement it are in this file.
type Change interface{ apply(s *side) }

// Register makes or renews the registration of a consumer. Answer is published to
// Reply when it is on disk.
type Register struct {
	Consumer    string
	Subject     string // where its deliveries go
	MaxInFlight int
	TTL         int64 // ns; 0: it does not end by itself
	Reply       string
	Answer      []byte
}

// Leave ends a registration. Its leases run on. Left or NotThere is published to
// Reply.
type Leave struct {
	Consumer       string
	Reply          string
	Left, NotThere []byte
}

// Fetch asks for up to Batch messages to Inbox.
type Fetch struct {
	Inbox   string
	Batch   int
	Expires int64  // ns; 0: only what can be had at once
	Owner   string // the consumer that fetches; "": it has not said
	Limits  FetchLimits
}

// FetchLimits bound how many fetches wait at a side; 0: any number. One more is refused.
type FetchLimits struct {
	Most        int64
	MostOfOwner int64 // those with the same Owner, which is not ""
}

// PauseQueue holds the whole side until a time (Unix ns), [Forever] until it is
// resumed; 0 resumes it.
type PauseQueue struct{ Until int64 }

// PauseKey holds a fairness key as PauseQueue does the side.
type PauseKey struct {
	Key   string
	Until int64
}

// Weigh overrides the weight of a fairness key (thousandths), backlog included; 0
// gives it back to the producers.
type Weigh struct {
	Key    string
	Weight uint32
}

// Settings replace those of both sides.
type Settings struct {
	wire.QueueSettings
	// Judge says that failures of Main are to be judged outside: there are rules, a
	// retry policy or on_failure, or a wait before retries. Otherwise they are retried
	// at once, or after the delay of the nack.
	Judge bool
	// PerKey counts the unfinished messages of Main by fairness key; nil: nobody
	// wants to know. One that is new gets what is there added.
	PerKey KeyCounts
}

// Dispatch lets deliveries go out, or keeps them back while nobody could hear the
// acks or receive them. It concerns both sides.
type Dispatch struct{ On bool }

// Named is a message by its sequence and id. One of that sequence with another id is
// another message.
type MessageRef struct {
	Seq uint64
	ID  store.ID
}

// Pick takes those of the messages out of their places that wait, and if Delayed is set
// those alone that wait for their time. They come in Effects.Picked, and each must come
// back in a Settle.
type Claim struct {
	Messages []MessageRef
	Delayed  bool
}

// Settle says what becomes of messages that were picked, in one commit with that Ticket
// and with Put, which is the owner's. It has one of Go, Finish and Ready: a commit with
// moves can be refused. Those that are held are still picked afterwards, also after a
// restart: each must come back in Sent or Release of another Settle.
type Complete struct {
	Move        []Moved
	To          string   // where Go moves messages if that is another machine: the name of the queue
	Finish      []uint64 // are removed
	Ready       []uint64 // wait for their time no longer
	Unclaim     []uint64 // wait again, each at its place
	Park        []uint64 // may be on disk elsewhere before it is known here
	Transferred []uint64 // of those that were held: they are elsewhere
	Unpark      []uint64 // of those that were held: they wait again, each at its place
	Put         []store.Entry
	Delete      []string // keys of entries; there is something else to write then
	Ticket      any      // handed back in Commit.Ticket; there is no commit if there is nothing to write
}

// Moved is a message that goes to the end of a side of this machine, or to another one
// of the same store.
type Moved struct {
	From    uint64
	Message store.Message // Queue says where it goes; Seq is filled in here if that is this machine's, and else one that was reserved
	Edited  bool          // Headers and Payload replace those that are stored, and Past is its history
	History [][]byte
	Size    int64
	Counted KeyCounts
}

// Reserve takes so many sequences out of use: a Settle of another machine gives them to
// messages. Effects.Handled says which is the first.
type Reserve struct{ Count int }

// Arrive takes messages whose move from another machine is on disk, under sequences that
// were reserved. They have been counted in depth and bytes.
type Accept struct{ Messages []Moved }

// Keep writes what the owner keeps beside messages, in one commit of its own with that
// Ticket, behind all changes so far. Message, if there is one, is enqueued by it: it is on
// disk with that, or not at all. Answer is published to Reply when it is.
type WriteEntries struct {
	Message *Message
	Put     []store.Entry
	Delete  []string
	Reply   string
	Answer  []byte
	Ticket  any // handed back in Commit.Ticket
}

// Purge removes messages that wait, ready, blocked, ordered and delayed ones, with
// sequences from From to Last, the oldest first. It looks at Max messages at most;
// those that are leased, judged or on their way stay. What it removes is one commit
// with that Ticket. Effects.Handled is the answer, as it is to Remove and RunNow.
type Purge struct {
	From, Last uint64
	Max        int
	Ticket     any // handed back in Commit.Ticket; there is no commit if there is nothing to write
}

// Remove removes the message of that sequence and id, if it waits.
type Remove struct {
	Seq    uint64
	ID     store.ID
	Ticket any // as that of Purge
}

// RunNow ends the delay of the message of that sequence and id. What else it waits
// for still holds.
type RunNow struct {
	Seq    uint64
	ID     store.ID
	Ticket any // as that of Purge
}
