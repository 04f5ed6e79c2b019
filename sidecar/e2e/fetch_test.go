package e2e

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// TestFetch: a fetch ends when its batch is complete, when no more message is there, at its
// timeout, and silently when its client is gone.
func TestFetch(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(m{"visibility_timeout_ms": 3_600_000})
	var sub *nats.Subscription
	fetch := func(body any) {
		t.Helper()
		inbox := nats.NewInbox()
		var err error
		sub, err = c.nc.SubscribeSync(inbox)
		require.NoError(t, err)
		require.NoError(t, c.nc.PublishRequest("fila.fetch."+queue, inbox, encode(t, body)))
	}
	ids := c.enqueueAll(backlog(queue, "x", 1, 7))
	take := func(n int) {
		t.Helper()
		for range n {
			msg, err := sub.NextMsg(patience)
			require.NoError(t, err)
			d := delivery{Msg: msg}
			require.Equal(t, ids[0], d.id())
			require.Equal(t, 1, d.attempt(t))
			ids = ids[1:]
			c.accepted(d, "") // which frees no slot
		}
	}
	status := func(want string) {
		t.Helper()
		msg, err := sub.NextMsg(patience)
		require.NoError(t, err)
		require.Equal(t, want, msg.Header.Get("Status"))
		require.Empty(t, msg.Data)
		require.Empty(t, msg.Header.Get("Fila-Id"))
	}
	silent := func() {
		t.Helper()
		c.inspect(queue)
		c.flush()
		n, _, err := sub.Pending()
		require.NoError(t, err)
		require.Zero(t, n)
	}
	fetch(nil)
	take(1)
	silent()
	fetch(m{"batch": 4, "expires_ms": 600_000})
	take(4)
	silent() // a filled batch needs no status
	fetch(m{"batch": 5})
	take(2)
	status("404")
	silent()
	ids = append(ids, c.enqueue(queue, "x").ID)
	fetch(m{"batch": 5, "expires_ms": 200})
	take(1)
	status("408")
	silent()
	fetch(m{"batch": 10, "expires_ms": 600_000})
	eventually(t, func() bool { return c.inspect(queue).Consumers == 1 }, "a waiting fetch shows")
	ids = append(ids, c.enqueue(queue, "waited for").ID)
	take(1)
	require.NoError(t, sub.Unsubscribe())
	c.flush()
	c.enqueue(queue, "x")
	require.Equal(t, 1, c.consume(queue, 1).next().attempt(t), "at once, and no attempt is counted")
	c.refused(400, "fila.fetch."+queue, m{"batch": 0})
	c.refused(404, "fila.fetch."+unique(t), nil)
}
