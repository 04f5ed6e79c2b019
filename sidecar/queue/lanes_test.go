package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
)

// Lanes are sorted by backlog; behind them stand keys that were served lately. The waits of a
// key are the ones of the last one to two minutes.
func TestLanes(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 1, 0)
	work(r, "served", 3, time.Second)
	r.LimitNow("shut", throttle.Limits{Concurrency: 1})
	r.Enqueue("busy", func(m *store.Message) { m.Weight = 3000 })
	for range 2 {
		r.Enqueue("busy", func(m *store.Message) { m.Weight = 3000 })
		r.Enqueue("other", nil)
	}
	r.Enqueue("other", func(m *store.Message) { m.ThrottleKeys = []string{"shut"} })
	r.Pass(5 * time.Second)
	v := r.M.Inspect(queue.Main).Lanes(10, r.Now)
	require.Len(t, v.Lanes, 3)
	other, busy, served := v.Lanes[0], v.Lanes[1], v.Lanes[2]
	require.Equal(t, []string{"other", "busy", "served"}, []string{other.Key, busy.Key, served.Key})
	require.Equal(t, 2, v.Keys)
	require.EqualValues(t, 3, other.Ready+other.Blocked)
	require.EqualValues(t, 2, busy.Ready)
	require.EqualValues(t, 1, busy.InFlight)
	require.InDelta(t, 0.75, busy.Share, 1e-9)
	require.Equal(t, int64(5*time.Second), busy.Oldest)
	require.EqualValues(t, 3, served.Ended)
	require.EqualValues(t, 3, served.Waits.Count[0])
	require.EqualValues(t, 3, v.All.Ended)
	require.Len(t, r.M.Inspect(queue.Main).Lanes(1, r.Now).Lanes, 1)
	require.Empty(t, r.M.Inspect(queue.Main).Lanes(0, r.Now).Lanes)

	pauseKey(r, "busy", r.Now+int64(time.Second))
	v = r.M.Inspect(queue.Main).Lanes(10, r.Now)
	require.InDeltaSlice(t, []float64{1, 0}, []float64{v.Lanes[0].Share, v.Lanes[1].Share}, 1e-9, "a paused key has no share")
	pauseKey(r, "busy", 0)

	// The next delivery has waited for 5 s, which is the longest of its key.
	for range 6 {
		r.Finished(r.One())
	}
	v = r.M.Inspect(queue.Main).Lanes(10, r.Now)
	require.Equal(t, int64(5*time.Second), v.All.Waits.Longest)
	r.Pass(3 * time.Minute)
	v = r.M.Inspect(queue.Main).Lanes(10, r.Now)
	require.Zero(t, v.All.Waits.Longest, "long ago")
	require.Empty(t, v.Lanes)
}

// BenchmarkLanes reads a queue with 100,000 fairness keys, half of whose messages pass a gate,
// and forecasts twenty deliveries.
func BenchmarkLanes(b *testing.B) {
	r := newRig(b, nil)
	r.LimitNow("shut", throttle.Limits{Concurrency: 1})
	for i := range 100_000 {
		r.Accept(r.Message(fmt.Sprint("key-", i), func(m *store.Message) {
			if i%2 == 0 {
				m.ThrottleKeys = []string{"shut"}
			}
		}))
	}
	r.Run()
	r.Commit()
	b.Run("lanes", func(b *testing.B) {
		for b.Loop() {
			r.M.Inspect(queue.Main).Lanes(20, r.Now)
		}
	})
	b.Run("forecast", func(b *testing.B) {
		for b.Loop() {
			r.M.Inspect(queue.Main).Forecast(20, r.Now)
		}
	})
}

// TestForecastOfManyKeys: a forecast copies the 10,000 keys whose turns come first, and 1,000 that
// wait for a gate, and says how many it leaves out.
func TestForecastOfManyKeys(t *testing.T) {
	r := newRig(t, nil)
	for i := range 10_100 {
		r.Accept(r.Message(fmt.Sprint("key-", i), nil))
	}
	r.Run()
	r.Commit()
	next, left := r.M.Inspect(queue.Main).Forecast(50, r.Now)
	require.Equal(t, 100, left)
	r.Consume(queue.Main, "w", 50, 0)
	sent := r.Deliveries()
	require.Len(t, sent, 50)
	for i, d := range sent {
		require.Equal(t, next[i].ID, d.ID, "delivery %d", i)
	}

	r = newRig(t, nil)
	r.LimitNow("shut", throttle.Limits{Concurrency: 1})
	r.Consume(queue.Main, "w", 5000, 0)
	for i := range 1101 {
		r.Accept(r.Message(fmt.Sprint("key-", i), func(m *store.Message) { m.ThrottleKeys = []string{"shut"} }))
	}
	r.Run()
	r.Commit()
	last := r.Deliveries()
	require.Len(t, last, 1)
	next, left = r.M.Inspect(queue.Main).Forecast(5, r.Now)
	require.Equal(t, 100, left)
	require.Len(t, next, 5)
	for _, want := range next {
		r.Finished(last[0])
		last = r.Deliveries()
		require.Len(t, last, 1)
		require.Equal(t, want.ID, last[0].ID)
	}
}
