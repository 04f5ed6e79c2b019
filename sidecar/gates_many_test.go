package sidecar

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

type many struct {
	*rig
	rnd   *rand.Rand
	qs    []*queue
	out   []sent
	got   map[store.ID]int
	live  map[store.ID]bool
	turns int
}

func newMany(t tester, seed uint64, n int, change func(i int, s *wire.QueueSettings)) *many {
	m := &many{rig: newRig(t, nil), rnd: rand.New(rand.NewPCG(seed, 7)), got: map[store.ID]int{}, live: map[store.ID]bool{}}
	for i := range n {
		settings := wire.DefaultQueueSettings(fmt.Sprint("q", i))
		zero := int64(0)
		settings.MaxDeliveries = &zero
		if change != nil {
			change(i, &settings)
		}
		rec, err := record(store.QueueID(10+2*i), settings)
		require.NoError(t, err)
		dlqRec, err := record(store.QueueID(11+2*i), dlqSettings(settings))
		require.NoError(t, err)
		m.st.Submit(&store.Batch{PutQueues: []store.QueueRecord{rec, dlqRec}})
		m.st.commit(1)
		q, dlq := newQueue(m.core, rec, &policy{settings: settings}), newQueue(m.core, dlqRec, &policy{settings: dlqSettings(settings)})
		q.dlq, dlq.source = dlq, q
		m.loops[q], m.loops[dlq] = newLoop(q), newLoop(dlq)
		m.qs = append(m.qs, q)
	}
	return m
}

func (m *many) run() {
	m.turns = 0
	for again := true; again; {
		again = false
		for _, i := range m.rnd.Perm(len(m.qs)) {
			q := m.qs[i]
			select {
			case <-q.mail.wake:
				m.loops[q].turn(q.mail.take(nil))
				again = true
				if m.turns++; m.turns > 20_000 {
					for _, q := range m.qs {
						m.dump(m.loops[q])
					}
					require.Fail(m.t, "endless turns")
				}
			default:
			}
			for _, d := range q.out.take(nil) {
				if d.kind == sendMessage {
					m.out = append(m.out, sent{q, d})
					m.got[d.id]++
				}
			}
		}
		m.st.commit(m.rnd.IntN(3))
	}
}

func (m *many) settle() {
	m.run()
	for m.st.commit(len(m.st.waiting())) > 0 {
		m.run()
	}
}

func (m *many) pass(d time.Duration) {
	m.now += int64(d)
	for _, q := range m.qs {
		m.loops[q].q.mail.poke()
	}
	m.settle()
}

func (m *many) limits() throttle.Limits {
	var l throttle.Limits
	switch m.rnd.IntN(5) {
	case 0:
		l.Concurrency = 1 + m.rnd.Int64N(3)
	case 1:
		l.Rate, l.Burst = throttle.PerSecond((1+m.rnd.Int64N(4))*throttle.One), (1+m.rnd.Int64N(4))*throttle.One
	case 2:
		l.Limit, l.Window = 1+m.rnd.Int64N(3), int64(time.Second)
	case 3:
		l.Concurrency = 1 + m.rnd.Int64N(3)
		l.Rate, l.Burst = throttle.PerSecond((1+m.rnd.Int64N(4))*throttle.One), (1+m.rnd.Int64N(4))*throttle.One
	}
	return l
}

func (m *many) end(d sent, how int) {
	var e event
	switch how {
	case 0:
		e = event{kind: evAck, token: d.token(), ack: wire.Ack{Kind: wire.AckNack, HasDelay: true, Delay: time.Duration(m.rnd.IntN(2000)) * time.Millisecond}}
	case 1:
		e = event{kind: evUndelivered, token: d.token()}
	case 2:
		e = event{kind: evAck, token: d.token(), ack: wire.Ack{Kind: wire.AckNack, RetryAfter: time.Duration(m.rnd.IntN(2000)) * time.Millisecond}}
	default:
		e = event{kind: evAck, token: d.token(), ack: wire.Ack{Kind: wire.AckDone}}
		delete(m.live, d.id)
	}
	d.q.mail.post(e)
}

func (m *many) story(steps int, ttl bool) {
	keys := []string{"w", "x", "y", "z"}
	m.core.circuits.configure(circuitSettings{breaker: breaker.Config{Threshold: 2, Cooldown: time.Second, HalfOpenMaxCalls: 1, HalfOpenSuccesses: 1}}, nil)
	for i, q := range m.qs {
		q.mail.post(event{kind: evCall, call: func(l *loop) {
			l.register(wire.ConsumeRequest{Consumer: "c", MaxInFlight: 2 + i}, "", nil)
		}})
	}
	for range steps {
		q := m.qs[m.rnd.IntN(len(m.qs))]
		switch n := m.rnd.IntN(24); {
		case n < 8:
			for range 1 + m.rnd.IntN(4) {
				in := &incoming{size: 10, msg: store.Message{
					Ref: store.Ref{Queue: q.id}, ID: newID(), EnqueuedAt: m.now, Weight: 1000 * (1 + m.rnd.Uint32N(3)),
					Cost: 1000, Key: fmt.Sprint("f", m.rnd.IntN(3)), Payload: []byte("0123456789"),
				}}
				if m.rnd.IntN(4) == 0 {
					in.msg.Cost = 1000 * (1 + m.rnd.Uint32N(5))
				}
				for _, k := range keys {
					if m.rnd.IntN(3) == 0 {
						in.msg.ThrottleKeys = append(in.msg.ThrottleKeys, k)
					}
				}
				if m.rnd.IntN(4) == 0 {
					in.msg.CircuitKey = "c"
				}
				if ttl && m.rnd.IntN(8) == 0 {
					in.msg.ExpiresAt = m.now + int64(m.rnd.IntN(3e9))
				} else {
					m.live[in.msg.ID] = true
				}
				q.depth.Add(1)
				q.bytes.Add(10)
				m.core.uncommitted.Add(10)
				q.mail.post(event{kind: evEnqueue, incoming: in})
			}
		case n < 14:
			for range 1 + m.rnd.IntN(3) {
				if len(m.out) > 0 {
					i := m.rnd.IntN(len(m.out))
					d := m.out[i]
					m.out = append(m.out[:i], m.out[i+1:]...)
					m.end(d, m.rnd.IntN(8))
				}
			}
		case n < 16:
			key := keys[m.rnd.IntN(len(keys))]
			wakes, err := m.core.gates.SetLimits(key, m.limits(), m.now, nil)
			require.NoError(m.t, err)
			m.core.wake(wakes)
		case n == 16:
			until := int64(0)
			if m.rnd.IntN(2) == 0 {
				until = m.now + m.rnd.Int64N(3e9)
			}
			m.core.wake(m.core.gates.Pause(keys[m.rnd.IntN(len(keys))], until, m.now, nil))
		case n == 17:
			until := int64(0)
			if m.rnd.IntN(2) == 0 {
				until = m.now + m.rnd.Int64N(3e9)
			}
			key := fmt.Sprint("f", m.rnd.IntN(3))
			q.mail.post(event{kind: evCall, call: func(l *loop) { l.pauseKey(key, until) }})
		case n == 18:
			until := int64(0)
			if m.rnd.IntN(2) == 0 {
				until = m.now + m.rnd.Int64N(3e9)
			}
			q.mail.post(event{kind: evCall, call: func(l *loop) { l.pauseUntil(until) }})
		case n == 19:
			credit := m.rnd.IntN(4)
			q.mail.post(event{kind: evCall, call: func(l *loop) {
				if credit == 0 {
					l.leave("c", "", func(bool) []byte { return nil })
				} else {
					l.register(wire.ConsumeRequest{Consumer: "c", MaxInFlight: credit}, "", nil)
				}
			}})
		default:
			m.pass(time.Duration(m.rnd.IntN(800)) * time.Millisecond)
		}
		if m.rnd.IntN(2) == 0 {
			m.run()
		}
	}
	// Everything can go now.
	for _, q := range m.qs {
		q.mail.post(event{kind: evCall, call: func(l *loop) {
			l.pauseUntil(0)
			for i := range 3 {
				l.pauseKey(fmt.Sprint("f", i), 0)
			}
			l.register(wire.ConsumeRequest{Consumer: "c", MaxInFlight: 3}, "", nil)
		}})
	}
	for _, k := range keys {
		m.core.wake(m.core.gates.Pause(k, 0, m.now, nil))
	}
	m.settle()
	for i := 0; i < 6000; i++ {
		idle := len(m.out) == 0
		for _, d := range m.out {
			m.end(d, 9)
		}
		m.out = m.out[:0]
		m.settle()
		if len(m.live) == 0 && len(m.out) == 0 {
			break
		}
		if idle {
			m.pass(250 * time.Millisecond)
		}
	}
	for _, q := range m.qs {
		l := m.loops[q]
		if l.slots.live > 0 {
			m.dump(l)
		}
	}
	require.Empty(m.t, m.live, "messages are stuck")
	for _, k := range keys {
		if g, ok := m.core.gates.Find(k); ok {
			i := g.Info(m.now)
			require.Zero(m.t, i.InFlight, "%s leaks", k)
			require.Zero(m.t, i.Waiting, "%s waiting", k)
			require.Zero(m.t, i.Held, "%s held", k)
		}
	}
}

func (m *many) dump(l *loop) {
	tt, ok := m.t.(*testing.T)
	if !ok {
		return
	}
	tt.Logf("queue %s: live %d parked %d sched %d leases %d reserving %d looks %d credit %d ordered %v", l.q.name, l.slots.live, l.parked, l.sched.Len(), l.leases.live, l.reserving, len(l.looks), l.credit(), l.orderWaiting)
	for i, st := range l.sites.items {
		if st == nil || st.kind == siteFree {
			continue
		}
		key := ""
		extra := ""
		if st.gate != nil {
			key = st.gate.Key()
			extra = fmt.Sprintf("%+v", st.gate.Info(m.now))
		}
		if st.circuit != nil {
			extra = fmt.Sprintf("%+v", st.circuit.info(m.now))
		}
		tt.Logf("  site %d kind %d %s line %d called %d joined %v at %d notBefore %d (now %d) %s", i, st.kind, key, st.line.Len(), st.called, st.joined, st.at, st.notBefore, m.now, extra)
	}
	l.slots.from(0, func(seq uint64, s *slot) bool {
		tt.Logf("  message %d state %d flow %d lane %d front %v holds %v cost %d ready %d", seq, s.state, s.flow, s.lane, s.front, s.holds, s.cost, s.readyAt-m.now)
		return true
	})
}

func TestManyQueuesAtGates(t *testing.T) {
	for seed := range gateSeeds() {
		ok := t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			m := newMany(t, seed, 3, func(i int, s *wire.QueueSettings) {
				switch {
				case seed%4 == 1 && i > 0:
					s.Ordering, s.OnBlocked = "key", []string{"wait", "skip"}[i%2]
				}
			})
			m.story(300, seed%2 == 0)
		})
		if !ok {
			break
		}
	}
}

// gateSeeds is how many stories are played: SEEDS of the environment, or 400.
func gateSeeds() uint64 {
	if n, err := strconv.ParseUint(os.Getenv("SEEDS"), 10, 64); err == nil {
		return n
	}
	return 400
}
