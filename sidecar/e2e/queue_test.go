package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestQueueCreateReplyMeansReady: the queue accepts messages when the reply is there.
func TestQueueCreateReplyMeansReady(t *testing.T) {
	p := shared(t)
	c, producer := p.client(t), p.client(t)
	for range 30 {
		queue := c.newQueue(nil)
		producer.enqueue(queue, "at once")
	}
}

func TestQueueDelete(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(nil)
	c.enqueue(queue, "dead")
	k := c.consume(queue, 1)
	c.accepted(k.next(), "+TERM")
	c.refused(409, "fila.admin.queue-delete."+queue, nil) // messages in the DLQ count
	c.enqueue(queue, "leased")
	held := k.next()
	c.enqueue(queue, "pending")
	c.enqueue(queue, "delayed", "Fila-Delay", "1h")
	c.refused(409, "fila.admin.queue-delete."+queue, m{})
	c.refused(409, "fila.admin.queue-delete."+queue, m{"force": false})
	c.refused(400, "fila.admin.queue-delete."+queue, m{"force": "yes"})
	c.refused(400, "fila.admin.queue-delete."+queue, m{"unknown": 1})
	require.EqualValues(t, 3, c.depth(queue))

	deleted := c.events("queue-deleted." + queue)
	var reply struct {
		Deleted int64 `json:"deleted"`
	}
	c.call("fila.admin.queue-delete."+queue, m{"force": true}, &reply)
	require.EqualValues(t, 4, reply.Deleted, "including the DLQ")
	require.Equal(t, queue, nextEvent(t, deleted).Queue)
	c.lost(404, held, "")
	c.refused(404, "fila.admin.queue-inspect."+queue, nil)
	c.refused(404, "fila.admin.queue-inspect."+queue+".dlq", nil)
	c.refused(404, "fila.admin.queue-delete."+queue, nil)
	c.refused(404, "fila.consume."+queue, m{"consumer": "x"})
	c.refused(404, "fila.fetch."+queue, nil)
	requireUnanswered(t, c, message(queue, "x"), 404)

	// A new queue with the name has nothing of the old one.
	c.createQueue(queue, nil)
	require.Zero(t, c.depth(queue))
	require.Zero(t, c.inspect(queue).Consumers)
	require.NotNil(t, c.answer(held, ""), "a token of the old queue")
	c.enqueue(queue, "new")
	require.EqualValues(t, 1, c.depth(queue))
}
