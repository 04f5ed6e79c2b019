package e2e

import (
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// TestHeadersCannotBeInjected: line ends in texts of hooks and consumers, which become header
// values, add no headers.
func TestHeadersCannotBeInjected(t *testing.T) {
	c := shared(t).client(t)
	forged := c.newQueue(m{"on_enqueue": `function on_enqueue(msg) return { fairness_key = "a\r\nFila-Id: forged\r\n\r\nbody" } end`})
	refused := c.answerMsg(&nats.Msg{Subject: "fila.enqueue." + forged, Data: []byte("payload")})
	require.NotNil(t, refused)
	require.Equal(t, 37400, refused.ErrCode)
	queue := c.newQueue(m{"max_deliveries": 1})
	sent := c.enqueue(queue, "payload")
	d := c.consume(queue, 1).next()
	require.Equal(t, sent.ID, d.id())
	require.Equal(t, "payload", string(d.Data))
	e := c.answerMsg(&nats.Msg{
		Subject: strings.Replace(d.Reply, "fila.ack.", "fila.nack.", 1),
		Data:    []byte("first\r\nFila-Id: forged\r\n\r\nsecond \xff\xfe"),
	})
	require.Nil(t, e)
	dead := c.consume(queue+".dlq", 1).next()
	require.Equal(t, sent.ID, dead.id())
	require.Equal(t, "payload", string(dead.Data))
	require.NotContains(t, dead.Header.Get("Fila-Dead-Error"), "\n")
	require.Contains(t, dead.Header.Get("Fila-Dead-Error"), "first")
	require.Contains(t, dead.Header.Get("Fila-Dead-Error"), "second")
}

// TestLargestMessageWithLargestHeaders: the largest message fits with the largest headers that
// fila adds, also in the DLQ.
func TestLargestMessageWithLargestHeaders(t *testing.T) {
	c := shared(t).client(t)
	queue := unique(t)
	queue += strings.Repeat("q", 128-len(queue))
	c.createQueue(queue, m{"on_enqueue": `function on_enqueue(msg) return { fairness_key = string.rep("k", 256) } end`})
	payload := strings.Repeat("x", int(c.nc.MaxPayload())-8<<10)
	sent := c.enqueue(queue, payload)
	name := strings.Repeat("c", 64)
	k := c.subscribe(queue, name)
	k.register(1)
	d := k.next()
	require.Equal(t, sent.ID, d.id())
	require.Len(t, d.key(), 256)
	require.Nil(t, c.answer(d, "+TERM "+strings.Repeat("e", 2000)))
	dlq := c.subscribe(queue+".dlq", name)
	dlq.register(1)
	dead := dlq.next()
	require.Equal(t, payload, string(dead.Data))
	require.Len(t, dead.Header.Get("Fila-Dead-Error"), 1024, "an error text is cut")
	c.accepted(dead, "")
}

func (c *client) waitInFlight(queue string, n int64) {
	c.t.Helper()
	eventually(c.t, func() bool { return c.inspect(queue).InFlight == n })
}

// TestExternalServerWithSmallMessages: the message limit of an external server counts.
func TestExternalServerWithSmallMessages(t *testing.T) {
	t.Parallel()
	n := startNATS(t, func(o *server.Options) { o.MaxPayload = 64 << 10 })
	startFila(t, options{natsURL: n.URL})
	c := dial(t, n.URL)
	queue := c.newQueue(nil)
	c.enqueue(queue, strings.Repeat("x", 56<<10))
	c.refusedMsg(413, message(queue, strings.Repeat("x", 56<<10+1)))
	require.Len(t, c.consume(queue, 1).next().Data, 56<<10)
}
