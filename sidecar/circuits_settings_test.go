package sidecar

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/wire"
)

func TestCircuitLimits(t *testing.T) {
	std := breaker.Config{Threshold: 10, Cooldown: 5 * time.Minute, HalfOpenMaxCalls: 3, HalfOpenSuccesses: 1}
	defaults, perKey := circuitLimits(CircuitDefaults{}, nil, nil)
	require.Equal(t, circuitSettings{breaker: std, failureWindow: 60 * second}, defaults)
	require.Empty(t, perKey)
	defaults, _ = circuitLimits(defaultCircuits(), nil, nil)
	require.Equal(t, circuitSettings{breaker: std, failureWindow: 60 * second}, defaults)

	defaults, perKey = circuitLimits(CircuitDefaults{Threshold: 4, MaxFailures: 50, FailureHoldMs: 7}, []CircuitTable{
		{Key: "stripe", CooldownMs: 1000, HalfOpenMaxCalls: 2, MaxFailures: 9, FailureWindowMs: 5, FailureHoldMs: 6},
		{Key: "a:b", Threshold: 8},
	}, []wire.ConfigEntry{
		{Key: "circuit:stripe:cooldown_ms", Value: "2000"},
		{Key: "circuit:stripe:half_open_successes", Value: "5"},
		{Key: "circuit:a:b:half_open_max_calls", Value: "6"},
		{Key: "circuit:new:threshold", Value: "1"},
		{Key: "circuit:stripe:failure_hold_ms", Value: "0"},
		{Key: "circuit:stripe:failure_window_ms", Value: "4"},
		{Key: "circuit:free:max_failures", Value: "0"},
		{Key: "circuit:huge:cooldown_ms", Value: "1000000000000000"},
		{Key: "circuit:huge:threshold", Value: "1000000000000000"},
		// What cannot be set, and other keys.
		{Key: "circuit:odd:threshold", Value: "many"},
		{Key: "circuit:odd:threshold", Value: "0"},
		{Key: "circuit:odd:failure_hold_ms", Value: "-1"},
		{Key: "circuit:odd:colour", Value: "1"},
		{Key: "circuit:odd", Value: "1"},
		{Key: "circuit::threshold", Value: "1"},
		{Key: "throttle:odd:threshold", Value: "1"},
	})
	base := circuitSettings{breaker: std, maxFailures: 50, failureWindow: 60 * second, failureHold: 7_000_000}
	base.breaker.Threshold = 4
	require.Equal(t, base, defaults)
	want := map[string]circuitSettings{}
	s := base
	s.breaker.Cooldown, s.breaker.HalfOpenMaxCalls, s.breaker.HalfOpenSuccesses = 2*time.Second, 2, 5
	s.maxFailures, s.failureWindow, s.failureHold = 9, 4_000_000, 0
	want["stripe"] = s
	s = base
	s.breaker.Threshold, s.breaker.HalfOpenMaxCalls = 8, 6
	want["a:b"] = s
	s = base
	s.breaker.Threshold = 1
	want["new"] = s
	s = base
	s.maxFailures = 0
	want["free"] = s
	s = base
	s.breaker.Threshold, s.breaker.Cooldown = math.MaxInt32, 100*366*24*time.Hour
	want["huge"] = s
	require.Equal(t, want, perKey)
}

func TestDeclaringCircuits(t *testing.T) {
	r := newCircuitRig(t)
	var entries []wire.ConfigEntry
	r.cs.runtime = func() []wire.ConfigEntry { return entries }
	tables := []CircuitTable{{Key: "stripe", Threshold: 5}}
	r.cs.declare(CircuitDefaults{Threshold: 20}, tables)
	threshold := func(key string) int { return r.cs.use(key).info(0).Threshold }
	require.Equal(t, 5, threshold("stripe"))
	require.Equal(t, 20, threshold("other"))

	entries = []wire.ConfigEntry{{Key: "circuit:stripe:threshold", Value: "6"}, {Key: "circuit:other:threshold", Value: "7"}}
	r.cs.declare(CircuitDefaults{Threshold: 20}, tables)
	require.Equal(t, 6, threshold("stripe"))
	require.Equal(t, 7, threshold("other"))

	entries = nil
	r.cs.declare(CircuitDefaults{}, nil)
	require.Equal(t, 10, threshold("stripe"))
}

// TestFailureWindow compares the ring with a list of all failures.
func TestFailureWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w failureWindow
		limit, window := int64(0), int64(1)
		var times []int64
		now := int64(1000)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				now += rapid.Int64Range(0, 30).Draw(t, "later")
				times = append(times, now)
				n := int64(0)
				for _, at := range times {
					if at > now-window {
						n++
					}
				}
				over := limit > 0 && n > limit
				require.Equal(t, over, w.add(now))
				if over || limit == 0 {
					times = nil
				}
			},
			"set": func(t *rapid.T) {
				old := window
				if rapid.Bool().Draw(t, "other window") {
					window = rapid.Int64Range(1, 200).Draw(t, "window")
				}
				if before := limit; rapid.Bool().Draw(t, "other limit") {
					limit = rapid.Int64Range(0, 40).Draw(t, "limit")
					if before == 0 {
						times = nil
					}
				}
				w.set(limit, window, now)
				if window < old || int64(len(times)) > limit {
					times = kept(times, limit, now-window)
				}
				// A longer window does not bring back what was forgotten.
				times = times[max(len(times)-w.n, 0):]
			},
			"clear": func(*rapid.T) {
				w.clear()
				times = nil
			},
			"expire": func(t *rapid.T) {
				w.expire(now)
				require.Len(t, kept(times, math.MaxInt64, now-window), w.n)
			},
		})
	})
}

// kept returns the last limit times of those after oldest.
func kept(times []int64, limit, oldest int64) []int64 {
	for len(times) > 0 && (times[0] <= oldest || int64(len(times)) > limit) {
		times = times[1:]
	}
	return times
}

func TestFailureWindowWhenTheClockIsSetBack(t *testing.T) {
	var w failureWindow
	w.set(2, 100, 0)
	require.False(t, w.add(10_000))
	require.False(t, w.add(9_950), "within the window it stands still")
	require.True(t, w.add(9_960))
	require.False(t, w.add(10_000))
	require.False(t, w.add(10_000))
	require.False(t, w.add(500), "long ago: it begins anew")
	require.False(t, w.add(550))
	require.True(t, w.add(599))
}
