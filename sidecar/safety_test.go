package sidecar

import (
	"encoding/json"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// safetySite runs fn on a fila with examples/safety/safety.toml.
func safetySite(t *testing.T, fn func(t *testing.T, x *testSite)) {
	t.Helper()
	dir := t.TempDir()
	loaded, err := config.Load(config.Sources{File: "../examples/safety/safety.toml"})
	require.NoError(t, err)
	require.Empty(t, loaded.Warnings)
	inBubble(t, func(t *testing.T) {
		x := startSite(t, dir, func(c *config.Config) {
			*c = loaded.Config
			c.DataDir, c.HTTP.Addr, c.Reload = dir, "", nil
		})
		fn(t, x)
		x.end()
	})
}

// check requests a call and returns the headers of the answer as well.
func (x *testSite) check(key string, with ...string) (a api.GuardAnswer, headers nats.Header) {
	x.t.Helper()
	body, err := json.Marshal(api.GuardAsk{With: with})
	require.NoError(x.t, err)
	m, err := x.nc.Request("fila.guard.check."+key, body, time.Minute)
	require.NoError(x.t, err)
	require.Nil(x.t, wire.ParseError(m.Header, m.Data))
	require.NoError(x.t, json.Unmarshal(m.Data, &a))
	return a, m.Header
}

// call makes an allowed call and ends it with an error code; "" means success.
func (x *testSite) call(code string, attempt int, key string, with ...string) (v api.GuardVerdict) {
	x.t.Helper()
	a, _ := x.check(key, with...)
	require.True(x.t, a.Allowed, "refused by %s of %s", a.Gate, a.Key)
	return x.done(key, a.Permit, code, attempt)
}

func (x *testSite) done(key, permit, code string, attempt int) (v api.GuardVerdict) {
	x.t.Helper()
	outcome := `"ok"`
	if code != "" {
		outcome = fmt.Sprintf(`"error","error_code":%q`, code)
	}
	x.must("fila.guard.done."+key, fmt.Sprintf(`{"permit":%q,"attempt":%d,"outcome":%s}`, permit, attempt, outcome), &v)
	return v
}

// TestSafetyWindows: one call too many within a minute, for a vendor, a workflow or a tenant, is refused
// with the right time to retry.
func TestSafetyWindows(t *testing.T) {
	safetySite(t, func(t *testing.T, x *testSite) {
		// full makes a refused call, whose answer names the keys at their limit.
		full := func(limit int64, refuses, vendor string, with ...string) {
			a, headers := x.check(vendor, with...)
			require.False(t, a.Allowed)
			require.Equal(t, "window", a.Gate)
			require.Equal(t, refuses, a.Key)
			require.Equal(t, int64(60_000), a.RetryAfterMs)
			require.Equal(t, &api.GuardLimit{
				Key: refuses, Gate: "window", Limit: limit, Remaining: 0, WindowMs: 60_000,
				ResetS: 60, ResetEpoch: time.Now().Unix() + 60,
			}, a.Limit)
			require.Equal(t, "60", headers[wire.HeaderRetryAfter][0])
			require.Equal(t, "60000", headers[wire.HeaderRetryAfterMs][0])
			require.Equal(t, strconv.FormatInt(limit, 10), headers[wire.HeaderRateLimitLimit][0])
			require.Equal(t, "0", headers[wire.HeaderRateLimitRemaining][0])
			require.Equal(t, "60", headers[wire.HeaderRateLimitReset][0])
		}
		made := 0
		calls := func(n int, vendor, workflow, tenant string) {
			for range n {
				x.call("", 1, vendor, workflow, tenant)
			}
			made += n
		}
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) // so that reset_epoch is round
		for workflow := range 2 {
			for vendor := range 5 {
				calls(100, fmt.Sprintf("vendor:%d-%d", workflow, vendor), fmt.Sprintf("workflow:%d", workflow), "tenant:acme")
				if made == 100 {
					full(100, "vendor:0-0", "vendor:0-0", "workflow:other", "tenant:other")
				}
				if made == 500 {
					full(500, "workflow:0", "vendor:other", "workflow:0", "tenant:other")
				}
			}
		}
		full(1000, "tenant:acme", "vendor:other", "workflow:other", "tenant:acme")
		calls(1, "vendor:other", "workflow:other", "tenant:other") // refused calls have used nothing

		time.Sleep(time.Minute - 1)
		a, _ := x.check("vendor:0-0", "workflow:0", "tenant:acme")
		require.False(t, a.Allowed, "a nanosecond too early")
		time.Sleep(time.Nanosecond)
		calls(1, "vendor:0-0", "workflow:0", "tenant:acme")

		werr := x.request("fila.guard.check.tenant:acme", `{"with":["vendor:0-0"]}`, nil, nil)
		require.ErrorIs(t, werr, wire.GuardPair("", ""), "a vendor comes first")
	})
}

// TestSafetySharesLimitsWithMessages: messages wait for what calls have used up.
func TestSafetySharesLimitsWithMessages(t *testing.T) {
	safetySite(t, func(t *testing.T, x *testSite) {
		deliveries, _ := x.consumer("w", "calls", `{"consumer":"w"}`)
		publish := func(vendor string) {
			require.Nil(t, x.request("fila.enqueue.calls", "hello", nats.Header{
				"tenant": {"acme"}, "workflow": {"invoices"}, "vendor": {vendor},
			}, nil))
		}
		for range 99 {
			x.call("", 1, "vendor:stripe")
		}
		publish("stripe")
		require.Nil(t, x.ack(<-deliveries, "+ACK"))
		a, _ := x.check("vendor:stripe")
		require.Equal(t, "window", a.Gate, "the message was the hundredth")
		begin := time.Now()
		publish("stripe")
		publish("adyen")
		require.Nil(t, x.ack(<-deliveries, "+ACK"), "of the other vendor")
		x.none(deliveries)
		m := <-deliveries
		require.Equal(t, time.Minute, time.Since(begin).Round(100*time.Millisecond))
		require.Nil(t, x.ack(m, "+ACK"))
	})
}

// TestSafetyCircuit: five failures open it, after a minute exactly three calls probe it, three successes
// close it and one failure opens it again.
func TestSafetyCircuit(t *testing.T) {
	safetySite(t, func(t *testing.T, x *testSite) {
		const vendor = "vendor:stripe"
		refused := func(ms int64) {
			a, headers := x.check(vendor, "tenant:acme")
			require.Equal(t, api.GuardAnswer{Gate: "circuit", Key: vendor, RetryAfterMs: ms}, a)
			require.Equal(t, strconv.FormatInt(ms, 10), headers[wire.HeaderRetryAfterMs][0])
		}
		fail := func(n int) {
			for range n {
				v := x.call("503", 1, vendor, "tenant:acme")
				require.Equal(t, "high", v.Severity)
				require.Equal(t, "vendor-down", v.Rule)
				require.Equal(t, "the vendor is down", v.Description)
			}
		}
		probes := func() (permits []string) {
			time.Sleep(time.Minute)
			for range 3 {
				a, _ := x.check(vendor, "tenant:acme")
				require.True(t, a.Allowed && a.Probe)
				permits = append(permits, a.Permit)
			}
			refused(200) // all three are running, and the retry time is a guess
			return permits
		}
		fail(4)
		x.call("", 1, vendor) // only consecutive failures count
		fail(5)
		refused(60_000)
		x.call("", 1, "vendor:adyen") // another vendor is not affected
		x.done(vendor, probes()[1], "503", 1)
		refused(60_000)
		permits := probes()
		x.done(vendor, permits[0], "", 1)
		x.done(vendor, permits[1], "", 1)
		var st api.GuardStatus
		x.must("fila.guard.state."+vendor, "", &st)
		require.Equal(t, "half-open", st.Circuit.State)
		x.done(vendor, permits[2], "", 1)
		for range 4 {
			x.call("400", 1, vendor) // not the vendor's fault
			x.call("400", 1, vendor)
		}
		x.must("fila.guard.state."+vendor, "", &st)
		require.Equal(t, "closed", st.Circuit.State)
		require.Zero(t, st.Circuit.ConsecutiveFailures)
	})
}

// TestSafetyFailuresPerHour: fifty failures that are not consecutive are allowed, one more opens the
// circuit for a quarter of an hour.
func TestSafetyFailuresPerHour(t *testing.T) {
	safetySite(t, func(t *testing.T, x *testSite) {
		for range 50 {
			x.call("503", 1, "vendor:stripe")
			x.call("", 1, "vendor:stripe")
			time.Sleep(3 * time.Second) // 40 calls a minute
		}
		x.call("503", 1, "vendor:stripe")
		a, _ := x.check("vendor:stripe")
		require.Equal(t, api.GuardAnswer{Gate: "circuit", Key: "vendor:stripe", RetryAfterMs: 15 * 60_000}, a)
		time.Sleep(15 * time.Minute)
		x.call("", 1, "vendor:stripe")
	})
}

// TestSafetyRetries: five retries, for calls and messages, and none if a rule says so.
func TestSafetyRetries(t *testing.T) {
	safetySite(t, func(t *testing.T, x *testSite) {
		for attempt := 1; attempt <= 6; attempt++ {
			for _, code := range []string{"429", "503", "timeout", "whatever"} {
				v := x.call(code, attempt, "vendor:"+code+strconv.Itoa(attempt))
				require.Equal(t, attempt <= 5, v.Retry, code)
				require.Equal(t, int64(6-attempt), *v.RetriesLeft, code)
				require.NotEmpty(t, v.Description)
			}
		}
		critical, err := x.nc.SubscribeSync("fila.event." + wire.EventFailureCritical + ".>")
		require.NoError(t, err)
		require.NoError(t, x.nc.Flush())
		for code, severity := range map[string]string{"400": "low", "401": "critical", "canceled": "low"} {
			v := x.call(code, 1, "vendor:x")
			require.False(t, v.Retry)
			require.Equal(t, severity, v.Severity)
		}
		m, err := critical.NextMsg(time.Second)
		require.NoError(t, err)
		require.Equal(t, "fila.event.failure-critical.vendor:x", m.Subject)
		var e wire.Event
		require.NoError(t, json.Unmarshal(m.Data, &e))
		require.Equal(t, "vendor:x", e.Key)
		require.Empty(t, e.Queue)
		require.Equal(t, api.FailureOfCall, e.Data["kind"])
		require.Equal(t, "credentials", e.Data["rule"])

		deliveries, _ := x.consumer("w", "calls", `{"consumer":"w"}`)
		require.Nil(t, x.request("fila.enqueue.calls", "hello", nats.Header{"vendor": {"stripe"}}, nil))
		begin := time.Now()
		for attempt := 1; attempt <= 6; attempt++ {
			m := <-deliveries
			require.Equal(t, strconv.Itoa(attempt), m.Header[wire.HeaderAttempt][0])
			require.Nil(t, x.ack(m, `-NAK {"error":"upstream is down","code":"503"}`))
			if attempt == 5 { // the failures have opened the circuit; waiting uses no attempt
				a, _ := x.check("vendor:stripe")
				require.Equal(t, "circuit", a.Gate)
				begin = time.Now()
			}
		}
		require.GreaterOrEqual(t, time.Since(begin), time.Minute)
		time.Sleep(time.Hour)
		x.none(deliveries)
		require.Zero(t, x.depth("calls").Pending)
		require.EqualValues(t, 1, x.depth("calls.dlq").Pending)
	})
}
