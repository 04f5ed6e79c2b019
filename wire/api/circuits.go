package api

import "github.com/filaq/fila/wire"

// CircuitOpenRequest opens a circuit by hand.
type CircuitOpenRequest struct {
	Key   string `json:"key,omitempty"`
	ForMs int64  `json:"for_ms,omitempty"` // 0: until an operator closes it
}

// CircuitInfo is a circuit around a destination.
type CircuitInfo struct {
	Key                 string `json:"key"`
	State               string `json:"state"` // closed, open or half-open
	ConsecutiveFailures int    `json:"consecutive_failures"`
	OpenUntil           string `json:"open_until,omitempty"`       // RFC 3339, or "closed" if only an operator closes it
	Cause               string `json:"cause,omitempty"`            // of the opening: failures, retry_after, by hand, max_failures
	OpenedByClient      string `json:"opened_by_client,omitempty"` // the client that opened it by hand, if known
	Probes              int    `json:"probes"`                     // in flight
	Threshold           int    `json:"threshold"`
	CooldownMs          int64  `json:"cooldown_ms"`
	HalfOpenMaxCalls    int    `json:"half_open_max_calls"`
	HalfOpenSuccesses   int    `json:"half_open_successes"`
	Source              string `json:"source,omitempty"` // of these limits: file, operator, default, or "fila <name>" of another fila
	// Sources says in circuit-show who set each of these limits.
	Sources         Sources `json:"sources,omitempty"`
	MaxFailures     int64   `json:"max_failures"` // 0: any number
	FailureWindowMs int64   `json:"failure_window_ms"`
	FailureHoldMs   int64   `json:"failure_hold_ms"` // 0: until an operator closes it
	Waiting         int     `json:"waiting"`         // queues, as in ThrottleInfo
	WaitingMessages int64   `json:"waiting_messages,omitempty"`

	WaitingQueues []WaitingQueue `json:"waiting_queues,omitempty"` // as in ThrottleInfo

	Openings *CircuitOpenings `json:"openings,omitempty"` // nil: none that this fila has seen

	// Only in the reply to circuit-show, and only if fila has seen them since its start.
	LastFailure *CircuitFailure `json:"last_failure,omitempty"` // of an opening for failures or a Retry-After, the one that opened it
	History     *CircuitHistory `json:"history,omitempty"`      // the last hour

	// Of a shared circuit.
	Shared    bool           `json:"shared,omitempty"`
	Degraded  bool           `json:"degraded,omitempty"`   // the record cannot be reached, so this fila decides alone
	ProbesBy  map[string]int `json:"probes_by,omitempty"`  // instance: probes that it may have in flight
	OpenedBy  string         `json:"opened_by,omitempty"`  // instance that opened it
	By        string         `json:"by,omitempty"`         // instance that made the last change
	ChangedAt string         `json:"changed_at,omitempty"` // RFC 3339, by the clock of the fleet
	Version   uint64         `json:"version,omitempty"`    // of the last change; grows
	// Own is set if newer limits of another fila are in force: the limits set here.
	Own             *CircuitLimits `json:"own,omitempty"`
	LimitsBy        string         `json:"limits_by,omitempty"`         // the other fila
	LimitsChangedAt string         `json:"limits_changed_at,omitempty"` // RFC 3339, if known
}

// Causes of openings in CircuitInfo.Cause.
const (
	CauseFailures    = "failures"
	CauseRetryAfter  = "retry_after"
	CauseByHand      = "by hand"
	CauseMaxFailures = "max_failures"
)

// CircuitFailure is a failed delivery, or a failed call of the guard, behind a circuit.
type CircuitFailure struct {
	At        string `json:"at"`               // RFC 3339
	ID        string `json:"id,omitempty"`     // of the message; absent: a call of the guard
	Caller    string `json:"caller,omitempty"` // of the guard
	Attempt   uint32 `json:"attempt,omitempty"`
	ErrorCode string `json:"error_code,omitempty"` // its first 512 bytes
	Error     string `json:"error,omitempty"`      // its first 512 bytes
}

// CircuitHistory is the last hour of a circuit.
type CircuitHistory struct {
	Since    string            `json:"since"`              // RFC 3339; before it nothing is known
	Changes  []CircuitChange   `json:"changes,omitempty"`  // of the state, oldest first; of more than 256 the older ones are thinned to one a minute
	Failures []CircuitFailures `json:"failures,omitempty"` // the minutes that have some, oldest first
	Openings []CircuitOpened   `json:"openings,omitempty"` // the minutes that have some, oldest first
}

// CircuitChange is a change of the state of a circuit.
type CircuitChange struct {
	At    string `json:"at"` // RFC 3339
	Old   string `json:"old"`
	New   string `json:"new"`
	Cause string `json:"cause"` // as in the event circuit-changed
}

// CircuitFailures is how many deliveries and calls failed in a minute, also after the circuit had opened.
type CircuitFailures struct {
	Minute   string `json:"minute"` // RFC 3339; its beginning
	Failures int64  `json:"failures"`
}

// CircuitOpened is how often a circuit opened in a minute, not by hand.
type CircuitOpened struct {
	Minute   string `json:"minute"` // RFC 3339; its beginning
	Openings int64  `json:"openings"`
}

// CircuitOpenings are the openings of a circuit in the last ten minutes, without those by hand.
type CircuitOpenings struct {
	Count int64  `json:"count"`
	Last  string `json:"last"`  // RFC 3339
	Cause string `json:"cause"` // of the last one, as in CircuitInfo.Cause
}

// CircuitLimits decide when a circuit opens and closes. Filas that share it use the newest.
type CircuitLimits struct {
	Threshold         int   `json:"threshold"`
	CooldownMs        int64 `json:"cooldown_ms"`
	HalfOpenMaxCalls  int   `json:"half_open_max_calls"`
	HalfOpenSuccesses int   `json:"half_open_successes"`
}

// CircuitListRequest asks for a page of circuits, by key.
type CircuitListRequest struct {
	KeyListRequest
	NotClosed bool `json:"not_closed,omitempty"` // only open and half-open circuits
	Opened    bool `json:"-"`                    // with NotClosed: and the ones that opened in the last ten minutes
}

// CircuitList answers circuit-list.
type CircuitList struct {
	Total    int           `json:"total"`
	Circuits []CircuitInfo `json:"circuits"`
	Next     string        `json:"next,omitempty"` // after of the next request, if there is more
}

func (r *CircuitOpenRequest) key() *string { return &r.Key }

// Bounds implements [wire.Bounded].
func (r *CircuitOpenRequest) Bounds() []wire.Bound { return []wire.Bound{boundOfTime(r.ForMs)} }
