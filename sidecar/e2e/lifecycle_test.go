package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// TestLifeCycle is one way through the life of a message: confirmed, fetched, expired, delivered,
// delayed, dead-lettered by on_failure, redriven, acked.
func TestLifeCycle(t *testing.T) {
	p := shared(t)
	c := p.client(t)
	queue := c.newQueue(m{
		"visibility_timeout_ms": 300,
		"on_enqueue":            `function on_enqueue(msg) return { fairness_key = msg.headers["tenant"] } end`,
		"on_failure":            `function on_failure(msg) return { action = msg.attempts >= 3 and "dlq" or "retry" } end`,
	})
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	payload := "bytes \x00\x01\xff and " + strings.Repeat("more ", 200)
	before := time.Now()
	sent := c.enqueue(queue, payload, "tenant", "acme", "Tag", "a", "Tag", "b", "traceparent", parent)
	require.False(t, sent.Duplicate)
	confirmed := time.Now()
	info := c.inspect(queue)
	require.EqualValues(t, 1, info.Pending)
	require.Equal(t, queue+".dlq", info.DLQ)
	same := func(d delivery, from string, attempt int) {
		t.Helper()
		require.Equal(t, payload, string(d.Data))
		require.Equal(t, sent.ID, d.id())
		require.Equal(t, from, d.Header.Get("Fila-Queue"))
		require.Equal(t, attempt, d.attempt(t))
		require.Equal(t, "acme", d.key())
		require.Equal(t, "acme", d.Header.Get("tenant"))
		require.Equal(t, []string{"a", "b"}, d.Header.Values("Tag"))
		require.Equal(t, parent, d.Header.Get("traceparent"))
	}

	sub, err := c.nc.SubscribeSync(nats.NewInbox())
	require.NoError(t, err)
	require.NoError(t, c.nc.PublishRequest("fila.fetch."+queue, sub.Subject, nil))
	fetched, err := sub.NextMsg(patience)
	require.NoError(t, err)
	first := delivery{fetched, time.Now()}
	same(first, queue, 1)
	const skew = 50 * time.Millisecond // both clocks are the machine's, apart from rounding
	at, deadline := first.timeHeader(t, "Fila-Enqueued-At"), first.timeHeader(t, "Fila-Deadline")
	require.WithinRange(t, at, before.Add(-skew), confirmed.Add(skew))
	require.WithinRange(t, deadline.Add(-300*time.Millisecond), at.Add(-skew), first.at.Add(skew))
	c.call("fila.admin.queue-update."+queue, m{"visibility_timeout_ms": 3_600_000}, nil)
	k := c.subscribe(queue, unique(t))
	require.EqualValues(t, 3_600_000, k.register(7).VisibilityTimeoutMs)
	d := k.next() // the lease of the fetch has ended
	same(d, queue, 2)
	require.False(t, d.timeHeader(t, "Fila-Deadline").Add(-time.Hour).Before(deadline))
	c.lost(409, first, "")
	begin := time.Now()
	c.accepted(d, "-NAK 250ms")
	d = k.next()
	require.GreaterOrEqual(t, d.at.Sub(begin), 250*time.Millisecond, "never earlier than asked")
	same(d, queue, 3)
	events := c.events("dead-lettered." + queue)
	c.accepted(d, `-NAK {"error":"card declined","code":"declined"}`)
	require.Equal(t, queue, nextEvent(t, events).Queue)
	require.Zero(t, c.depth(queue))

	dlq := c.consume(queue+".dlq", 1)
	dead := dlq.next()
	same(dead, queue+".dlq", 1)
	for name, want := range map[string]string{
		"Fila-Dead-Reason": "on_failure", "Fila-Dead-Error": "card declined", "Fila-Dead-Error-Code": "declined",
		"Fila-Dead-Attempts": "3", "Fila-Source-Queue": queue,
	} {
		require.Equal(t, want, dead.Header.Get(name), name)
	}
	require.WithinRange(t, dead.timeHeader(t, "Fila-Dead-At"), before, time.Now().Add(skew))
	dlq.leave()
	c.accepted(dead, "-NAK")
	require.Equal(t, 1, c.redrive(queue+".dlq", nil))
	d = k.next()
	same(d, queue, 1)
	require.Empty(t, d.Header.Get("Fila-Dead-Reason"))
	c.accepted(d, "")
	require.Zero(t, c.depth(queue)+c.depth(queue+".dlq"))
	k.none()
	for name, want := range map[string]float64{
		"fila_enqueued_total": 1, "fila_delivered_total": 4, "fila_expired_total": 1, "fila_nacked_total": 2,
		"fila_dead_lettered_total": 1, "fila_redriven_total": 1, "fila_acked_total": 1, "fila_queue_depth": 0,
	} {
		require.Equal(t, want, p.metric(t, name, "queue", queue), name)
	}
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

// TestQueueCreateReplyMeansReady: the queue accepts messages when the reply is there.
func TestQueueCreateReplyMeansReady(t *testing.T) {
	p := shared(t)
	c, producer := p.client(t), p.client(t)
	for range 30 {
		queue := c.newQueue(nil)
		producer.enqueue(queue, "at once")
	}
}
