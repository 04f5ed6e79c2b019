package queue_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/queuetest"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
)

// A delivery that nobody received comes back behind another one of its subqueue that
// is blocked by now: its flow can send nothing, so there is nothing to refund.
func TestTakenBackBehindABlockedSubqueue(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 100, 0)
	want := []store.ID{r.Gated("a"), r.Gated("a")}
	ds := r.Deliveries()
	require.Len(t, ds, 2)
	pauseKey(r, "a", queue.Forever)
	for _, d := range ds {
		r.Ack(d, nobody, "")
		r.Consume(queue.Main, "w", 100, 0)
		require.Empty(t, r.Deliveries())
		check(r)
	}
	pauseKey(r, "a", 0)
	require.Equal(t, want, queuetest.IDs(r.Deliveries()))
	check(r)
}

// Two that come back cost something else than what is blocked behind them: the line of
// the gate knows the cost of the first that stays in it, each time.
func TestWaitListKnowsTheCostAfterTakeBack(t *testing.T) {
	r := newRig(t, nil)
	r.LimitNow("vendor", throttle.Limits{Rate: throttle.PerSecond(throttle.One), Burst: 4 * throttle.One})
	r.Consume(queue.Main, "w", 100, 0)
	for _, cost := range []uint32{1000, 3000, 5000} {
		r.Enqueue("a", func(m *store.Message) { m.Cost, m.ThrottleKeys = cost, []string{"vendor"} })
	}
	r.Commit()
	ds := r.Deliveries()
	require.Len(t, ds, 2)
	for _, d := range ds {
		r.Ack(d, nobody, "")
	}
	check(r)
	for range 2 {
		r.Consume(queue.Main, "w", 1, 0)
		r.Deliveries()
		check(r)
	}
}
