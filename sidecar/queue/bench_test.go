package queue_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
)

// bench is what an owner of a machine does, without NATS and disk: a mailbox, the
// accounts, and commits that are done at once.
type bench struct {
	*rig
	mail struct {
		sync.Mutex
		items []queue.Input
	}
	wake         chan struct{}
	spare        []queue.Input
	out          queue.Effects
	next         int64
	depth, bytes atomic.Int64
	uncommitted  atomic.Int64
	sent         []delivery
	delivered    int
}

func newBench(b *testing.B) *bench {
	return &bench{rig: newRig(b, nil), wake: make(chan struct{}, 1)}
}

// post is what the intake and the consumers do.
func (b *bench) post(in queue.Input) {
	b.mail.Lock()
	b.mail.items = append(b.mail.items, in)
	first := len(b.mail.items) == 1
	b.mail.Unlock()
	if first {
		select {
		case b.wake <- struct{}{}:
		default:
		}
	}
}

func (b *bench) take() []queue.Input {
	b.mail.Lock()
	items := b.mail.items
	b.mail.items = b.spare[:0]
	b.mail.Unlock()
	return items
}

func (b *bench) enqueue(m store.Message, size int64) {
	m.Queue, m.EnqueuedAt = b.IDs[queue.Main], b.Now
	b.depth.Add(1)
	b.bytes.Add(size)
	b.uncommitted.Add(size)
	b.post(queue.Input{Kind: queue.Enqueue, Message: &queue.Message{Message: m, Size: size}})
}

func (b *bench) consume(credit int) {
	b.post(queue.Input{Kind: queue.Changed, Change: queue.Register{Consumer: "w", Subject: "w", MaxInFlight: credit}})
	b.spin()
}

// spin makes steps until nothing is left to do.
func (b *bench) spin() {
	for {
		in := b.take()
		if len(in) == 0 && b.next > b.Now {
			b.spare = in
			return
		}
		b.out.Reset()
		b.next = b.M.Step(b.Now, in, &b.out)
		clear(in)
		b.spare = in[:0]
		for _, c := range b.out.Commits {
			b.uncommitted.Add(-c.Bytes)
			b.post(queue.Input{Kind: queue.Committed, Commit: c})
		}
		for i := range b.out.Counters {
			b.depth.Add(b.out.Counters[i].Messages)
			b.bytes.Add(b.out.Counters[i].Bytes)
		}
		b.uncommitted.Add(-b.out.Written)
		for _, w := range b.out.Wake {
			b.post(queue.Input{Kind: queue.GateOpened, Gate: w.Gate()}) // it is the only machine
		}
		b.sent = append(b.sent, b.out.Publish...)
	}
}

// ack acks the deliveries, and returns their number.
func (b *bench) ack() int {
	n := len(b.sent)
	for i := range b.sent {
		b.post(queue.Input{Kind: queue.Acked, Token: b.sent[i].Token, Ack: done})
	}
	clear(b.sent)
	b.sent = b.sent[:0]
	b.delivered += n
	return n
}

// step lets time go by, delivers, and acks what was delivered; it returns how many
// that were.
func (b *bench) step(dt int64) int {
	b.Now += dt
	b.spin()
	return b.ack()
}

// BenchmarkLoop is a machine alone: enqueue, commit, deliver, ack, in steps of 100
// messages, with flows of different sizes behind.
func BenchmarkLoop(b *testing.B) {
	for _, backlog := range []int{0, 100_000} {
		b.Run(fmt.Sprintf("backlog=%d", backlog), func(b *testing.B) {
			const turn = 100
			r := newBench(b)
			var keys [1000]string
			for i := range keys {
				keys[i] = fmt.Sprint("tenant-", i)
			}
			n := 0
			post := func() {
				r.enqueue(store.Message{Class: store.Class{Weight: 1000, Cost: 1000, Key: keys[n%len(keys)]}}, 10)
				n++
			}
			for range backlog {
				post()
			}
			r.spin()
			r.consume(turn) // its credit is one step: the backlog stays
			b.ReportAllocs()
			b.ResetTimer()
			for range (b.N + turn - 1) / turn {
				for range turn {
					post()
				}
				r.spin()
				r.ack()
				r.Now += 1e6
				r.spin()
			}
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
			// The deliveries of the last step are leased, all other messages are pending.
			require.EqualValues(b, r.depth.Load(), live(r.rig, queue.Main))
		})
	}
}

// BenchmarkGatesTrickle is a machine with 100,000 flows of ten messages each. Every
// step acks 100 deliveries, enqueues 100 messages and delivers about 100: without
// gates, and with one of 1,000 throttle keys on each flow, whose buckets together
// get 100 tokens a step.
func BenchmarkGatesTrickle(b *testing.B) {
	const flows, keys, perTurn, backlog = 100_000, 1000, 100, 10
	for _, gates := range []bool{false, true} {
		b.Run(fmt.Sprintf("gates=%v", gates), func(b *testing.B) {
			g := newBench(b)
			if gates {
				for k := range keys {
					// 0.1 token per step of 1 ms.
					g.Limit(fmt.Sprint("key-", k), throttle.Limits{Rate: throttle.PerSecond(100 * throttle.One), Burst: throttle.One})
				}
			}
			messages := make([]store.Message, flows)
			for i := range messages {
				messages[i] = store.Message{ID: store.ID{1}, Class: store.Class{Key: fmt.Sprint("flow-", i), Weight: 1000, Cost: 1000}}
				if gates {
					messages[i].ThrottleKeys = []string{fmt.Sprint("key-", i%keys)}
				}
			}
			for i := range flows * backlog {
				g.enqueue(messages[i%flows], 0)
			}
			g.spin()
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
				for range g.step(1e6) {
					g.enqueue(messages[next%flows], 0)
					next += 7919 // a prime: all flows in turn, not in order
				}
			}
			b.StopTimer() // counting what is blocked asks the gates of each flow
			if gates {
				require.Positive(b, g.M.Inspect(queue.Main).Stats(g.Now).Blocked)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(g.delivered), "ns/delivery")
		})
	}
}

// BenchmarkBesideParked is the life of messages without gates in steps of 100,
// beside a million messages of 1,000 flows that are blocked by one gate, and
// beside none.
func BenchmarkBesideParked(b *testing.B) {
	tenants := [4]string{"a", "b", "c", "d"}
	for _, blocked := range []int{0, 1_000_000} {
		b.Run(fmt.Sprintf("parked=%d", blocked), func(b *testing.B) {
			g := newBench(b)
			g.Limit("shut", throttle.Limits{Concurrency: 1})
			set, err := g.Gates.Set([]string{"shut"}, g.Now)
			require.NoError(b, err)
			_, _, ok := set.Acquire(g.Now, 1000, nil)
			require.True(b, ok)
			g.consume(100)
			for i := range blocked {
				g.enqueue(store.Message{ID: store.ID{1}, Class: store.Class{Key: fmt.Sprint("parked-", i%1000), Weight: 1000, Cost: 1000, ThrottleKeys: []string{"shut"}}}, 0)
				if i%1000 == 0 {
					g.spin()
				}
			}
			g.spin()
			require.EqualValues(b, blocked, g.M.Inspect(queue.Main).Stats(g.Now).Blocked)
			b.ReportAllocs()
			b.ResetTimer()
			for g.delivered < b.N {
				for i := range 100 {
					g.enqueue(store.Message{ID: store.ID{1}, Class: store.Class{Key: tenants[i%len(tenants)], Weight: 1000, Cost: 1000}}, 0)
				}
				g.step(1e6)
			}
		})
	}
}

// BenchmarkLanesOfAFlow measures a message that comes to a flow with many subqueues, one of them
// blocked.
func BenchmarkLanesOfAFlow(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("lanes=%d", n), func(b *testing.B) {
			g := newBench(b)
			g.consume(1_000_000)
			g.Limit("c0", throttle.Limits{Concurrency: 1})
			put := func(throttleKey string) {
				g.enqueue(store.Message{ID: store.ID{1}, Class: store.Class{Key: "default", Weight: 1000, Cost: 1000, ThrottleKeys: []string{throttleKey}}}, 10)
			}
			put("c0")
			put("c0")
			g.spin()
			g.post(queue.Input{Kind: queue.Changed, Change: queue.Dispatch{}})
			for i := range n {
				put(fmt.Sprint("c", i+1))
			}
			g.spin()
			for i := range b.N {
				put(fmt.Sprint("c", i%n+1))
			}
			b.ResetTimer()
			g.spin()
		})
	}
}

// BenchmarkTwoGatesThatTakeTurns measures a delivery from many flows whose messages all pass the
// same two gates, one of which is shut, in turns.
func BenchmarkTwoGatesThatTakeTurns(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("flows=%d", n), func(b *testing.B) {
			g := newBench(b)
			g.Limit("x", throttle.Limits{Concurrency: 1})
			g.Limit("y", perSecond(1))
			g.consume(100)
			for i := range n {
				g.enqueue(store.Message{ID: store.ID{1}, Class: store.Class{Key: fmt.Sprint("f", i), Weight: 1000, Cost: 1000, ThrottleKeys: []string{"x", "y"}}}, 10)
			}
			g.spin()
			b.ResetTimer()
			for range min(b.N, n/2) {
				require.Len(b, g.sent, 1)
				g.Now += 1e9
				g.spin() // y opens, x does not
				g.ack()
				g.spin()
				require.Len(b, g.sent, 1)
				g.ack()
				g.spin() // x opens, y does not
				g.Now += 1e9
				g.spin()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(2*min(b.N, n/2)), "ns/delivery")
		})
	}
}
