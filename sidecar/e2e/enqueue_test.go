package e2e

import (
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

func TestDedupeWindowEnds(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(m{"dedupe_window_ms": 200})
	first := c.enqueue(queue, "x", "Nats-Msg-Id", "a")
	eventually(t, func() bool { return !c.enqueue(queue, "x", "Nats-Msg-Id", "a").Duplicate })
	off := c.newQueue(m{"dedupe_window_ms": 0})
	require.NotEqual(t, c.enqueue(off, "x", "Nats-Msg-Id", "a").ID, c.enqueue(off, "x", "Nats-Msg-Id", "a").ID)
	require.NotEmpty(t, first.ID)
}

func TestUnknownQueueIsRefused(t *testing.T) {
	c := shared(t).client(t)
	for _, queue := range []string{unique(t), unique(t) + ".dlq", strings.Repeat("q", 129), "no/queue"} {
		requireUnanswered(t, c, message(queue, ""), 404)
	}
}

// requireUnanswered sends a request to a queue that does not exist. fila
// subscribes queue by queue, so NATS itself may say that nobody is there.
func requireUnanswered(t testing.TB, c *client, msg *nats.Msg, code int) {
	t.Helper()
	reply, err := c.nc.RequestMsg(msg, patience)
	if errors.Is(err, nats.ErrNoResponders) {
		return
	}
	require.NoError(t, err)
	e := errorOf(t, reply)
	require.NotNil(t, e, "%s must be refused", msg.Subject)
	require.Equal(t, code, e.Code, "%v", e)
}

func TestMaxDepth(t *testing.T) {
	p := shared(t)
	c := p.client(t)
	queue := c.newQueue(m{"max_depth": 3})
	for range 3 {
		c.enqueue(queue, "x")
	}
	requireFull(t, c, queue, "x")
	k := c.consume(queue, 1)
	c.accepted(k.next(), "")
	c.enqueue(queue, "x")
	requireFull(t, c, queue, "x")
	require.EqualValues(t, 2, p.metric(t, "fila_refused_total", "queue", queue))
	c.refusedMsg(429, message(queue, "x", "Nats-Msg-Id", "new"))
	require.EqualValues(t, 3, c.depth(queue), "leased messages count")
}

// requireFull checks the refusal of a full queue.
func requireFull(t testing.TB, c *client, queue, payload string) {
	t.Helper()
	e := c.refusedMsg(429, message(queue, payload))
	require.Regexp(t, `^[1-9][0-9]*$`, e.header.Get("Retry-After"), "seconds")
	require.Regexp(t, `^[1-9][0-9]*$`, e.header.Get("Fila-Retry-After-Ms"))
}

// TestBurstWithoutConfirmation: neither refused nor dropped by a client library.
func TestBurstWithoutConfirmation(t *testing.T) {
	p := shared(t)
	c := p.client(t)
	queue := c.newQueue(nil)
	n := 100_000
	if testing.Short() || raceEnabled {
		n = 20_000
	}
	payload := make([]byte, 1024)
	for range n {
		require.NoError(t, c.nc.Publish("fila.enqueue."+queue, payload))
	}
	c.flush()
	c.waitDepth(queue, int64(n))
	require.EqualValues(t, n, p.metric(t, "fila_enqueued_total", "queue", queue))
	require.Zero(t, p.metric(t, "fila_refused_total", "queue", queue))
	c.call("fila.admin.queue-delete."+queue, m{"force": true}, nil)
}
