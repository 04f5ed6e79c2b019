package queue

import (
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
)

// BlockKind is what holds a message back, for metrics and explanations.
type BlockKind uint8

// The kinds, in the order in which metrics list them.
const (
	ByNothing BlockKind = iota
	ByRate
	ByWindow
	ByInFlight
	ByReserved
	ByTurn
	ByCircuit
	ByPause
	ByOrder
	BlockKinds // the number of kinds
)

var blockNames = [BlockKinds]string{
	"open", "rate", "window", "concurrency", "reserved", "turn", "circuit", "paused", "order",
}

func (k BlockKind) String() string { return blockNames[k] }

// BlockOf is the kind of what a throttle key says.
func BlockOf(k throttle.Kind) BlockKind {
	switch k {
	case throttle.ByRate:
		return ByRate
	case throttle.ByWindow:
		return ByWindow
	case throttle.ByInFlight:
		return ByInFlight
	case throttle.ByReserved:
		return ByReserved
	case throttle.ByTurn:
		return ByTurn
	case throttle.ByPause:
		return ByPause
	}
	return ByNothing
}

// Place is where messages wait for a gate: at a throttle key, at a circuit, for the
// end of a pause of their key, or, if it is zero, at none of them.
type Place struct {
	Throttle *throttle.Gate
	Circuit  Circuit
	Paused   bool  // of a key
	Until    int64 // of that pause
}

// MessageState says where a message of a side is, for people.
type MessageState uint8

// The states.
const (
	StateDelayed MessageState = iota
	StatePending
	StateBlocked // by a gate
	StateOrdered // its predecessors come first
	StateLeased
	StateFailing // its last attempt is being judged
	StateMoving  // it is on its way to the other side
)

// MessageView is what a machine knows of a message.
type MessageView struct {
	Seq        uint64
	ID         store.ID
	Key        string // fairness key
	State      MessageState
	Attempt    uint32
	Cost       uint32 // thousandths
	EnqueuedAt int64  // Unix ns, as all times here
	ReadyAt    int64
	ExpiresAt  int64  // 0: never
	Consumer   string // StateLeased
	LeaseUntil int64

	BlockedBy    BlockKind
	At           Place
	BlockedSince int64   // 0: not known
	Ahead        int64   // messages in front of it at the same place, as far as they are counted
	First        bool    // none is
	Share        float64 // of its flow among those that wait at the same place; 0: not known
	Throttles    []*throttle.Gate
	Circuit      Circuit

	QueuePaused int64 // until when; 0: it is not
	KeyPaused   int64
	Credit      int // how many more messages the consumers take
}

// Moment is the figures of a side at one moment.
type Moment struct {
	Pending   int64 // waiting for a consumer or a gate
	Blocked   int64 // those of them that a gate or their order holds back
	Delayed   int64 // waiting for their time, or for a verdict
	InFlight  int64
	OldestAge int64 // ns
	Consumers int   // registrations and fetches
	Flows     int   // fairness keys with something in the schedule
	BlockedBy [BlockKinds]int64
}

// BlockedView is a place with what waits there.
type BlockedView struct {
	At       Place
	By       BlockKind
	Key      string // of a pause or of an order of one key
	Messages int64
	Flows    int
}

// StateView is what a side waits for.
type StateView struct {
	Moment
	Credit  int
	Paused  int64         // until when; 0: it is not
	Blocked []BlockedView // the largest
}

// KeyView is how a fairness key of a side stands.
type KeyView struct {
	Known       bool // it has messages
	Overridden  bool // its weight
	Weight      int64
	Deficit     int64
	Pending     int64 // in the schedule
	Blocked     int64
	InFlight    int64
	Delayed     int64
	Share       float64 // of the deliveries
	Paused      int64
	QueuePaused int64
	Credit      int
	At          []BlockedView
}

// ConsumerView is a registration or a fetch.
type ConsumerView struct {
	Name        string
	MaxInFlight int
	InFlight    int
	Credit      int
	Fetch       bool
	ExpiresAt   int64 // 0: never
}

// FlowView is a flow of the schedule.
type FlowView struct {
	Key             string
	Weight, Deficit int64 // thousandths
	Pending         int64
	Share           float64
}
