package queue_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/throttle/adapt"
	"github.com/filaq/fila/wire"
)

func learning(concurrency int64) throttle.Limits {
	return throttle.Limits{Concurrency: concurrency, Adapt: adapt.Settings{Min: throttle.One, Backoff: 500, Grow: throttle.One, GrowPerS: 100 * throttle.One}}
}

func learned(r *rig, key string) *throttle.Learned {
	gate, ok := r.Gates.Find(key)
	require.True(r.T, ok)
	return gate.Info(r.Now).Learned
}

// Codes of overloads cut, other failures and acks do not, and a burst of one generation cuts once.
func TestOverloadsCutTheLimit(t *testing.T) {
	r := newRig(t, nil)
	r.LimitNow("k", learning(8))
	r.Consume(queue.Main, "w", 100, 0)
	for range 20 {
		r.Gated("a", "k")
	}
	ds := r.Deliveries()
	require.Len(t, ds, 8)
	r.Pass(time.Millisecond)
	r.Ack(ds[0], wire.Ack{Kind: wire.AckNack, ErrorCode: "400"}, "")
	r.Ack(ds[1], done, "")
	require.Zero(t, learned(r, "k").Cuts)
	for _, d := range ds[2:6] {
		r.Ack(d, wire.Ack{Kind: wire.AckNack, ErrorCode: "429"}, "")
	}
	l := learned(r, "k")
	require.EqualValues(t, 1, l.Cuts)
	require.EqualValues(t, 4*throttle.One, l.Level)
	require.Contains(t, l.Steps[0].Cause, "429 of message ")
	check(r)
}

// A failure that is judged cuts by its verdict alone, even though its gates are free before.
func TestAVerdictCutsTheLimit(t *testing.T) {
	r := newRig(t, func(s *queue.Settings) { s.Judge = true })
	r.LimitNow("k", learning(8))
	r.Consume(queue.Main, "w", 100, 0)
	for range 8 {
		r.Gated("a", "k")
	}
	ds := r.Deliveries()
	r.Pass(time.Millisecond)
	for i, overload := range []bool{false, true} {
		r.Ack(ds[i], wire.Ack{Kind: wire.AckNack, ErrorCode: "429"}, "")
		require.Len(t, r.Judge, 1)
		v := queue.Verdict{Failure: r.Judge[0], Overload: overload, Rule: "busy"}
		r.Judge = nil
		require.Zero(t, learned(r, "k").Cuts)
		r.Post(queue.Input{Kind: queue.Judged, Role: v.Role, Verdict: &v})
		r.Run()
	}
	require.EqualValues(t, 1, learned(r, "k").Cuts)
}

// Tenants behind a limit that is cut and grows share it by weight throughout.
func TestALearningLimitIsSharedByWeight(t *testing.T) {
	r := newRig(t, nil)
	r.LimitNow("vendor", learning(40))
	r.Consume(queue.Main, "w", 1000, 0)
	for range 1500 {
		r.Enqueue("gold", func(m *store.Message) { m.Weight, m.ThrottleKeys = 3000, []string{"vendor"} })
		r.Enqueue("silver", func(m *store.Message) { m.ThrottleKeys = []string{"vendor"} })
	}
	r.Commit()
	var flying []delivery
	got := make(map[string]int)
	for round := range 40 {
		for _, d := range r.Deliveries() {
			got[d.Key]++
			flying = append(flying, d)
		}
		r.Pass(100 * time.Millisecond)
		calls := flying
		flying = nil
		for i, d := range calls {
			if i == 0 && round%10 == 9 {
				r.Ack(d, wire.Ack{Kind: wire.AckNack, ErrorCode: "503", HasDelay: true, Delay: time.Hour}, "")
				continue
			}
			r.Ack(d, done, "")
		}
		if round <= 3 { // the first messages found no others waiting
			clear(got)
		}
		require.InDelta(t, 3*got["silver"], got["gold"], 12, "after round %d", round)
	}
	require.Greater(t, learned(r, "vendor").Cuts, uint64(2))
}

// A rate grows by the costs that acks report.
func TestARateGrowsByReportedCosts(t *testing.T) {
	grown := func(a wire.Ack) int64 {
		r := newRig(t, nil)
		r.LimitNow("k", throttle.Limits{
			Rate: throttle.PerSecond(100 * throttle.One), Burst: throttle.One, Adapt: adapt.Settings{Min: throttle.One, Backoff: 500, GrowPerS: 1000 * throttle.One},
		})
		r.Consume(queue.Main, "w", 1, 0)
		r.Gated("a", "k")
		r.Gated("a", "k")
		d := r.One()
		r.Pass(time.Second)
		r.Ack(d, wire.Ack{Kind: wire.AckNack, ErrorCode: "429", HasDelay: true, Delay: time.Hour}, "")
		low := learned(r, "k").Level
		d = r.One()
		r.Pass(10 * time.Millisecond) // the bucket is empty still
		r.Ack(d, a, "")
		return learned(r, "k").Level - low
	}
	estimated := grown(done)
	require.Positive(t, estimated)
	require.InEpsilon(t, 3*estimated, grown(wire.Ack{Kind: wire.AckDone, HasCost: true, Cost: 3 * throttle.One}), 0.1)
}

// Feedback counts after the refund of the same ack or nack: no bucket is above what the
// destination says that it still admits.
func TestFeedbackCountsAfterTheRefund(t *testing.T) {
	r := newRig(t, nil)
	r.LimitNow("k", throttle.Limits{
		Rate: throttle.PerSecond(throttle.One), Burst: 100 * throttle.One, Adapt: adapt.Settings{Min: 1, Backoff: 500},
	})
	r.Consume(queue.Main, "w", 100, 0)
	for _, a := range []wire.Ack{{Kind: wire.AckDone}, {Kind: wire.AckNack, HasDelay: true, Delay: time.Hour}} {
		r.Enqueue("a", func(m *store.Message) { m.ThrottleKeys, m.Cost = []string{"k"}, 40*throttle.One })
		r.Commit()
		d := r.One()
		a.HasCost, a.Cost, a.Feedback = true, 1000, &wire.Feedback{Remaining: 20 * throttle.One}
		r.Ack(d, a, "")
		g, _, _ := r.Gates.Look("k", r.Now)
		require.EqualValues(t, 20*throttle.One, g.Tokens)
		r.Pass(100 * time.Second)
	}
	check(r)
}
