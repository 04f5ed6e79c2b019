package wire

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// SettingError is returned by [QueueSettings.Validate] for one setting.
type SettingError struct {
	Field   string // the key as in config.toml
	Value   string // as it was given, quoted if it is a text
	Allowed string // what is allowed, a phrase after "must be" or the like
}

func (e *SettingError) Error() string { return e.Field + " is " + e.Value + ": " + e.Allowed }

// Validate returns nil or a [*SettingError] for the first invalid setting. It refuses names of
// dead letter queues, whose settings derive from their queue's, and unresolved files. It does
// not compile scripts, see package hooks.
func (q QueueSettings) Validate() error {
	if err := q.checkTexts(); err != nil {
		return err
	}
	if out := OutOfBounds(q); out != nil {
		return out
	}
	if q.OnBlocked != "" && q.Ordering == "" {
		return &SettingError{"on_blocked", Quote(q.OnBlocked), `it goes with ordering "key"`}
	}
	return cmp.Or(q.checkDecider(), q.checkRetries(), q.checkEnqueueRates())
}

// Bounds implements [Bounded].
func (q QueueSettings) Bounds() []Bound {
	maxDeliveries := int64(0)
	if q.MaxDeliveries != nil {
		maxDeliveries = *q.MaxDeliveries
	}
	return []Bound{
		{Field: "ordering", Text: q.Ordering, OneOf: []string{OrderingKey}, Zero: "fair order"},
		{Field: "on_blocked", Text: q.OnBlocked, OneOf: []string{OnBlockedWait, OnBlockedSkip}, Zero: OnBlockedWait},
		{Field: "enqueue_schedules", Text: q.EnqueueSchedules, OneOf: []string{SchedulesAllow, SchedulesRefuse}, Zero: SchedulesAllow},
		{Field: "visibility_timeout_ms", Value: q.VisibilityTimeoutMs, Min: 1, Max: MaxSettingMs},
		{Field: "max_deliveries", Value: maxDeliveries, Max: math.MaxInt32},
		{Field: "max_depth", Value: q.MaxDepth, Max: math.MaxInt64},
		{Field: "max_bytes", Value: q.MaxBytes, Max: math.MaxInt64},
		{Field: "dedupe_window_ms", Value: q.DedupeWindowMs, Max: MaxSettingMs},
		{Field: "quantum", Value: q.Quantum, Min: 1, Max: MaxQuantum},
		{Field: "lua_timeout_ms", Value: q.LuaTimeoutMs, Max: MaxLuaTimeoutMs},
		{Field: "lua_memory_limit_bytes", Value: q.LuaMemoryLimitBytes, Min: MinLuaMemoryBytes, Max: MaxLuaMemoryBytes, Zero: "the global default"},
		{Field: "lua_circuit_breaker_threshold", Value: q.LuaCircuitBreakerThreshold, Max: 1_000_000},
		{Field: "lua_circuit_breaker_cooldown_ms", Value: q.LuaCircuitBreakerCooldownMs, Max: MaxSettingMs},
		{Field: "retry_initial_ms", Value: q.RetryInitialMs, Max: MaxSettingMs},
		{Field: "retry_max_ms", Value: q.RetryMaxMs, Max: MaxSettingMs},
		{Field: "retry_jitter", Max: 1},
		{Field: "max_pending_per_key", Value: q.MaxPendingPerKey, Max: math.MaxInt64},
		{Field: "enqueue_burst", Value: q.EnqueueBurst, Max: MaxEnqueueBurst},
		{Field: "enqueue_burst_per_key", Value: q.EnqueueBurstPerKey, Max: MaxEnqueueBurst},
		{Field: "max_failures_per_key", Value: q.MaxFailuresPerKey, Max: MaxFailures},
		{Field: "failure_window_ms", Value: q.FailureWindowMs, Max: MaxSettingMs},
		{Field: "failure_hold_ms", Value: q.FailureHoldMs, Max: MaxSettingMs},
		{Field: "priority_age_ms", Value: q.PriorityAgeMs, Max: MaxPriorityAgeMs},
		{Field: "priority_reserved", Value: q.PriorityReserved, Max: MaxPriority},
		{Field: "starve_after_ms", Value: q.StarveAfterMs, Min: MinStarveAfterMs, Max: MaxSettingMs, Zero: "never"},
	}
}

// checkDecider refuses headers beside on_enqueue, because they would be ignored.
func (q QueueSettings) checkDecider() error {
	if q.OnEnqueue == "" {
		return nil
	}
	for _, c := range []struct{ field, value string }{
		{"fairness_header", q.FairnessHeader},
		{"weight_header", q.WeightHeader},
		{"throttle_headers", strings.Join(q.ThrottleHeaders, ", ")},
		{"circuit_header", q.CircuitHeader},
		{"route_header", q.RouteHeader},
		{"priority_header", q.PriorityHeader},
	} {
		if c.value != "" {
			return &SettingError{c.field, Quote(c.value), "allowed is either " + c.field + " or on_enqueue, which decides alone and reads headers itself"}
		}
	}
	return nil
}

func (q QueueSettings) checkRetries() error {
	switch {
	case q.RetryInitialMs > q.RetryMaxMs:
		return &SettingError{
			"retry_initial_ms", strconv.FormatInt(q.RetryInitialMs, 10),
			fmt.Sprintf("allowed is at most retry_max_ms, which is %d", q.RetryMaxMs),
		}
	case !(q.RetryJitter >= 0 && q.RetryJitter <= 1): // NaN, too
		return &SettingError{"retry_jitter", strconv.FormatFloat(q.RetryJitter, 'f', -1, 64), "allowed are 0 to 1"}
	}
	return nil
}

// checkTexts checks the name and all settings that are texts, except rates.
func (q QueueSettings) checkTexts() error {
	const noFile = "only a configuration file or the command line may name a file; send the text as "
	for _, c := range []struct {
		field, value string
		ok           bool
		allowed      string
	}{
		{"name", q.Name, CheckQueueName(q.Name) == nil, "allowed are 1 to 128 bytes of A-Za-z0-9_- with dots between non-empty parts"},
		{"name", q.Name, !IsDLQ(q.Name), "names that end in .dlq are reserved for dead letter queues"},
		{"on_enqueue_file", q.OnEnqueueFile, q.OnEnqueueFile == "", noFile + "on_enqueue"},
		{"on_failure_file", q.OnFailureFile, q.OnFailureFile == "", noFile + "on_failure"},
		{"weight_header", q.WeightHeader, legalHeaderSetting(q.WeightHeader), headerSettings},
		{"route_header", q.RouteHeader, legalHeaderSetting(q.RouteHeader), headerSettings},
		{"priority_header", q.PriorityHeader, legalHeaderSetting(q.PriorityHeader), headerSettings},
		{"retry_policy", q.RetryPolicy, q.RetryPolicy == "" || CheckPolicyName(q.RetryPolicy) == nil, "allowed are 1 to 64 bytes of A-Za-z0-9_-"},
		{
			"ordering", q.Ordering, q.Ordering == "" || q.PriorityHeader == "" && q.PriorityAgeMs == 0 && q.PriorityReserved == 0,
			"priorities (priority_header, priority_age_ms, priority_reserved) are another order: allowed is one of the two",
		},
	} {
		if !c.ok {
			return &SettingError{c.field, Quote(c.value), c.allowed}
		}
	}
	for _, c := range []struct{ field, value string }{{"fairness_header", q.FairnessHeader}, {"circuit_header", q.CircuitHeader}} {
		if err := checkTemplate(c.field, c.value); err != nil {
			return err
		}
	}
	return q.checkThrottleHeaders()
}

func (q QueueSettings) checkThrottleHeaders() error {
	if n := len(q.ThrottleHeaders); n > MaxThrottleHeaders {
		return &SettingError{"throttle_headers", strconv.Itoa(n) + " names", fmt.Sprintf("allowed are at most %d", MaxThrottleHeaders)}
	}
	for i, name := range q.ThrottleHeaders {
		if err := checkTemplate("throttle_headers", name); err != nil {
			return err
		}
		switch {
		case name == "":
			return &SettingError{"throttle_headers", `""`, "a header's name must not be empty"}
		case slices.ContainsFunc(q.ThrottleHeaders[:i], func(o string) bool { return strings.EqualFold(o, name) }):
			return &SettingError{"throttle_headers", Quote(name), "each header may be named once"}
		}
	}
	return nil
}

func (q QueueSettings) checkEnqueueRates() error {
	for _, r := range []struct {
		field, burstField string
		rate              Rate
		burst             int64
	}{
		{"enqueue_rate", "enqueue_burst", q.EnqueueRate, q.EnqueueBurst},
		{"enqueue_rate_per_key", "enqueue_burst_per_key", q.EnqueueRatePerKey, q.EnqueueBurstPerKey},
	} {
		if r.rate == "" {
			if r.burst != 0 {
				return &SettingError{r.burstField, strconv.FormatInt(r.burst, 10), "it goes with " + r.field}
			}
			continue
		}
		if err := r.rate.Check(); err != nil {
			return &SettingError{r.field, Quote(string(r.rate)), err.Error()}
		}
	}
	return nil
}

func checkTemplate(field, text string) error {
	if _, err := ParseKeyTemplate(text); err != nil {
		return &SettingError{field, Quote(text), err.Error() + "; " + templateSettings}
	}
	return nil
}

const templateSettings = "allowed is a header's name that does not start with Fila- or Nats-, or text with such names in braces, as tenant:{tenant}"

const headerSettings = "allowed is a header's name that does not start with Fila- or Nats-"

// legalHeaderSetting allows the empty name, which means none. Reserved headers are not stored
// with the message, so a redrive would not find them.
func legalHeaderSetting(name string) bool {
	return name == "" || LegalHeaderName(name) && !Reserved(name)
}
