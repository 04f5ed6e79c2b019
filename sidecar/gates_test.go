package sidecar

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/wire"
)

// TestThrottlesAndPausesOverNATS asks a whole server, whose timer ends pauses, and
// finds everything again after a restart in order.
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
		x.must("fila.admin.pause", `{"kind":"queue","name":"orders","for_ms":1200000}`, nil)
		deliveries, _ := x.consumer("worker", "orders", `{"consumer":"worker"}`)
		x.enqueue("hello", nil)
		time.Sleep(10 * time.Minute)
		x.none(deliveries)
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
		m := <-deliveries
		require.Equal(t, "hello", string(m.Data))
		require.Nil(t, x.ack(m, ""))
		x.must("fila.admin.pause-list", "", &pauses)
		require.Zero(t, pauses.Total)
		var log wire.ConfigLog
		x.must("fila.admin.config-log", `{"prefix":"throttle:declared"}`, &log)
		require.Equal(t, "file", log.Entries[0].By)
		x.end()
	})
}
