package sidecar

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// BenchmarkGatesTrickle is a loop with 100,000 flows of ten messages each. Every
// turn acks 100 deliveries, enqueues 100 messages and delivers about 100: without
// gates, and with one of 1,000 throttle keys on each flow, whose buckets together
// get 100 tokens a turn.
func BenchmarkGatesTrickle(b *testing.B) {
	const flows, keys, perTurn, backlog = 100_000, 1000, 100, 10
	for _, gates := range []bool{false, true} {
		b.Run(fmt.Sprintf("gates=%v", gates), func(b *testing.B) {
			g := newGatesBench(b)
			if gates {
				for k := range keys {
					// 0.1 token per turn of 1 ms.
					_, err := g.core.gates.SetLimits(fmt.Sprint("key-", k), throttle.Limits{Rate: throttle.PerSecond(100 * throttle.One), Burst: throttle.One}, g.now, nil)
					require.NoError(b, err)
				}
			}
			messages := make([]store.Message, flows)
			for i := range messages {
				messages[i] = store.Message{ID: store.ID{1}, Key: fmt.Sprint("flow-", i), Weight: 1000, Cost: 1000}
				if gates {
					messages[i].ThrottleKeys = []string{fmt.Sprint("key-", i%keys)}
				}
			}
			enqueue := func(flow int) { g.enqueue(&messages[flow]) }
			for i := range flows * backlog {
				enqueue(i % flows)
			}
			g.turn()
			credit := perTurn
			if gates {
				credit = flows // the gates decide
			}
			g.consume(credit)
			for range 20 * perTurn {
				g.step(1e6)
			}
			g.delivered = 0
			b.ReportAllocs()
			b.ResetTimer()
			next := 0
			for g.delivered < b.N {
				n := g.step(1e6)
				if gates {
					require.Positive(b, g.l.parked)
				}
				for range n {
					enqueue(next % flows)
					next += 7919 // a prime: all flows in turn, not in order
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(g.delivered), "ns/delivery")
		})
	}
}

// BenchmarkBesideParked is the life of messages without gates in turns of 100,
// beside a million messages of 1,000 flows that are parked behind one gate, and
// beside none.
func BenchmarkBesideParked(b *testing.B) {
	for _, parked := range []int{0, 1_000_000} {
		b.Run(fmt.Sprintf("parked=%d", parked), func(b *testing.B) {
			g := newGatesBench(b)
			_, err := g.core.gates.SetLimits("shut", throttle.Limits{Concurrency: 1}, g.now, nil)
			require.NoError(b, err)
			set, err := g.core.gates.Set([]string{"shut"}, g.now)
			require.NoError(b, err)
			_, _, ok := set.Acquire(g.now, 1000, nil)
			require.True(b, ok)
			g.consume(100)
			for i := range parked {
				g.enqueue(&store.Message{ID: store.ID{1}, Key: fmt.Sprint("parked-", i%1000), Weight: 1000, Cost: 1000, ThrottleKeys: []string{"shut"}})
				if i%1000 == 0 {
					g.turn()
				}
			}
			g.turn()
			require.EqualValues(b, parked, g.l.parked)
			b.ReportAllocs()
			b.ResetTimer()
			for g.delivered < b.N {
				for i := range 100 {
					g.enqueue(&store.Message{ID: store.ID{1}, Key: tenants[i%len(tenants)], Weight: 1000, Cost: 1000})
				}
				g.step(1e6)
			}
		})
	}
}

var tenants = [4]string{"a", "b", "c", "d"}

// gatesBench drives one loop without NATS and disk.
type gatesBench struct {
	*rig
	b         *testing.B
	l         *loop
	events    []event
	delivered int
}

func newGatesBench(b *testing.B) *gatesBench {
	r := newRig(b, nil)
	r.core.store = instantStore{}
	return &gatesBench{rig: r, b: b, l: r.loops[r.q]}
}

func (g *gatesBench) enqueue(m *store.Message) {
	m.Queue, m.EnqueuedAt = g.q.id, g.now
	g.q.depth.Add(1)
	g.events = append(g.events, event{kind: evEnqueue, incoming: &incoming{msg: *m}})
}

func (g *gatesBench) consume(credit int) {
	g.events = append(g.events, event{kind: evCall, call: func(l *loop) {
		l.register(wire.ConsumeRequest{Consumer: "w", MaxInFlight: credit}, "", nil)
	}})
	g.turn()
}

// turn makes turns until nothing is left to do.
func (g *gatesBench) turn() {
	for {
		g.l.turn(g.events)
		clear(g.events)
		g.events = g.q.mail.take(g.events[:0])
		select {
		case <-g.q.mail.wake:
		default:
			if len(g.events) == 0 {
				return
			}
		}
	}
}

// step lets time go by, delivers, and acks what was delivered; it returns how
// many that were.
func (g *gatesBench) step(dt int64) int {
	g.now += dt
	g.turn()
	sent := g.q.out.take(nil)
	for i := range sent {
		g.events = append(g.events, event{kind: evAck, token: sent[i].token(), ack: wire.Ack{Kind: wire.AckDone}})
	}
	g.delivered += len(sent)
	return len(sent)
}
