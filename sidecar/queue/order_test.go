package queue_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/sidecar/queue/queuetest"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

func ordered(blocked string) func(*queue.Settings) {
	return func(s *queue.Settings) { s.Ordering, s.OnBlocked = wire.OrderingKey, blocked }
}

func TestStrictOrderPerKey(t *testing.T) {
	for _, blocked := range []string{wire.OnBlockedWait, wire.OnBlockedSkip} {
		t.Run(blocked, func(t *testing.T) {
			r := newRig(t, ordered(blocked))
			r.Consume(queue.Main, "w", 100, 0)
			a1, a2 := r.Gated("a"), r.Gated("a")
			b1 := r.Gated("b")
			ds := r.Deliveries()
			require.Equal(t, []store.ID{a1, b1}, queuetest.IDs(ds), "one of each key")
			r.Ack(ds[0], wire.Ack{Kind: wire.AckNack, HasDelay: true, Delay: 10 * time.Second}, "")
			r.Commit()
			check(r)
			if blocked == wire.OnBlockedSkip {
				d := r.One()
				require.Equal(t, a2, d.ID)
				a3 := r.Gated("a")
				r.Pass(10 * time.Second)
				require.Empty(t, r.Deliveries(), "a2 is in flight")
				r.Finished(d)
				d = r.One()
				require.Equal(t, a1, d.ID, "the retry has kept its place")
				r.Finished(d)
				require.Equal(t, a3, r.One().ID)
			} else {
				r.Pass(9 * time.Second)
				require.Empty(t, r.Deliveries(), "the key waits for its retry")
				r.Pass(time.Second)
				d := r.One()
				require.Equal(t, a1, d.ID)
				r.Finished(d)
				require.Equal(t, a2, r.One().ID)
			}
			check(r)
		})
	}
}

// A message that is being judged owns its key.
func TestStrictOrderWaitsForTheVerdict(t *testing.T) {
	r := newRig(t, func(s *queue.Settings) { ordered(wire.OnBlockedSkip)(s); s.Judge = true })
	r.Consume(queue.Main, "w", 100, 0)
	a1, a2 := r.Gated("a"), r.Gated("a")
	r.Ack(r.One(), nack, "")
	require.Empty(t, r.Deliveries())
	r.Post(queue.Input{Kind: queue.Judged, Verdict: &queue.Verdict{Failure: r.Judge[0], Delay: 1e9}})
	r.Run()
	d := r.One()
	require.Equal(t, a2, d.ID)
	r.Finished(d)
	r.Pass(time.Second)
	require.Equal(t, a1, r.One().ID)
	check(r)
}

func TestSkipPassesEveryBlockedMessage(t *testing.T) {
	r := newRig(t, ordered(wire.OnBlockedSkip))
	r.LimitNow("x", throttle.Limits{Concurrency: 1})
	r.Consume(queue.Main, "w", 100, 0)
	r.Gated("other", "x")
	require.Len(t, r.Deliveries(), 1) // x is taken
	r.Gated("a", "x")
	r.Gated("a", "x")
	free := r.Gated("a")
	require.Equal(t, []store.ID{free}, queuetest.IDs(r.Deliveries()), "both messages that wait for x are passed")
	check(r)
}

// With on_blocked = "skip" messages of one subqueue do not pass each other, although
// each gives the key up when it is blocked.
func TestSkippedMessagesKeepTheOrderOfTheirSubqueue(t *testing.T) {
	r := newRig(t, ordered(wire.OnBlockedSkip))
	r.LimitNow("k", perSecond(1))
	r.Consume(queue.Main, "w", 100, 0)
	var want []store.ID
	for range 4 {
		want = append(want, r.Gated("a", "k"))
	}
	first := r.One()
	require.Equal(t, want[0], first.ID)
	r.LimitNow("k", throttle.Limits{Concurrency: 5})
	require.Empty(t, r.Deliveries(), "one of the key is in flight")
	free := r.Gated("a")
	require.Empty(t, r.Deliveries(), "one of the key is in flight")
	check(r)
	r.LimitNow("k", perSecond(1))
	r.Ack(first, done, "")
	d := r.One()
	require.Equal(t, want[1], d.ID)
	r.Finished(d)
	d = r.One()
	require.Equal(t, free, d.ID, "it passes those that wait for the gate")
	r.Finished(d)
	for _, id := range want[2:] {
		check(r)
		r.Pass(time.Second)
		d := r.One()
		require.Equal(t, id, d.ID)
		r.Finished(d)
	}
}

// Of two messages in flight when strict order begins, a third one waits for both.
func TestSwitchingToStrictOrderWithTwoInFlight(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 100, 0)
	r.Gated("a")
	r.Gated("a")
	ds := r.Deliveries()
	require.Len(t, ds, 2)
	s := r.Settings
	s.Ordering = wire.OrderingKey
	r.Do(queue.Main, s)
	r.Gated("a")
	require.Empty(t, r.Deliveries())
	r.Finished(ds[0])
	require.Empty(t, r.Deliveries(), "the second one is still in flight")
	check(r)
	r.Finished(ds[1])
	r.One()
}

// When strict order ends, what waited for its turn can go.
func TestTheEndOfStrictOrder(t *testing.T) {
	r := newRig(t, ordered(wire.OnBlockedWait))
	r.Consume(queue.Main, "w", 100, 0)
	want := []store.ID{r.Gated("a"), r.Gated("a"), r.Gated("a")}
	require.Len(t, r.Deliveries(), 1)
	r.Do(queue.Main, queue.Settings{QueueSettings: wire.DefaultQueueSettings("orders")})
	require.Equal(t, want[1:], queuetest.IDs(r.Deliveries()))
	check(r)
}

// Dead letters have no strict order.
func TestDeadLettersAreNotOrdered(t *testing.T) {
	r := newRig(t, ordered(wire.OnBlockedWait))
	r.Consume(queue.Main, "w", 100, 0)
	r.Gated("a")
	r.Gated("a")
	kill(r, r.One())
	kill(r, r.One())
	r.Consume(queue.Dead, "d", 100, 0)
	require.Len(t, r.Deliveries(), 2)
}

// A message that waits for its predecessor is not said to wait for a gate that would
// admit it, whatever it costs.
func TestWhyOfAnOrderedMessageAtAGate(t *testing.T) {
	r := newRig(t, ordered(wire.OnBlockedWait))
	r.LimitNow("x", throttle.Limits{Rate: throttle.Rate{Cost: 1000, Per: 1000e9}, Burst: 1000})
	r.Consume(queue.Main, "w", 100, 0)
	half := func(m *store.Message) { m.Cost, m.ThrottleKeys = 500, []string{"x"} }
	r.Enqueue("k", half)
	first := r.One()
	second := r.Enqueue("k", half)
	require.Equal(t, inspect.WaitReason{By: gates.ByOrder}, r.Find(queue.Main, second).WaitReason)
	third := r.Enqueue("k", half)
	r.Finished(first)
	require.Equal(t, second, r.One().ID)
	v := r.Find(queue.Main, third)
	require.Equal(t, gates.ByRate, v.By, "the gate admits nothing")
	require.Equal(t, "x", v.At.Throttle.Key())
}
