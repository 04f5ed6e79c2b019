package e2e

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// TestSharesBehindOneBucket: shares follow the weights, 3 to 1, over the whole run and at every
// moment of it.
func TestSharesBehindOneBucket(t *testing.T) {
	c := shared(t).client(t)
	queue, gate := c.newQueue(byHeaders(nil)), unique(t)
	c.limits(gate, m{"rate": 60, "burst": 1})
	var msgs []*nats.Msg
	const n = 120
	for tenant, weight := range map[string]string{"light": "1", "heavy": "3"} {
		for _, msg := range gated(queue, tenant, gate, n) {
			msg.Header.Set("weight", weight)
			msgs = append(msgs, msg)
		}
	}
	c.enqueueAll(msgs)
	ds := c.consume(queue, 10).drain(n) // both have a backlog all the time
	fs := flightsOf(t, ds, defaultVisibility)
	require.NoError(t, checkRate(fs, 60, 1))
	requireFifo(t, ds)
	heavy := 0
	for i, f := range fs {
		if f.key == "heavy" {
			heavy++
		}
		require.InDelta(t, 0.75*float64(i+1), float64(heavy), 3, "after %d deliveries", i+1)
	}
}
