package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMaxPendingPerKey refuses messages above the limit of one key, and of no other.
func TestMaxPendingPerKey(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(m{"fairness_header": "tenant", "max_pending_per_key": 3, "visibility_timeout_ms": 3_600_000})
	for range 3 {
		c.enqueue(queue, "x", "tenant", "a")
	}
	e := c.refusedMsg(429, message(queue, "x", "tenant", "a"))
	require.Equal(t, 15429, e.ErrCode)
	require.NotEmpty(t, e.header.Get("Retry-After"))
	require.NotEmpty(t, e.header.Get("Fila-Retry-After-Ms"))
	require.Contains(t, e.Description, "a")
	c.enqueue(queue, "x", "tenant", "b")
	k := c.consume(queue, 1)
	d := k.next() // messages in flight count
	require.Equal(t, "a", d.key())
	c.refusedMsg(429, message(queue, "x", "tenant", "a"))
	c.accepted(d, `-NAK {"delay":"1h"}`)
	c.refusedMsg(429, message(queue, "x", "tenant", "a"))
	for d = k.next(); d.key() != "a"; d = k.next() {
		c.accepted(d, "")
	}
	c.accepted(d, "")
	c.enqueue(queue, "x", "tenant", "a")
	c.refusedMsg(429, message(queue, "x", "tenant", "a"))
	c.call("fila.admin.queue-update."+queue, m{"max_pending_per_key": 4}, nil)
	c.enqueue(queue, "x", "tenant", "a")
	c.refusedMsg(429, message(queue, "x", "tenant", "a"))
	c.call("fila.admin.queue-update."+queue, m{"max_pending_per_key": 0}, nil)
	c.enqueue(queue, "x", "tenant", "a")
	// A new limit counts the present messages.
	c.call("fila.admin.queue-update."+queue, m{"max_pending_per_key": 5}, nil)
	c.refusedMsg(429, message(queue, "x", "tenant", "a"))
}

// TestEnqueueRates: rates of a queue and of its keys, with their headers.
func TestEnqueueRates(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(m{
		"fairness_header": "tenant", "enqueue_rate": "1/3600", "enqueue_burst": 5,
		"enqueue_rate_per_key": "1/600", "enqueue_burst_per_key": 2,
	})
	start := time.Now()
	for range 2 {
		c.enqueue(queue, "x", "tenant", "a")
	}
	limits := func(e *apiError) [3]string {
		require.Equal(t, 14429, e.ErrCode)
		require.Empty(t, e.header.Get("Fila-Id"))
		return [3]string{e.header.Get("Fila-RateLimit-Limit"), e.header.Get("Fila-RateLimit-Remaining"), e.header.Get("Retry-After")}
	}
	seconds := func(text string, most int) {
		n := atoi(t, text)
		require.LessOrEqual(t, n, most)
		require.GreaterOrEqual(t, n, most-1-int(time.Since(start).Seconds()))
	}
	e := c.refusedMsg(429, message(queue, "x", "tenant", "a"))
	got := limits(e)
	require.Equal(t, [2]string{"2", "0"}, [2]string(got[:2]))
	seconds(got[2], 600)
	seconds(e.header.Get("Fila-RateLimit-Reset"), 1200)
	require.Contains(t, e.Description, "enqueue_rate_per_key")
	c.enqueue(queue, "x", "tenant", "b")
	c.enqueue(queue, "x", "tenant", "c")
	c.enqueue(queue, "x", "tenant", "d")
	e = c.refusedMsg(429, message(queue, "x", "tenant", "e"))
	got = limits(e)
	require.Equal(t, [2]string{"5", "0"}, [2]string(got[:2]))
	seconds(got[2], 3600)
	seconds(e.header.Get("Fila-RateLimit-Reset"), 5*3600)
	require.EqualValues(t, 5, c.inspect(queue).Pending)

	// Refused messages take nothing of the other limit; changes act at once.
	c.call("fila.admin.queue-update."+queue, m{"enqueue_rate": "", "enqueue_burst": 0}, nil)
	c.enqueue(queue, "x", "tenant", "e")
	c.enqueue(queue, "x", "tenant", "e")
	c.refusedMsg(429, message(queue, "x", "tenant", "e"))
	c.call("fila.admin.queue-update."+queue, m{"enqueue_rate_per_key": "1000", "enqueue_burst_per_key": 0}, nil)
	eventually(t, func() bool { return errorOf(t, c.do(message(queue, "x", "tenant", "e"))) == nil })
}

// TestAdmissionOverARestart: stored messages count.
func TestAdmissionOverARestart(t *testing.T) {
	twice(t, func(t *testing.T, restart func(*testing.T, *proc)) {
		p := startFila(t, options{})
		c := p.client(t)
		c.createQueue("q", m{"fairness_header": "tenant", "max_pending_per_key": 2})
		c.enqueue("q", "x", "tenant", "a")
		c.enqueue("q", "x", "tenant", "a")
		restart(t, p)
		c = p.client(t)
		c.refusedMsg(429, message("q", "x", "tenant", "a"))
		c.consume("q", 1).drain(1)
		eventually(t, func() bool { return errorOf(t, c.do(message("q", "x", "tenant", "a"))) == nil })
	})
}
