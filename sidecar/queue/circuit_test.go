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
