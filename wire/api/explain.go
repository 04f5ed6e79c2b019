package api

import (
	"cmp"

	"github.com/filaq/fila/wire"
)

// Subjects of an explanation.
const (
	ExplainKindMessage = "message"
	ExplainKindKey     = "key"
	ExplainKindQueue   = "queue"
)

// ExplainRequest asks why something waits.
type ExplainRequest struct {
	Kind  string `json:"kind"`            // message, key or queue
	Queue string `json:"queue,omitempty"` // required for a key or a queue; empty: a message is searched in all queues
	ID    string `json:"id,omitempty"`    // of a message
	Key   string `json:"key,omitempty"`   // fairness key
}

// States of a message in an explanation.
const (
	StateDelayed = "delayed" // its time has not come
	StateReady   = "ready"   // waits for a consumer, or for its turn
	StateBlocked = "blocked" // a pause, a gate or the order of its key blocks it
	StateLeased  = "leased"
	StateDead    = "dead" // in the dead letter queue
	StateUnknown = "unknown"
)

// oldStates are the old names of states, which filters accept for one version.
var oldStates = map[string]string{"pending": StateReady, "parked": StateBlocked}

// CurrentState returns the name of the state of a filter, which may be an old name.
func CurrentState(state string) string { return cmp.Or(oldStates[state], state) }

// GateState is a gate of a message and its state.
type GateState struct {
	Kind     string `json:"kind"`                // rate, window, concurrency, reserved, circuit, paused, order, turn, or open while it admits
	Gate     string `json:"gate"`                // "throttle:<key>", "circuit:<key>", "queue:<name>", "key:<name>"
	Admits   bool   `json:"admits"`              // it would admit the message now
	AdmitsAt string `json:"admits_at,omitempty"` // RFC 3339: when it may admit it, if a time is known
	Limits   string `json:"limits,omitempty"`    // in words, such as "10/s, burst 20"
	SetBy    string `json:"set_by,omitempty"`    // file, operator, override until ..., prefix tenant:*, file, default, ...
	InUse    string `json:"in_use,omitempty"`    // in words: "0.2 tokens", "5 in flight"
	// DeadLetters says that the budget has too little left, and that messages do not wait for it, but become
	// dead letters when their turn comes (on_empty).
	DeadLetters bool `json:"dead_letters,omitempty"`

	// Open and OpensAt are the old names of Admits and AdmitsAt, for one version.
	Open    bool   `json:"open"`
	OpensAt string `json:"opens_at,omitempty"`
}

// WithOldNames returns g with its fields also under their old names.
func (g GateState) WithOldNames() GateState {
	g.Open, g.OpensAt = g.Admits, g.AdmitsAt
	return g
}

// ExplainMessage says where a message is and what it waits for.
type ExplainMessage struct {
	ID           string       `json:"id"`
	State        string       `json:"state"`
	Queue        string       `json:"queue,omitempty"`
	Key          string       `json:"key,omitempty"`
	Attempt      uint32       `json:"attempt,omitempty"` // the next one, or the present one while it is leased
	EnqueuedAt   string       `json:"enqueued_at,omitempty"`
	ReadyAt      string       `json:"ready_at,omitempty"` // when a delay ends
	Consumer     string       `json:"consumer,omitempty"`
	LeaseUntil   string       `json:"lease_until,omitempty"`
	Reason       string       `json:"reason"`           // one sentence
	Gates        []GateState  `json:"gates,omitempty"`  // with routes the gates of all of them
	Routes       []RouteState `json:"routes,omitempty"` // of a message with a choice, in its order
	Route        string       `json:"route,omitempty"`  // by which it was delivered, if it is leased and had a choice
	BlockedBy    *GateState   `json:"blocked_by,omitempty"`
	BlockedSince string       `json:"blocked_since,omitempty"`
	Ahead        int64        `json:"ahead"`              // messages of its subqueue or flow that go first
	Estimate     string       `json:"estimate,omitempty"` // RFC 3339: when it may go, if nothing changes

	History []AttemptInfo `json:"history,omitempty"` // oldest first
}

// RouteState is a route of a message and whether its gates admit the message.
type RouteState struct {
	Name      string     `json:"name"`
	Weight    float64    `json:"weight,omitempty"` // none: the first route that admits the message counts
	Gates     []string   `json:"gates"`            // as in GateState
	Admits    bool       `json:"admits"`
	BlockedBy *GateState `json:"blocked_by,omitempty"` // the gate of the route to wait for
}

// ExplainKey describes the flow of a fairness key of a queue.
type ExplainKey struct {
	Queue     string         `json:"queue"`
	Key       string         `json:"key"`
	Pending   int64          `json:"pending"` // ready and blocked
	Ready     int64          `json:"ready"`
	Blocked   int64          `json:"blocked"`
	Parked    int64          `json:"parked"` // the old name of blocked, for one version
	InFlight  int64          `json:"in_flight"`
	Delayed   int64          `json:"delayed"`
	Moving    int64          `json:"moving,omitempty"` // as in QueueSummary
	Weight    float64        `json:"weight"`
	WeightBy  string         `json:"weight_by,omitempty"` // operator, hook, header, default or message
	Deficit   float64        `json:"deficit"`
	Active    bool           `json:"active"`           // it is scheduled now, because it has ready messages
	Share     float64        `json:"share"`            // of the weights of active flows, as if it were active
	Paused    string         `json:"paused,omitempty"` // RFC 3339, or "until resumed"
	BlockedBy []BlockedCount `json:"blocked_by"`
	Reason    string         `json:"reason"` // one sentence
}

// ExplainQueue says what a queue waits for.
type ExplainQueue struct {
	Queue     string         `json:"queue"`
	Pending   int64          `json:"pending"` // ready and blocked
	Ready     int64          `json:"ready"`   // they wait for their turn or for consumers
	Blocked   int64          `json:"blocked"`
	Parked    int64          `json:"parked"` // the old name of blocked, for one version
	Delayed   int64          `json:"delayed"`
	InFlight  int64          `json:"in_flight"`
	Moving    int64          `json:"moving,omitempty"` // as in QueueSummary
	Consumers int            `json:"consumers"`
	Credit    int            `json:"credit"`           // how many more messages the consumers take
	Paused    string         `json:"paused,omitempty"` // RFC 3339, or "until resumed"
	BlockedBy []BlockedCount `json:"blocked_by"`       // most messages first
	Reason    string         `json:"reason"`           // one sentence
}

// BlockedCount is a gate and how much it blocks.
type BlockedCount struct {
	GateState
	Messages int64 `json:"messages"`
	Flows    int   `json:"flows"`
}

// Bounds implements [wire.Bounded].
func (r *ExplainRequest) Bounds() []wire.Bound {
	return []wire.Bound{{Field: "kind", Text: r.Kind, OneOf: []string{ExplainKindMessage, ExplainKindKey, ExplainKindQueue}}}
}

func (r *ExplainRequest) check() *wire.Error {
	message, named := r.Kind == ExplainKindMessage, r.Key
	r.Key = wire.NamedKey(named)
	if err := wire.CheckBounds(r); err != nil {
		return err
	}
	switch {
	case message && r.ID == "":
		return wire.BadField("id", "", "the id of the message is required")
	case message && r.Key != "":
		return wire.BadField("key", wire.Quote(r.Key), "kind message takes only an id")
	case r.Kind == ExplainKindKey && wire.CheckNamedKey(named) != nil:
		return wire.BadKey("key", named)
	case r.Kind == ExplainKindQueue && r.Key != "":
		return wire.BadField("key", wire.Quote(r.Key), "kind queue takes no key; use kind key")
	case !message && r.ID != "":
		return wire.BadField("id", wire.Quote(r.ID), "only kind message takes an id")
	case message && r.Queue == "":
		return nil // all queues are searched
	}
	if err := wire.CheckQueueName(r.Queue); err != nil {
		return wire.BadQueueName(err)
	}
	return nil
}
