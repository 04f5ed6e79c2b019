package breaker

import (
	"math"
	"time"
)

// Pass is the right to make one call. The zero Pass is none.
type Pass uint64

// Machine is a circuit breaker. It is not safe for concurrent use: the caller
// has a mutex. Make it with [NewMachine].
type Machine struct {
	cfg       Config
	state     State
	gen       uint64 // of the current state; passes of another are stale
	failures  int    // consecutive ones
	openedAt  int64  // when the cooldown began
	since     int64  // when the present wait began; not before openedAt
	openUntil int64
	floor     int64 // what RetryAfter asks for: a shorter cooldown does not go below
	cooling   bool  // openUntil comes from the cooldown
	after     State // of an open one: what it becomes when its time is over
	probes    int   // under way; half-open only
	successes int   // of probes; half-open only
}

// NewMachine returns a closed Machine.
func NewMachine(c Config) Machine {
	return Machine{cfg: c.withDefaults(), gen: 1, after: HalfOpen}
}

// Allow requests a permission for one call at time now. The Pass is zero if the call is
// refused; otherwise the caller returns it to Done exactly once. The first call after
// the end of an opening makes a transition: to half-open, as its first probe, or to
// closed.
func (m *Machine) Allow(now int64) (Pass, Change) {
	switch m.state {
	case Closed:
		return Pass(m.gen), Change{}
	case Open:
		m.rebase(now)
		if now < m.openUntil {
			return 0, Change{}
		}
		c := m.turn(m.after, now)
		if m.state == HalfOpen {
			m.probes = 1
		}
		return Pass(m.gen), c
	}
	if m.probes >= m.cfg.HalfOpenMaxCalls {
		return 0, Change{}
	}
	m.probes++
	return Pass(m.gen), Change{}
}

// Done returns p at time now with the outcome of its call. counted is false if p
// belongs to an earlier state, or is zero: then nothing changes.
func (m *Machine) Done(now int64, p Pass, o Outcome) (c Change, counted bool) {
	if uint64(p) != m.gen {
		return Change{}, false
	}
	if m.state == HalfOpen {
		return m.probeDone(now, o)
	}
	switch o { // closed: an open state grants no passes
	case Success:
		m.failures = 0
	case Failure:
		m.failures++
		if m.failures >= m.cfg.Threshold {
			return m.cool(now), true
		}
	}
	return Change{}, true
}

func (m *Machine) probeDone(now int64, o Outcome) (Change, bool) {
	if m.probes == 0 { // a Pass that was given to Done twice
		return Change{}, false
	}
	m.probes--
	switch o {
	case Success:
		m.successes++
		if m.successes >= m.cfg.HalfOpenSuccesses {
			m.failures = 0
			return m.turn(Closed, now), true
		}
	case Failure:
		m.failures++
		return m.cool(now), true
	}
	return Change{}, true
}

// Admits returns how many calls Allow would admit at time now: math.MaxInt64 when
// closed. If it is 0, at is when that may change: a time in Unix nanoseconds, or
// math.MaxInt64 if only an outcome or an operator changes it.
func (m *Machine) Admits(now int64) (n, at int64) {
	switch m.state {
	case Closed:
		return math.MaxInt64, 0
	case Open:
		m.rebase(now)
		switch {
		case now < m.openUntil:
			return 0, m.openUntil
		case m.after == Closed:
			return math.MaxInt64, 0
		}
		return int64(m.cfg.HalfOpenMaxCalls), 0
	}
	if n = int64(m.cfg.HalfOpenMaxCalls - m.probes); n > 0 {
		return n, 0
	}
	return 0, math.MaxInt64
}

// Open opens it by hand at time now until the given time, whatever its state:
// calls under way do not count any more. math.MaxInt64 means until Close, Reset
// or Release. When the time is over it becomes what after says, Closed or
// HalfOpen, but only a closed one may become closed again: one that was
// half-open, or open for its failures, is probed first. If it was open
// already, only the time changes and there is no transition.
func (m *Machine) Open(now, until int64, after State) Change {
	if m.state == HalfOpen || m.state == Open && m.after == HalfOpen {
		after = HalfOpen
	}
	m.wait(now, until, after)
	if m.state == Open {
		return Change{}
	}
	return m.turn(Open, now)
}

// RetryAfter opens it until the given time because the destination has asked
// for it. It never makes an opening shorter. Afterwards it is closed again, with
// the failures it had, unless it was half-open or open for them before.
func (m *Machine) RetryAfter(now, until int64) Change {
	if until <= now {
		return Change{}
	}
	if m.state == Open {
		m.rebase(now)
		m.floor = max(m.floor, until)
		if until > m.openUntil {
			m.openUntil, m.since = until, now
		}
		return Change{}
	}
	m.wait(now, until, m.state)
	m.floor = until
	return m.turn(Open, now)
}

// Release ends an opening early, at time now. A breaker that is to be probed becomes
// half-open, any other closed.
func (m *Machine) Release(now int64) Change {
	if m.state != Open {
		return Change{}
	}
	return m.turn(m.after, now)
}

// Reset closes it by hand at time now. It begins anew: its failures are forgotten,
// and results of calls under way do not count any more.
func (m *Machine) Reset(now int64) Change {
	m.failures = 0
	if m.state == Closed {
		m.gen++
		return Change{}
	}
	return m.turn(Closed, now)
}

// Advance closes the breaker if its opening is over at now and ends in closed. Allow does
// it too; Advance is for callers that request no call.
func (m *Machine) Advance(now int64) Change {
	if m.state == Open && m.after == Closed && now >= m.openUntil {
		return m.turn(Closed, now)
	}
	return Change{}
}

// SetConfig changes the limits. The state stays: a lower threshold takes effect
// with the next failure, a new cooldown also for the present opening if that
// comes from failures.
func (m *Machine) SetConfig(c Config) {
	old := m.cfg.Cooldown
	m.cfg = c.withDefaults()
	if m.state == Open && m.cooling && m.cfg.Cooldown != old {
		m.openUntil = max(until(m.openedAt, m.cfg.Cooldown), m.floor)
	}
}

// State returns the state as the last call has left it: an opening whose time is
// over is still Open.
func (m *Machine) State() State { return m.state }

// OpenUntil returns when an opening ends, in Unix nanoseconds, or 0 if it is not
// open. A clock that jumps back may postpone it.
func (m *Machine) OpenUntil() int64 {
	if m.state != Open {
		return 0
	}
	return m.openUntil
}

// Config returns the limits, with the defaults filled in.
func (m *Machine) Config() Config { return m.cfg }

// Info returns the condition at time now and changes nothing.
func (m *Machine) Info(now int64) Info {
	i := Info{State: m.state, ConsecutiveFailures: m.failures, Probes: m.probes}
	if i.State == Open {
		i.OpenUntil = m.openUntil
		if now >= i.OpenUntil {
			i.State, i.OpenUntil = m.after, 0
		}
	}
	return i
}

// turn moves to state s and starts a new generation.
func (m *Machine) turn(s State, now int64) Change {
	c := Change{Old: m.state, New: s, ConsecutiveFailures: m.failures, At: now}
	m.state = s
	m.gen++
	m.probes, m.successes = 0, 0
	return c
}

// cool opens it for its failures.
func (m *Machine) cool(now int64) Change {
	m.wait(now, until(now, m.cfg.Cooldown), HalfOpen)
	m.cooling = true
	return m.turn(Open, now)
}

// wait sets how long an opening lasts and how it ends.
func (m *Machine) wait(now, until int64, after State) {
	m.openedAt, m.since, m.openUntil = now, now, until
	m.floor, m.cooling, m.after = 0, false, after
}

// rebase keeps an opening from lasting longer than it should when the clock has
// jumped back behind its beginning: the wait starts again at now.
func (m *Machine) rebase(now int64) {
	if now >= m.since {
		return
	}
	back := func(t int64) int64 {
		if t <= m.since || t == math.MaxInt64 {
			return min(t, now)
		}
		return until(now, time.Duration(t-m.since))
	}
	if m.openUntil != math.MaxInt64 {
		m.openUntil = back(m.openUntil)
	}
	if m.floor != math.MaxInt64 {
		m.floor = back(m.floor)
	}
	m.openedAt, m.since = now, now
}

// until adds d to t without running past the end of time.
func until(t int64, d time.Duration) int64 {
	if d > 0 && t > math.MaxInt64-int64(d) {
		return math.MaxInt64
	}
	return t + int64(d)
}
