package api

import "github.com/filaq/fila/wire"

// Bounds of a [LanesRequest].
const (
	DefaultLanes        = 20
	MaxLanes            = 200
	DefaultLaneForecast = 20
	MaxLaneForecast     = 100
)

// LanesRequest asks for the fairness keys of a queue with the largest backlogs, and for the
// next deliveries.
type LanesRequest struct {
	Limit int `json:"limit"` // how many fairness keys, 0 to 200, default 20
	Next  int `json:"next"`  // how many deliveries, 0 to 100, default 20
}

// Bounds implements [wire.Bounded].
func (r *LanesRequest) Bounds() []wire.Bound {
	return []wire.Bound{{Field: "limit", Value: int64(r.Limit), Max: MaxLanes}, {Field: "next", Value: int64(r.Next), Max: MaxLaneForecast}}
}

// LanesReply answers a [LanesRequest].
type LanesReply struct {
	Queue     string `json:"queue"`
	At        string `json:"at"` // RFC 3339
	Quantum   int64  `json:"quantum"`
	Paused    string `json:"paused,omitempty"` // RFC 3339, or "until resumed"
	Consumers int    `json:"consumers"`
	Credit    int    `json:"credit"` // how many more messages the consumers take
	Ready     int64  `json:"ready"`
	Blocked   int64  `json:"blocked"`
	InFlight  int64  `json:"in_flight"`
	Ended     int64  `json:"ended"` // deliveries that have ended since the process started
	Keys      int    `json:"keys"`  // fairness keys with ready or blocked messages
	WaitCounts

	// Lanes begins with the keys with the largest backlogs, followed by keys without one of
	// which the most deliveries ended lately.
	Lanes []Lane `json:"lanes"`
	// Next are the deliveries that follow, in their order, if consumers take everything,
	// nothing else is enqueued or becomes due, and no message ends but where Gate says so.
	Next []NextDelivery `json:"next"`
	// LeftOut is how many fairness keys Next leaves out: it considers the 10,000 of the schedule
	// whose turns come first, and 1,000 at each gate.
	LeftOut int `json:"left_out,omitempty"`
}

// Lane is a fairness key of a queue.
type Lane struct {
	Key       string        `json:"key"`
	Weight    float64       `json:"weight"`
	Share     float64       `json:"share"`   // of the weights of all keys with ready or blocked messages that are not paused, 0 to 1; 0 of a paused key
	Deficit   float64       `json:"deficit"` // cost that it may be delivered before the turn of the next key; negative: that it has had too much
	Ready     int64         `json:"ready"`
	Blocked   int64         `json:"blocked"`
	InFlight  int64         `json:"in_flight"`
	OldestMs  int64         `json:"oldest_ms"`            // longest time for which one of its first messages has been ready or blocked
	BlockedBy *BlockedCount `json:"blocked_by,omitempty"` // the gate that blocks most of its messages

	Ended int64 `json:"ended"` // deliveries that have ended; begins again when none has ended for a minute
	WaitCounts
}

// WaitCounts counts the deliveries that ended in the last one to two minutes by how long
// their message waited before them, in the ranges of [QueueDetail].
type WaitCounts struct {
	Waits     []int64 `json:"waits"`
	MaxWaitMs float64 `json:"max_wait_ms"` // the longest of these waits
}

// All is the number of deliveries.
func (w *WaitCounts) All() (n int64) {
	for _, k := range w.Waits {
		n += k
	}
	return n
}

// NextDelivery is a delivery that is expected.
type NextDelivery struct {
	Key  string  `json:"key"`
	ID   string  `json:"id"`
	Cost float64 `json:"cost"`
	// Gate has to admit it first: at AdmitsAt, or, if that is absent, when a message in flight ends.
	// Without a gate a consumer with credit is enough.
	Gate     string `json:"gate,omitempty"`
	Kind     string `json:"kind,omitempty"`      // of the gate, as in [GateState]
	AdmitsAt string `json:"admits_at,omitempty"` // RFC 3339
}
