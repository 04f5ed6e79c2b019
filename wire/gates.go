package wire

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ThrottleLimits are the limits of a throttle key. A field that is nil is not
// set.
type ThrottleLimits struct {
	Rate        *Rate    `json:"rate,omitempty"`        // per second; token bucket
	Burst       *float64 `json:"burst,omitempty"`       // size of the bucket in cost, from 1
	Concurrency *int64   `json:"concurrency,omitempty"` // in flight at once, from 1
	Limit       *int64   `json:"limit,omitempty"`       // messages in any window, from 1
	WindowMs    *int64   `json:"window_ms,omitempty"`   // the window
}

// Text returns the limits in words: "rate 10/s, burst 20, concurrency 3, 5 in any
// 1m", or "none". It names limits that have no effect without another one.
func (l ThrottleLimits) Text() string {
	var parts []string
	if l.Rate != nil {
		parts = append(parts, "rate "+l.Rate.Text())
	}
	if l.Burst != nil {
		burst := "burst " + strconv.FormatFloat(*l.Burst, 'f', -1, 64)
		if l.Rate == nil {
			burst += " (no effect without a rate)"
		}
		parts = append(parts, burst)
	}
	if l.Concurrency != nil {
		parts = append(parts, fmt.Sprintf("concurrency %d", *l.Concurrency))
	}
	switch {
	case l.Limit != nil && l.WindowMs != nil:
		parts = append(parts, fmt.Sprintf("%d in any %s", *l.Limit, FormatMs(*l.WindowMs)))
	case l.Limit != nil:
		parts = append(parts, fmt.Sprintf("limit %d (no effect without a window)", *l.Limit))
	case l.WindowMs != nil:
		parts = append(parts, "window "+FormatMs(*l.WindowMs)+" (no effect without a limit)")
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// FormatMs prints milliseconds as a duration without zero units: 5m, not 5m0s.
func FormatMs(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d == 0:
		return "0s"
	case d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d%time.Minute == 0 && d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return d.String()
}

// ThrottleSetRequest sets limits of a throttle key or, if it ends in '*', of
// every key that begins with what stands before it. Fields that are nil stay.
type ThrottleSetRequest struct {
	// Key is the throttle key if it is not the subject's tail, which is "_" then.
	Key string `json:"key,omitempty"`
	ThrottleLimits
	// Unset names limits to take away: rate, burst, concurrency, limit, window_ms.
	Unset []string `json:"unset,omitempty"`
	// ForMs makes the change an override that ends by itself after so many
	// milliseconds; 0 is a lasting change.
	ForMs int64 `json:"for_ms,omitempty"`
	// If, unless nil, must be what is set of the fields that it names; otherwise
	// nothing changes (409). An empty rate or a 0 expects that there is none.
	If *ThrottleLimits `json:"if,omitempty"`
}

// GateKeyRequest names a throttle key or a circuit: throttle-show,
// throttle-clear, circuit-show, circuit-close, circuit-reset.
type GateKeyRequest struct {
	Key string `json:"key,omitempty"` // if it is not the subject's tail
}

// Who has set limits and weights, in ThrottleInfo.Source, CircuitInfo.Source,
// GateState.SetBy and ExplainKey.WeightBy.
const (
	SetByFile     = "file"     // a table of the configuration file
	SetByOperator = "operator" // at run time: throttle-set, config-set
	SetByOverride = "override" // an operator, for a time
	SetByDefault  = "default"  // nobody: the default is in force
	SetByNobody   = "none"     // nobody: there is no limit
	SetByHook     = "hook"     // on_enqueue of the queue
	SetByHeader   = "header"   // the weight_header of the queue
	SetByMessage  = "message"  // the weight came with the messages: from a job, or from earlier settings
)

// SetForKey reports whether a ThrottleInfo.Source says that the limits are set for the
// key itself at this fila, and not for a prefix or at another fila.
func SetForKey(source string) bool {
	return source == SetByFile || source == SetByOperator || source == SetByOverride
}

// ThrottleInfo is a throttle key with its limits and the state of its gate.
type ThrottleInfo struct {
	Key string `json:"key"`
	ThrottleLimits
	// Source says who set the limits: SetByFile, SetByOperator, SetByOverride,
	// "prefix <prefix>*, " and one of these, "fila <name>" of another fila, or SetByNobody.
	Source        string `json:"source"`
	OverrideUntil string `json:"override_until,omitempty"` // RFC 3339
	PausedUntil   string `json:"paused_until,omitempty"`   // RFC 3339, or "resumed" if only a resume ends it

	State    string  `json:"state"`              // open, rate, window, concurrency, reserved, paused
	OpensAt  string  `json:"opens_at,omitempty"` // RFC 3339, if a time is known
	Tokens   float64 `json:"tokens"`             // in the bucket; negative: debt
	InWindow int64   `json:"in_window"`
	InFlight int64   `json:"in_flight"`
	// Waiting is how many queues have messages that wait because of it, and
	// WaitingMessages how many messages those are, as throttle-show finds out. In other
	// replies it is how many queues stand in line: those that have tried.
	Waiting         int   `json:"waiting"`
	WaitingMessages int64 `json:"waiting_messages,omitempty"`
	// Unused says that limits are set for the key, or the prefix, and no message or call
	// has had it since fila started. A node of a cluster does not say so.
	Unused bool `json:"unused,omitempty"`
	// WaitingQueues are, in the reply to throttle-show, the MaxWaitingQueues of them with
	// the most messages that wait because of it, these first.
	WaitingQueues []WaitingQueue `json:"waiting_queues,omitempty"`

	Shared *ThrottleShared `json:"shared,omitempty"` // nil: the limits are this fila's alone
}

// MaxWaitingQueues is how many queues that wait at a gate a reply names.
const MaxWaitingQueues = 50

// WaitingQueue is a queue with what of it waits at a gate.
type WaitingQueue struct {
	Queue    string `json:"queue"`
	Messages int64  `json:"messages"`
	Flows    int    `json:"flows"`
}

// ThrottleShared is how filas share the limits of a throttle key. What its ThrottleInfo
// says of tokens and messages is this fila's: of what it was lent.
type ThrottleShared struct {
	Degraded bool             `json:"degraded,omitempty"` // the bucket cannot be reached: this fila goes by what it has
	Alone    bool             `json:"alone,omitempty"`    // no other fila uses the key: this one goes by limits of its own, and the rest is not known
	Users    map[string]int64 `json:"users,omitempty"`    // permits for messages in flight, by fila
	Tokens   float64          `json:"tokens"`             // in the bucket of all, that are not lent
	InWindow int64            `json:"in_window"`          // slots that are used or lent
	// Own is what is set here, if limits that another fila has set later are in force.
	Own       *ThrottleLimits `json:"own,omitempty"`
	By        string          `json:"by,omitempty"`         // that fila
	ChangedAt string          `json:"changed_at,omitempty"` // RFC 3339, if it is known when that was
}

// ThrottleList answers throttle-list.
type ThrottleList struct {
	Total     int            `json:"total"`
	Throttles []ThrottleInfo `json:"throttles"`
	Next      string         `json:"next,omitempty"` // after of the next request, if there is more
}

// CircuitOpenRequest opens a circuit by hand.
type CircuitOpenRequest struct {
	Key   string `json:"key,omitempty"`
	ForMs int64  `json:"for_ms,omitempty"` // 0: until it is closed by hand
}

// CircuitInfo is a circuit around a destination.
type CircuitInfo struct {
	Key                 string `json:"key"`
	State               string `json:"state"` // closed, open or half-open
	ConsecutiveFailures int    `json:"consecutive_failures"`
	OpenUntil           string `json:"open_until,omitempty"`       // RFC 3339, or "closed" if only a hand closes it
	Cause               string `json:"cause,omitempty"`            // of the opening: failures, retry_after, by hand, max_failures
	OpenedByClient      string `json:"opened_by_client,omitempty"` // who has opened it by hand, as far as it is known
	Probes              int    `json:"probes"`                     // under way
	Threshold           int    `json:"threshold"`
	CooldownMs          int64  `json:"cooldown_ms"`
	HalfOpenMaxCalls    int    `json:"half_open_max_calls"`
	HalfOpenSuccesses   int    `json:"half_open_successes"`
	Source              string `json:"source,omitempty"` // of these: file, operator, default, or "fila <name>" of another fila
	MaxFailures         int64  `json:"max_failures"`     // 0: any number
	FailureWindowMs     int64  `json:"failure_window_ms"`
	FailureHoldMs       int64  `json:"failure_hold_ms"` // 0: until it is closed by hand
	Waiting             int    `json:"waiting"`         // queues, as in ThrottleInfo
	WaitingMessages     int64  `json:"waiting_messages,omitempty"`

	WaitingQueues []WaitingQueue `json:"waiting_queues,omitempty"` // as in ThrottleInfo

	// Of a circuit that filas share.
	Shared    bool           `json:"shared,omitempty"`
	Degraded  bool           `json:"degraded,omitempty"`   // this fila goes by itself, since the record cannot be reached
	ProbesBy  map[string]int `json:"probes_by,omitempty"`  // instance: probes that it may have under way
	OpenedBy  string         `json:"opened_by,omitempty"`  // instance that has opened it
	By        string         `json:"by,omitempty"`         // instance that has made the last change
	ChangedAt string         `json:"changed_at,omitempty"` // RFC 3339, by the clock of the fleet
	Version   uint64         `json:"version,omitempty"`    // of the last change; grows
	// Own is what is set here, if limits that another fila has set later are in force.
	Own             *CircuitLimits `json:"own,omitempty"`
	LimitsBy        string         `json:"limits_by,omitempty"`         // that fila
	LimitsChangedAt string         `json:"limits_changed_at,omitempty"` // RFC 3339, if it is known when that was
}

// CircuitLimits are when a circuit opens and closes. Filas that share it go by the newest.
type CircuitLimits struct {
	Threshold         int   `json:"threshold"`
	CooldownMs        int64 `json:"cooldown_ms"`
	HalfOpenMaxCalls  int   `json:"half_open_max_calls"`
	HalfOpenSuccesses int   `json:"half_open_successes"`
}

// CircuitList answers circuit-list.
type CircuitList struct {
	Total    int           `json:"total"`
	Circuits []CircuitInfo `json:"circuits"`
	Next     string        `json:"next,omitempty"` // after of the next request, if there is more
}

// What a pause holds.
const (
	PauseQueue    = "queue"
	PauseKey      = "key" // a fairness key of one queue
	PauseThrottle = "throttle"
	PauseCircuit  = "circuit"
)

// PauseRequest holds what it names, or, sent to resume, lets it go.
type PauseRequest struct {
	Kind  string `json:"kind"`            // queue, key, throttle or circuit
	Queue string `json:"queue,omitempty"` // of a key
	Name  string `json:"name"`            // the queue, fairness key, throttle key or circuit key
	// Until (RFC 3339) or ForMs says when it ends by itself; without them only
	// resume ends it.
	Until string `json:"until,omitempty"`
	ForMs int64  `json:"for_ms,omitempty"`
}

// PauseInfo is a pause in force.
type PauseInfo struct {
	Kind  string `json:"kind"`
	Queue string `json:"queue,omitempty"`
	Name  string `json:"name"`
	Since string `json:"since"`
	Until string `json:"until,omitempty"` // absent: until resumed
	By    string `json:"by"`              // operator, max_failures, calls (of the guard, before a crash), or fleet (an operator of another fila)
}

// PauseList answers pause-list.
type PauseList struct {
	Total  int         `json:"total"`
	Pauses []PauseInfo `json:"pauses"`
	Next   string      `json:"next,omitempty"` // after of the next request, if there is more
}

// ConfigLogEntry is one change in the audit log.
type ConfigLogEntry struct {
	Seq  uint64  `json:"seq"`
	Time string  `json:"time"`
	Key  string  `json:"key"` // of the configuration, or pause:<kind>:<name> and the like
	Old  *string `json:"old"`
	New  *string `json:"new"`
	// Client is who asked for it, as far as NATS or the client itself says.
	Client string `json:"client,omitempty"`
	By     string `json:"by"` // config-set, config-delete, throttle-set, file, override-ended, pause, resume, ...
}

// ConfigLog answers config-log.
type ConfigLog struct {
	Total   int              `json:"total"`
	Entries []ConfigLogEntry `json:"entries"`
	Next    string           `json:"next,omitempty"` // after of the next request, if there is more
}

// ReloadRequest makes fila read its configuration file again.
type ReloadRequest struct {
	DryRun bool `json:"dry_run,omitempty"` // say what would change, and change nothing
}

// ParseReload decodes a [ReloadRequest].
func ParseReload(body []byte) (ReloadRequest, *Error) {
	return parse(body, ReloadRequest{}, func(*ReloadRequest) *Error { return nil })
}

// ReloadReply says what a reload of the rules has changed, or would change.
type ReloadReply struct {
	DryRun  bool     `json:"dry_run,omitempty"`
	Changes []string `json:"changes"`

	// In a cluster all nodes reload, each its own file: those that have, and why others
	// have not. Changes are there by node.
	Nodes       []string `json:"nodes,omitempty"`
	NotReloaded []string `json:"not_reloaded,omitempty"`
}

// ExplainRequest asks why something waits.
type ExplainRequest struct {
	Kind  string `json:"kind"`            // message, key or queue
	Queue string `json:"queue,omitempty"` // of a key, and the queue itself; a message is looked for everywhere without it
	ID    string `json:"id,omitempty"`    // of a message
	Key   string `json:"key,omitempty"`   // fairness key
}

// States of a message in an explanation.
const (
	StateDelayed = "delayed" // waits for its time
	StatePending = "pending" // ready: waits for a consumer, or for its turn
	StateParked  = "parked"  // a pause, a gate or the order of its key holds it back
	StateLeased  = "leased"
	StateDead    = "dead" // in the dead letter queue
	StateUnknown = "unknown"
)

// GateState is a gate of a message and how it stands.
type GateState struct {
	Kind    string `json:"kind"`               // rate, window, concurrency, reserved, circuit, paused, order, turn or open
	Gate    string `json:"gate"`               // "throttle:<key>", "circuit:<key>", "queue:<name>", "key:<name>"
	Open    bool   `json:"open"`               // it would admit the message now
	OpensAt string `json:"opens_at,omitempty"` // RFC 3339, if a time is known
	Limits  string `json:"limits,omitempty"`   // in words: "rate 10/s, burst 20"
	SetBy   string `json:"set_by,omitempty"`   // file, operator, override until ..., prefix tenant:*, file, default, ...
	InUse   string `json:"in_use,omitempty"`   // in words: "0.2 tokens", "5 in flight"
}

// ExplainMessage says where a message is and why.
type ExplainMessage struct {
	ID           string      `json:"id"`
	State        string      `json:"state"`
	Queue        string      `json:"queue,omitempty"`
	Key          string      `json:"key,omitempty"`
	Attempt      uint32      `json:"attempt,omitempty"` // the next one, or the present one while it is leased
	EnqueuedAt   string      `json:"enqueued_at,omitempty"`
	ReadyAt      string      `json:"ready_at,omitempty"` // when a delay ends
	Consumer     string      `json:"consumer,omitempty"`
	LeaseUntil   string      `json:"lease_until,omitempty"`
	Reason       string      `json:"reason"` // one sentence
	Gates        []GateState `json:"gates,omitempty"`
	BlockedBy    *GateState  `json:"blocked_by,omitempty"`
	BlockedSince string      `json:"blocked_since,omitempty"`
	Ahead        int64       `json:"ahead"`              // messages of its lane or flow that go before it
	Estimate     string      `json:"estimate,omitempty"` // RFC 3339: when it may go, if nothing changes

	History []AttemptInfo `json:"history,omitempty"` // what has happened to it
}

// ExplainKey says how a fairness key of a queue stands.
type ExplainKey struct {
	Queue     string         `json:"queue"`
	Key       string         `json:"key"`
	Pending   int64          `json:"pending"` // ready
	Parked    int64          `json:"parked"`
	InFlight  int64          `json:"in_flight"`
	Delayed   int64          `json:"delayed"`
	Moving    int64          `json:"moving,omitempty"` // as in QueueSummary
	Weight    float64        `json:"weight"`
	WeightBy  string         `json:"weight_by,omitempty"` // operator, hook, header, default or message
	Deficit   float64        `json:"deficit"`
	Active    bool           `json:"active"`           // it takes part in the schedule now: something of it is ready
	Share     float64        `json:"share"`            // of the weights of active flows: what it gets, or would get if it were active
	Paused    string         `json:"paused,omitempty"` // RFC 3339, or "until resumed"
	BlockedBy []BlockedCount `json:"blocked_by"`
	Reason    string         `json:"reason"` // one sentence
}

// ExplainQueue says what a queue waits for.
type ExplainQueue struct {
	Queue     string         `json:"queue"`
	Pending   int64          `json:"pending"` // ready, waiting for their turn or for consumers; not the parked ones
	Parked    int64          `json:"parked"`
	Delayed   int64          `json:"delayed"`
	InFlight  int64          `json:"in_flight"`
	Moving    int64          `json:"moving,omitempty"` // as in QueueSummary
	Consumers int            `json:"consumers"`
	Credit    int            `json:"credit"`           // how many more messages the consumers take
	Paused    string         `json:"paused,omitempty"` // RFC 3339, or "until resumed"
	BlockedBy []BlockedCount `json:"blocked_by"`       // gates that hold messages back, the largest first
	Reason    string         `json:"reason"`           // one sentence
}

// BlockedCount is a gate with what it holds back.
type BlockedCount struct {
	GateState
	Messages int64 `json:"messages"`
	Flows    int   `json:"flows"`
}
