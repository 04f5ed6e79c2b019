package sidecar

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/hooks"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// gather takes over what was delivered.
func (m *machine) gather() {
	ds, _ := m.take()
	for _, d := range ds {
		at := fmt.Sprint(d.q.name, d.seq, "/", d.lease)
		require.False(m.rt, m.attempts[at], "a lease was given twice")
		m.attempts[at] = true
		e := m.messages[d.id]
		require.NotNil(m.rt, e, "an unknown message was delivered")
		require.Zero(m.rt, e.finished, "a finished message was delivered")
	}
	m.open = append(m.open, ds...)
}

// check holds the invariants against the loops and the model.
func (m *machine) check() {
	m.gather()
	moving := make(map[store.QueueID]int64)
	for _, b := range m.st.waiting() {
		for _, mv := range b.Move {
			moving[mv.To.Queue]++
		}
	}
	present := make(map[store.ID]int)
	for _, q := range []*queue{m.q, m.dlq} {
		checkLoop(m.rt, m.loop(q), moving[q.id], moving[q.id]*10)
		m.loop(q).slots.from(0, func(_ uint64, s *slot) bool { present[s.id]++; return true })
	}
	for _, b := range m.st.waiting() {
		for _, mv := range b.Move {
			if mv.To.Queue == m.dlq.id {
				present[mv.To.ID]++
			}
		}
	}
	for id, e := range m.messages {
		want := 1
		if e.finished != 0 {
			want = 0
		}
		require.Equal(m.rt, want, present[id], "message %s: finished %d", formatID(id), e.finished)
	}
	require.Len(m.rt, m.messages, len(present)+m.finished())
}

func (m *machine) finished() int {
	n := 0
	for _, e := range m.messages {
		if e.finished != 0 {
			n++
		}
	}
	return n
}

// drain lets everything come to its end: then nothing is left anywhere.
func (m *machine) drain() {
	m.core.offline.Store(false)
	if len(m.redrives) > 0 && !m.redrives[0].moved {
		m.redriven(nil, m.redrives[0].items)
	}
	m.commit()
	for _, q := range []*queue{m.q, m.dlq} {
		m.consume(q, "last", 1000, 0)
	}
	for range 200 {
		m.commit()
		m.gather()
		for _, d := range m.open {
			if m.loop(d.q).leased(d.token()) != nil {
				m.tell(d, wire.Ack{Kind: wire.AckDone})
			}
		}
		m.open = nil
		m.decideAll(func() hooks.FailureDecision { return hooks.FailureDecision{} })
		m.commit()
		m.check()
		if m.q.depth.Load()+m.dlq.depth.Load() == 0 {
			break
		}
		m.pass(500 * time.Millisecond) // less than the visibility timeout
	}
	m.pass(time.Hour) // whatever is still in a heap is stale
	for _, q := range []*queue{m.q, m.dlq} {
		m.post(q, event{kind: evCall, call: func(l *loop) { l.leave("last", "", func(bool) []byte { return nil }) }})
	}
	m.commit()
	for _, q := range []*queue{m.q, m.dlq} {
		l := m.loop(q)
		checkLoop(m.rt, l, 0, 0)
		require.Zero(m.rt, q.depth.Load(), "%s: depth", q.name)
		require.Zero(m.rt, q.bytes.Load(), "%s: bytes", q.name)
		require.Zero(m.rt, len(l.keys.ids), "%s: keys", q.name)
		require.Zero(m.rt, l.leases.live, "%s: leases", q.name)
		require.LessOrEqual(m.rt, len(l.slots.dirs), 1, "%s: directories", q.name)
		require.Empty(m.rt, l.slots.ends, "%s: TTLs", q.name)
		require.Zero(m.rt, len(l.delays.items)+len(l.ttls.items), "%s: heaps", q.name)
		for _, c := range l.consumers.byName {
			require.Zero(m.rt, c.inFlight, "%s: %s", q.name, c.name)
		}
	}
	require.Zero(m.rt, m.core.uncommitted.Load())
	messages, states := m.stored()
	require.Empty(m.rt, messages)
	require.Empty(m.rt, states)
}
