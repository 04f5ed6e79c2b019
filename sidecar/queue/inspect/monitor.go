package inspect

import (
	"math"

	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/sidecar/queue/backlog"
	"github.com/filaq/fila/sidecar/queue/gates"
)

// Monitor checks the flows of a queue now and then, and reports when some become noisy
// or starve, and when they no longer do. Between two checks it costs a comparison in
// each step. It wakes the queue only while a flow may be noisy or was reported to be:
// whether a flow starves depends on what is delivered, and a delivery is a step.
//
// A flow starves if it could send something at starveChecks checks in a row and was
// not served between them, though other flows were: while nothing is delivered at
// all, no flow is preferred. A starving flow is in the schedule; leaving the schedule
// or being served ends it.
type Monitor struct {
	r      *Reader
	report func(Event)
	work   work
	at     int64 // when the next check is due

	noiseAt  int64
	reported []reportedFlow // noisy flows

	starveAt    int64
	starveAfter int64 // ns, the setting that the checks so far used
	walking     bool  // a check continues at next
	next        drr.Flow
	reset       bool  // this check begins counting again
	served      bool  // something was delivered since the check before
	given       int64 // Leases.Given when the check began
	starving    int

	minute int64 // of budget
	budget int   // events that may begin in it
}

// reportedFlow is a flow that was reported as noisy.
type reportedFlow struct {
	key   string
	quiet int // checks in a row at which it was not noisy
}

// Event reports a change of a flow.
type Event struct {
	Starved  bool // otherwise: noisy
	Key      string
	Began    bool
	Flows    int   // how many flows are noisy, or starve, now
	InFlight int   // of a noisy flow
	Waited   int64 // ns that the first message of a starving flow has been ready
}

const (
	noiseEvery   = 10 * int64(1e9)
	noiseEnds    = 3    // checks without noise after which a flow is no longer noisy
	starveChecks = 5    // the first finds the flow waiting, four more follow within StarveAfterMs
	flowsPerStep = 4096 // that a step checks
	// eventsPerMinute bounds the flows reported as noisy or starving in a minute. The end
	// is always reported if the beginning was.
	eventsPerMinute = 20
)

// Values of backlog.Key.Unserved of a flow that starves; lower ones count checks.
const (
	starvesSilently uint8 = 254 + iota // not reported: there were too many events
	starvesReported
)

// Init prepares a monitor that reports events by report, and returns the reader of
// the same queue.
func (m *Monitor) Init(t *backlog.Tables, g *gates.Gates, report func(Event)) *Reader {
	*m = Monitor{report: report}
	m.r = &Reader{t: t, g: g, monitor: m}
	return m.r
}

// Worked counts a delivery of a key that has ended after took ns, and before which its
// message was ready for wait ns.
func (m *Monitor) Worked(e *backlog.Key, took, wait, now int64) { m.work.add(e, took, wait, now) }

// SetStarveAfter says that StarveAfterMs may have changed: the next step checks.
func (m *Monitor) SetStarveAfter(after int64) {
	if after != m.starveAfter {
		m.at, m.starveAt = 0, 0
	}
}

// Idle reports whether nothing has to be reported any more.
func (m *Monitor) Idle() bool { return len(m.reported) == 0 }

// Next is when Step must be called; math.MaxInt64 is never.
func (m *Monitor) Next(now int64) int64 {
	if m.noiseMatters(now) {
		return m.noiseAt
	}
	return math.MaxInt64
}

// Step makes the checks that are due. starveAfter is StarveAfterMs in ns. It reports
// whether a check goes on in the next step.
func (m *Monitor) Step(starveAfter, now int64) (more bool) {
	if now < m.at {
		return false
	}
	if now >= m.noiseAt {
		m.noiseAt = now + noiseEvery
		m.checkNoise(now)
	}
	if now >= m.starveAt || m.walking {
		more = m.checkStarving(starveAfter, now)
	}
	if m.at = min(m.noiseAt, m.starveAt); more {
		m.at = now
	}
	return more
}

// noiseMatters reports whether a flow may be noisy, or was reported to be: a message
// waits, and consumers work, or have worked lately, on enough.
func (m *Monitor) noiseMatters(now int64) bool {
	t := m.r.t
	return len(m.reported) > 0 || t.Slots.Len() > int64(t.Leases.Live) &&
		(t.Leases.Live >= leastNoisy || m.work.total(now) > 0)
}

func (m *Monitor) checkNoise(now int64) {
	if !m.noiseMatters(now) {
		return
	}
	noisy := m.r.noisy(now)
	index := make(map[string]int, len(m.reported))
	for i := range m.reported {
		index[m.reported[i].key] = i
		m.reported[i].quiet++
	}
	for i := range noisy {
		n := &noisy[i]
		if j, ok := index[n.Key]; ok {
			m.reported[j].quiet = 0
		} else if m.mayReport(now) {
			m.reported = append(m.reported, reportedFlow{key: n.Key})
			m.report(Event{Key: n.Key, Began: true, InFlight: int(n.InFlight), Flows: len(noisy)})
		}
	}
	rest := m.reported[:0]
	for _, f := range m.reported {
		if f.quiet < noiseEnds {
			rest = append(rest, f)
			continue
		}
		m.report(Event{Key: f.key, Flows: len(noisy)})
	}
	if m.reported = rest; len(rest) == 0 {
		m.reported = nil
	}
}

// mayReport takes one event from the budget of this minute.
func (m *Monitor) mayReport(now int64) bool {
	if minute := now / 60e9; minute != m.minute {
		m.minute, m.budget = minute, eventsPerMinute
	}
	if m.budget == 0 {
		return false
	}
	m.budget--
	return true
}

// checkStarving continues a check of all flows, or begins one.
func (m *Monitor) checkStarving(after, now int64) (more bool) {
	keys := &m.r.t.Keys
	if !m.walking {
		m.starveAt = math.MaxInt64
		if after == 0 && m.starveAfter == 0 {
			return false
		}
		m.walking, m.next = true, 0
		m.reset, m.starveAfter = after != m.starveAfter, after
		m.served, m.given = m.r.t.Leases.Given != m.given, m.r.t.Leases.Given
		if after > 0 {
			m.starveAt = now + after/(starveChecks-1)
		}
	}
	last := min(int(m.next)+flowsPerStep, len(keys.Entries))
	for f := m.next; int(f) < last; f++ {
		e := &keys.Entries[f]
		if !e.Active {
			continue
		}
		switch {
		case m.reset || m.paused(e, now):
			m.EndStarving(e)
			e.Unserved = 0
		case m.served && e.Unserved < starveChecks:
			e.Unserved++
		}
		if e.Unserved >= starveChecks && e.Unserved != starvesReported {
			m.starve(e, f, now)
		}
	}
	m.next = drr.Flow(last)
	m.walking = last < len(keys.Entries)
	return m.walking
}

// paused reports whether a flow of the schedule is paused: it has not tried since.
func (m *Monitor) paused(e *backlog.Key, now int64) bool {
	p := &m.r.t.Pauses
	return p.Until > now || len(p.Keys) > 0 && p.Keys[e.Name] > now
}

// starve notes that a flow starves, and reports it if the budget allows.
func (m *Monitor) starve(e *backlog.Key, f drr.Flow, now int64) {
	if e.Unserved < starvesSilently {
		m.starving++
		e.Unserved = starvesSilently
	}
	if m.mayReport(now) {
		e.Unserved = starvesReported
		m.report(Event{Starved: true, Key: e.Name, Began: true, Waited: m.r.headWait(f, now), Flows: m.starving})
	}
}

// EndStarving notes that a flow was served, or has nothing to send.
func (m *Monitor) EndStarving(e *backlog.Key) {
	if e.Unserved < starvesSilently {
		return
	}
	m.starving--
	if e.Unserved == starvesReported {
		m.report(Event{Starved: true, Key: e.Name, Flows: m.starving})
	}
	e.Unserved = 0
}

// starved lists up to most flows that starve, the longest wait first.
func (r *Reader) starved(most int, now int64) (list []WaitingFlow) {
	if r.monitor.starving == 0 || most == 0 {
		return nil
	}
	for i := range r.t.Keys.Entries[:min(len(r.t.Keys.Entries), readWalk)] {
		if e, f := &r.t.Keys.Entries[i], drr.Flow(i); e.Unserved >= starvesSilently {
			list = append(list, WaitingFlow{Key: e.Name, Pending: r.unblocked(f), Wait: r.headWait(f, now)})
		}
	}
	return longest(list, most)
}
