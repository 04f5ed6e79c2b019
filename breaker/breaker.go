package breaker

import (
	"math"
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
	// transition: Threshold or more for an opening, 0 for a closing.
	ConsecutiveFailures int
	// At is the time that was given to the call which made the transition.
	At int64
}

// Ticket is the right to make one call. The zero Ticket is never granted and
// is ignored by Done.
type Ticket struct {
	gen    uint64
	change Change
	turned bool
}

// Change returns the transition that the Allow which granted t made: from open
// to half-open, by the first probe. ok is false for every other Ticket.
func (t Ticket) Change() (c Change, ok bool) { return t.change, t.turned }

// Breaker is a circuit breaker. It is safe for concurrent use by its own
// mutex, which is never held while anything outside of the package runs; an
// uncontended pair of Allow and Done costs some 50 ns.
type Breaker struct {
	mu struct {
		sync.Mutex
		cfg       Config
		state     State
		gen       uint64 // of the current state; tickets of another are stale
		failures  int    // consecutive ones
		openedAt  int64  // when the wait began; meaningful while open
		openUntil int64
		forced    bool // opened by hand: SetConfig leaves openUntil alone
		probes    int  // under way; half-open only
		successes int  // of probes; half-open only
	}
}

// New returns a closed Breaker.
func New(c Config) *Breaker {
	b := &Breaker{}
	b.mu.cfg = c.withDefaults()
	b.mu.gen = 1
	return b
}

// Allow asks for one call at time now. If it is granted the caller must hand
// the Ticket to Done exactly once. The first call after the cooldown turns an
// open breaker half-open (see Ticket.Change) and is its first probe.
func (b *Breaker) Allow(now int64) (t Ticket, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch b.mu.state {
	case Closed:
		return Ticket{gen: b.mu.gen}, true
	case Open:
		b.rebase(now)
		if now < b.mu.openUntil {
			return Ticket{}, false
		}
		t.change, t.turned = b.turn(HalfOpen, now), true
		b.mu.probes = 1
		t.gen = b.mu.gen
		return t, true
	default:
		if b.mu.probes >= b.mu.cfg.HalfOpenMaxCalls {
			return Ticket{}, false
		}
		b.mu.probes++
		return Ticket{gen: b.mu.gen}, true
	}
}

// Done reports at time now how the call of t ended. A Ticket of an earlier
// state changes nothing. changed tells whether the outcome made a transition.
func (b *Breaker) Done(now int64, t Ticket, o Outcome) (c Change, changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.gen != b.mu.gen {
		return Change{}, false
	}
	if b.mu.state == HalfOpen {
		return b.probeDone(now, o)
	}
	switch o { // closed: an open state grants no tickets
	case Success:
		b.mu.failures = 0
	case Failure:
		b.mu.failures++
		if b.mu.failures >= b.mu.cfg.Threshold {
			return b.open(now, until(now, b.mu.cfg.Cooldown), false), true
		}
	}
	return Change{}, false
}

func (b *Breaker) probeDone(now int64, o Outcome) (Change, bool) {
	if b.mu.probes == 0 { // a Ticket that was given to Done twice
		return Change{}, false
	}
	b.mu.probes--
	switch o {
	case Success:
		b.mu.successes++
		if b.mu.successes >= b.mu.cfg.HalfOpenSuccesses {
			b.mu.failures = 0
			return b.turn(Closed, now), true
		}
	case Failure:
		b.mu.failures++
		return b.open(now, until(now, b.mu.cfg.Cooldown), false), true
	}
	return Change{}, false
}

// Open opens the breaker by hand at time now until the given time, whatever
// its state: calls under way do not count any more. math.MaxInt64 means until
// Reset. If it was open already, only the time changes and changed is false.
func (b *Breaker) Open(now, until int64) (c Change, changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.state == Open {
		b.mu.openedAt, b.mu.openUntil, b.mu.forced = now, until, true
		return Change{}, false
	}
	return b.open(now, until, true), true
}

// Reset closes the breaker by hand at time now and forgets its failures;
// results of calls under way do not count any more. changed is false if it was
// closed already.
func (b *Breaker) Reset(now int64) (c Change, changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.failures = 0
	if b.mu.state == Closed {
		b.mu.gen++
		return Change{}, false
	}
	return b.turn(Closed, now), true
}

// SetConfig changes the limits. The state stays: a lower threshold takes
// effect with the next failure, a new cooldown also for the present opening
// unless that was made by Open.
func (b *Breaker) SetConfig(c Config) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.cfg = c.withDefaults()
	if b.mu.state == Open && !b.mu.forced {
		b.mu.openUntil = until(b.mu.openedAt, b.mu.cfg.Cooldown)
	}
}

// Info is a view of a Breaker at one moment.
type Info struct {
	// State at that moment. An open breaker whose cooldown is over shows as
	// HalfOpen, since the next call will be its probe.
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
	i := Info{State: b.mu.state, ConsecutiveFailures: b.mu.failures, Probes: b.mu.probes}
	if i.State == Open {
		i.OpenUntil = b.mu.openUntil
		if now >= i.OpenUntil {
			i.State, i.OpenUntil = HalfOpen, 0
		}
	}
	return i
}

// State returns the state at time now, as Info does.
func (b *Breaker) State(now int64) State { return b.Info(now).State }

// OpenUntil returns when an open breaker lets its next probe through, in Unix
// nanoseconds, or 0 if it is not open. A clock that jumps back may postpone it.
func (b *Breaker) OpenUntil() int64 { return b.Info(math.MinInt64).OpenUntil }

// Ready tells whether Allow would grant a call at time now.
func (b *Breaker) Ready(now int64) bool {
	i := b.Info(now)
	if i.State == HalfOpen {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.mu.state != HalfOpen || b.mu.probes < b.mu.cfg.HalfOpenMaxCalls
	}
	return i.State == Closed
}

// turn moves to state s. Its caller holds the lock.
func (b *Breaker) turn(s State, now int64) Change {
	c := Change{Old: b.mu.state, New: s, ConsecutiveFailures: b.mu.failures, At: now}
	b.mu.state = s
	b.mu.gen++
	b.mu.probes, b.mu.successes = 0, 0
	return c
}

func (b *Breaker) open(now, until int64, forced bool) Change {
	b.mu.openedAt, b.mu.openUntil, b.mu.forced = now, until, forced
	return b.turn(Open, now)
}

// rebase keeps an opening from lasting longer than it should when the clock
// has jumped back behind its beginning: the wait starts again at now.
func (b *Breaker) rebase(now int64) {
	if now >= b.mu.openedAt || b.mu.openUntil == math.MaxInt64 {
		return
	}
	b.mu.openUntil = until(now, time.Duration(b.mu.openUntil-b.mu.openedAt))
	b.mu.openedAt = now
}

// until adds d to t without running past the end of time.
func until(t int64, d time.Duration) int64 {
	if d > 0 && t > math.MaxInt64-int64(d) {
		return math.MaxInt64
	}
	return t + int64(d)
}
