package sidecar

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// TestCallsAndMessagesShareALimit: a message waits for the only slot while a call holds it.
func TestCallsAndMessagesShareALimit(t *testing.T) {
	dir := t.TempDir()
	inBubble(t, func(t *testing.T) {
		x := startSite(t, dir, func(c *config.Config) {
			c.Throttles = []config.ThrottleTable{{Key: "stripe", Concurrency: 1}}
			c.Queues = []wire.QueueSettings{wire.DefaultQueueSettings("orders")}
			c.Queues[0].ThrottleHeaders = []string{"vendor"}
		})
		var call api.GuardAnswer
		x.must("fila.guard.check.stripe", `{"caller":"web"}`, &call)
		require.True(t, call.Allowed)
		deliveries, _ := x.consumer("w", "orders", `{"consumer":"w"}`)
		x.enqueue("hello", nats.Header{"vendor": {"stripe"}})
		x.none(deliveries)

		var verdict api.GuardVerdict
		x.must("fila.guard.done.stripe", `{"caller":"web","permit":"`+call.Permit+`","outcome":"ok"}`, &verdict)
		message := <-deliveries

		m, err := x.nc.Request("fila.guard.check.stripe", nil, time.Second)
		require.NoError(t, err)
		require.Contains(t, string(m.Data), `"gate":"concurrency"`)
		require.Equal(t, []string{"1"}, m.Header[wire.HeaderRetryAfter])
		require.Equal(t, []string{"0"}, m.Header[wire.HeaderRateLimitRemaining])

		require.Nil(t, x.ack(message, "+ACK"))
		var many api.GuardAnswers
		x.must("fila.guard.check._", `{"checks":[{"key":"stripe"},{"key":"stripe"},{"key":"a key"}]}`, &many)
		require.True(t, many.Answers[0].Allowed)
		require.False(t, many.Answers[1].Allowed)
		require.True(t, many.Answers[2].Allowed)
		var st api.GuardStatus
		x.must("fila.guard.state.stripe", "", &st)
		require.Equal(t, 1, st.Permits)
		require.Equal(t, "concurrency", st.Answer.Gate)
		for _, key := range []string{"stripe", "_"} {
			x.must("fila.guard.done."+key, `{"key":"stripe","permit":"`+many.Answers[0].Permit+`","outcome":"ok"}`, &verdict)
		}
		require.True(t, verdict.Duplicate)
		require.NoError(t, x.nc.Publish("fila.guard.check.unheard", nil))
		x.must("fila.guard.state.unheard", "", &st)
		require.Zero(t, st.Permits, "nobody hears of the permit, so there is none")
		x.must("fila.guard.done._", `{"key":"a key","permit":"`+many.Answers[2].Permit+`","outcome":"ok"}`, nil)
		x.end()
	})
}

// TestAStopWaitsForCalls as for leases, and accepts their outcomes.
func TestAStopWaitsForCalls(t *testing.T) {
	dir := t.TempDir()
	inBubble(t, func(t *testing.T) {
		x := startSite(t, dir, nil)
		var call api.GuardAnswer
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

// TestCallsOverAnEnd: a call may go on after fila ends without waiting, so its slot stays taken for
// callers and messages until it is over. Other kinds of limits are not affected.
func TestCallsOverAnEnd(t *testing.T) {
	dir := t.TempDir()
	change := func(c *config.Config) {
		c.Throttles = []config.ThrottleTable{{Key: "vendor:*", Concurrency: 1}}
		c.Queues = []wire.QueueSettings{wire.DefaultQueueSettings("orders")}
		c.Queues[0].ThrottleHeaders = []string{"vendor"}
	}
	inBubble(t, func(t *testing.T) {
		x := startSite(t, dir, change)
		var call api.GuardAnswer
		x.must("fila.guard.check.vendor:stripe", `{"ttl_ms":20000,"with":["tenant:acme"]}`, &call)
		ends := time.Now().Add(20 * time.Second)
		x.s.Kill()
		x.stop()
		<-x.ended
		x.nc.Close()

		x = startSite(t, dir, change)
		deliveries, _ := x.consumer("w", "orders", `{"consumer":"w"}`)
		x.enqueue("hello", nats.Header{"vendor": {"vendor:stripe"}})
		a, _ := x.check("vendor:stripe")
		require.Equal(t, "paused", a.Gate)
		wait := time.Duration(a.RetryAfterMs) * time.Millisecond
		require.GreaterOrEqual(t, wait, time.Until(ends))
		require.LessOrEqual(t, wait, time.Until(ends)+time.Millisecond, "fila knew of no other call when it ended")
		other, _ := x.check("vendor:adyen", "tenant:acme")
		require.True(t, other.Allowed, "by a limit under which no call went on")
		x.done("vendor:adyen", other.Permit, "", 1)
		x.none(deliveries)
		time.Sleep(time.Until(ends) - time.Millisecond)
		x.none(deliveries)
		require.Nil(t, x.ack(<-deliveries, "+ACK"))
		require.False(t, time.Now().Before(ends))
		x.call("", 1, "vendor:stripe")
		x.end()

		x = startSite(t, dir, change) // no call was running at the end
		x.call("", 1, "vendor:stripe")
		x.must("fila.guard.check.vendor:stripe", `{"ttl_ms":60000}`, &call)
		x.end() // it has waited in vain
		x = startSite(t, dir, change)
		a, _ = x.check("vendor:stripe")
		require.Equal(t, "paused", a.Gate)
		x.must("fila.admin.resume", `{"kind":"throttle","name":"vendor:stripe"}`, nil)
		x.call("", 1, "vendor:stripe") // the permit was released by hand
		x.end()
	})
}
