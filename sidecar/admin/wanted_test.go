package admin

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// TestQueueWantedVerb: the first request takes a reading, later ones show what Watch has read.
func TestQueueWantedVerb(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.must(api.VerbQueueCreate, "orders", `{"throttle_headers":["vendor"],"visibility_timeout_ms":3600000}`, nil)
		h.must(api.VerbThrottleSet, "stripe", `{"concurrency":2}`, nil)
		wanted := func(body string) (w api.QueueWanted) {
			h.must(api.VerbQueueWanted, "orders", body, &w)
			return w
		}
		for range 9 {
			h.enqueue("orders", "x", nats.Header{"vendor": {"stripe"}})
		}
		require.Equal(t, api.QueueWanted{Queue: "orders", Wanted: 2, Pending: 9}, wanted(``))
		h.consume("orders", 1)
		h.ack(h.one(), "+ACK")
		w := wanted(`{"horizon_ms":0}`)
		require.InDelta(t, 1000, w.AttemptMs, 100, "the consumer took a second")
		w.AttemptMs = 0
		require.Equal(t, api.QueueWanted{Queue: "orders", Wanted: 2, Pending: 7, InFlight: 1}, w)

		h.must(api.VerbThrottleClear, "stripe", ``, nil)
		h.measureWanted()
		require.EqualValues(t, 8, wanted(``).Wanted, "it rises at once")
		h.must(api.VerbPause, "", `{"kind":"queue","name":"orders"}`, nil)
		time.Sleep(10 * time.Second)
		h.measureWanted()
		require.EqualValues(t, 7, wanted(``).Wanted, "it falls slowly")
		time.Sleep(10 * time.Minute)
		h.measureWanted()
		require.EqualValues(t, 1, wanted(``).Wanted, "what is in flight stays")
		var info api.QueueInfo
		h.must(api.VerbQueueInspect, "orders", ``, &info)
		require.EqualValues(t, 1, info.Wanted)
		require.EqualValues(t, 1, h.Gauges()[0].Wanted)

		require.Equal(t, wire.CodeBadField, h.ask(api.VerbQueueWanted, "orders", `{"horizon_ms":45000}`, nil).ErrCode)
		require.Equal(t, wire.CodeBadField, h.ask(api.VerbQueueWanted, "orders", `{"horizon_ms":-1}`, nil).ErrCode)
		require.Equal(t, wire.CodeQueueNotFound, h.ask(api.VerbQueueWanted, "none", ``, nil).ErrCode)
		h.must(api.VerbQueueDelete, "orders", `{"force":true}`, nil)
		h.measureWanted()
		require.Empty(t, h.meters.of)
	})
}
