package web

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire/api"
)

// TestNoConsumersLeft: where consumers have been, the page does not advise to consume by hand.
func TestNoConsumersLeft(t *testing.T) {
	r := newRig(t, nil)
	r.reply(api.VerbQueueInspect, api.QueueInfo{QueueSummary: api.QueueSummary{Name: "orders"}, Counters: map[string]int64{"delivered": 7}})
	page := r.get("/queues/orders").Body.String()
	require.Contains(t, page, "start the workers where they run")
	require.NotContains(t, page, "fila consume orders")
	r.reply(api.VerbQueueInspect, api.QueueInfo{QueueSummary: api.QueueSummary{Name: "orders"}})
	require.Contains(t, r.get("/queues/orders").Body.String(), "fila consume orders")
}
