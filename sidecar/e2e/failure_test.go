package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNackIncrementsAttempts(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(nil)
	sent := c.enqueue(queue, "payload", "H", "v")
	k := c.consume(queue, 1)
	for attempt := 1; attempt <= 5; attempt++ {
		d := k.next()
		require.Equal(t, attempt, d.attempt(t))
		require.Equal(t, sent.ID, d.id())
		require.Equal(t, "payload", string(d.Data))
		require.Equal(t, "v", d.Header.Get("H"))
		c.accepted(d, "-NAK")
	}
	c.accepted(k.next(), "")
	require.Zero(t, c.depth(queue))
}

// TestNackWithDelay: a delayed message does not block the others.
func TestNackWithDelay(t *testing.T) {
	c := shared(t).client(t)
	for _, payload := range []string{`-NAK {"delay":600000000000}`, "-NAK 10m", `-NAK {"delay":600000000000,"error":"later"}`} {
		queue := c.newQueue(nil)
		c.enqueue(queue, "held")
		k := c.consume(queue, 1)
		c.accepted(k.next(), payload)
		info := c.inspect(queue)
		require.EqualValues(t, 1, info.Delayed, "%s", payload)
		require.Zero(t, info.InFlight, "a delayed message uses no credit")
		c.enqueue(queue, "passes")
		d := k.next()
		require.Equal(t, "passes", string(d.Data))
		c.accepted(d, "")
		k.none()
	}
	queue := c.newQueue(nil)
	c.enqueue(queue, "soon")
	k := c.consume(queue, 1)
	start := time.Now()
	c.accepted(k.next(), `-NAK 250ms`)
	d := k.next()
	require.Equal(t, 2, d.attempt(t))
	require.GreaterOrEqual(t, d.at.Sub(start), 250*time.Millisecond, "never earlier than asked")
}

func TestTermDeadLettersWithReason(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(nil)
	for _, payload := range []string{"+TERM", "+TERM card stolen"} {
		before := time.Now().Add(-time.Second)
		sent := c.enqueue(queue, "body of "+payload, "tenant", "acme")
		k := c.consume(queue, 1)
		d := k.next()
		c.accepted(d, payload)
		require.Zero(t, c.depth(queue))
		c.lost(409, d, "")
		k.leave()
		dlq := c.consume(queue+".dlq", 1)
		dead := dlq.next()
		require.Equal(t, sent.ID, dead.id())
		require.Equal(t, "body of "+payload, string(dead.Data))
		require.Equal(t, "acme", dead.Header.Get("tenant"))
		require.Equal(t, queue+".dlq", dead.Header.Get("Fila-Queue"))
		require.Equal(t, queue, dead.Header.Get("Fila-Source-Queue"))
		require.Equal(t, "term", dead.Header.Get("Fila-Dead-Reason"))
		require.Equal(t, strings.TrimPrefix(strings.TrimPrefix(payload, "+TERM"), " "), dead.Header.Get("Fila-Dead-Error"))
		require.WithinRange(t, dead.timeHeader(t, "Fila-Dead-At"), before, time.Now().Add(time.Second))
		c.accepted(dead, "")
		require.Zero(t, c.depth(queue+".dlq"))
		dlq.leave()
	}
}

// TestOnFailureRetriesThenDeadLetters is the example of the tutorial.
func TestOnFailureRetriesThenDeadLetters(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(m{
		"on_enqueue": `function on_enqueue(msg) return { fairness_key = msg.headers["tenant"] } end`,
		"on_failure": `
			function on_failure(msg)
				if msg.attempts >= 3 then return { action = "dlq" } end
				return { action = "retry", delay_ms = 1 }
			end`,
	})
	payload := "bytes \x00\x01\xff and " + strings.Repeat("more ", 200)
	sent := c.enqueue(queue, payload, "tenant", "acme", "Multi", "1", "Multi", "2")
	k := c.consume(queue, 1)
	for attempt := 1; attempt <= 3; attempt++ {
		d := k.next()
		require.Equal(t, attempt, d.attempt(t))
		require.Equal(t, payload, string(d.Data))
		c.accepted(d, `-NAK {"error":"card declined","code":"declined"}`)
	}
	require.Zero(t, c.depth(queue))
	dead := c.consume(queue+".dlq", 1).next()
	require.Equal(t, sent.ID, dead.id())
	require.Equal(t, payload, string(dead.Data))
	require.Equal(t, "acme", dead.key(), "the fairness key is kept")
	require.Equal(t, 1, dead.attempt(t), "attempts of the DLQ")
	require.Equal(t, "acme", dead.Header.Get("tenant"))
	require.Equal(t, []string{"1", "2"}, dead.Header.Values("Multi"))
	require.Equal(t, "on_failure", dead.Header.Get("Fila-Dead-Reason"))
	require.Equal(t, "card declined", dead.Header.Get("Fila-Dead-Error"))
	require.Equal(t, "declined", dead.Header.Get("Fila-Dead-Error-Code"))
	require.Equal(t, "3", dead.Header.Get("Fila-Dead-Attempts"))
	require.Equal(t, queue, dead.Header.Get("Fila-Source-Queue"))
	dead.timeHeader(t, "Fila-Dead-At")
}

// TestOnFailureSeesTheFailure: on_failure gets every field of the failure.
func TestOnFailureSeesTheFailure(t *testing.T) {
	c := shared(t).client(t)
	queue := unique(t)
	c.createQueue(queue, m{"visibility_timeout_ms": 1500, "on_failure": `
		function on_failure(msg)
			local nacked = msg.attempts == 1 and msg.error == "boom" and msg.error_code == "E1"
			local expired = msg.attempts == 2 and msg.error == "lease expired"
			if msg.queue ~= "` + queue + `" or #msg.id ~= 36 or msg.headers["tenant"] ~= "acme" then
				return { action = "dlq" }
			end
			if nacked or expired then return { action = "retry" } end
			return { action = "dlq" }
		end`})
	c.enqueue(queue, "a", "tenant", "acme")
	k := c.consume(queue, 1)
	d := k.next()
	c.accepted(d, `-NAK {"error":"boom","code":"E1"}`)
	require.Equal(t, 2, k.next().attempt(t)) // expires
	require.Equal(t, 3, k.next().attempt(t), "the hook recognised nack and expiry")
	dead := c.consume(queue+".dlq", 1).next() // the third failure expires too
	require.Equal(t, "lease expired", dead.Header.Get("Fila-Dead-Error"))
}

func TestVisibilityTimeoutRedelivers(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(m{"visibility_timeout_ms": 300})
	sent := c.enqueue(queue, "a")
	slow := c.consume(queue, 1)
	first := slow.next()
	require.Equal(t, 1, first.attempt(t))
	second := slow.next()
	require.Equal(t, sent.ID, second.id())
	require.Equal(t, 2, second.attempt(t))
	require.GreaterOrEqual(t, second.timeHeader(t, "Fila-Deadline").Sub(first.timeHeader(t, "Fila-Deadline")), 300*time.Millisecond,
		"the second lease starts after the first has ended")
}
