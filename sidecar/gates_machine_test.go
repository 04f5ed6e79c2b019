package sidecar

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// gateMachine drives several queues that share gates at random, and holds what
// they do to a ledger.
type gateMachine struct {
	*fleet
	rt *rapid.T
	b  *ledger

	effects map[string][]func() // what the next turn of a queue will do to the ledger
	open    []held              // deliveries that have not been answered, stale ones among them
	seqs    map[store.Ref]*booked
	plain   bool // costs of 1
	back    bool // the clock may be set back
}

// held is a delivery with the name of its queue, which is another one after a
// restart.
type held struct {
	queue string
	delivery
}

const machineKeys = 4

// TestGateMachine is several loops behind shared gates against a slow model.
func TestGateMachine(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newGateMachine(rt)
		rt.Repeat(map[string]func(*rapid.T){
			"enqueue":  m.enqueueSome,
			"enqueue2": m.enqueueSome,
			"enqueue3": m.enqueueSome,
			"commit":   func(rt *rapid.T) { m.commitSome(rapid.IntRange(1, 5).Draw(rt, "batches")) },
			"commit2":  func(*rapid.T) { m.commit() },
			"answer":   m.answer,
			"answer2":  m.answer,
			"ackMany":  m.ackMany,
			"consume":  m.consumeOne,
			"consume2": m.consumeOne,
			"leave":    m.leave,
			"time":     m.time,
			"time2":    m.time,
			"timer":    func(*rapid.T) { m.toNextTimer() },
			"limit":    m.change,
			"pause":    m.pauseOne,
			"resume":   m.resumeOne,
			"weight":   m.weigh,
			"restart":  m.restartOne,
			"": func(rt *rapid.T) {
				m.first = rapid.IntRange(0, len(m.queues)-1).Draw(rt, "first")
				m.run()
				m.check()
			},
		})
		m.drain()
	})
}

func newGateMachine(rt *rapid.T) *gateMachine {
	m := &gateMachine{rt: rt, effects: make(map[string][]func()), seqs: make(map[store.Ref]*booked)}
	n := rapid.IntRange(1, 3).Draw(rt, "queues")
	m.plain = rapid.Bool().Draw(rt, "plain costs")
	m.back = rapid.IntRange(0, 3).Draw(rt, "set back") == 0
	ordered := make(map[string]string)
	m.fleet = newFleet(rt, fleetSettings(n, func(i int, s *wire.QueueSettings) {
		s.VisibilityTimeoutMs = rapid.SampledFrom([]int64{700, 5000, 60_000}).Draw(rt, "visibility")
		s.Quantum = rapid.Int64Range(1, 3).Draw(rt, "quantum")
		switch rapid.IntRange(0, 5).Draw(rt, "ordering") {
		case 0:
			s.Ordering, s.OnBlocked = "key", "wait"
		case 1:
			s.Ordering, s.OnBlocked = "key", "skip"
		}
		if s.Ordering != "" {
			ordered[s.Name] = s.OnBlocked
		}
		if rapid.IntRange(0, 3).Draw(rt, "max_failures") == 0 {
			s.MaxFailuresPerKey, s.FailureHoldMs = 2, rapid.Int64Range(0, 2000).Draw(rt, "hold")
		}
	})...)
	if rapid.Bool().Draw(rt, "paced") {
		m.paced = defaultPacing
		m.paced.load = rapid.SampledFrom([]int{1, 16}).Draw(rt, "load")
		m.core.pacing = m.paced
	}
	m.b = newLedger(rt, func() int64 { return m.now })
	m.b.ordered = ordered
	m.fleet.turn, m.fleet.went, m.fleet.disks, m.fleet.holds = m.before, m.after, m.onDisk, m.held
	m.settings.breaker = breaker.Config{
		Threshold:         rapid.IntRange(1, 3).Draw(rt, "threshold"),
		Cooldown:          time.Duration(rapid.IntRange(1, 3000).Draw(rt, "cooldown")) * time.Millisecond,
		HalfOpenMaxCalls:  rapid.IntRange(1, 3).Draw(rt, "calls"),
		HalfOpenSuccesses: rapid.IntRange(1, 3).Draw(rt, "successes"),
	}
	m.b.settings = m.settings.breaker
	m.core.circuits.configure(m.settings, nil)
	m.run()
	for i := range machineKeys {
		m.setLimit(throttleKey(i), drawLimits(rt))
	}
	for _, q := range m.queues[:n] {
		m.consume(q, "w1", rapid.IntRange(1, 4).Draw(rt, "credit"), 0)
	}
	m.commit()
	return m
}

func throttleKey(i int) string { return fmt.Sprint("t", i) }

// drawLimits are such that a machine runs into them.
func drawLimits(rt *rapid.T) throttle.Limits {
	var l throttle.Limits
	kinds := rapid.IntRange(0, 15).Draw(rt, "kinds") & 7 // any mixture
	if kinds&1 != 0 {
		l.Rate = rapid.SampledFrom([]throttle.Rate{
			throttle.PerSecond(500), throttle.PerSecond(2000), throttle.PerSecond(10_000), {Cost: 1000, Per: 3e9}, {Cost: 7000, Per: 999_999_937},
		}).Draw(rt, "rate")
		l.Burst = rapid.SampledFrom([]int64{0, 500, 1000, 3000}).Draw(rt, "burst")
	}
	if kinds&2 != 0 {
		l.Limit = rapid.Int64Range(1, 4).Draw(rt, "limit")
		l.Window = rapid.SampledFrom([]int64{1e8, 1e9, 5e9}).Draw(rt, "window")
	}
	if kinds&4 != 0 {
		l.Concurrency = rapid.Int64Range(1, 3).Draw(rt, "concurrency")
	}
	return l
}

func (m *gateMachine) setLimit(key string, l throttle.Limits) {
	m.b.limit(key, l)
	m.limit(key, l)
}

// later has fn change the ledger when q makes its next turn.
func (m *gateMachine) later(q *queue, fn func()) {
	m.effects[q.name] = append(m.effects[q.name], fn)
}

func (m *gateMachine) before(q *queue) {
	effects := m.effects[q.name]
	delete(m.effects, q.name)
	for _, fn := range effects {
		fn()
	}
	m.b.expire(q.name)
}

func (m *gateMachine) after(q *queue, ds []delivery) {
	for i := range ds {
		if ds[i].kind != sendMessage {
			continue
		}
		if !q.isDLQ() {
			m.b.deliver(q.name, &ds[i])
		}
		m.open = append(m.open, held{q.name, ds[i]})
	}
}

// onDisk is told what is about to be committed.
func (m *gateMachine) onDisk(batches []*store.Batch) {
	for _, b := range batches {
		for i := range b.Add {
			msg := m.b.msgs[formatID(b.Add[i].ID)]
			msg.onDisk = true
			m.seqs[b.Add[i].Ref] = msg
		}
		for _, ref := range b.Finish {
			if msg := m.seqs[ref]; msg != nil {
				msg.goneOnDisk = true
			}
		}
		for i := range b.Move {
			if msg := m.seqs[b.Move[i].From]; msg != nil {
				msg.goneOnDisk = true
			}
		}
	}
}

func (m *gateMachine) held(q *queue, key string, until int64) {
	id := pauseID{wire.PauseKey, q.name, key}
	m.pauses[id], m.b.paused[id] = until, until
}

func (m *gateMachine) commitSome(n int) {
	waiting := m.st.waiting()
	m.onDisk(waiting[:min(n, len(waiting))])
	m.st.commit(n)
}

// check holds the loops to their invariants, and gates and circuits to the
// ledger: what is in flight is what the leases hold.
func (m *gateMachine) check() {
	m.fleet.check(!m.b.exact || !m.plain && len(m.queues) > 2)
	leased := 0
	for _, q := range m.queues[:len(m.queues)/2] {
		l := m.loops[q]
		leased += l.leases.live
		l.slots.from(0, func(_ uint64, s *slot) bool {
			if s.state == slotLeased {
				f := m.b.flights[l.leases.items[s.ref].id]
				require.NotNil(m.rt, f, "leased, but not according to the ledger")
				require.Equal(m.rt, formatID(s.id), f.m.id)
			}
			return true
		})
	}
	require.Len(m.rt, m.b.flights, leased)
	for i := range machineKeys {
		key := throttleKey(i)
		var i throttle.Info
		if g, ok := m.core.gates.Find(key); ok {
			i = g.Info(m.now)
		}
		if i.Held > 0 {
			i.InFlight--
		}
		require.Equal(m.rt, m.b.inFlight(key), i.InFlight, "in flight at %s", key)
	}
	if !m.b.exact {
		return
	}
	for key, c := range m.b.circuits {
		state, probes := c.shown(m.now)
		i, ok := m.core.circuits.info(key, m.now)
		if !ok {
			i.State = breaker.Closed.String()
		}
		require.Equal(m.rt, state, i.State, "circuit %s", key)
		require.Equal(m.rt, probes, i.Probes, "probes of %s", key)
	}
}
