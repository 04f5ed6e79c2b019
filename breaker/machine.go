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
	cfg Config
	s   Frozen
}

// NewMachine returns a closed Machine.
func NewMachine(c Config) Machine {
	return Thaw(c, Frozen{})
}

// Allow requests a permission for one call at time now. The Pass is zero if the call is
// refused; otherwise the caller returns it to Done exactly once. The first call after
// the end of an opening makes a transition: to half-open, as its first probe, or to
// closed.
func (m *Machine) Allow(now int64) (Pass, Change) {
	switch m.s.State {
	case Closed:
		return Pass(m.s.Gen), Change{}
	case Open:
		m.rebase(now)
		if now < m.s.OpenUntil {
			return 0, Change{}
		}
		c := m.turn(m.s.After, now)
		if m.s.State == HalfOpen {
			m.s.Probes = 1
		}
		return Pass(m.s.Gen), c
	}
	if m.s.Probes >= m.cfg.HalfOpenMaxCalls {
		return 0, Change{}
	}
	m.s.Probes++
	return Pass(m.s.Gen), Change{}
}

// Done returns p at time now with the outcome of its call. counted is false if p
// belongs to an earlier state, or is zero: then nothing changes.
func (m *Machine) Done(now int64, p Pass, o Outcome) (c Change, counted bool) {
	if uint64(p) != m.s.Gen {
		return Change{}, false
	}
	if m.s.State == HalfOpen {
		return m.probeDone(now, o)
	}
	switch o { // closed: an open state grants no passes
	case Success:
		m.s.Failures = 0
	case Failure:
		m.s.Failures++
		if m.s.Failures >= m.cfg.Threshold {
			return m.cool(now), true
		}
	}
	return Change{}, true
}

func (m *Machine) probeDone(now int64, o Outcome) (Change, bool) {
	if m.s.Probes == 0 { // a Pass that was given to Done twice
		return Change{}, false
	}
	m.s.Probes--
	switch o {
	case Success:
		m.s.Successes++
		if m.s.Successes >= m.cfg.HalfOpenSuccesses {
			m.s.Failures = 0
			return m.turn(Closed, now), true
		}
	case Failure:
		m.s.Failures++
		return m.cool(now), true
	}
	return Change{}, true
}

// Admits returns how many calls Allow would admit at time now: math.MaxInt64 when
// closed. If it is 0, at is when that may change: a time in Unix nanoseconds, or
// math.MaxInt64 if only an outcome or an operator changes it.
func (m *Machine) Admits(now int64) (n, at int64) {
	switch m.s.State {
	case Closed:
		return math.MaxInt64, 0
	case Open:
		m.rebase(now)
		switch {
		case now < m.s.OpenUntil:
			return 0, m.s.OpenUntil
		case m.s.After == Closed:
			return math.MaxInt64, 0
		}
		return int64(m.cfg.HalfOpenMaxCalls), 0
	}
	if n = int64(m.cfg.HalfOpenMaxCalls - m.s.Probes); n > 0 {
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
	if m.s.State == HalfOpen || m.s.State == Open && m.s.After == HalfOpen {
		after = HalfOpen
	}
	m.wait(now, until, after)
	if m.s.State == Open {
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
	if m.s.State == Open {
		m.rebase(now)
		m.s.Floor = max(m.s.Floor, until)
		if until > m.s.OpenUntil {
			m.s.OpenUntil, m.s.Since = until, now
		}
		return Change{}
	}
	m.wait(now, until, m.s.State)
	m.s.Floor = until
	return m.turn(Open, now)
}

// Release ends an opening early, at time now. A breaker that is to be probed becomes
// half-open, any other closed.
func (m *Machine) Release(now int64) Change {
	if m.s.State != Open {
		return Change{}
	}
	return m.turn(m.s.After, now)
}

// Reset closes it by hand at time now. It begins anew: its failures are forgotten,
// and results of calls under way do not count any more.
func (m *Machine) Reset(now int64) Change {
	m.s.Failures = 0
	if m.s.State == Closed {
		m.s.Gen++
		return Change{}
	}
	return m.turn(Closed, now)
}

// Advance closes the breaker if its opening is over at now and ends in closed. Allow does
// it too; Advance is for callers that request no call.
func (m *Machine) Advance(now int64) Change {
	if m.s.State == Open && m.s.After == Closed && now >= m.s.OpenUntil {
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
	if m.s.State == Open && m.s.Cooling && m.cfg.Cooldown != old {
		m.s.OpenUntil = max(until(m.s.OpenedAt, m.cfg.Cooldown), m.s.Floor)
	}
}

// State returns the state as the last call has left it: an opening whose time is
// over is still Open.
func (m *Machine) State() State { return m.s.State }

// OpenUntil returns when an opening ends, in Unix nanoseconds, or 0 if it is not
// open. A clock that jumps back may postpone it.
func (m *Machine) OpenUntil() int64 {
	if m.s.State != Open {
		return 0
	}
	return m.s.OpenUntil
}

// Config returns the limits, with the defaults filled in.
func (m *Machine) Config() Config { return m.cfg }

// Info returns the condition at time now and changes nothing.
func (m *Machine) Info(now int64) Info {
	i := Info{State: m.s.State, ConsecutiveFailures: m.s.Failures, Probes: m.s.Probes}
	if i.State == Open {
		i.OpenUntil = m.s.OpenUntil
		if now >= i.OpenUntil {
			i.State, i.OpenUntil = m.s.After, 0
		}
	}
	return i
}

// turn moves to state s and starts a new generation.
func (m *Machine) turn(s State, now int64) Change {
	c := Change{Old: m.s.State, New: s, ConsecutiveFailures: m.s.Failures, At: now}
	m.s.State = s
	m.s.Gen++
	m.s.Probes, m.s.Successes = 0, 0
	return c
}

// cool opens it for its failures.
func (m *Machine) cool(now int64) Change {
	m.wait(now, until(now, m.cfg.Cooldown), HalfOpen)
	m.s.Cooling = true
	return m.turn(Open, now)
}

// wait sets how long an opening lasts and how it ends.
func (m *Machine) wait(now, until int64, after State) {
	m.s.OpenedAt, m.s.Since, m.s.OpenUntil = now, now, until
	m.s.Floor, m.s.Cooling, m.s.After = 0, false, after
}

// rebase keeps an opening from lasting longer than it should when the clock has
// jumped back behind its beginning: the wait starts again at now.
func (m *Machine) rebase(now int64) {
	if now >= m.s.Since {
		return
	}
	back := func(t int64) int64 {
		if t <= m.s.Since || t == math.MaxInt64 {
			return min(t, now)
		}
		return until(now, time.Duration(t-m.s.Since))
	}
	if m.s.OpenUntil != math.MaxInt64 {
		m.s.OpenUntil = back(m.s.OpenUntil)
	}
	if m.s.Floor != math.MaxInt64 {
		m.s.Floor = back(m.s.Floor)
	}
	m.s.OpenedAt, m.s.Since = now, now
}

// until adds d to t without running past the end of time.
func until(t int64, d time.Duration) int64 {
	if d > 0 && t > math.MaxInt64-int64(d) {
		return math.MaxInt64
	}
	return t + int64(d)
}
