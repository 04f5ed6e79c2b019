package sidecar

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
)

// A called lane that had no credit when it was called, so that the queue left the
// round, and then found the gate shut again.
func TestALaneThatIsBlockedAfterTheQueueLeftTheRound(t *testing.T) {
	r := newRig(t, nil)
	r.limit("k", throttle.Limits{Concurrency: 1})
	r.consume(r.q, "w", 2, 0)
	r.gated("a", "k")
	first := r.one()
	last := r.gated("b", "k") // parked
	r.gated("free")
	busy := r.one()                               // no credit any more
	r.limit("k", throttle.Limits{Concurrency: 2}) // called, cannot go, the queue leaves the round
	r.limit("k", throttle.Limits{Concurrency: 1})
	r.done(busy) // it tries, and is blocked
	require.Empty(t, r.deliveries())
	r.done(first)
	r.pass(5 * time.Second)
	require.Equal(t, []store.ID{last}, ids(r.deliveries()), "the gate is open")
}

// A limit that is lowered below what a reservation and others have.
func TestALimitLoweredUnderAReservation(t *testing.T) {
	r := newRig(t, nil)
	r.limit("x", throttle.Limits{Concurrency: 1})
	r.limit("y", throttle.Limits{Concurrency: 2})
	r.consume(r.q, "w", 100, 0)
	r.gated("hx", "x")
	x := r.one()
	r.gated("hy", "y")
	y1 := r.one()
	r.gated("hy", "y")
	y2 := r.one()
	r.gated("both", "x", "y")
	r.pass(2 * time.Second)
	r.done(y1) // both reserves y
	require.NotZero(t, r.loops[r.q].reserving)
	r.limit("y", throttle.Limits{Concurrency: 1})
	r.done(x)
	require.Empty(t, r.deliveries(), "y2 is in flight")
	r.done(y2)
	r.pass(5 * time.Second)
	require.Len(t, r.deliveries(), 1, "both gates are open")
}

func TestRedrivePassesAKeyThatIsFull(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		x := startSite(t, t.TempDir(), nil)
		x.must("fila.admin.queue-create.orders", `{"fairness_header":"tenant","max_pending_per_key":1}`, nil)
		ch, _ := x.consumer("w", "orders", `{"consumer":"w","max_in_flight":10}`)
		for _, tenant := range []string{"full", "free"} {
			x.enqueue("x", nats.Header{"tenant": {tenant}})
			_ = x.ack(<-ch, "+TERM")
		}
		x.enqueue("x", nats.Header{"tenant": {"full"}})
		<-ch
		var reply struct {
			Moved int `json:"moved"`
		}
		x.must("fila.admin.redrive.orders.dlq", `{}`, &reply)
		t.Logf("%+v", reply)
		m := <-ch
		require.Equal(t, "free", m.Header.Get("tenant"))
		x.end()
	})
}
