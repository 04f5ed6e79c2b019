package sidecar

import "github.com/filaq/fila/wire"

// ThrottleTable is one [[throttle]]: the limits of a throttle key or, if Key
// ends in '*', of every key that begins with what stands before it, each of them
// by itself. A field that is zero is not set.
type ThrottleTable struct {
	Key         string    `koanf:"key"`
	Rate        wire.Rate `koanf:"rate"`        // messages of cost 1 per second
	Burst       float64   `koanf:"burst"`       // cost that may go at once, 1 to 1e9; needs a rate
	Concurrency int64     `koanf:"concurrency"` // messages in flight at once
	Limit       int64     `koanf:"limit"`       // messages in any window; needs a window
	WindowMs    int64     `koanf:"window_ms"`
}

// CircuitDefaults are the limits of circuits about which no [[circuit]] says
// otherwise.
type CircuitDefaults struct {
	Threshold         int64 `koanf:"threshold"`           // failures in a row that open it, from 1
	CooldownMs        int64 `koanf:"cooldown_ms"`         // how long it stays open, from 1
	HalfOpenMaxCalls  int64 `koanf:"half_open_max_calls"` // probes at a time afterwards, from 1
	HalfOpenSuccesses int64 `koanf:"half_open_successes"` // of them that close it, from 1
	MaxFailures       int64 `koanf:"max_failures"`        // allowed within the window, in a row or not; one more holds the key; 0: any number
	FailureWindowMs   int64 `koanf:"failure_window_ms"`   // that window, from 1
	FailureHoldMs     int64 `koanf:"failure_hold_ms"`     // how long the key is held; 0: until it is closed by hand
}

// CircuitTable is one [[circuit]]: the limits of one circuit key. A field that
// is zero has the value of [circuit_defaults].
type CircuitTable struct {
	Key               string `koanf:"key"`
	Threshold         int64  `koanf:"threshold"`
	CooldownMs        int64  `koanf:"cooldown_ms"`
	HalfOpenMaxCalls  int64  `koanf:"half_open_max_calls"`
	HalfOpenSuccesses int64  `koanf:"half_open_successes"`
	MaxFailures       int64  `koanf:"max_failures"`
	FailureWindowMs   int64  `koanf:"failure_window_ms"`
	FailureHoldMs     int64  `koanf:"failure_hold_ms"`
}

// RetryPolicy is one [[retry_policy]]: when a failed message is tried again.
type RetryPolicy struct {
	Name           string  `koanf:"name"`
	Retry          *bool   `koanf:"retry"`            // false: dead-letter after the first failure; nil is true
	MaxRetries     int64   `koanf:"max_retries"`      // 0: as the queue's max_deliveries allows
	InitialDelayMs int64   `koanf:"initial_delay_ms"` // before the first retry; 0: at once
	MaxDelayMs     int64   `koanf:"max_delay_ms"`     // that no delay exceeds; 0: a year
	Multiplier     float64 `koanf:"multiplier"`       // of each delay to the one before, 1 to 1000; 0 is 2
	Jitter         float64 `koanf:"jitter"`           // fraction of the delay that chance adds or takes, 0 to 1
}

// ErrorRule is one [[error_rule]]: what to make of a failure whose error code
// and text it fits. The first one that fits counts.
type ErrorRule struct {
	Name         string `koanf:"name"`
	Queue        string `koanf:"queue"`         // only failures in this queue; empty: in any
	Code         string `koanf:"code"`          // the error code, exactly; empty: any
	Pattern      string `koanf:"pattern"`       // regular expression (RE2) found in the error text; empty: any text
	Severity     string `koanf:"severity"`      // low, medium, high or critical; empty is medium
	RetryPolicy  string `koanf:"retry_policy"`  // of these failures; empty: the queue's
	Retry        *bool  `koanf:"retry"`         // false: dead-letter; nil: as the policy says
	MessageFault bool   `koanf:"message_fault"` // does not count against the circuit
}

// Defaults of [CircuitDefaults].
func defaultCircuits() CircuitDefaults {
	return CircuitDefaults{
		Threshold: 10, CooldownMs: 300_000, HalfOpenMaxCalls: 3, HalfOpenSuccesses: 1, FailureWindowMs: 60_000,
	}
}

// DefaultRetryPolicy is a [[retry_policy]] that says nothing but its name.
func DefaultRetryPolicy(name string) RetryPolicy {
	return RetryPolicy{Name: name, InitialDelayMs: 1000, MaxDelayMs: 300_000, Multiplier: 2}
}
