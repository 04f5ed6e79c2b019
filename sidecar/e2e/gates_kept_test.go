package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGatesOverACleanStop: after a clean stop gates have their state, after a crash they start
// used up.
func TestGatesOverACleanStop(t *testing.T) {
	t.Parallel()
	for name, crash := range map[string]bool{"graceful": false, "kill -9": true} {
		t.Run(name, func(t *testing.T) {
			p := startFila(t, options{})
			c := p.client(t)
			c.createQueue("q", byHeaders(nil))
			c.limits("rate", m{"rate": seldom, "burst": 5})
			c.limits("window", m{"limit": 5, "window_ms": 3_600_000})
			c.limits("places", m{"concurrency": 3})
			c.enqueueAll(gated("q", "a", "rate", 2))
			c.enqueueAll(gated("q", "a", "window", 2))
			k := c.consume("q", 10)
			k.drain(4)
			c.enqueueAll(gated("q", "a", "places", 5))
			for _, d := range k.take(3)[:2] {
				c.accepted(d, "+WPI") // known to be on disk
			}
			k.leave()
			if crash {
				p.Kill9(t)
			} else {
				require.Zero(t, p.Stop(t))
			}
			p.Restart(t)
			c = p.client(t)
			places := c.throttle("places").InFlight
			if crash {
				require.LessOrEqual(t, int64(2), places, "leases that were on disk")
				require.Equal(t, "rate", c.throttle("rate").State)
				require.InDelta(t, 0, c.throttle("rate").Tokens, 0.001)
				require.Equal(t, "window", c.throttle("window").State)
			} else {
				require.EqualValues(t, 3, places)
				require.InDelta(t, 3, c.throttle("rate").Tokens, 0.001)
				require.EqualValues(t, 2, c.throttle("window").InWindow)
			}
			c.enqueueAll(gated("q", "a", "rate", 5))
			c.enqueueAll(gated("q", "a", "window", 5))
			k = c.consume("q", 20)
			if !crash {
				got := map[string]int{}
				for _, d := range k.drain(6) {
					got[d.Header.Get("gate")]++
				}
				require.Equal(t, map[string]int{"rate": 3, "window": 3}, got)
			}
			c.parked("q", map[bool]int64{true: 12, false: 6}[crash])
			for range 3 - places {
				d := k.next() // its lease was not on disk
				require.Equal(t, "places", d.Header.Get("gate"))
			}
			k.none()
			require.EqualValues(t, 3, c.throttle("places").InFlight)
		})
	}
}
