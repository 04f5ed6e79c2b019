package breaker

import (
	"math"
	"time"

	"pgregory.net/rapid"
)

// model is the breaker written down as plainly as can be: it remembers every
// ticket by its serial number and which phase handed it out.
type model struct {
	cfg       Config
	state     State
	phase     int // counts transitions and resets
	row       int // consecutive failures
	since     int64
	wait      int64
	forced    bool
	openedAt  int64
	floor     int64 // what retry after asks for
	after     State
	underWay  int
	successes int
}

func (m *model) allow(now int64) bool {
	switch m.state {
	case Closed:
		return true
	case Open:
		m.rebase(now)
		if now-m.since < m.wait {
			return false
		}
		m.turn(m.after)
		if m.state == HalfOpen {
			m.underWay = 1
		}
		return true
	}
	if m.underWay >= m.cfg.HalfOpenMaxCalls {
		return false
	}
	m.underWay++
	return true
}

func (m *model) done(now int64, phase int, o Outcome) {
	if phase != m.phase {
		return
	}
	if m.state == HalfOpen {
		m.underWay--
	}
	switch {
	case o == Neutral:
	case o == Failure:
		m.row++
		if m.state == HalfOpen || m.row >= m.cfg.Threshold {
			m.open(now, int64(m.cfg.Cooldown), false)
		}
	case m.state == Closed:
		m.row = 0
	default:
		if m.successes++; m.successes >= m.cfg.HalfOpenSuccesses {
			m.row = 0
			m.turn(Closed)
		}
	}
}

// until is when an opening ends; 0: it is not open.
func (m *model) until() int64 {
	if m.state != Open {
		return 0
	}
	return m.since + m.wait
}

// info is what Machine.Info returns.
func (m *model) info(now int64) Info {
	i := Info{State: m.state, ConsecutiveFailures: m.row, OpenUntil: m.until(), Probes: m.underWay}
	if m.state == Open && now >= m.until() {
		i.State, i.OpenUntil = m.after, 0
	}
	return i
}

// admits is how many calls may pass at time now and, if none, when to ask again.
func (m *model) admits(now int64) (n, at int64) {
	switch {
	case m.state == Open && now < m.until():
		return 0, m.until()
	case m.state == Closed || m.state == Open && m.after == Closed:
		return math.MaxInt64, 0
	case m.underWay >= m.cfg.HalfOpenMaxCalls:
		return 0, math.MaxInt64
	}
	return int64(m.cfg.HalfOpenMaxCalls - m.underWay), 0
}

func (m *model) rebase(now int64) {
	if m.state == Open && now < m.since {
		m.floor -= m.since - now
		m.since, m.openedAt = now, now
	}
}

func (m *model) open(now, wait int64, forced bool) {
	m.turn(Open)
	m.set(now, wait, forced, HalfOpen)
}

func (m *model) set(now, wait int64, forced bool, after State) {
	m.since, m.openedAt, m.wait, m.forced, m.after, m.floor = now, now, wait, forced, after, 0
}

func (m *model) byHand(now, wait int64, after State) {
	if m.state != Open {
		m.turn(Open)
	}
	m.set(now, wait, true, after)
}

func (m *model) retryAfter(now, wait int64) {
	if wait <= 0 {
		return
	}
	if m.state != Open {
		after := m.state
		m.turn(Open)
		m.set(now, wait, true, after)
		m.floor = now + wait
		return
	}
	m.rebase(now)
	m.floor = max(m.floor, now+wait)
	if now+wait > m.since+m.wait {
		m.since, m.wait = now, wait
	}
}

func (m *model) turn(s State) {
	m.state, m.underWay, m.successes = s, 0, 0
	m.phase++
}

func drawConfig(t *rapid.T) Config {
	return Config{
		Threshold:         rapid.IntRange(1, 4).Draw(t, "threshold"),
		Cooldown:          time.Duration(rapid.IntRange(1, 100).Draw(t, "cooldown")),
		HalfOpenMaxCalls:  rapid.IntRange(1, 5).Draw(t, "max calls"),
		HalfOpenSuccesses: rapid.IntRange(1, 3).Draw(t, "successes"),
	}
}
