package breaker

import (
	"sync"
	"time"
)

// Defaults for the fields of a Config that are zero or negative.
const (
	DefaultThreshold         = 3
	DefaultCooldown          = 10 * time.Second
	DefaultHalfOpenMaxCalls  = 1
	DefaultHalfOpenSuccesses = 1
)

// Config holds the limits of a Breaker. A field that is zero or negative takes
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
	if c.Threshold <= 0 {
		c.Threshold = DefaultThreshold
	}
	if c.Cooldown <= 0 {
		c.Cooldown = DefaultCooldown
	}
	if c.HalfOpenMaxCalls <= 0 {
		c.HalfOpenMaxCalls = DefaultHalfOpenMaxCalls
	}
	if c.HalfOpenSuccesses <= 0 {
		c.HalfOpenSuccesses = DefaultHalfOpenSuccesses
	}
	return c
}

// State is what a Breaker does with calls.
type State uint8

// The states of a Breaker.
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

// Ticket is the right to make one call. The zero Ticket is never granted and
// is ignored by Done.
type Ticket struct {
	pass   Pass
	change Change
}

// Change returns the transition that the Allow which granted t made: from open
// to half-open, by the first probe. ok is false for every other Ticket.
func (t Ticket) Change() (c Change, ok bool) { return t.change, t.change.Turned() }

// Breaker is a circuit breaker. It is safe for concurrent use by its own
// mutex, which is never held while anything outside of the package runs; an
// uncontended pair of Allow and Done costs some 50 ns.
type Breaker struct {
	mu struct {
		sync.Mutex
		m Machine
	}
}

// New returns a closed Breaker.
func New(c Config) *Breaker {
	b := &Breaker{}
	b.mu.m = NewMachine(c)
	return b
}

// Allow asks for one call at time now. If it is granted the caller must hand
// the Ticket to Done exactly once. The first call after the cooldown turns an
// open breaker half-open (see Ticket.Change) and is its first probe.
func (b *Breaker) Allow(now int64) (t Ticket, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t.pass, t.change = b.mu.m.Allow(now)
	return t, t.pass != 0
}

// Done reports at time now how the call of t ended. A Ticket of an earlier
// state changes nothing. changed tells whether the outcome made a transition.
func (b *Breaker) Done(now int64, t Ticket, o Outcome) (c Change, changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c, _ = b.mu.m.Done(now, t.pass, o)
	return c, c.Turned()
}

// Open opens the breaker by hand at time now until the given time, whatever
// its state: calls under way do not count any more. math.MaxInt64 means until
// Reset. If it was open already, only the time changes and changed is false.
func (b *Breaker) Open(now, until int64) (c Change, changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c = b.mu.m.Open(now, until, HalfOpen)
	return c, c.Turned()
}

// Reset closes the breaker by hand at time now and forgets its failures;
// results of calls under way do not count any more. changed is false if it was
// closed already.
func (b *Breaker) Reset(now int64) (c Change, changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c = b.mu.m.Reset(now)
	return c, c.Turned()
}

// SetConfig changes the limits. The state stays: a lower threshold takes
// effect with the next failure, a new cooldown also for the present opening
// unless that was made by Open.
func (b *Breaker) SetConfig(c Config) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.m.SetConfig(c)
}

// Info is a view of a Breaker at one moment.
type Info struct {
	// State at that moment. An open breaker whose time is over shows as what the
	// next call will make of it, HalfOpen as a rule.
	State               State
	ConsecutiveFailures int
	// OpenUntil is when an open breaker lets the next probe through; 0 in the
	// other states.
	OpenUntil int64
	// Probes is how many probes are under way.
	Probes int
}

// Info returns the breaker's condition at time now and changes nothing.
func (b *Breaker) Info(now int64) Info {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.m.Info(now)
}

// State returns the state at time now, as Info does.
func (b *Breaker) State(now int64) State { return b.Info(now).State }

// OpenUntil returns when an open breaker lets its next probe through, in Unix
// nanoseconds, or 0 if it is not open. A clock that jumps back may postpone it.
func (b *Breaker) OpenUntil() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.m.OpenUntil()
}

// Ready tells whether Allow would grant a call at time now.
func (b *Breaker) Ready(now int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.mu.m // Admits may note that the clock was set back; this is only a look
	n, _ := m.Admits(now)
	return n > 0
}
