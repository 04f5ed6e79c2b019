package sidecar

import (
	"cmp"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/wire"
)

// circuitSettings are the limits of one circuit, times in ns.
type circuitSettings struct {
	breaker breaker.Config
	// More than maxFailures within failureWindow hold the circuit for
	// failureHold, or with 0 until it is closed by hand. 0 maxFailures is no
	// limit.
	maxFailures, failureWindow, failureHold int64
}

const circuitPrefix = "circuit:"

// circuitLimits brings together what is known of the limits of circuits: the
// runtime configuration, entries, over the [[circuit]] tables over
// [circuit_defaults]. A zero in a table is the default; in an entry it means
// itself, where it means something. Entries that make no sense are left out; they
// cannot be set.
func circuitLimits(d CircuitDefaults, tables []CircuitTable, entries []wire.ConfigEntry) (defaults circuitSettings, perKey map[string]circuitSettings) {
	std := defaultCircuits()
	base := CircuitTable{
		Threshold:         cmp.Or(d.Threshold, std.Threshold),
		CooldownMs:        cmp.Or(d.CooldownMs, std.CooldownMs),
		HalfOpenMaxCalls:  cmp.Or(d.HalfOpenMaxCalls, std.HalfOpenMaxCalls),
		HalfOpenSuccesses: cmp.Or(d.HalfOpenSuccesses, std.HalfOpenSuccesses),
		MaxFailures:       d.MaxFailures,
		FailureWindowMs:   cmp.Or(d.FailureWindowMs, std.FailureWindowMs),
		FailureHoldMs:     d.FailureHoldMs,
	}
	byKey := make(map[string]CircuitTable, len(tables))
	for _, t := range tables {
		byKey[t.Key] = t.or(&base)
	}
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Key, circuitPrefix)
		cut := strings.LastIndexByte(rest, ':')
		n, err := strconv.ParseInt(e.Value, 10, 64)
		if !ok || cut <= 0 || err != nil || n < 0 {
			continue
		}
		t, ok := byKey[rest[:cut]]
		if !ok {
			t = base
		}
		name := rest[cut+1:]
		field := t.field(name)
		if field == nil || n == 0 && name != "max_failures" && name != "failure_hold_ms" {
			continue
		}
		*field = n
		byKey[rest[:cut]] = t
	}
	perKey = make(map[string]circuitSettings, len(byKey))
	for key, t := range byKey {
		perKey[key] = t.settings()
	}
	return base.settings(), perKey
}

// field finds the limit that the runtime configuration calls name.
func (t *CircuitTable) field(name string) *int64 {
	switch name {
	case "threshold":
		return &t.Threshold
	case "cooldown_ms":
		return &t.CooldownMs
	case "half_open_max_calls":
		return &t.HalfOpenMaxCalls
	case "half_open_successes":
		return &t.HalfOpenSuccesses
	case "max_failures":
		return &t.MaxFailures
	case "failure_window_ms":
		return &t.FailureWindowMs
	case "failure_hold_ms":
		return &t.FailureHoldMs
	}
	return nil
}

// or fills in what t leaves out.
func (t *CircuitTable) or(base *CircuitTable) CircuitTable {
	return CircuitTable{
		Threshold:         cmp.Or(t.Threshold, base.Threshold),
		CooldownMs:        cmp.Or(t.CooldownMs, base.CooldownMs),
		HalfOpenMaxCalls:  cmp.Or(t.HalfOpenMaxCalls, base.HalfOpenMaxCalls),
		HalfOpenSuccesses: cmp.Or(t.HalfOpenSuccesses, base.HalfOpenSuccesses),
		MaxFailures:       cmp.Or(t.MaxFailures, base.MaxFailures),
		FailureWindowMs:   cmp.Or(t.FailureWindowMs, base.FailureWindowMs),
		FailureHoldMs:     cmp.Or(t.FailureHoldMs, base.FailureHoldMs),
	}
}

func (t *CircuitTable) settings() circuitSettings {
	return circuitSettings{
		breaker: breaker.Config{
			Threshold:         count(t.Threshold),
			Cooldown:          time.Duration(millis(t.CooldownMs)),
			HalfOpenMaxCalls:  count(t.HalfOpenMaxCalls),
			HalfOpenSuccesses: count(t.HalfOpenSuccesses),
		},
		// Counting costs memory, 8 bytes for each.
		maxFailures:   min(t.MaxFailures, maxCircuitCounts),
		failureWindow: millis(t.FailureWindowMs),
		failureHold:   millis(t.FailureHoldMs),
	}
}

// millis is ms milliseconds in ns, a hundred years at most.
func millis(ms int64) int64 {
	const most = 100 * 366 * 24 * 3600 * 1000
	return min(ms, most) * int64(time.Millisecond)
}

func count(n int64) int { return int(min(n, math.MaxInt32)) }
