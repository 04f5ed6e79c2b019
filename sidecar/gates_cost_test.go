package sidecar

import (
	"fmt"
	"testing"
	"time"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// arriveMany brings messages without the store, and tells how long the loop took.
func (r *rig) arriveMany(n int, m func(i int) store.Message) time.Duration {
	all := make([]arrival, n)
	for i := range all {
		msg := m(i)
		msg.Ref = store.Ref{Queue: r.q.id, Seq: r.q.nextSeq()}
		msg.ID, msg.EnqueuedAt, msg.Weight, msg.Cost = newID(), r.now, 1000, 1000
		all[i] = arrival{msg: msg, size: 10}
	}
	r.q.depth.Add(int64(n))
	r.q.bytes.Add(10 * int64(n))
	var took time.Duration
	r.post(r.q, event{kind: evCall, call: func(l *loop) {
		start := time.Now()
		for i := range all {
			l.arrive(&all[i], r.now)
		}
		took = time.Since(start)
	}})
	return took
}

// BenchmarkLanesOfAFlow is a message that comes to a flow with so many lanes, one of
// them parked.
func BenchmarkLanesOfAFlow(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("lanes=%d", n), func(b *testing.B) {
			r := newRig(b, nil)
			r.consume(r.q, "w", 1_000_000, 0)
			r.limit("c0", throttle.Limits{Concurrency: 1})
			r.arriveMany(2, func(int) store.Message { return store.Message{Key: "default", ThrottleKeys: []string{"c0"}} })
			key := func(i int) store.Message {
				return store.Message{Key: "default", ThrottleKeys: []string{fmt.Sprint("c", i%n+1)}}
			}
			r.arriveMany(n, key)
			took := r.arriveMany(b.N, key)
			b.ReportMetric(float64(took.Nanoseconds())/float64(b.N), "ns/message")
		})
	}
}

// BenchmarkTwoGatesThatTakeTurns is a delivery from so many flows whose messages all
// pass the same two gates, of which now the one is shut and now the other.
func BenchmarkTwoGatesThatTakeTurns(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("flows=%d", n), func(b *testing.B) {
			r := newRig(b, nil)
			r.limit("x", throttle.Limits{Concurrency: 1})
			r.limit("y", perSecond(1))
			r.consume(r.q, "w", 100, 0)
			r.arriveMany(n, func(i int) store.Message {
				return store.Message{Key: fmt.Sprint("f", i), ThrottleKeys: []string{"x", "y"}}
			})
			for r.q.mail.poke(); r.loops[r.q].sched.Len() > 0; r.q.mail.poke() {
				r.run()
			}
			b.ResetTimer()
			for range min(b.N, n/2) {
				d := r.one()
				r.pass(time.Second) // y opens, x does not
				r.ack(d, wire.Ack{Kind: wire.AckDone}, "")
				d = r.one()
				r.ack(d, wire.Ack{Kind: wire.AckDone}, "") // x opens, y does not
				r.pass(time.Second)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(2*min(b.N, n/2)), "ns/delivery")
		})
	}
}
