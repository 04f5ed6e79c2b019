package sidecar

import (
	"slices"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/wire"
)

func (m *gateMachine) restartOne(rt *rapid.T) {
	if rapid.IntRange(0, 2).Draw(rt, "really") > 0 {
		return
	}
	crash := rapid.Bool().Draw(rt, "crash")
	down := rapid.SampledFrom([]int64{0, 1e6, 1e9, 20e9}).Draw(rt, "down")
	if m.back && rapid.IntRange(0, 2).Draw(rt, "back") == 0 {
		down = -down
		m.b.exact = false
	}
	m.run()
	if crash {
		m.effects = make(map[string][]func())
		m.b.crash()
	}
	flights := len(m.b.flights)
	m.restart(crash, down)
	m.b.at += max(0, m.now-m.b.last)
	m.b.last = m.now
	m.b.tick()
	m.resync(crash)
	if !crash {
		require.Len(rt, m.b.flights, flights, "an orderly stop keeps what is leased")
	}
	m.run()
}

// resync takes over what a restart has left: after a crash that is not all.
func (m *gateMachine) resync(crash bool) {
	found := make(map[string]*slot)
	leases := make(map[uint64]string)
	for _, q := range m.queues[:len(m.queues)/2] {
		l := m.loops[q]
		l.slots.from(0, func(_ uint64, s *slot) bool {
			id := formatID(s.id)
			found[id] = s
			if s.state == slotLeased {
				leases[l.leases.items[s.ref].id] = id
			}
			return true
		})
	}
	for _, f := range m.b.flights {
		f.m.flight = nil
	}
	m.b.flights = make(map[uint64]*flight)
	for lease, id := range leases {
		f := m.b.ever[lease]
		require.NotNil(m.rt, f, "a lease that nobody was given")
		require.Equal(m.rt, id, f.m.id)
		f.pass, f.m.flight = 0, f
		m.b.flights[lease] = f
	}
	m.b.all = slices.DeleteFunc(m.b.all, func(x *booked) bool { return crash && !x.onDisk })
	for _, x := range m.b.all {
		s := found[x.id]
		require.Equal(m.rt, !x.goneOnDisk && x.onDisk, s != nil, "message %d: on disk %v, gone %v", x.n, x.onDisk, x.goneOnDisk)
		if s == nil {
			continue
		}
		x.gone, x.failed, x.ready = false, s.attempts > 0, 0
		if s.state == slotDelayed {
			x.ready = s.readyAt
			x.own = x.own || !x.failed // enqueued after the clock was set back to before that
		}
		if x.flight != nil {
			x.flight.deadline = m.loops[m.byName(x.queue)].leases.items[s.ref].deadline
		}
	}
	for id := range m.b.paused {
		delete(m.b.paused, id)
	}
	for id, until := range m.pauses {
		if id.kind != wire.PauseCircuit {
			m.b.paused[id] = until
		}
	}
	for key, c := range m.b.circuits {
		if c.restart(m.now); !crash {
			continue
		}
		*c = circuitBook{cfg: c.cfg, gen: c.gen}
		if ci := m.core.circuits.lookup(key); ci != nil {
			s := ci.mu.m.Save()
			c.state, c.until, c.failures = s.State, s.OpenUntil, s.Failures
			c.thenClose, c.byHand = s.After == breaker.Closed, ci.mu.cause == causeByHand
			m.core.circuits.drop(ci)
		}
	}
}
