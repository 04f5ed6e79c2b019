package wire

import (
	"fmt"
	"math"
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
	// DefaultMaxDeliveries holds for queues without on_failure, and for every
	// failure that the hook did not decide itself.
	DefaultMaxDeliveries = 20
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
	// MaxThrottleHeaders is how many throttle headers a queue may have: as many
	// as a message has throttle keys.
	MaxThrottleHeaders = 16
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
	// file and the command line may use them, and replace them by the texts
	// with [QueueSettings.ResolveFiles]; the sidecar opens no file that
	// somebody names over NATS.
	OnEnqueueFile string `json:"on_enqueue_file,omitempty" koanf:"on_enqueue_file" toml:"on_enqueue_file,omitempty"`
	OnFailureFile string `json:"on_failure_file,omitempty" koanf:"on_failure_file" toml:"on_failure_file,omitempty"`

	// VisibilityTimeoutMs is how long a lease lasts, from 1.
	VisibilityTimeoutMs int64 `json:"visibility_timeout_ms" koanf:"visibility_timeout_ms" toml:"visibility_timeout_ms"`
	// MaxDeliveries is after how many deliveries a message is dead-lettered; 0
	// is no limit, nil the default, see [QueueSettings.DeliveryLimit].
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
	// headers that decide about scheduling without a hook.
	FairnessHeader  string   `json:"fairness_header" koanf:"fairness_header" toml:"fairness_header"`
	WeightHeader    string   `json:"weight_header" koanf:"weight_header" toml:"weight_header"`
	ThrottleHeaders []string `json:"throttle_headers" koanf:"throttle_headers" toml:"throttle_headers"`
}

// DefaultQueueSettings returns the settings of a queue about which nothing is
// said.
func DefaultQueueSettings(name string) QueueSettings {
	return QueueSettings{
		Name:                name,
		VisibilityTimeoutMs: DefaultVisibilityTimeoutMs,
		DedupeWindowMs:      DefaultDedupeWindowMs,
		Quantum:             DefaultQuantum,
	}
}

// SettingError is returned by [QueueSettings.Validate] for one setting.
type SettingError struct {
	Field   string // the key as in config.toml
	Value   string // as it was given, quoted if it is a text
	Allowed string // what is allowed, a phrase after "must be" or the like
}

func (e *SettingError) Error() string { return e.Field + " is " + e.Value + ": " + e.Allowed }

// Validate returns nil or a [*SettingError] for the first setting that is not
// possible. Names of dead letter queues are refused, since their settings
// follow from their queue's, and so are files that have not been resolved.
// Whether the scripts compile is for package hooks to say.
func (q QueueSettings) Validate() error {
	if err := q.checkNames(); err != nil {
		return err
	}
	maxDeliveries := int64(0)
	if q.MaxDeliveries != nil {
		maxDeliveries = *q.MaxDeliveries
	}
	for _, c := range []struct {
		field         string
		value, lo, hi int64
		zero          string // what 0 means, if it is allowed below lo
	}{
		{"visibility_timeout_ms", q.VisibilityTimeoutMs, 1, MaxSettingMs, ""},
		{"max_deliveries", maxDeliveries, 0, math.MaxInt32, ""},
		{"max_depth", q.MaxDepth, 0, math.MaxInt64, ""},
		{"max_bytes", q.MaxBytes, 0, math.MaxInt64, ""},
		{"dedupe_window_ms", q.DedupeWindowMs, 0, MaxSettingMs, ""},
		{"quantum", q.Quantum, 1, MaxQuantum, ""},
		{"lua_timeout_ms", q.LuaTimeoutMs, 0, MaxLuaTimeoutMs, ""},
		{"lua_memory_limit_bytes", q.LuaMemoryLimitBytes, MinLuaMemoryBytes, MaxLuaMemoryBytes, "the global default"},
		{"lua_circuit_breaker_threshold", q.LuaCircuitBreakerThreshold, 0, 1_000_000, ""},
		{"lua_circuit_breaker_cooldown_ms", q.LuaCircuitBreakerCooldownMs, 0, MaxSettingMs, ""},
	} {
		if c.value >= c.lo && c.value <= c.hi || c.value == 0 && c.zero != "" {
			continue
		}
		allowed := fmt.Sprintf("allowed are %d to %d", c.lo, c.hi)
		if c.zero != "" {
			allowed = fmt.Sprintf("allowed are 0 (%s) and %d to %d", c.zero, c.lo, c.hi)
		}
		return &SettingError{Field: c.field, Value: strconv.FormatInt(c.value, 10), Allowed: allowed}
	}
	return nil
}

func (q QueueSettings) checkNames() error {
	if CheckQueueName(q.Name) != nil {
		return &SettingError{"name", quote(q.Name), "allowed are 1 to 128 bytes of A-Za-z0-9_- with dots between non-empty parts"}
	}
	if IsDLQ(q.Name) {
		return &SettingError{"name", quote(q.Name), "names that end in .dlq are reserved for dead letter queues"}
	}
	if q.OnEnqueueFile != "" {
		return &SettingError{"on_enqueue_file", quote(q.OnEnqueueFile), "only a configuration file or the command line may name a file; send the text as on_enqueue"}
	}
	if q.OnFailureFile != "" {
		return &SettingError{"on_failure_file", quote(q.OnFailureFile), "only a configuration file or the command line may name a file; send the text as on_failure"}
	}
	if err := checkHeaderSetting("fairness_header", q.FairnessHeader); err != nil {
		return err
	}
	if err := checkHeaderSetting("weight_header", q.WeightHeader); err != nil {
		return err
	}
	if n := len(q.ThrottleHeaders); n > MaxThrottleHeaders {
		return &SettingError{"throttle_headers", strconv.Itoa(n) + " names", fmt.Sprintf("allowed are at most %d", MaxThrottleHeaders)}
	}
	for i, name := range q.ThrottleHeaders {
		if name == "" {
			return &SettingError{"throttle_headers", `""`, "a header's name must not be empty"}
		}
		if err := checkHeaderSetting("throttle_headers", name); err != nil {
			return err
		}
		if slices.ContainsFunc(q.ThrottleHeaders[:i], func(o string) bool { return strings.EqualFold(o, name) }) {
			return &SettingError{"throttle_headers", quote(name), "each header may be named once"}
		}
	}
	return nil
}

// checkHeaderSetting allows the empty name, which means none. Reserved headers
// are not kept with the message, so a redrive would not find them.
func checkHeaderSetting(field, name string) error {
	if name == "" || legalHeaderName(name) && !Reserved(name) {
		return nil
	}
	return &SettingError{field, quote(name), "allowed is a header's name that does not start with Fila- or Nats-"}
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

// Equal reports whether q and o say the same. A list that is nil equals an
// empty one.
func (q QueueSettings) Equal(o QueueSettings) bool {
	if !slices.Equal(q.ThrottleHeaders, o.ThrottleHeaders) {
		return false
	}
	q.ThrottleHeaders, o.ThrottleHeaders = nil, nil
	return reflect.DeepEqual(q, o)
}

// Patch returns q with the fields that body names changed, strictly decoded
// and validated; q stays as it is. The body of a queue-create patches
// [DefaultQueueSettings], that of a queue-update the current settings. A name
// in the body must be the queue's.
func (q QueueSettings) Patch(body []byte) (QueueSettings, *Error) {
	p := q.Clone()
	seen, err := decodeStrict(body, &p)
	if err != nil {
		return QueueSettings{}, err
	}
	if p.Name != q.Name {
		return QueueSettings{}, BadQueueSettings(&SettingError{
			"name", quote(p.Name), "the subject names the queue " + quote(q.Name),
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

// ResolveFiles returns q with the texts of the files that on_enqueue_file and
// on_failure_file name, as read returns them, in place of the names. To give
// both a text and a file is an error.
func (q QueueSettings) ResolveFiles(read func(path string) ([]byte, error)) (QueueSettings, error) {
	q = q.Clone()
	for _, h := range []struct {
		field string
		text  *string
		path  *string
	}{
		{"on_enqueue", &q.OnEnqueue, &q.OnEnqueueFile},
		{"on_failure", &q.OnFailure, &q.OnFailureFile},
	} {
		if *h.path == "" {
			continue
		}
		if *h.text != "" {
			return QueueSettings{}, &SettingError{h.field + "_file", quote(*h.path), "not together with " + h.field}
		}
		b, err := read(*h.path)
		if err != nil {
			return QueueSettings{}, fmt.Errorf("%s_file: %w", h.field, err)
		}
		*h.text, *h.path = string(b), ""
	}
	return q, nil
}
