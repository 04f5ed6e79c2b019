package sidecar

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/wire"
)

// TestCallsAndMessagesShareALimit: a call holds the only place at a vendor, a message
// waits for it, and goes when the call is done.
func TestCallsAndMessagesShareALimit(t *testing.T) {
	dir := t.TempDir()
	inBubble(t, func(t *testing.T) {
		x := startSite(t, dir, func(c *config.Config) {
			c.Throttles = []config.ThrottleTable{{Key: "stripe", Concurrency: 1}}
			c.Queues = []wire.QueueSettings{wire.DefaultQueueSettings("orders")}
			c.Queues[0].ThrottleHeaders = []string{"vendor"}
		})
		var call wire.GuardAnswer
		x.must("fila.guard.check.stripe", `{"caller":"web"}`, &call)
		require.True(t, call.Allowed)
		deliveries, _ := x.consumer("w", "orders", `{"consumer":"w"}`)
		x.enqueue("hello", nats.Header{"vendor": {"stripe"}})
		x.none(deliveries)

		var verdict wire.GuardVerdict
		x.must("fila.guard.done.stripe", `{"caller":"web","permit":"`+call.Permit+`","outcome":"ok"}`, &verdict)
		message := <-deliveries

		m, err := x.nc.Request("fila.guard.check.stripe", nil, time.Second)
		require.NoError(t, err)
		require.Contains(t, string(m.Data), `"gate":"concurrency"`)
		require.Equal(t, []string{"1"}, m.Header[wire.HeaderRetryAfter])
		require.Equal(t, []string{"0"}, m.Header[wire.HeaderRateLimitRemaining])

		require.Nil(t, x.ack(message, "+ACK"))
		var many wire.GuardAnswers
		x.must("fila.guard.check._", `{"checks":[{"key":"stripe"},{"key":"stripe"},{"key":"a key"}]}`, &many)
		require.True(t, many.Answers[0].Allowed)
		require.False(t, many.Answers[1].Allowed)
		require.True(t, many.Answers[2].Allowed)
		var st wire.GuardStatus
		x.must("fila.guard.state.stripe", "", &st)
		require.Equal(t, 1, st.Permits)
		require.Equal(t, "concurrency", st.Answer.Gate)
		for _, key := range []string{"stripe", "_"} {
			x.must("fila.guard.done."+key, `{"key":"stripe","permit":"`+many.Answers[0].Permit+`","outcome":"ok"}`, &verdict)
		}
		require.True(t, verdict.Duplicate)
		x.must("fila.guard.done._", `{"key":"a key","permit":"`+many.Answers[2].Permit+`","outcome":"ok"}`, nil)
		x.end()
	})
}

// TestAStopWaitsForCalls as it does for leases, and lets them be done.
func TestAStopWaitsForCalls(t *testing.T) {
	dir := t.TempDir()
	inBubble(t, func(t *testing.T) {
		x := startSite(t, dir, nil)
		var call wire.GuardAnswer
		x.must("fila.guard.check.v", "", &call)
		x.stop()
		time.Sleep(time.Second)
		synctest.Wait()
		select {
		case <-x.ended:
			require.Fail(t, "it has not waited for the call")
		default:
		}
		require.ErrorIs(t, x.request("fila.guard.check.v", "", nil, nil), wire.Draining())
		x.must("fila.guard.done.v", `{"permit":"`+call.Permit+`","outcome":"ok"}`, nil)
		<-x.ended
		require.NoError(t, x.err)
		x.nc.Close()
	})
}
