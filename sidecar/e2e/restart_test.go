package e2e

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// twice runs a test for a graceful restart and for one after SIGKILL.
func twice(t *testing.T, test func(t *testing.T, restart func(t *testing.T, p *proc))) {
	t.Parallel()
	t.Run("graceful", func(t *testing.T) {
		t.Parallel()
		test(t, func(t *testing.T, p *proc) {
			require.Zero(t, p.Stop(t))
			p.Restart(t)
		})
	})
	t.Run("kill -9", func(t *testing.T) {
		t.Parallel()
		test(t, func(t *testing.T, p *proc) {
			p.Kill9(t)
			p.Restart(t)
		})
	})
}

// TestLeasesSurviveARestart: a consumer may ack after a restart, and its leases count against
// its max_in_flight.
func TestLeasesSurviveARestart(t *testing.T) {
	twice(t, func(t *testing.T, restart func(*testing.T, *proc)) {
		p := startFila(t, options{})
		c := p.client(t)
		c.createQueue("q", m{"visibility_timeout_ms": 3_600_000})
		c.enqueue("q", "a", "H", "v")
		c.enqueue("q", "b")
		c.enqueue("q", "c")
		k := c.consume("q", 2)
		a, b := k.next(), k.next()
		// A confirmed extension puts the lease on disk.
		c.accepted(a, "+WPI")
		c.accepted(b, "+WPI")
		c.nc.Close()
		restart(t, p)

		c2 := p.client(t)
		info := c2.inspect("q")
		require.EqualValues(t, 2, info.InFlight)
		require.EqualValues(t, 1, info.Pending)
		k2 := c2.subscribe("q", k.name)
		k2.register(2)
		k2.none() // both leases count
		c2.accepted(a, "")
		next := k2.next()
		require.Equal(t, "c", string(next.Data))
		c2.accepted(b, "-NAK")
		again := k2.next()
		require.Equal(t, b.id(), again.id())
		require.Equal(t, 2, again.attempt(t))
		c2.lost(409, b, "")
		c2.lost(409, a, "")
		c2.accepted(again, "")
		c2.accepted(next, "")
		require.Zero(t, c2.depth("q"))
	})
}

// TestAnEarlierCopyIsRefused: a backup that is copied over the file of a store does not hide what
// was confirmed since.
func TestAnEarlierCopyIsRefused(t *testing.T) {
	t.Parallel()
	p := startFila(t, options{})
	c := p.client(t)
	c.createQueue("q", nil)
	c.enqueue("q", "before")
	var backup struct {
		Path string `json:"path"`
	}
	p.okJSON(t, &backup, "store", "backup")
	c.enqueue("q", "confirmed")
	require.Zero(t, p.Stop(t))
	newest, err := os.ReadFile(p.file())
	require.NoError(t, err)
	earlier, err := os.ReadFile(backup.Path)
	require.NoError(t, err)

	require.NoError(t, os.WriteFile(p.file(), earlier, 0o600))
	require.NoError(t, p.start())
	require.Equal(t, 1, p.WaitExit(t))
	require.Contains(t, p.log.String(), "give them up with `fila store accept-loss "+p.file()+"`")
	require.Equal(t, 9, p.fila(t, "store", "check", p.Dir).code)

	require.NoError(t, os.WriteFile(p.file(), newest, 0o600))
	p.Start(t)
	require.EqualValues(t, 2, p.client(t).depth("q"))
	require.Zero(t, p.Stop(t))

	require.NoError(t, os.WriteFile(p.file(), earlier, 0o600))
	p.ok(t, "store", "accept-loss", p.Dir)
	p.Start(t)
	require.EqualValues(t, 1, p.client(t).depth("q"))
	require.Contains(t, p.log.String(), "the loss of confirmed commits was accepted")
	require.Zero(t, p.Stop(t))
}

func TestEverythingSurvivesARestart(t *testing.T) {
	twice(t, func(t *testing.T, restart func(*testing.T, *proc)) {
		p := startFila(t, options{})
		c := p.client(t)
		c.createQueue("q", m{"max_depth": 100, "fairness_header": "tenant", "weight_header": "weight", "max_pending_per_key": 5})
		c.createQueue("gone", nil)
		c.call("fila.admin.queue-delete.gone", nil, nil)
		c.call("fila.admin.config-set.some:key", m{"value": "kept"}, nil)
		c.call("fila.admin.config-set.deleted", m{"value": "x"}, nil)
		c.call("fila.admin.config-delete.deleted", nil, nil)
		done := c.enqueue("q", "done", "Nats-Msg-Id", "done")
		k := c.consume("q", 1)
		c.accepted(k.next(), "")
		c.enqueue("q", "dead", "tenant", "acme")
		c.accepted(k.next(), "+TERM no use")
		c.enqueue("q", "tried", "tenant", "acme")
		c.accepted(k.next(), `-NAK {"delay":3600000000000}`)
		k.leave()
		var ids []string
		for i := range 10 {
			ids = append(ids, c.enqueue("q", fmt.Sprint(i), "tenant", fmt.Sprint("t", i%2), "Nats-Msg-Id", fmt.Sprint("m", i)).ID)
		}
		before, dlqBefore := c.inspect("q"), c.inspect("q.dlq")
		restart(t, p)

		c = p.client(t)
		after, dlqAfter := c.inspect("q"), c.inspect("q.dlq")
		require.Equal(t, before.Settings, after.Settings)
		require.EqualValues(t, 10, after.Pending)
		require.EqualValues(t, 1, after.Delayed, "the delay of a nack survives")
		require.Zero(t, after.InFlight)
		require.Equal(t, dlqBefore.Pending, dlqAfter.Pending)
		c.refused(404, "fila.admin.queue-inspect.gone", nil)
		var value struct{ Value string }
		c.call("fila.admin.config-get.some:key", nil, &value)
		require.Equal(t, "kept", value.Value)
		c.refused(404, "fila.admin.config-get.deleted", nil)
		require.Equal(t, enqueued{ID: done.ID, Queue: "q", Duplicate: true}, c.enqueue("q", "again", "Nats-Msg-Id", "done"),
			"dedupe ids survive, also of finished messages")
		require.Equal(t, enqueued{ID: ids[3], Queue: "q", Duplicate: true}, c.enqueue("q", "again", "Nats-Msg-Id", "m3"))

		c.refusedMsg(429, message("q", "x", "tenant", "t0")) // stored messages count

		var got []string
		for _, d := range c.consume("q", 1).drain(10) {
			require.Equal(t, 1, d.attempt(t))
			require.Equal(t, fmt.Sprint("t", len(got)%2), d.key(), "flows alternate")
			got = append(got, d.id())
		}
		require.ElementsMatch(t, ids, got)
		dead := c.consume("q.dlq", 1).next()
		require.Equal(t, "dead", string(dead.Data))
		require.Equal(t, "acme", dead.key())
		require.Equal(t, "term", dead.Header.Get("Fila-Dead-Reason"))
		require.Equal(t, "no use", dead.Header.Get("Fila-Dead-Error"))
		require.Equal(t, "q", dead.Header.Get("Fila-Source-Queue"))
	})
}

// deadLetters puts n messages into the DLQ of a new queue. It returns the queue and the ids in
// the order of the dead letters.
func deadLetters(c *client, n int) (string, []string) {
	c.t.Helper()
	queue := c.newQueue(nil)
	k := c.consume(queue, 1)
	var ids []string
	for range n {
		ids = append(ids, c.enqueue(queue, "x").ID)
		c.accepted(k.next(), "+TERM broken")
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

// TestRedriveSurvivesAKill: a message is in one of the two queues, never in both.
func TestRedriveSurvivesAKill(t *testing.T) {
	t.Parallel()
	p := startFila(t, options{})
	c := p.client(t)
	queue, ids := deadLetters(c, 6)
	require.Equal(t, 4, c.redrive(queue+".dlq", m{"count": 4}))
	p.Kill9(t)
	p.Restart(t)
	c = p.client(t)
	require.EqualValues(t, 2, c.depth(queue+".dlq"))
	var got []string
	for _, d := range c.consume(queue, 10).drain(4) {
		require.Equal(t, 1, d.attempt(t))
		got = append(got, d.id())
	}
	require.Equal(t, ids[:4], got)
}

// TestTokensOfAnotherStartAreNotConfused: a restarted fila gives no lease that an old token
// names.
func TestTokensOfAnotherStartAreNotConfused(t *testing.T) {
	t.Parallel()
	p := startFila(t, options{})
	c := p.client(t)
	c.createQueue("q", m{"visibility_timeout_ms": 3_600_000, "max_deliveries": 0})
	c.enqueue("q", "a")
	seen := map[string]bool{}
	var old []delivery
	for range 4 {
		c = p.client(t)
		var d delivery
		k := c.consume("q", 1)
		if len(old) > 0 { // the lease may be on disk: give it up
			_ = c.answer(old[len(old)-1], "-NAK")
		}
		d = k.next()
		require.False(t, seen[d.Reply], "a token came twice")
		seen[d.Reply] = true
		for _, o := range old {
			c.lost(409, o, "")
		}
		old = append(old, d)
		c.nc.Close()
		p.Kill9(t)
		p.Restart(t)
	}
}
