package sidecar

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
)

// TestShutdownWaitsForLeases up to drain_timeout.
func TestShutdownWaitsForLeases(t *testing.T) {
	for name, tc := range map[string]struct {
		drainMs int64
		ackIn   time.Duration // 0: never
		took    time.Duration
	}{
		"settled in time":  {10_000, 3 * time.Second, 3 * time.Second},
		"kept in the end":  {10_000, 0, 10 * time.Second},
		"no time to drain": {0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			inBubble(t, func(t *testing.T) {
				x := startSite(t, dir, func(c *config.Config) { c.DrainTimeoutMs = tc.drainMs })
				x.must("fila.admin.queue-create.orders", `{"visibility_timeout_ms":3600000}`, nil)
				ch, _ := x.consumer("w", "orders", `{"consumer":"w","max_in_flight":1}`)
				x.enqueue("one", nil)
				x.enqueue("two", nil)
				m := <-ch
				acked := make(chan error, 1)
				if tc.ackIn > 0 {
					go func() {
						time.Sleep(tc.ackIn)
						_, err := x.nc.RequestWithContext(context.Background(), m.Reply, nil)
						acked <- err
					}()
				}
				require.InDelta(t, tc.took, x.end(), float64(100*time.Millisecond))
				if tc.ackIn > 0 {
					require.NoError(t, <-acked, "an ack is confirmed while fila is stopping")
				}

				x = startSite(t, dir, nil)
				n := x.depth("orders")
				if tc.ackIn > 0 {
					require.EqualValues(t, 1, n.Pending+n.InFlight)
				} else {
					require.EqualValues(t, 1, n.InFlight, "the lease is kept")
					require.Nil(t, x.ack(m, ""), "its consumer can ack to the next process")
				}
				x.end()
			})
		})
	}
}

// TestSecondSignal stops at once.
func TestSecondSignal(t *testing.T) {
	bubble(t, func(t *testing.T, x *testSite) {
		x.must("fila.admin.queue-create.orders", ``, nil)
		ch, _ := x.consumer("w", "orders", `{"consumer":"w"}`)
		x.enqueue("one", nil)
		<-ch
		time.AfterFunc(time.Second, x.s.Kill)
		require.InDelta(t, time.Second, x.end(), float64(100*time.Millisecond))
	})
}
