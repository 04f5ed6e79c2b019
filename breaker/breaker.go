package breaker

import (
	"cmp"
	"time"
)

// Defaults for the fields of a Config that are zero or negative.
const (
	DefaultThreshold         = 3
	DefaultCooldown          = 10 * time.Second
	DefaultHalfOpenMaxCalls  = 1
	DefaultHalfOpenSuccesses = 1
)

// Config holds the limits of a Machine. A field that is zero or negative takes
// its default; no value switches a limit off.
type Config struct {
	// Threshold is the number of consecutive failures at which a closed
	// breaker opens: not before, not after.
	Threshold int
	// Cooldown is how long an open breaker refuses calls before it lets probes
	// through.
	Cooldown time.Duration
	// HalfOpenMaxCalls is how many probes may be under way at once.
	HalfOpenMaxCalls int
	// HalfOpenSuccesses is how many probes must succeed, without a failure in
	// between, before the breaker closes.
	HalfOpenSuccesses int
}

// withDefaults fills in what c leaves out.
func (c Config) withDefaults() Config {
	c.Threshold = cmp.Or(max(c.Threshold, 0), DefaultThreshold)
	c.Cooldown = cmp.Or(max(c.Cooldown, 0), DefaultCooldown)
	c.HalfOpenMaxCalls = cmp.Or(max(c.HalfOpenMaxCalls, 0), DefaultHalfOpenMaxCalls)
	c.HalfOpenSuccesses = cmp.Or(max(c.HalfOpenSuccesses, 0), DefaultHalfOpenSuccesses)
	return c
}

// State is what a Machine does with calls.
type State uint8

// The states of a Machine.
const (
	Closed   State = iota // calls pass
	Open                  // calls are refused until the cooldown is over
	HalfOpen              // a few probes pass
)

// String returns the name used in events, inspect output and metrics:
// "closed", "open" or "half-open".
func (s State) String() string {
	switch s {
	case Closed:
		return "closed"
	case Open:
		return "open"
	case HalfOpen:
		return "half-open"
	}
	return "unknown"
}

// Outcome is how a call ended.
type Outcome uint8

// The outcomes of a call.
const (
	// Success ends a row of failures, and counts towards closing in half-open.
	Success Outcome = iota
	// Failure counts towards opening, and reopens a half-open breaker at once.
	Failure
	// Neutral says nothing about the callee (the call was cancelled, or never
	// made). It only gives a probe's place back.
	Neutral
)

// Change is one transition.
type Change struct {
	Old, New State
	// ConsecutiveFailures is the length of the row of failures after the
	// transition: Threshold or more for an opening by failures, 0 for a closing
	// by probes.
	ConsecutiveFailures int
	// At is the time that was given to the call which made the transition.
	At int64
}

// Turned tells whether there was a transition at all.
func (c Change) Turned() bool { return c.Old != c.New }

// Info is a view of a Machine at one moment.
type Info struct {
	// State at that moment. An open breaker whose time is over shows the state that the next call
	// will give it, as a rule HalfOpen.
	State               State
	ConsecutiveFailures int
	// OpenUntil is when an open breaker lets the next probe through; 0 in the
	// other states.
	OpenUntil int64
	// Probes is how many probes are under way.
	Probes int
}
