package e2e

import (
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

func TestUnknownQueueIsRefused(t *testing.T) {
	c := shared(t).client(t)
	for _, queue := range []string{unique(t), unique(t) + ".dlq", strings.Repeat("q", 129), "no/queue"} {
		requireUnanswered(t, c, message(queue, ""), 404)
	}
}

// requireUnanswered sends a request to a queue that does not exist. fila subscribes per queue,
// so NATS itself may answer "no responders".
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

// TestBurstWithoutConfirmation: a burst of publishes is neither refused nor dropped.
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
