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
