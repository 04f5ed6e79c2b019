package sidecar

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/wire"
)

// TestThrottlesAndPausesOverNATS asks a whole server, whose timer ends overrides
// and pauses, and finds everything again after a restart in order.
func TestThrottlesAndPausesOverNATS(t *testing.T) {
	dir := t.TempDir()
	inBubble(t, func(t *testing.T) {
		x := startSite(t, dir, func(c *config.Config) { c.Throttles = []config.ThrottleTable{{Key: "declared", Rate: "3"}} })
		full := func() {
			t.Helper()
			var info wire.ThrottleInfo
			x.must("fila.admin.throttle-show.declared", "", &info)
			require.InDelta(t, 3, info.Tokens, 0, "a bucket that is empty after a crash")
		}
		full()
		x.must("fila.admin.queue-create.orders", "{}", nil)
		var info wire.ThrottleInfo
		x.must("fila.admin.throttle-set.stripe", `{"rate":10}`, &info)
		x.must("fila.admin.throttle-set._", `{"key":"two words","concurrency":2}`, nil)
		x.must("fila.admin.throttle-set.stripe", `{"rate":"1/2","for_ms":600000}`, &info)
		require.Equal(t, "override", info.Source)
		x.must("fila.admin.throttle-set.tenant:*", `{"limit":5,"window_ms":1000,"if":{"limit":0}}`, nil)
		require.Equal(t, 409, x.request("fila.admin.throttle-set.stripe", `{"rate":1,"if":{"rate":2}}`, nil, nil).Code)
		var list wire.ThrottleList
		x.must("fila.admin.throttle-list", `{}`, &list)
		require.Equal(t, 4, list.Total)

		x.must("fila.admin.pause", `{"kind":"queue","name":"orders","for_ms":1200000}`, nil)
		deliveries, _ := x.consumer("worker", "orders", `{"consumer":"worker"}`)
		x.enqueue("hello", nil)
		time.Sleep(10*time.Minute + time.Millisecond)
		x.none(deliveries)
		x.must("fila.admin.throttle-show.stripe", "", &info)
		require.Equal(t, "config", info.Source)
		require.Equal(t, wire.Rate("10"), *info.Rate)
		x.end()

		x = startSite(t, dir, nil)
		full()
		var pauses wire.PauseList
		x.must("fila.admin.pause-list", "", &pauses)
		require.Equal(t, 1, pauses.Total)
		deliveries, _ = x.consumer("worker", "orders", `{"consumer":"worker"}`)
		time.Sleep(9 * time.Minute)
		x.none(deliveries)
		time.Sleep(time.Minute)
		synctest.Wait()
		m := <-deliveries
		require.Equal(t, "hello", string(m.Data))
		require.Nil(t, x.ack(m, ""))
		x.must("fila.admin.pause-list", "", &pauses)
		require.Zero(t, pauses.Total)
		x.must("fila.admin.throttle-clear.stripe", "", nil)
		require.Equal(t, 404, x.request("fila.admin.throttle-show.stripe", "", nil, nil).Code)

		var log wire.ConfigLog
		x.must("fila.admin.config-log", `{"prefix":"throttle:stripe"}`, &log)
		var by []string
		for _, e := range log.Entries {
			by = append(by, e.By)
		}
		require.Equal(t, []string{"throttle-clear", "override-ended", "throttle-set", "throttle-set"}, by)
		x.must("fila.admin.config-log", `{"prefix":"throttle:declared"}`, &log)
		require.Equal(t, "file", log.Entries[0].By)
		x.end()
	})
}
