//go:build unix

package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFrozenConsumer: a frozen consumer keeps its connection, so only the end of its lease
// frees its messages.
func TestFrozenConsumer(t *testing.T) {
	p := shared(t)
	c := p.client(t)
	queue := c.newQueue(m{"visibility_timeout_ms": 500})
	child := startChild(t, p.URL, queue, unique(t), "10")
	eventually(t, func() bool { return c.inspect(queue).Consumers == 1 })
	freeze(t, child.cmd.Process)
	sent := c.enqueue(queue, "x")
	k := c.subscribe(queue, unique(t))
	eventually(t, func() bool { return c.inspect(queue).InFlight == 1 })
	k.register(5)
	for { // the frozen one may get it more than once
		d := k.next()
		require.Equal(t, sent.ID, d.id())
		require.Greater(t, d.attempt(t), 1)
		if c.answer(d, "") == nil {
			break
		}
	}
	require.Zero(t, c.depth(queue))
}
