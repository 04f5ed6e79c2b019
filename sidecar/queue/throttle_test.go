package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/queuetest"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

func TestNewWeightAppliesToBlockedMessages(t *testing.T) {
	for _, how := range []string{"enqueue", "override"} {
		t.Run(how, func(t *testing.T) {
			r := newRig(t, nil)
			r.LimitNow("vendor", throttle.Limits{Rate: throttle.PerSecond(10 * throttle.One), Burst: throttle.One})
			r.Consume(queue.Main, "w", 1000, 0)
			for range 400 {
				r.Enqueue("gold", func(m *store.Message) { m.ThrottleKeys = []string{"vendor"} })
				r.Enqueue("silver", func(m *store.Message) { m.ThrottleKeys = []string{"vendor"} })
			}
			r.Commit()
			r.Finished(r.Deliveries()...)
			switch how {
			case "enqueue":
				r.Enqueue("gold", func(m *store.Message) { m.Weight, m.ThrottleKeys = 3000, []string{"vendor"} })
				r.Commit()
			case "override":
				r.Do(queue.Main, queue.Weigh{Key: "gold", Weight: 3000})
			}
			got := make(map[string]int)
			for range 200 {
				r.Pass(100 * time.Millisecond)
				for _, d := range r.Deliveries() {
					got[d.Key]++
					r.Finished(d)
				}
			}
			require.InDelta(t, 3*got["silver"], got["gold"], 8, "%v", got)
		})
	}
}

func TestUndeliveredMessageKeepsItsPlace(t *testing.T) {
	r := newRig(t, nil)
	r.LimitNow("k", throttle.Limits{Concurrency: 3})
	r.Consume(queue.Main, "w", 100, 0)
	var want []store.ID
	for range 6 {
		want = append(want, r.Gated("a", "k"))
	}
	ds := r.Deliveries()
	require.Equal(t, want[:3], queuetest.IDs(ds))
	r.LimitNow("k", throttle.Limits{Concurrency: 1})
	for _, d := range ds {
		r.Ack(d, nobody, "")
		check(r)
	}
	r.Consume(queue.Main, "w", 100, 0)
	var got []store.ID
	for range 6 {
		d := r.One()
		got = append(got, d.ID)
		check(r)
		r.Finished(d)
	}
	require.Equal(t, want, got)
}

// A message that nobody received goes before a younger one that its gate was probed
// with in vain.
func TestUndeliveredMessageGoesBeforeAProbe(t *testing.T) {
	r := newRig(t, nil)
	r.LimitNow("k", throttle.Limits{Rate: throttle.PerSecond(500), Burst: 3000})
	r.Consume(queue.Main, "w1", 1, 0)
	r.Consume(queue.Main, "w2", 1, 0)
	for range 2 {
		r.Enqueue("a", func(m *store.Message) { m.ThrottleKeys, m.Cost = []string{"k"}, 2000 })
	}
	d := r.One()
	check(r)
	r.Ack(d, nobody, "")
	require.Equal(t, d.ID, r.One().ID)
	check(r)
}

// The order in which a hook names the gates makes no difference.
func TestTheOrderOfThrottleKeysMakesNoSubqueue(t *testing.T) {
	r := newRig(t, nil)
	r.LimitNow("x", perSecond(1))
	r.Consume(queue.Main, "w", 100, 0)
	want := []store.ID{r.Gated("a", "x", "y"), r.Gated("a", "y", "x"), r.Gated("a", "x", "y", "x"), r.Gated("a", "y", "x")}
	require.Equal(t, 1, queue.Subqueues(r.M))
	var got []store.ID
	for range want {
		got = append(got, queuetest.IDs(r.Deliveries())...)
		r.Pass(time.Second)
	}
	require.Equal(t, want, got)
}

func TestAnExpensiveHeadThatExpiresMakesWay(t *testing.T) {
	r := newRig(t, nil)
	r.LimitNow("k", throttle.Limits{Rate: throttle.PerSecond(throttle.One), Burst: 100 * throttle.One})
	r.Consume(queue.Main, "w", 1000, 0)
	for range 100 {
		r.Gated("fill", "k")
	}
	r.Finished(r.Deliveries()...)
	r.Enqueue("a", func(m *store.Message) { // a hundred tokens, but gives up after 10 s
		m.ThrottleKeys, m.Cost, m.ExpiresAt = []string{"k"}, 100_000, r.Now+10e9
	})
	r.Commit()
	r.Gated("a", "k") // the same subqueue
	r.Pass(2 * time.Second)
	require.Empty(t, r.Deliveries())
	r.Pass(8 * time.Second) // the first one expires; ten tokens are there
	r.Commit()
	require.Len(t, r.Deliveries(), 1, "the gate is open and nothing is in front")
	check(r)
}

// When a gate opens for good, a step probes it with a bounded number of subqueues,
// not with all that wait.
func TestAGateThatOpensForManyFlows(t *testing.T) {
	const n = 20 * queue.DeliverPerStep
	r := newRig(t, nil)
	r.LimitNow("x", throttle.Limits{Concurrency: 1})
	r.Consume(queue.Main, "w", 100, 0)
	for i := range n {
		r.Accept(r.Message(fmt.Sprint("f", i), func(m *store.Message) { m.ThrottleKeys = []string{"x"} }))
	}
	r.Run()
	v := r.M.Inspect(queue.Main).State(5, r.Now)
	require.EqualValues(t, n-1, v.Stats.Blocked, "also those that nobody looks at one by one")
	require.Len(t, v.Blocked, 1)
	require.EqualValues(t, n-1, v.Blocked[0].Messages)
	require.EqualValues(t, n-1, waitingAt(r, "x"))
	r.Limit("x", throttle.Limits{})
	r.Step()
	m := r.M.Inspect(queue.Main).Stats(r.Now)
	require.EqualValues(t, 100, m.InFlight)
	require.LessOrEqual(t, m.Flows, 3*queue.DeliverPerStep, "the others have not been looked at")
	r.Run()
	check(r)
}

// A deleted queue returns its permits, also of messages that are being judged.
func TestDeletedQueueReturnsItsGates(t *testing.T) {
	f := queuetest.NewFleet(t)
	f.Breaker(breaker.Config{Threshold: 1, Cooldown: time.Second, HalfOpenMaxCalls: 1, HalfOpenSuccesses: 1})
	r := f.Create(queue.Settings{QueueSettings: wire.DefaultQueueSettings("a"), Judge: true})
	other := f.Create(queue.Settings{QueueSettings: wire.DefaultQueueSettings("b")})
	r.Limit("x", throttle.Limits{Concurrency: 2})
	put := func(r *rig) {
		r.Enqueue("k", func(m *store.Message) { m.ThrottleKeys, m.CircuitKey = []string{"x"}, "c" })
		r.Commit()
	}
	r.Consume(queue.Main, "w", 10, 0)
	other.Consume(queue.Main, "w", 10, 0)
	for range 3 {
		put(r)
	}
	r.Ack(r.Deliveries()[0], nack, "")
	require.Len(t, r.Judge, 1)
	put(other)
	require.Empty(t, other.Deliveries(), "the third of the first queue has the place")
	f.Delete(r)
	f.Commit()
	require.Len(t, other.Deliveries(), 1)
	require.EqualValues(t, 1, f.InFlight("x"))
	i, _ := f.Circuits.Info("c")
	require.Zero(t, i.ConsecutiveFailures, "nobody has said that it failed")
	messages, _, _ := f.Disk.Stored()
	require.Len(t, messages, 1)
}

// A message that tried in vain after its machine left the wait list, for want of consumers, is
// notified when the gate opens.
func TestALateTryIsNotForgotten(t *testing.T) {
	f := queuetest.NewFleet(t, wire.DefaultQueueSettings("a"), wire.DefaultQueueSettings("b"))
	f.Limit("k", throttle.Limits{Concurrency: 1})
	a, b := f.Rigs[0], f.Rigs[1]
	a.Consume(queue.Main, "w", 2, 0)
	a.Gated("key", "k")
	first := a.One()
	a.Gated("key", "k")
	a.Leave(queue.Main, "w")
	a.Ack(first, done, "") // the gate is probed with the second one, and nobody is there for it
	b.Consume(queue.Main, "w", 1, 0)
	b.Gated("key", "k")
	second := b.One()
	a.Consume(queue.Main, "w", 1, 0) // now it tries, and the place is taken
	require.Empty(t, a.Deliveries())
	check(a)
	check(b)
	b.Ack(second, done, "")
	f.Commit()
	a.One()
	check(a)
	check(b)
}

// A probe that had no credit when its gate opened, so that the machine left the round,
// and then found the gate shut again.
func TestAProbeThatIsBlockedAfterTheMachineLeftTheRound(t *testing.T) {
	r := newRig(t, nil)
	r.LimitNow("k", throttle.Limits{Concurrency: 1})
	r.Consume(queue.Main, "w", 2, 0)
	r.Gated("a", "k")
	first := r.One()
	last := r.Gated("b", "k") // blocked
	r.Gated("free")
	busy := r.One()                                  // no credit any more
	r.LimitNow("k", throttle.Limits{Concurrency: 2}) // a probe that cannot go: the machine leaves the round
	r.LimitNow("k", throttle.Limits{Concurrency: 1})
	r.Finished(busy) // it tries, and is blocked
	require.Empty(t, r.Deliveries())
	r.Finished(first)
	r.Pass(5 * time.Second)
	require.Equal(t, []store.ID{last}, queuetest.IDs(r.Deliveries()), "the gate is open")
}
