package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// deadLetters puts n messages into the DLQ of a new queue and returns the queue
// and the ids in the order in which they died.
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
		require.Equal(t, 1, d.attempt(t), "attempts start anew")
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

func TestRedriveCount(t *testing.T) {
	c := shared(t).client(t)
	queue, ids := deadLetters(c, 6, nil)
	require.Equal(t, 2, c.redrive(queue+".dlq", m{"count": 2}))
	require.EqualValues(t, 4, c.depth(queue+".dlq"))
	require.EqualValues(t, 2, c.depth(queue))
	require.Equal(t, 3, c.redrive(queue+".dlq", m{"count": 3}))
	require.Equal(t, 1, c.redrive(queue+".dlq", m{"count": 100}))
	var got []string
	for _, d := range c.consume(queue, 1).drain(6) {
		got = append(got, d.id())
	}
	require.Equal(t, ids, got)
}

func TestRedriveSkipsLeased(t *testing.T) {
	c := shared(t).client(t)
	queue, ids := deadLetters(c, 3, nil)
	k := c.consume(queue+".dlq", 1)
	held := k.next()
	require.Equal(t, ids[0], held.id())
	require.Equal(t, 2, c.redrive(queue+".dlq", nil))
	require.EqualValues(t, 1, c.depth(queue+".dlq"))
	c.accepted(held, "")
	require.Zero(t, c.depth(queue+".dlq"))
	require.EqualValues(t, 2, c.depth(queue))
}

// TestRedriveRunsOnEnqueueAgain gives the messages another key on the way back.
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

// TestRedriveSkipsDedupeDelayAndTTL: what was asked of the first enqueue does
// not stop or delay the second.
func TestRedriveSkipsDedupeDelayAndTTL(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(nil)
	sent := c.enqueue(queue, "a", "Nats-Msg-Id", "once", "Fila-Delay", "50ms", "Nats-TTL", "3s")
	k := c.consume(queue, 1)
	c.accepted(k.next(), "+TERM")
	// The TTL passes while the message is dead: another one shows when.
	other := c.newQueue(nil)
	c.enqueue(other, "clock", "Nats-TTL", "3s")
	c.waitDepth(other+".dlq", 1)
	require.Equal(t, 1, c.redrive(queue+".dlq", nil))
	d := k.next()
	require.Equal(t, sent.ID, d.id())
	c.accepted(d, "")
	require.Zero(t, c.depth(queue+".dlq"))
}

func TestRedriveStopsAtTheLimit(t *testing.T) {
	c := shared(t).client(t)
	queue, ids := deadLetters(c, 5, m{"max_depth": 2})
	require.Equal(t, 2, c.redrive(queue+".dlq", nil), "as many as the queue takes")
	require.EqualValues(t, 2, c.depth(queue))
	require.EqualValues(t, 3, c.depth(queue+".dlq"))
	k := c.consume(queue, 10)
	for i, d := range k.drain(2) {
		require.Equal(t, ids[i], d.id())
	}
}

func TestRedriveRefusals(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(nil)
	c.refused(404, "fila.admin.redrive."+unique(t)+".dlq", nil)
	c.refused(400, "fila.admin.redrive."+queue, nil)
	for _, body := range []any{m{"count": -1}, m{"count": "x"}, m{"unknown": 1}, "[]", "{", `{"count":1}{"count":2}`} {
		c.refused(400, "fila.admin.redrive."+queue+".dlq", body)
	}
}

func TestDeadLetterQueueRules(t *testing.T) {
	c := shared(t).client(t)
	queue, ids := deadLetters(c, 2, m{"visibility_timeout_ms": 12_345, "on_failure": `function on_failure(m) return {action="dlq"} end`})
	dlq := queue + ".dlq"
	c.refusedMsg(400, message(dlq, "producers may not"))
	c.refused(400, "fila.admin.queue-delete."+dlq, nil)
	c.refused(400, "fila.admin.queue-delete."+dlq, m{"force": true})
	c.refused(400, "fila.admin.queue-create."+unique(t)+".dlq", m{})
	require.EqualValues(t, 2, c.depth(dlq))
	k := c.subscribe(dlq, unique(t))
	require.EqualValues(t, 12_345, k.register(1).VisibilityTimeoutMs, "inherited")
	d := k.next()
	require.Equal(t, ids[0], d.id())
	c.accepted(d, "-NAK") // no hook here: it is retried
	d = k.next()
	c.accepted(d, "+TERM") // deletes
	require.EqualValues(t, 1, c.depth(dlq))
	c.accepted(k.next(), "")
	require.Zero(t, c.depth(dlq))
	require.Zero(t, c.depth(queue))
}
