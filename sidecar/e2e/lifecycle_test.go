package e2e

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

func TestLifeCycle(t *testing.T) {
	p := shared(t)
	c := p.client(t)
	queue := c.newQueue(nil)
	before := time.Now()
	sent := c.enqueue(queue, "hello", "tenant", "acme", "Tag", "a", "Tag", "b", "traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	require.False(t, sent.Duplicate)
	confirmed := time.Now()
	info := c.inspect(queue)
	require.EqualValues(t, 1, info.Pending)
	require.EqualValues(t, 0, info.InFlight)
	require.Equal(t, queue+".dlq", info.DLQ)

	k := c.subscribe(queue, unique(t))
	reply := k.register(7)
	require.EqualValues(t, 30_000, reply.VisibilityTimeoutMs, "the default")
	d := k.next()
	require.Equal(t, "hello", string(d.Data))
	require.Equal(t, sent.ID, d.id())
	require.Equal(t, queue, d.Header.Get("Fila-Queue"))
	require.Equal(t, "default", d.key())
	require.Equal(t, 1, d.attempt(t))
	require.Equal(t, "acme", d.Header.Get("tenant"))
	require.Equal(t, []string{"a", "b"}, d.Header.Values("Tag"))
	require.Equal(t, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", d.Header.Get("traceparent"))
	require.Empty(t, d.Header.Get("Fila-Dead-Reason"))

	const skew = 50 * time.Millisecond // both clocks are the machine's, apart from rounding
	at := d.timeHeader(t, "Fila-Enqueued-At")
	require.WithinRange(t, at, before.Add(-skew), confirmed.Add(skew))
	leased := d.timeHeader(t, "Fila-Deadline").Add(-30 * time.Second)
	require.WithinRange(t, leased, at.Add(-skew), d.at.Add(skew))

	info = c.inspect(queue)
	require.EqualValues(t, 0, info.Pending)
	require.EqualValues(t, 1, info.InFlight)
	require.Equal(t, 1, info.Consumers)

	c.accepted(d, "")
	require.Zero(t, c.depth(queue))
	require.Zero(t, c.depth(queue+".dlq"))
	k.none()
}

// TestClientLibraryAcks uses the JetStream ack methods of nats.go.
func TestClientLibraryAcks(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(m{"max_deliveries": 0})
	sent := c.enqueue(queue, "x")
	k := c.consume(queue, 4)
	d := k.next()
	require.NoError(t, d.InProgress())
	require.NoError(t, d.Nak())
	d = k.next()
	require.Equal(t, 2, d.attempt(t))
	require.NoError(t, d.NakWithDelay(time.Millisecond))
	d = k.next()
	require.Equal(t, 3, d.attempt(t))
	require.Equal(t, sent.ID, d.id())
	require.NoError(t, d.AckSync(nats.AckWait(patience)))
	c.waitDepth(queue, 0)

	c.enqueue(queue, "y")
	require.NoError(t, k.next().Term())
	c.waitDepth(queue+".dlq", 1)
	c.waitDepth(queue, 0)
}
