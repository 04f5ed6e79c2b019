package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// deadLetters puts n messages into the DLQ of a new queue. It returns the queue and the ids in
// the order of the dead letters.
func deadLetters(c *client, n int, settings m) (string, []string) {
	c.t.Helper()
	queue := c.newQueue(settings)
	k := c.consume(queue, 1)
	var ids []string
	for i := range n {
		sent := c.enqueue(queue, fmt.Sprint("payload ", i), "tenant", "acme", "Nats-Msg-Id", fmt.Sprint("d", i))
		c.accepted(k.next(), "+TERM broken")
		ids = append(ids, sent.ID)
	}
	k.leave()
	require.EqualValues(c.t, n, c.depth(queue+".dlq"))
	return queue, ids
}

func (c *client) redrive(dlq string, body any) int {
	c.t.Helper()
	var reply struct {
		Redriven *int `json:"redriven"`
	}
	c.call("fila.admin.redrive."+dlq, body, &reply)
	require.NotNil(c.t, reply.Redriven)
	return *reply.Redriven
}

func TestRedriveAll(t *testing.T) {
	c := shared(t).client(t)
	queue, ids := deadLetters(c, 5, m{"max_deliveries": 2})
	require.Equal(t, 5, c.redrive(queue+".dlq", nil))
	require.Zero(t, c.depth(queue+".dlq"))
	require.Zero(t, c.redrive(queue+".dlq", m{"count": 0}), "nothing left")
	k := c.consume(queue, 10)
	for i, d := range k.take(5) {
		require.Equal(t, ids[i], d.id(), "the id is kept, the oldest goes first")
		require.Equal(t, 1, d.attempt(t), "attempts restart")
		require.Equal(t, fmt.Sprint("payload ", i), string(d.Data))
		require.Equal(t, "acme", d.Header.Get("tenant"))
		require.Equal(t, queue, d.Header.Get("Fila-Queue"))
		for _, name := range []string{"Fila-Dead-Reason", "Fila-Dead-Error", "Fila-Dead-At", "Fila-Source-Queue"} {
			require.Empty(t, d.Header.Get(name), name)
		}
		c.accepted(d, "")
	}
	require.Zero(t, c.depth(queue))
}

// TestRedriveRunsOnEnqueueAgain: on_enqueue gives redriven messages another key.
func TestRedriveRunsOnEnqueueAgain(t *testing.T) {
	c := shared(t).client(t)
	key := unique(t)
	hook := `function on_enqueue(msg) return { fairness_key = fila.get("` + key + `") } end`
	c.call("fila.admin.config-set."+key, m{"value": "first"}, nil)
	queue, _ := deadLetters(c, 1, m{"on_enqueue": hook})
	c.call("fila.admin.config-set."+key, m{"value": "second"}, nil)
	k := c.consume(queue+".dlq", 1)
	d := k.next()
	require.Equal(t, "first", d.key(), "the DLQ keeps the key")
	k.leave() // its lease runs on
	c.accepted(d, "-NAK")
	require.Equal(t, 1, c.redrive(queue+".dlq", nil))
	require.Equal(t, "second", c.consume(queue, 1).next().key())
}
