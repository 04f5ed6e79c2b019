package shard

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/throttle/budget"
	"github.com/filaq/fila/wire"
)

// TestMemoryOfKeysUnderARate: a fairness key that has used some of enqueue_rate_per_key takes
// 150 bytes until its rate is whole again.
func TestMemoryOfKeysUnderARate(t *testing.T) {
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	const keys = 50_000
	q := &Queue{name: "orders", shard: &Shard{Options: &Options{}}}
	s := &wire.QueueSettings{EnqueueRate: "1000000", EnqueueRatePerKey: "1/3600", EnqueueBurstPerKey: 2}
	before := heap()
	var a rates
	for i := range keys {
		require.Nil(t, a.admit(q, s, fmt.Sprintf("tenant:%09d", i), 1, nil))
	}
	perKey := (heap() - before) / keys
	require.LessOrEqual(t, perKey, int64(150))
	for i := range keys {
		key := fmt.Sprintf("tenant:%09d", i)
		require.Nil(t, a.admit(q, s, key, 1, nil))
		require.NotNil(t, a.admit(q, s, key, 1, nil), "it has used its burst")
	}
}

// noBank is a bank of budgets from which nothing is taken.
type noBank struct{}

func (noBank) KeepBooking(string, budget.Booking) {}
func (noBank) Warn(string, int16, budget.State)   {}

// A message that costs more than is left of a budget is refused until the period ends, unless it is for a later
// period or another of its routes takes it. In a batch it is refused by its index.
func TestRefusedByABudget(t *testing.T) {
	bubble(t, func(r *rig) {
		gates, now := r.control.gates, r.Now()
		gates.Bank(noBank{}, nil)
		limit := func(key string, e throttle.OnEmpty) {
			_, err := gates.SetPrefix(key, throttle.Limits{Budget: budget.Terms{Amount: throttle.One / 2, Period: budget.Period{Unit: budget.Day}}, OnEmpty: e}, now, nil)
			require.NoError(t, err)
		}
		limit("refuses", throttle.Refuse)
		limit("holds", throttle.Hold)
		limit("buries", throttle.DeadLetter)
		q := r.create(func(s *wire.QueueSettings) { s.ThrottleHeaders = []string{"T", "U"} })
		until := time.Unix(0, now).UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
		werr := r.enqueue("x", "", nats.Header{"T": {"holds"}, "U": {"refuses:a"}})
		require.Equal(t, wire.BudgetEmpty("refuses:a", until.UnixNano(), until.Sub(time.Unix(0, now))), werr)
		require.Equal(t, 429, werr.Code)
		for _, header := range []nats.Header{
			{"T": {"holds"}, "U": {"buries"}},
			{"T": {"refuses"}, wire.HeaderNotBefore: {wire.Timestamp(until.UnixNano())}},
		} {
			require.Nil(t, r.enqueue("x", "", header))
		}
		class := store.Class{Cost: throttle.One, Routes: []store.Route{{ThrottleKeys: []string{"refuses"}}, {ThrottleKeys: []string{"other"}}}}
		require.Nil(t, q.budget(&class, 0, now))
		class.Routes[1].ThrottleKeys[0] = "refuses:b"
		require.Equal(t, wire.CodeBudgetEmpty, q.budget(&class, 0, now).ErrCode)
		class.Cost = throttle.One / 2
		require.Nil(t, q.budget(&class, 0, now), "as much is left")

		require.Nil(t, q.Accept(batchOf(false, []string{"a"}, []string{"b", "T", "refuses"}, []string{"c"})))
		reply, _ := r.batched()
		require.Equal(t, map[int]int{1: wire.CodeBudgetEmpty}, refusedIn(reply))
		require.Equal(t, until.Sub(time.Unix(0, now)).Milliseconds(), reply.Refused[0].RetryAfterMs)
	})
}
