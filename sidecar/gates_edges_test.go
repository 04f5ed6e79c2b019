package sidecar

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
)

// TestAGateThatOpensForManyFlows: when a gate opens for good, a turn calls a bounded
// number of lanes, not all that wait.
func TestAGateThatOpensForManyFlows(t *testing.T) {
	const n = 20 * deliverPerTurn
	r := newRig(t, nil)
	r.limit("x", throttle.Limits{Concurrency: 1})
	r.consume(r.q, "w", 100, 0)
	r.arriveMany(n, func(i int) store.Message {
		return store.Message{Key: fmt.Sprint("f", i), ThrottleKeys: []string{"x"}}
	})
	for r.q.mail.poke(); r.loops[r.q].sched.Len() > 0; r.q.mail.poke() {
		r.run()
	}
	l := r.loop(r.q)
	require.EqualValues(t, n-1, l.parked)
	wakes, err := r.core.gates.SetLimits("x", throttle.Limits{}, r.now, nil)
	require.NoError(t, err)
	r.core.wake(wakes)
	<-r.q.mail.wake
	l.turn(r.q.mail.take(nil))
	require.Equal(t, 100, l.leases.live)
	require.GreaterOrEqual(t, l.parked, int64(n-3*deliverPerTurn))
}

// TestAPauseThatEndsWhileOffline: it is over then, and nothing is looked at again and again.
func TestAPauseThatEndsWhileOffline(t *testing.T) {
	r := newRig(t, nil)
	r.consume(r.q, "w", 10, 0)
	r.post(r.q, event{kind: evCall, call: func(l *loop) { l.pauseUntil(r.now + 1e9) }})
	r.core.offline.Store(true)
	r.pass(2 * time.Second)
	require.NotZero(t, r.loops[r.q].sleep(), "the loop spins until it is connected again")
}

// TestSwitchingToStrictOrderWithTwoInFlight: a third one waits for both.
func TestSwitchingToStrictOrderWithTwoInFlight(t *testing.T) {
	r := newRig(t, nil)
	r.consume(r.q, "w", 100, 0)
	for range 2 {
		r.gated("a")
	}
	ds := r.deliveries()
	p := *r.q.policy.Load()
	p.settings.Ordering = "key"
	r.q.policy.Store(&p)
	r.post(r.q, event{kind: evCall, call: func(l *loop) { l.applyOrdering() }})
	r.gated("a")
	require.Empty(t, r.deliveries())
	r.done(ds[0])
	require.Empty(t, r.deliveries(), "the second one is still in flight")
}
