package sidecar

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// TestThrottlesAndPausesOverNATS on a whole server: timers end pauses, and everything survives a restart.
func TestThrottlesAndPausesOverNATS(t *testing.T) {
	dir := t.TempDir()
	inBubble(t, func(t *testing.T) {
		x := startSite(t, dir, func(c *config.Config) { c.Throttles = []config.ThrottleTable{{Key: "declared", Rate: "3"}} })
		full := func() {
			t.Helper()
			var info api.ThrottleInfo
			x.must("fila.admin.throttle-show.declared", "", &info)
			require.InDelta(t, 3, info.Tokens, 0, "a bucket that is empty after a crash")
		}
		full()
		x.must("fila.admin.queue-create.orders", "{}", nil)
		x.must("fila.admin.pause", `{"kind":"queue","name":"orders","for_ms":1200000}`, nil)
		deliveries, _ := x.consumer("worker", "orders", `{"consumer":"worker"}`)
		x.enqueue("hello", nil)
		time.Sleep(10 * time.Minute)
		x.none(deliveries)
		x.end()

		x = startSite(t, dir, nil)
		full()
		var pauses api.PauseList
		x.must("fila.admin.pause-list", "", &pauses)
		require.Equal(t, 1, pauses.Total)
		deliveries, _ = x.consumer("worker", "orders", `{"consumer":"worker"}`)
		time.Sleep(9 * time.Minute)
		x.none(deliveries)
		time.Sleep(time.Minute)
		m := <-deliveries
		require.Equal(t, "hello", string(m.Data))
		require.Nil(t, x.ack(m, ""))
		x.must("fila.admin.pause-list", "", &pauses)
		require.Zero(t, pauses.Total)
		var log api.ConfigLog
		x.must("fila.admin.config-log", `{"prefix":"throttle:declared"}`, &log)
		require.Equal(t, "file", log.Entries[0].By)
		x.end()
	})
}

// TestMetricsOfNamedGates: metrics name the blocked messages and guard calls of configured gates, and
// count every limit that was exceeded.
func TestMetricsOfNamedGates(t *testing.T) {
	dir := t.TempDir()
	inBubble(t, func(t *testing.T) {
		x := startSite(t, dir, func(c *config.Config) {
			c.Throttles = []config.ThrottleTable{{Key: "mail", Concurrency: 1}, {Key: "tenant:*", Concurrency: 1}}
			c.Circuits = []config.CircuitTable{
				{Key: "stripe", CircuitLimits: config.CircuitLimits{Threshold: 1}},
				{Key: "adyen", CircuitLimits: config.CircuitLimits{Threshold: 9, MaxFailures: 1}},
			}
		})
		x.must("fila.admin.queue-create.orders", `{"throttle_headers":["t"],"circuit_header":"c"}`, nil)
		x.must("fila.admin.queue-create.keys", `{"max_failures_per_key":1}`, nil)
		messages, err := x.nc.SubscribeSync("fila.deliver.w.*")
		require.NoError(t, err)
		for _, queue := range []string{"orders", "keys"} {
			x.must("fila.consume."+queue, `{"consumer":"w","max_in_flight":10}`, nil)
		}
		for range 2 {
			require.Nil(t, x.request("fila.enqueue.orders", "x", nats.Header{"t": {"mail"}}, nil))
			require.Nil(t, x.request("fila.enqueue.orders", "x", nats.Header{"t": {"tenant:acme"}}, nil))
		}
		var answer api.GuardAnswer
		require.Nil(t, x.request("fila.guard.check.vendor", `{"with":["mail"]}`, nil, &answer))
		require.Equal(t, "concurrency", answer.Gate)
		for _, fails := range []struct{ queue, circuit string }{{"orders", "stripe"}, {"orders", "adyen"}, {"orders", "adyen"}, {"keys", ""}, {"keys", ""}} {
			require.Nil(t, x.request("fila.enqueue."+fails.queue, "fails", nats.Header{"c": {fails.circuit}}, nil))
			m, err := messages.NextMsg(time.Minute)
			for ; err == nil && string(m.Data) != "fails"; m, err = messages.NextMsg(time.Minute) {
			}
			require.NoError(t, err)
			require.Nil(t, x.request(m.Reply, `-NAK {"error":"down","delay":"1h"}`, nil, nil))
		}
		require.Nil(t, x.request("fila.guard.check.stripe", ``, nil, &answer))
		require.Equal(t, "circuit", answer.Gate)
		synctest.Wait()
		metrics := scraped(x)
		for _, line := range []string{
			`fila_throttle_rejections_total{blocked_by="concurrency",throttle="mail"} 2`,
			`fila_circuit_rejections_total{circuit="stripe"} 1`,
			`fila_circuit_key_transitions_total{circuit="stripe",from="closed",to="open"} 1`,
			`fila_held_total{blocked_by="concurrency",queue="orders"} 2`,
			`fila_guard_checks_total{outcome="concurrency"} 1`, `fila_guard_checks_total{outcome="circuit"} 1`,
			`fila_limits_exceeded_total{limit="concurrency"} 3`, `fila_limits_exceeded_total{limit="window"} 0`,
			`fila_limits_exceeded_total{limit="max_failures"} 1`, `fila_limits_exceeded_total{limit="max_failures_per_key"} 1`,
		} {
			require.Contains(t, metrics, "\n"+line+"\n")
		}
		require.NotContains(t, metrics, "acme")
		x.end()
	})
}

// TestMetricsOfLimits: metrics show the usage of [limits]; for limits per queue, of the fullest queue.
func TestMetricsOfLimits(t *testing.T) {
	dir := t.TempDir()
	inBubble(t, func(t *testing.T) {
		x := startSite(t, dir, func(c *config.Config) {
			c.Limits.MaxThrottleKeys, c.Limits.MaxCircuits, c.Limits.MaxRateKeys, c.Limits.MaxDedupeIDs, c.Limits.MaxConsumers = 10, 20_000, 30, 40, 50
			c.Limits.MaxFetches, c.Limits.MaxConsumerFetches = 3, 2
		})
		used := func(throttle, circuits, rate, dedupe, consumers int) {
			t.Helper()
			got := scraped(x)
			for limit, n := range map[string]int{
				"max_throttle_keys": throttle, "max_circuits": circuits, "max_rate_keys": rate, "max_dedupe_ids": dedupe, "max_consumers": consumers,
			} {
				require.Contains(t, got, fmt.Sprintf("\nfila_limit_used{limit=%q} %d\n", limit, n))
			}
		}
		used(0, 0, 0, 0, 0)
		for limit, n := range map[string]int{"max_throttle_keys": 10, "max_circuits": 20_000, "max_rate_keys": 30, "max_dedupe_ids": 40, "max_consumers": 50} {
			require.Contains(t, scraped(x), fmt.Sprintf("\nfila_limit_max{limit=%q} %d\n", limit, n))
		}
		x.must("fila.admin.queue-create.little", `{"enqueue_rate_per_key":"1"}`, nil)
		x.must("fila.admin.queue-create.empty", "", nil)
		x.must("fila.admin.queue-create.much", `{"fairness_header":"f","throttle_headers":["t"],"circuit_header":"c","enqueue_rate":"100","enqueue_rate_per_key":"1/3600","enqueue_burst_per_key":2}`, nil)
		require.Nil(t, x.request("fila.enqueue.little", "x", nats.Header{wire.HeaderMsgID: {"1"}}, nil))
		for i := range 3 {
			name := []string{fmt.Sprint(i)}
			require.Nil(t, x.request("fila.enqueue.much", "x", nats.Header{"f": name, "t": name, "c": {"one"}, wire.HeaderMsgID: name}, nil))
		}
		for i := range 4 {
			x.consumer(fmt.Sprint("w", i), "little", fmt.Sprintf(`{"consumer":"w%d"}`, i))
		}
		used(3, 1, 3, 3, 4)
		fetch := func(subject, inbox string) {
			require.NoError(t, x.nc.PublishRequest(subject, inbox, []byte(`{"fetch":{"expires_ms":60000}}`)))
		}
		refusals, err := x.nc.SubscribeSync("_INBOX.w.>")
		require.NoError(t, err)
		for i := range 3 {
			fetch("fila.consumer.w.empty", fmt.Sprint("_INBOX.w.", i))
		}
		refusal, err := refusals.NextMsg(time.Minute)
		require.NoError(t, err)
		require.Equal(t, "_INBOX.w.2", refusal.Subject)
		require.Contains(t, wire.ParseError(refusal.Header, refusal.Data).Description, "limits.max_consumer_fetches")
		require.Contains(t, scraped(x), "\nfila_limit_used{limit=\"max_fetches\"} 2\n")
		require.Contains(t, scraped(x), "\nfila_limit_max{limit=\"max_fetches\"} 3\n")
		x.end()
	})
}
