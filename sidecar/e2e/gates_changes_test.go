package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestChangesActOnTheBacklog: each limit, set in each way, acts on waiting messages at once.
func TestChangesActOnTheBacklog(t *testing.T) {
	c := shared(t).client(t)
	queue, gate := c.newQueue(byHeaders(nil)), unique(t)
	prefix := "throttle:" + gate + ":"
	c.set(prefix+"rate", seldom, prefix+"burst", "1")
	c.enqueueAll(gated(queue, "a", gate, 100))
	k := c.consume(queue, 100)
	k.drain(1)
	c.parked(queue, 99)
	c.set(prefix+"rate", "1000")
	k.drain(99)
	c.limits(gate, m{"concurrency": 2, "unset": []string{"rate", "burst"}})
	c.enqueueAll(gated(queue, "a", gate, 20))
	ds := k.take(2)
	c.parked(queue, 18)
	k.none()
	c.set(prefix+"concurrency", "5")
	ds = append(ds, k.take(3)...)
	k.none()
	c.set(prefix+"concurrency", "1") // messages in flight stay in flight
	for i, d := range ds {
		k.none()
		require.EqualValues(t, 5-i, c.throttle(gate).InFlight)
		c.accepted(d, "")
	}
	last := k.next()
	k.none()
	c.call("fila.admin.config-delete."+prefix+"concurrency", nil, nil)
	c.accepted(last, "")
	k.drain(14)
	c.waitDepth(queue, 0)

	// A window that grows, first in number, then in time.
	c.limits(gate, m{"limit": 2, "window_ms": 3_600_000})
	c.enqueueAll(gated(queue, "a", gate, 10))
	k.drain(2)
	c.parked(queue, 8)
	c.limits(gate, m{"limit": 5})
	k.drain(3)
	c.parked(queue, 5)
	k.none()
	c.limits(gate, m{"window_ms": 1})
	k.drain(5)
}
