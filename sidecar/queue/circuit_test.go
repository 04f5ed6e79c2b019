package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

func breakerConfig(threshold int, cooldown time.Duration) breaker.Config {
	return breaker.Config{Threshold: threshold, Cooldown: cooldown, HalfOpenMaxCalls: 1, HalfOpenSuccesses: 1}
}

func TestAnOpenCircuitBlocksItsMessages(t *testing.T) {
	r := newRig(t, nil)
	r.Breaker(breakerConfig(2, 10*time.Second))
	r.Consume(queue.Main, "w", 1, 0)
	var all []store.ID
	for range 6 {
		all = append(all, r.Enqueue("a", func(m *store.Message) { m.CircuitKey = "stripe" }))
	}
	r.Commit()
	later := wire.Ack{Kind: wire.AckNack, HasDelay: true, Delay: time.Minute, Error: "boom"}
	r.Ack(r.One(), later, "")
	r.Ack(r.One(), later, "")
	require.Empty(t, r.Deliveries(), "two failures have opened it")
	check(r)
	other := r.Gated("a")
	d := r.One()
	require.Equal(t, other, d.ID)
	r.Finished(d)
	r.Pass(9 * time.Second)
	require.Empty(t, r.Deliveries())
	r.Pass(time.Second)
	probe := r.One()
	require.Equal(t, all[2], probe.ID)
	require.EqualValues(t, 1, probe.Token.Attempt)
	r.Ack(probe, nack, "")
	require.Empty(t, r.Deliveries(), "one failure opens it again")
	r.Pass(10 * time.Second)
	probe = r.One()
	r.Finished(probe)
	r.Consume(queue.Main, "w", 10, 0)
	require.Len(t, r.Deliveries(), 3, "a success has closed it")
	check(r)
}

func TestRetryAfterShutsTheCircuitForEverybody(t *testing.T) {
	for _, judge := range []bool{false, true} {
		t.Run(fmt.Sprint("judge ", judge), func(t *testing.T) {
			r := newRig(t, func(s *queue.Settings) { s.Judge = judge })
			r.Consume(queue.Main, "w", 1, 0)
			for i := range 3 {
				r.Enqueue(fmt.Sprint("tenant-", i), func(m *store.Message) { m.CircuitKey = "api" })
			}
			r.Commit()
			r.Ack(r.One(), wire.Ack{Kind: wire.AckNack, RetryAfter: 5 * time.Second, HasDelay: true, Delay: time.Second}, "")
			for _, f := range r.Judge {
				r.Post(queue.Input{Kind: queue.Judged, Verdict: &queue.Verdict{Failure: f, Delay: f.Delay}})
			}
			r.Consume(queue.Main, "w", 10, 0)
			r.Pass(4999 * time.Millisecond)
			require.Empty(t, r.Deliveries())
			r.Pass(time.Millisecond)
			require.Len(t, r.Deliveries(), 3)
			check(r)
		})
	}
}

// What a failure means for the circuit is said by the verdict, and not before.
func TestTheCircuitWaitsForTheVerdict(t *testing.T) {
	for outcome, state := range map[breaker.Outcome]string{breaker.Failure: "open", breaker.Neutral: "closed"} {
		t.Run(state, func(t *testing.T) {
			r := newRig(t, func(s *queue.Settings) { s.Judge = true })
			r.Breaker(breakerConfig(1, time.Second))
			r.Consume(queue.Main, "w", 1, 0)
			r.Enqueue("a", func(m *store.Message) { m.CircuitKey = "c" })
			r.Commit()
			r.Ack(r.One(), nack, "")
			i, _ := r.Circuits.Info("c")
			require.Equal(t, "closed", i.State)
			require.Equal(t, 1, r.M.Open())
			r.Post(queue.Input{Kind: queue.Judged, Verdict: &queue.Verdict{Failure: r.Judge[0], Outcome: outcome, Delay: 1e12}})
			r.Run()
			i, _ = r.Circuits.Info("c")
			require.Equal(t, state, i.State)
			require.Zero(t, r.M.Open())
			check(r)
		})
	}
}

// TestNoMoreGoThanTheThreshold fails every delivery, one after the other, while verdicts come
// late: with n in flight threshold + n - 1 messages go at most, as without verdicts.
func TestNoMoreGoThanTheThreshold(t *testing.T) {
	for _, inFlight := range []int{1, 2, 5, 10} {
		for _, late := range []int{0, 1, 3, 100} { // verdicts that are held back
			t.Run(fmt.Sprint(inFlight, " in flight, ", late, " late"), func(t *testing.T) {
				r := newRig(t, func(s *queue.Settings) { s.Judge = true })
				r.Breaker(breakerConfig(3, time.Hour))
				r.Consume(queue.Main, "w", inFlight, 0)
				for i := range 40 {
					r.Enqueue(fmt.Sprint("tenant-", i%4), func(m *store.Message) { m.CircuitKey = "api" })
				}
				r.Commit()
				judge := func() {
					f := r.Judge[0]
					r.Judge = r.Judge[1:]
					r.Post(queue.Input{Kind: queue.Judged, Verdict: &queue.Verdict{Failure: f, Outcome: breaker.Failure, Delay: 1e15}})
					r.Run()
				}
				var open []delivery
				went := 0
				for {
					ds := r.Deliveries()
					went += len(ds)
					if open = append(open, ds...); len(open) == 0 && len(r.Judge) == 0 {
						break
					}
					if len(open) > 0 {
						r.Ack(open[0], nack, "")
						open = open[1:]
					}
					for len(r.Judge) > late || len(open) == 0 && len(r.Judge) > 0 {
						judge()
					}
				}
				require.LessOrEqual(t, went, 3+inFlight-1)
				require.GreaterOrEqual(t, went, 3)
				i, _ := r.Circuits.Info("api")
				require.Equal(t, "open", i.State)
				check(r)
			})
		}
	}
}

// TestNeutralFailureAdmitsOthers: what waited for the verdicts goes on after them.
func TestNeutralFailureAdmitsOthers(t *testing.T) {
	r := newRig(t, func(s *queue.Settings) { s.Judge = true })
	r.Breaker(breakerConfig(2, time.Hour))
	r.Consume(queue.Main, "w", 5, 0)
	for range 5 {
		r.Enqueue("a", func(m *store.Message) { m.CircuitKey = "api" })
	}
	r.Commit()
	ds := r.Deliveries()
	require.Len(t, ds, 5)
	for _, d := range ds[:2] {
		r.Ack(d, nack, "")
	}
	r.Enqueue("a", func(m *store.Message) { m.CircuitKey = "api" })
	r.Commit()
	require.Empty(t, r.Deliveries(), "two failures that may count")
	r.Post(queue.Input{Kind: queue.Judged, Verdict: &queue.Verdict{Failure: r.Judge[0], Outcome: breaker.Neutral, Delay: 1e15}})
	r.Run()
	require.Len(t, r.Deliveries(), 1)
	check(r)
}

// TestAProbeThatFailedIsTheLast: while it is judged no further probe goes.
func TestAProbeThatFailedIsTheLast(t *testing.T) {
	for _, outcome := range []breaker.Outcome{breaker.Failure, breaker.Neutral} {
		r := newRig(t, func(s *queue.Settings) { s.Judge = true })
		cfg := breakerConfig(1, time.Second)
		cfg.HalfOpenMaxCalls = 3
		r.Breaker(cfg)
		r.Consume(queue.Main, "w", 1, 0)
		for range 5 {
			r.Enqueue("a", func(m *store.Message) { m.CircuitKey = "api" })
		}
		r.Commit()
		judge := func(o breaker.Outcome) {
			f := r.Judge[0]
			r.Judge = r.Judge[1:]
			r.Post(queue.Input{Kind: queue.Judged, Verdict: &queue.Verdict{Failure: f, Outcome: o, Delay: 1e15}})
			r.Run()
		}
		r.Ack(r.One(), nack, "")
		judge(breaker.Failure)
		r.Pass(time.Second)
		r.Ack(r.One(), nack, "")
		require.Empty(t, r.Deliveries(), "the first probe has failed")
		judge(outcome)
		require.Len(t, r.Deliveries(), map[breaker.Outcome]int{breaker.Failure: 0, breaker.Neutral: 1}[outcome])
		check(r)
	}
}
