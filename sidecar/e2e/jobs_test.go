package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// TestAJobIsKilledOnTheWay: a job that redrives dead letters goes on after each kill, and
// in the end each message is in exactly one place, in the order in which they came.
func TestAJobIsKilledOnTheWay(t *testing.T) {
	t.Parallel()
	_, rng := choices(t)
	p := startFila(t, options{})
	c := p.client(t)
	const n = 5000
	c.createQueue("orders", m{"max_deliveries": 1, "retry_initial_ms": 0})
	var msgs []*nats.Msg
	for i := range n {
		msgs = append(msgs, &nats.Msg{Subject: "fila.enqueue.orders", Data: fmt.Append(nil, i)})
	}
	ids := c.enqueueAll(msgs)
	k := c.consume("orders", 1000)
	for range n {
		require.NoError(t, k.next().Respond([]byte("+TERM")))
	}
	c.waitDepth("orders.dlq", n)
	k.leave()
	type job struct {
		ID    string
		State string
		Done  int64
		Left  map[string]int64
	}
	var made job
	c.call("fila.admin.job-create", m{"queue": "orders.dlq", "op": "redrive", "filter": m{"all": true}, "rate": 2500}, &made)
	show := func(c *client) (j job) {
		c.call("fila.admin.job-show", m{"id": made.ID}, &j)
		return j
	}
	for range *flagKills {
		time.Sleep(time.Duration(rng.IntN(150)) * time.Millisecond) // some moment
		c.nc.Close()
		p.Kill9(t)
		p.Restart(t)
		c = p.client(t)
		if j := show(c); j.State != "done" {
			require.LessOrEqual(t, j.Done, c.depth("orders"))
		}
	}
	eventually(t, func() bool { return show(c).State == "done" })
	done := show(c)
	require.EqualValues(t, n, done.Done)
	require.Empty(t, done.Left)
	require.Zero(t, c.depth("orders.dlq"))
	require.EqualValues(t, n, c.depth("orders"))
	k = c.consume("orders", 1000)
	for i := range n {
		d := k.next()
		require.Equal(t, ids[i], d.id())
		require.NoError(t, d.Respond(nil))
	}
	c.waitDepth("orders", 0)
}
