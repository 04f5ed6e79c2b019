package sidecar

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// Bounds of the tables.
const (
	maxGateKey       = 256     // bytes, as in what a hook may return
	maxGateTables    = 100_000 // of one kind
	maxCircuitCounts = wire.MaxFailures
	maxBurst         = throttle.MaxBurst / throttle.One
)

func (c *Config) validateThrottles() error {
	if n := len(c.Throttles); n > maxGateTables {
		return fmt.Errorf("throttle: %d tables: allowed are at most %d", n, maxGateTables)
	}
	seen := make(map[string]bool, len(c.Throttles))
	for i, t := range c.Throttles {
		if err := checkGateKey("throttle", i, t.Key, seen); err != nil {
			return err
		}
		if star := strings.IndexByte(t.Key, '*'); star >= 0 && star != len(t.Key)-1 {
			return fmt.Errorf("throttle[%d].key = %q: allowed is one '*', at the end", i, t.Key)
		}
		if err := t.validate(); err != nil {
			return fmt.Errorf("throttle[%s]%w", t.Key, err)
		}
	}
	return nil
}

// validate returns errors that begin with the key of the table, or a space.
func (t *ThrottleTable) validate() error {
	for _, err := range []error{
		within(".concurrency", t.Concurrency, 0, throttle.MaxConcurrency),
		within(".limit", t.Limit, 0, throttle.MaxLimit),
		within(".window_ms", t.WindowMs, 0, wire.MaxSettingMs),
	} {
		if err != nil {
			return err
		}
	}
	if t.Burst != 0 {
		if err := between(".burst", t.Burst, 1, maxBurst); err != nil {
			return err
		}
	}
	if t.Rate != "" {
		if err := t.Rate.Check(); err != nil {
			return fmt.Errorf(".rate = %q: %w", string(t.Rate), err)
		}
	}
	switch {
	case t.Burst != 0 && t.Rate == "":
		return errors.New(".burst is set without rate: they go together")
	case (t.Limit == 0) != (t.WindowMs == 0):
		return fmt.Errorf(".limit = %d, window_ms = %d: they go together", t.Limit, t.WindowMs)
	case t.Rate == "" && t.Limit == 0 && t.Concurrency == 0:
		return errors.New(" limits nothing: set at least one of rate, concurrency, and limit with window_ms")
	}
	return nil
}

func (c *Config) validateCircuits() error {
	d := CircuitTable{
		Threshold: c.CircuitDefaults.Threshold, CooldownMs: c.CircuitDefaults.CooldownMs,
		HalfOpenMaxCalls: c.CircuitDefaults.HalfOpenMaxCalls, HalfOpenSuccesses: c.CircuitDefaults.HalfOpenSuccesses,
		MaxFailures: c.CircuitDefaults.MaxFailures, FailureWindowMs: c.CircuitDefaults.FailureWindowMs,
		FailureHoldMs: c.CircuitDefaults.FailureHoldMs,
	}
	if err := d.validate(1); err != nil {
		return fmt.Errorf("circuit_defaults.%w", err)
	}
	if n := len(c.Circuits); n > maxGateTables {
		return fmt.Errorf("circuit: %d tables: allowed are at most %d", n, maxGateTables)
	}
	seen := make(map[string]bool, len(c.Circuits))
	for i, t := range c.Circuits {
		if err := checkGateKey("circuit", i, t.Key, seen); err != nil {
			return err
		}
		if strings.Contains(t.Key, "*") {
			return fmt.Errorf("circuit[%d].key = %q: allowed is a whole key; there are no prefixes of circuits", i, t.Key)
		}
		if err := t.validate(0); err != nil {
			return fmt.Errorf("circuit[%s].%w", t.Key, err)
		}
	}
	return nil
}

// validate returns errors that begin with the key. low is the least value of
// settings that cannot be off: 0 where that means the default.
func (t *CircuitTable) validate(low int64) error {
	for _, err := range []error{
		within("threshold", t.Threshold, low, maxCircuitCounts),
		within("cooldown_ms", t.CooldownMs, low, wire.MaxSettingMs),
		within("half_open_max_calls", t.HalfOpenMaxCalls, low, maxCircuitCounts),
		within("half_open_successes", t.HalfOpenSuccesses, low, maxCircuitCounts),
		within("max_failures", t.MaxFailures, 0, maxCircuitCounts),
		within("failure_window_ms", t.FailureWindowMs, low, wire.MaxSettingMs),
		within("failure_hold_ms", t.FailureHoldMs, 0, wire.MaxSettingMs),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// validateRules compiles them and checks the policies that queues name.
func (c *Config) validateRules() error {
	r, err := compileRules(c.RetryPolicies, c.ErrorRules)
	if err != nil {
		return err
	}
	for i := range c.Queues {
		if q := &c.Queues[i]; !r.hasPolicy(q.RetryPolicy) {
			return fmt.Errorf("queue[%s].retry_policy = %q: %s", q.Name, q.RetryPolicy, r.allowedPolicies())
		}
	}
	return nil
}

// checkGateKey checks the key of table number i and adds it to seen.
func checkGateKey(table string, i int, key string, seen map[string]bool) error {
	switch {
	case key == "":
		return fmt.Errorf("%s[%d].key is missing: every [[%s]] needs one", table, i, table)
	case len(key) > maxGateKey:
		return fmt.Errorf("%s[%d].key has %d bytes: allowed are at most %d", table, i, len(key), maxGateKey)
	case !utf8.ValidString(key) || strings.ContainsFunc(key, unicode.IsControl):
		return fmt.Errorf("%s[%d].key = %q: allowed is text without control characters", table, i, key)
	case seen[key]:
		return fmt.Errorf("%s %q is declared twice: one [[%s]] per key is allowed", table, key, table)
	}
	seen[key] = true
	return nil
}

// between is [within] for numbers that need not be whole.
func between(key string, v, low, high float64) error {
	if v >= low && v <= high {
		return nil
	}
	return fmt.Errorf("%s = %s: allowed is %s to %s", key, number(v), number(low), number(high))
}

// number writes v as it stands in a file.
func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
