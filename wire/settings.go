package wire

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Defaults of [QueueSettings].
const (
	DefaultVisibilityTimeoutMs = 30_000
	DefaultDedupeWindowMs      = 120_000
	DefaultQuantum             = 1
	// DefaultMaxDeliveries applies to queues without on_failure, and to failures that the
	// hook did not decide.
	DefaultMaxDeliveries = 20
	// By default a failure is retried after up to a second, then two, up to five minutes,
	// with full jitter.
	DefaultRetryInitialMs = 1000
	DefaultRetryMaxMs     = 300_000
	DefaultRetryJitter    = 1.0
)

// Bounds of [QueueSettings].
const (
	// MaxSettingMs is the longest time in a setting, 365 days in milliseconds.
	MaxSettingMs = int64(365 * 24 * time.Hour / time.Millisecond)
	// MaxLuaTimeoutMs is the longest time a hook may be allowed.
	MaxLuaTimeoutMs = 60_000
	// MinLuaMemoryBytes and MaxLuaMemoryBytes bound a hook's memory.
	MinLuaMemoryBytes = 1 << 10
	MaxLuaMemoryBytes = 1 << 30
	// MaxQuantum is the largest quantum.
	MaxQuantum = 1_000_000
	// MaxThrottleHeaders is the maximum number of throttle headers of a queue, and of throttle
	// keys of a message.
	MaxThrottleHeaders = 16
	// MaxEnqueueBurst is the largest burst of an enqueue rate.
	MaxEnqueueBurst = 1_000_000_000
	// MaxPriority is the highest priority of a message.
	MaxPriority = 9
	// MinStarveAfterMs is the smallest starve_after_ms other than 0.
	MinStarveAfterMs = int64(1000)

	// MaxPriorityAgeMs is the longest wait that counts as one priority: a week.
	MaxPriorityAgeMs = int64(7 * 24 * time.Hour / time.Millisecond)
	// MaxFailures is the largest number of failures that a limit may allow.
	MaxFailures = 1_000_000
	// MaxPolicyName is the maximum length of the name of a retry policy in bytes.
	MaxPolicyName = 64
)

// Values of [QueueSettings].Ordering, OnBlocked and EnqueueSchedules.
const (
	OrderingKey     = "key"
	OnBlockedWait   = "wait"
	OnBlockedSkip   = "skip"
	SchedulesAllow  = "allow"
	SchedulesRefuse = "refuse"
)

// Names of hooks in requests, replies and events.
const (
	HookOnEnqueue = "on_enqueue"
	HookOnFailure = "on_failure"
)

// QueueSettings are the settings of a queue, under the same names in
// config.toml, in requests, in the store and in replies. Times are in
// milliseconds.
type QueueSettings struct {
	Name string `json:"name" koanf:"name" toml:"name"`

	// OnEnqueue and OnFailure are the texts of the Lua hooks, empty for none.
	OnEnqueue string `json:"on_enqueue" koanf:"on_enqueue" toml:"on_enqueue"`
	OnFailure string `json:"on_failure" koanf:"on_failure" toml:"on_failure"`
	// OnEnqueueFile and OnFailureFile name files instead. Only a configuration
	// file may use them, whose reader replaces them by the texts; the sidecar opens
	// no file that a client names over NATS.
	OnEnqueueFile string `json:"on_enqueue_file,omitempty" koanf:"on_enqueue_file" toml:"on_enqueue_file,omitempty"`
	OnFailureFile string `json:"on_failure_file,omitempty" koanf:"on_failure_file" toml:"on_failure_file,omitempty"`

	// VisibilityTimeoutMs is how long a lease lasts, from 1.
	VisibilityTimeoutMs int64 `json:"visibility_timeout_ms" koanf:"visibility_timeout_ms" toml:"visibility_timeout_ms"`
	// MaxDeliveries is after how many deliveries a message is dead-lettered; 0
	// is no limit, nil is 20, except for failures about which on_failure decides.
	MaxDeliveries *int64 `json:"max_deliveries" koanf:"max_deliveries" toml:"max_deliveries,omitempty"`
	// MaxDepth and MaxBytes bound the backlog; 0 is no limit.
	MaxDepth int64 `json:"max_depth" koanf:"max_depth" toml:"max_depth"`
	MaxBytes int64 `json:"max_bytes" koanf:"max_bytes" toml:"max_bytes"`
	// DedupeWindowMs is for how long a Nats-Msg-Id is remembered; 0 turns
	// deduplication off.
	DedupeWindowMs int64 `json:"dedupe_window_ms" koanf:"dedupe_window_ms" toml:"dedupe_window_ms"`
	// Quantum is what one turn adds to a flow of weight 1, in units of cost 1.
	Quantum int64 `json:"quantum" koanf:"quantum" toml:"quantum"`

	// Limits of the hooks; 0 is the global default, never "none".
	LuaTimeoutMs                int64 `json:"lua_timeout_ms" koanf:"lua_timeout_ms" toml:"lua_timeout_ms"`
	LuaMemoryLimitBytes         int64 `json:"lua_memory_limit_bytes" koanf:"lua_memory_limit_bytes" toml:"lua_memory_limit_bytes"`
	LuaCircuitBreakerThreshold  int64 `json:"lua_circuit_breaker_threshold" koanf:"lua_circuit_breaker_threshold" toml:"lua_circuit_breaker_threshold"`
	LuaCircuitBreakerCooldownMs int64 `json:"lua_circuit_breaker_cooldown_ms" koanf:"lua_circuit_breaker_cooldown_ms" toml:"lua_circuit_breaker_cooldown_ms"`

	// FairnessHeader, WeightHeader and ThrottleHeaders name the producer's
	// headers that decide about scheduling without a hook. Keys may be made of headers,
	// such as tenant:{tenant}.
	FairnessHeader  string   `json:"fairness_header" koanf:"fairness_header" toml:"fairness_header"`
	WeightHeader    string   `json:"weight_header" koanf:"weight_header" toml:"weight_header"`
	ThrottleHeaders []string `json:"throttle_headers" koanf:"throttle_headers" toml:"throttle_headers"`
	// CircuitHeader names the header that holds the circuit key, or is a template of it.
	CircuitHeader string `json:"circuit_header" koanf:"circuit_header" toml:"circuit_header"`

	// RouteHeader names the header that holds a choice of routes ([[route]] tables).
	RouteHeader string `json:"route_header" koanf:"route_header" toml:"route_header"`

	// PriorityHeader names the header that holds the priority, 0 to 9, of a message
	// within its flow. For every PriorityAgeMs that it waits a message counts as one
	// priority higher; 0 is a minute. Messages of PriorityReserved and above go before
	// all others of their flow, however long these have waited; 0 is none.
	PriorityHeader   string `json:"priority_header" koanf:"priority_header" toml:"priority_header"`
	PriorityAgeMs    int64  `json:"priority_age_ms" koanf:"priority_age_ms" toml:"priority_age_ms"`
	PriorityReserved int64  `json:"priority_reserved" koanf:"priority_reserved" toml:"priority_reserved"`

	// StarveAfterMs is after how long a flow starves that could send something and is
	// not delivered from, while others are; 0 is never, otherwise 1000
	// and more.
	StarveAfterMs int64 `json:"starve_after_ms" koanf:"starve_after_ms" toml:"starve_after_ms"`

	// RetryPolicy names the [[retry_policy]] for failures that neither
	// on_failure nor an [[error_rule]] decides; empty: the three settings below.
	RetryPolicy string `json:"retry_policy" koanf:"retry_policy" toml:"retry_policy"`
	// RetryInitialMs is the wait before the first retry of a failure that nobody
	// else decides, 0 for none at all. It doubles with every attempt, up to
	// RetryMaxMs. RetryJitter is the fraction of a wait that chance may take away, 0
	// to 1.
	RetryInitialMs int64   `json:"retry_initial_ms" koanf:"retry_initial_ms" toml:"retry_initial_ms"`
	RetryMaxMs     int64   `json:"retry_max_ms" koanf:"retry_max_ms" toml:"retry_max_ms"`
	RetryJitter    float64 `json:"retry_jitter" koanf:"retry_jitter" toml:"retry_jitter"`

	// Ordering is "" (fair order) or "key": at most one message of a fairness
	// key in flight, in the order of their enqueues.
	Ordering string `json:"ordering" koanf:"ordering" toml:"ordering"`
	// OnBlocked says, with ordering "key", what happens while the first message
	// of a key waits for a gate or for its retry: "wait" (the default) holds the
	// key, "skip" lets later ones pass.
	OnBlocked string `json:"on_blocked" koanf:"on_blocked" toml:"on_blocked"`

	// MaxPendingPerKey bounds the unfinished messages of one fairness key; 0 is
	// no limit.
	MaxPendingPerKey int64 `json:"max_pending_per_key" koanf:"max_pending_per_key" toml:"max_pending_per_key"`
	// EnqueueRate and EnqueueRatePerKey bound how many messages a second are
	// taken, of all producers and of each fairness key; empty is no limit. The
	// bursts are in messages; 0 is the larger of 1 and what the rate brings in a
	// second.
	EnqueueRate        Rate  `json:"enqueue_rate" koanf:"enqueue_rate" toml:"enqueue_rate"`
	EnqueueBurst       int64 `json:"enqueue_burst" koanf:"enqueue_burst" toml:"enqueue_burst"`
	EnqueueRatePerKey  Rate  `json:"enqueue_rate_per_key" koanf:"enqueue_rate_per_key" toml:"enqueue_rate_per_key"`
	EnqueueBurstPerKey int64 `json:"enqueue_burst_per_key" koanf:"enqueue_burst_per_key" toml:"enqueue_burst_per_key"`

	// EnqueueSchedules is "" or "allow", or "refuse": nobody makes a schedule by an
	// enqueue.
	EnqueueSchedules string `json:"enqueue_schedules" koanf:"enqueue_schedules" toml:"enqueue_schedules"`

	// MaxFailuresPerKey is how many failures a fairness key may have within
	// FailureWindowMs; one more holds it for FailureHoldMs, or until it is
	// resumed. 0 is no limit.
	MaxFailuresPerKey int64 `json:"max_failures_per_key" koanf:"max_failures_per_key" toml:"max_failures_per_key"`
	FailureWindowMs   int64 `json:"failure_window_ms" koanf:"failure_window_ms" toml:"failure_window_ms"` // 0: a minute
	FailureHoldMs     int64 `json:"failure_hold_ms" koanf:"failure_hold_ms" toml:"failure_hold_ms"`       // 0: until resumed
}

// DefaultQueueSettings returns the default settings of a queue.
func DefaultQueueSettings(name string) QueueSettings {
	return QueueSettings{
		Name:                name,
		VisibilityTimeoutMs: DefaultVisibilityTimeoutMs,
		DedupeWindowMs:      DefaultDedupeWindowMs,
		Quantum:             DefaultQuantum,
		RetryInitialMs:      DefaultRetryInitialMs,
		RetryMaxMs:          DefaultRetryMaxMs,
		RetryJitter:         DefaultRetryJitter,
	}
}

// DeliveryLimit returns after how many deliveries without an ack a message is
// dead-lettered, 0 for no limit. Without max_deliveries it is 20, except for
// failures about which on_failure decided itself: these have no limit.
func (q QueueSettings) DeliveryLimit(hookDecided bool) int64 {
	switch {
	case q.MaxDeliveries != nil:
		return *q.MaxDeliveries
	case q.OnFailure != "" && hookDecided:
		return 0
	}
	return DefaultMaxDeliveries
}

// Clone returns a copy that shares no memory with q.
func (q QueueSettings) Clone() QueueSettings {
	if q.MaxDeliveries != nil {
		q.MaxDeliveries = new(*q.MaxDeliveries)
	}
	q.ThrottleHeaders = slices.Clone(q.ThrottleHeaders)
	return q
}

// Equal reports whether q and o are the same settings. A nil list equals an empty one.
func (q QueueSettings) Equal(o QueueSettings) bool {
	if !slices.Equal(q.ThrottleHeaders, o.ThrottleHeaders) {
		return false
	}
	q.ThrottleHeaders, o.ThrottleHeaders = nil, nil
	return reflect.DeepEqual(q, o)
}

// Differences describes the settings in which q differs from the requested ones.
func (q QueueSettings) Differences(asked QueueSettings) []string {
	var all []string
	have, want := reflect.ValueOf(q), reflect.ValueOf(asked)
	for i := range have.NumField() {
		name, _, _ := strings.Cut(have.Type().Field(i).Tag.Get("json"), ",")
		a, b := settingText(name, have.Field(i).Interface()), settingText(name, want.Field(i).Interface())
		switch {
		case a != b:
			all = append(all, name+" is "+a+", not "+b)
		case !reflect.DeepEqual(have.Field(i).Interface(), want.Field(i).Interface()) && isScript(name):
			all = append(all, name+" is another script")
		}
	}
	return all
}

func isScript(name string) bool { return name == HookOnEnqueue || name == HookOnFailure }

// settingText formats the value of a setting for a sentence, without the text of a script.
func settingText(name string, value any) string {
	switch v := value.(type) {
	case *int64:
		if v == nil {
			return "the default"
		}
		return strconv.FormatInt(*v, 10)
	case string:
		if isScript(name) {
			return map[bool]string{true: "a script", false: "none"}[v != ""]
		}
		return Quote(v)
	case Rate:
		return Quote(string(v))
	case []string:
		return tame(fmt.Sprintf("%+q", v))
	}
	return fmt.Sprint(value)
}

// Patch returns q with the fields in body, strictly decoded and validated. It does not change
// q. A name in the body must be the queue's.
func (q QueueSettings) Patch(body []byte) (QueueSettings, *Error) {
	p := q.Clone()
	seen, err := DecodeNamed(body, &p)
	if err != nil {
		return QueueSettings{}, err
	}
	if p.Name != q.Name {
		return QueueSettings{}, BadQueueSettings(&SettingError{
			"name", Quote(p.Name), "the subject names the queue " + Quote(q.Name),
		})
	}
	for _, name := range seen {
		if strings.HasSuffix(name, "_file") {
			return QueueSettings{}, BadField(name, "given", "send the script's text as "+strings.TrimSuffix(name, "_file"))
		}
	}
	if err := p.Validate(); err != nil {
		return QueueSettings{}, BadQueueSettings(err)
	}
	return p, nil
}
