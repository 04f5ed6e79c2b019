package wire

// VerbNoisy is the admin verb that says which flows of the queue at the end of its subject
// use much of what the consumers do, and which wait.
const VerbNoisy = "noisy"

// Bounds of a [NoisyRequest].
const (
	DefaultNoisyLimit = 20
	MaxNoisyLimit     = 1000
)

// NoisyRequest asks for the noisy flows of a queue, and up to Limit of those that wait.
type NoisyRequest struct {
	Limit int `json:"limit"` // 0 to 1000, default 20
}

// ParseNoisy decodes and checks a [NoisyRequest].
func ParseNoisy(body []byte) (NoisyRequest, *Error) {
	return parse(body, NoisyRequest{Limit: DefaultNoisyLimit}, func(r *NoisyRequest) *Error {
		return inRange("limit", r.Limit, 0, MaxNoisyLimit)
	})
}

// NoisyReply answers a [NoisyRequest]. A flow is noisy if it has more than a tenth of the
// messages in flight, and at least 30, or more than a tenth of the time for which consumers
// have worked in the last one to two minutes, for at least 30 messages, while a message of
// another flow is ready.
type NoisyReply struct {
	Queue            string        `json:"queue"`
	InFlight         int64         `json:"in_flight"` // of all flows
	BusyMs           int64         `json:"busy_ms"`   // for which consumers have worked lately, all flows
	Noisy            []NoisyFlow   `json:"noisy"`     // the one with most of busy_ms first
	QuietPending     int64         `json:"quiet_pending"`
	QuietOldestAgeMs int64         `json:"quiet_oldest_age_ms"` // the longest wait
	Waiting          []WaitingFlow `json:"waiting"`             // quiet flows, the longest wait first
	StarvedFlows     int           `json:"starved_flows"`       // for starve_after_ms not delivered from, though others were
	Starved          []WaitingFlow `json:"starved"`             // these, the longest wait first
}

// NoisyFlow is a flow that uses much of what the consumers do.
type NoisyFlow struct {
	Key           string  `json:"key"`
	InFlight      int64   `json:"in_flight"`
	InFlightShare float64 `json:"in_flight_share"` // of all flows'
	BusyMs        int64   `json:"busy_ms"`
	BusyShare     float64 `json:"busy_share"`
	Ended         int64   `json:"ended"`   // deliveries that busy_ms went into
	Pending       int64   `json:"pending"` // ready
}

// WaitingFlow is a flow that is not noisy, and whose first message is held back by nothing
// but its turn or a lack of consumers.
type WaitingFlow struct {
	Key     string `json:"key"`
	Pending int64  `json:"pending"` // ready
	WaitMs  int64  `json:"wait_ms"` // since its first message became ready
}

// Shorten implements [Long]: the flows that have waited least are left out.
func (r NoisyReply) Shorten(room int) any {
	r.Noisy, room = shorten(r.Noisy, room-envelope) // there are fewer than twenty
	r.Starved, room = shorten(r.Starved, room)
	r.Waiting, _ = shorten(r.Waiting, room)
	return r
}
