package client

import (
	"cmp"
	"time"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// DefaultPrefix is the subject prefix if none is configured.
const DefaultPrefix = wire.DefaultPrefix

// Error is a refusal by fila. docs/errors.md lists all of them.
//
//	Code        int           // the class, as in HTTP: 400, 404, 409, 413, 429, 500 or 503
//	ErrCode     int           // the stable number of the error, which ends with Code
//	Description string        // one line for people; it may change
//	RetryAfter  time.Duration // when a retry makes sense; 0: unknown
//	RateLimit   *RateLimit    // the enqueue rate that refused a message, or nil
type Error = wire.Error

// Receipt confirms a publish: the message is on disk, or finished already.
type Receipt struct {
	ID        string `json:"id"` // a UUID; the ID of the first message if Duplicate
	Queue     string `json:"queue"`
	Duplicate bool   `json:"duplicate,omitempty"` // fila had a message with this DedupeID, and did not store this one

	// Of a message that made a schedule, which has no ID.
	Schedule  string `json:"schedule,omitempty"`  // its name
	Replaced  bool   `json:"replaced,omitempty"`  // it replaced one of the same name
	Unchanged bool   `json:"unchanged,omitempty"` // it existed already
	Next      string `json:"next,omitempty"`      // its first run, RFC 3339 in its time zone
}

// QueueSettings are settings of a queue, with the names and meanings of docs/configuration.md.
// The zero value has the defaults. A field that is 0, empty or nil is not sent to fila, so that
// the default holds; fields whose default is another value than 0 although 0 means something are
// pointers, and new(int64(0)) is 0. Times are in milliseconds.
type QueueSettings struct {
	// Keys are the name of a header, or a template such as "tenant:{tenant}".
	FairnessHeader  string   `json:"fairness_header,omitempty"`  // the fairness key; empty: one flow for all messages
	WeightHeader    string   `json:"weight_header,omitempty"`    // a header with the weight of the key
	ThrottleHeaders []string `json:"throttle_headers,omitempty"` // the throttle keys, at most 16
	CircuitHeader   string   `json:"circuit_header,omitempty"`   // the circuit key

	RouteHeader string `json:"route_header,omitempty"` // a header with a choice of routes

	VisibilityTimeoutMs int64  `json:"visibility_timeout_ms,omitempty"` // length of a lease; 0: 30 s
	MaxDeliveries       *int64 `json:"max_deliveries,omitempty"`        // then a message is dead-lettered; nil: 20; 0: never
	DedupeWindowMs      *int64 `json:"dedupe_window_ms,omitempty"`      // how long a DedupeID is remembered; nil: 2 minutes; 0: not at all
	Quantum             int64  `json:"quantum,omitempty"`               // cost that a round adds to a flow of weight 1; 0: 1

	// The wait before a retry that neither the nack, a hook nor a rule decides: RetryInitialMs, doubled
	// with every attempt up to RetryMaxMs, less a random part of up to RetryJitter (0 to 1) of it.
	RetryPolicy    string   `json:"retry_policy,omitempty"`     // a [[retry_policy]] of the configuration instead
	RetryInitialMs *int64   `json:"retry_initial_ms,omitempty"` // nil: 1 s
	RetryMaxMs     *int64   `json:"retry_max_ms,omitempty"`     // nil: 5 minutes
	RetryJitter    *float64 `json:"retry_jitter,omitempty"`     // nil: 1

	// Limits of what fila takes; 0 and empty are no limit. A rate is messages per second, such as
	// "10", "0.5" or "1/3", and a burst is in messages; 0: as many as in a second.
	MaxDepth           int64  `json:"max_depth,omitempty"`
	MaxBytes           int64  `json:"max_bytes,omitempty"`
	MaxPendingPerKey   int64  `json:"max_pending_per_key,omitempty"`
	EnqueueRate        string `json:"enqueue_rate,omitempty"`
	EnqueueBurst       int64  `json:"enqueue_burst,omitempty"`
	EnqueueRatePerKey  string `json:"enqueue_rate_per_key,omitempty"`
	EnqueueBurstPerKey int64  `json:"enqueue_burst_per_key,omitempty"`
	EnqueueSchedules   string `json:"enqueue_schedules,omitempty"` // "allow" (the default) or "refuse"

	Ordering  string `json:"ordering,omitempty"`   // "key": one message of a fairness key at a time, in their order
	OnBlocked string `json:"on_blocked,omitempty"` // of the key if its first message is blocked: "wait" (the default) or "skip"

	PriorityHeader   string `json:"priority_header,omitempty"`   // a header with the priority within the flow, 0 to 9
	PriorityAgeMs    int64  `json:"priority_age_ms,omitempty"`   // wait that counts as one priority; 0: a minute
	PriorityReserved int64  `json:"priority_reserved,omitempty"` // priority from which no wait of others counts; 0: none

	StarveAfterMs     int64 `json:"starve_after_ms,omitempty"`      // wait after which a flow starves, from 1000; 0: never
	MaxFailuresPerKey int64 `json:"max_failures_per_key,omitempty"` // failures in a window that pause the key; 0: no limit
	FailureWindowMs   int64 `json:"failure_window_ms,omitempty"`    // 0: a minute
	FailureHoldMs     int64 `json:"failure_hold_ms,omitempty"`      // length of that pause; 0: until it is resumed

	// Texts of the Lua hooks, and their limits; 0 is the limit of the configuration.
	OnEnqueue                   string `json:"on_enqueue,omitempty"`
	OnFailure                   string `json:"on_failure,omitempty"`
	LuaTimeoutMs                int64  `json:"lua_timeout_ms,omitempty"`
	LuaMemoryLimitBytes         int64  `json:"lua_memory_limit_bytes,omitempty"`
	LuaCircuitBreakerThreshold  int64  `json:"lua_circuit_breaker_threshold,omitempty"`
	LuaCircuitBreakerCooldownMs int64  `json:"lua_circuit_breaker_cooldown_ms,omitempty"`
}

// QueueChanges are settings to change, under their names in config.toml. Other settings stay.
// Unlike [QueueSettings] it can set 0 and "".
type QueueChanges map[string]any

// ThrottleChange changes the limits of a throttle key. Limits that are 0 or empty stay as they are.
type ThrottleChange struct {
	// Key is the throttle key. One that ends in '*' is a prefix: it limits each key that begins with
	// it and has no limits of its own.
	Key string

	Rate        string        // cost per second, 1 for each message by default: "10", "0.5" or "1/3"
	Burst       float64       // cost that may pass at once after a pause; if never set: the cost of a second, at least 1
	Concurrency int64         // messages in flight
	Limit       int64         // messages in any Window
	Window      time.Duration // of Limit
	Budget      float64       // cost in a calendar period
	Period      string        // of Budget: hour, day, week or month
	Zone        string        // time zone of Period; if never set: UTC
	WarnAt      []float64     // parts of Budget at whose use to warn, such as 0.8
	OnEmpty     string        // of messages that cost more than is left of Budget: hold, dead_letter or refuse
	Unset       []string      // limits to remove: rate, burst, concurrency, limit, window_ms, budget, zone, warn_at, on_empty

	For time.Duration       // makes the change an override that ends by itself; 0: a lasting change
	If  *api.ThrottleLimits // limits that must be set now; otherwise it is a conflict (409)
}

// request returns the request for the change.
func (t *ThrottleChange) request() api.ThrottleSetRequest {
	return api.ThrottleSetRequest{
		Key: t.Key, Unset: t.Unset, ForMs: wholeMs(t.For), If: t.If,
		ThrottleLimits: api.ThrottleLimits{
			Rate: given(wire.Rate(t.Rate)), Burst: given(t.Burst), Concurrency: given(t.Concurrency),
			Limit: given(t.Limit), WindowMs: given(wholeMs(t.Window)),
			Budget: given(t.Budget), Period: given(t.Period), Zone: given(t.Zone), WarnAt: givenParts(t.WarnAt), OnEmpty: given(t.OnEmpty),
		},
	}
}

func givenParts(parts []float64) *[]float64 {
	if len(parts) == 0 {
		return nil
	}
	return &parts
}

// wholeMs returns a time in milliseconds, rounded up.
func wholeMs(d time.Duration) int64 { return (d + time.Millisecond - 1).Milliseconds() }

// given returns a pointer to v, or nil for the zero value.
func given[T cmp.Ordered](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}
