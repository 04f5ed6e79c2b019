package sidecar

import (
	"fmt"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// drain lets everything that can open open and everything end: then nothing is
// left anywhere, and nobody has polled.
func (m *gateMachine) drain() {
	m.commit()
	m.resumeAll()
	for i := range machineKeys {
		m.setLimit(throttleKey(i), throttle.Limits{
			Rate: throttle.PerSecond(20_000), Burst: 2000, Limit: 4, Window: 2e8, Concurrency: 2,
		})
	}
	for _, q := range m.queues {
		m.consume(q, "last", 50, 0)
	}
	m.commit()
	left := func() (n int64) {
		for _, q := range m.queues {
			n += q.depth.Load()
		}
		return n
	}
	messages, turns, due, steps := left(), m.turns, m.due, int64(0)
	for left() > 0 {
		for m.ackAll() > 0 {
			m.commit()
			m.check()
		}
		if left() == 0 {
			break
		}
		m.resumeAll() // a lease may run out, and too many failures hold a key
		m.run()
		if !m.toNextTimer() {
			require.Fail(m.rt, "nobody waits for anything, and messages are left", "%s", m.dump())
		}
		m.commit()
		steps++
		require.LessOrEqual(m.rt, steps, 100+20*messages, "somebody polls")
	}
	require.LessOrEqual(m.rt, int64(m.turns-turns), int64(m.due-due)*3+100, "turns that nothing has called for")
	for _, q := range m.queues {
		m.call(q, func(l *loop) { l.leave("last", "", func(bool) []byte { return nil }) })
		for _, w := range []string{"w1", "w2"} {
			m.call(q, func(l *loop) { l.leave(w, "", func(bool) []byte { return nil }) })
		}
	}
	m.commit()
	m.goOn(int64(24 * time.Hour))
	m.goOn(int64(24 * time.Hour))
	m.commit()
	m.empty()
}

func (m *gateMachine) resumeAll() {
	for id := range m.pauses {
		m.setPause(id, 0)
	}
	for key := range m.b.circuits { // a crash may have brought back what had been resumed
		m.setPause(pauseID{wire.PauseCircuit, "", key}, 0)
	}
}

// dump describes what waits.
func (m *gateMachine) dump() string {
	var b strings.Builder
	for _, q := range m.queues {
		l := m.loops[q]
		fmt.Fprintf(&b, "%s: depth %d, scheduled %d, parked by %v, waiting for order %d, leases %d, consumers %v, reserving %d\n",
			q.name, q.depth.Load(), l.sched.Len(), l.parkedBy, l.orderWaiting, l.leases.live, l.consumers.ring != nil, l.reserving)
		for i, st := range l.sites.items {
			if st == nil || st.kind == siteFree {
				continue
			}
			fmt.Fprintf(&b, "  site %d: kind %d, lanes %d, called %d, joined %v, timer in %d, not before %d, looking %v, touched %v",
				i, st.kind, st.line.Len(), st.called, st.joined, st.at-m.now, st.notBefore-m.now, st.looking, st.touched)
			if st.kind == siteThrottle {
				fmt.Fprintf(&b, " %+v", st.gate.Info(m.now))
			}
			b.WriteString("\n")
		}
		for i := range l.lanes.items {
			if ln := &l.lanes.items[i]; ln.refs > 0 {
				fmt.Fprintf(&b, "  lane %d: messages %d, parked %d at %d, fronts %d, scheduled %d, returned %d, called %v by %d\n",
					i, ln.refs, ln.list.n, ln.site, ln.fronts, ln.ready, ln.returned, ln.called, ln.calledBy)
			}
		}
	}
	return b.String()
}

func (m *gateMachine) ackAll() int {
	n := len(m.open)
	for _, d := range m.open {
		m.tell(d, wire.Ack{Kind: wire.AckDone})
	}
	m.open = nil
	m.run()
	return n
}

// empty looks whether anything is left of what there was.
func (m *gateMachine) empty() {
	m.check()
	for _, q := range m.queues {
		l := m.loops[q]
		require.Zero(m.rt, q.depth.Load(), q.name)
		require.Empty(m.rt, l.keys.ids, q.name)
		require.Empty(m.rt, l.lanes.ids, q.name)
		require.Empty(m.rt, l.lanes.first, q.name)
		require.Len(m.rt, l.lanes.free, len(l.lanes.items)-1, q.name)
		require.Empty(m.rt, l.sites.byGate, q.name)
		require.Empty(m.rt, l.sites.byCircuit, q.name)
		require.Empty(m.rt, l.sites.byFlow, q.name)
		require.Len(m.rt, l.sites.free, len(l.sites.items)-1, q.name)
		require.Zero(m.rt, l.reserving, q.name)
		require.Empty(m.rt, l.orders, q.name)
		free := 0
		for i := l.links.free; i != 0; i = l.links.items[i].next {
			free++
		}
		require.Equal(m.rt, max(0, len(l.links.items)-1), free, "%s: links", q.name)
		require.Empty(m.rt, l.siteTimers.items, "%s: timers", q.name)
	}
	var configured []string
	for key, l := range m.limits {
		if l != (throttle.Limits{}) {
			configured = append(configured, key)
		}
	}
	m.core.gates.Sweep(m.now)
	m.core.gates.Sweep(m.now)
	require.ElementsMatch(m.rt, configured, m.core.gates.Keys())
	for _, key := range configured {
		g, _ := m.core.gates.Find(key)
		i := g.Info(m.now)
		require.Zero(m.rt, i.InFlight+i.Held+int64(i.Waiting), key)
	}
	m.core.circuits.mu.Lock()
	defer m.core.circuits.mu.Unlock()
	for _, ci := range m.core.circuits.mu.byKey {
		require.Zero(m.rt, ci.refs, ci.key)
		require.Empty(m.rt, ci.mu.waiters, ci.key)
	}
	for _, x := range m.b.all {
		require.True(m.rt, x.gone, "message %d has disappeared", x.n)
	}
}
