package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
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

func TestNackedMessageJoinsTheEndOfItsFlow(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(nil)
	for _, payload := range []string{"a", "b", "c"} {
		c.enqueue(queue, payload)
	}
	k := c.consume(queue, 1)
	var order []string
	for i := range 4 {
		d := k.next()
		order = append(order, string(d.Data))
		if i == 0 {
			c.accepted(d, "-NAK")
		} else {
			c.accepted(d, "")
		}
	}
	require.Equal(t, []string{"a", "b", "c", "a"}, order)
}

func TestNackSubject(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(m{"max_deliveries": 2})
	c.enqueue(queue, "a")
	k := c.consume(queue, 1)
	nack := func(d delivery, text string) *apiError {
		return c.answerMsg(&nats.Msg{Subject: strings.Replace(d.Reply, "fila.ack.", "fila.nack.", 1), Data: []byte(text)})
	}
	first := k.next()
	require.Nil(t, nack(first, "connection refused by upstream"))
	e := nack(first, "again")
	require.NotNil(t, e)
	require.Equal(t, 409, e.Code)
	second := k.next()
	require.Equal(t, 2, second.attempt(t))
	require.Nil(t, nack(second, "+ACK")) // here a payload is an error text, whatever it looks like
	dead := c.consume(queue+".dlq", 1).next()
	require.Equal(t, "+ACK", dead.Header.Get("Fila-Dead-Error"))
	require.Equal(t, "max_deliveries", dead.Header.Get("Fila-Dead-Reason"))
}

func TestNackForms(t *testing.T) {
	// The hook shows what it was told: it dead-letters with it.
	const hook = `function on_failure(msg) return { action = "dlq" } end`
	tests := map[string]struct {
		payload     string
		header      nats.Header
		error, code string
	}{
		"plain":            {payload: "-NAK"},
		"json":             {payload: `-NAK {"error":"boom","code":"E42"}`, error: "boom", code: "E42"},
		"json, all fields": {payload: `-NAK {"error":"boom","code":"E42","retry_after_ms":1}`, error: "boom", code: "E42"},
		"headers":          {payload: "-NAK", header: nats.Header{"Fila-Error": {"boom"}, "Fila-Error-Code": {"E42"}}, error: "boom", code: "E42"},
		"headers, some":    {payload: "-NAK", header: nats.Header{"Fila-Error": {"boom"}, "Fila-Retry-After-Ms": {"10"}}, error: "boom"},
	}
	p := shared(t)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := p.client(t)
			queue := c.newQueue(m{"on_failure": hook})
			sent := c.enqueue(queue, "a")
			d := c.consume(queue, 1).next()
			require.Nil(t, c.answerMsg(&nats.Msg{Subject: d.Reply, Data: []byte(tt.payload), Header: tt.header}))
			dead := c.consume(queue+".dlq", 1).next()
			require.Equal(t, sent.ID, dead.id())
			require.Equal(t, "on_failure", dead.Header.Get("Fila-Dead-Reason"))
			require.Equal(t, tt.error, dead.Header.Get("Fila-Dead-Error"))
			require.Equal(t, tt.code, dead.Header.Get("Fila-Dead-Error-Code"))
		})
	}
}

// TestNackWithDelay holds a message back while others pass.
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

// TestOnFailureRetriesThenDeadLetters is the example of the tour.
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

// TestOnFailureSeesTheFailure lets a hook compare all of its input.
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

func TestOnFailureDelayIsWaitedFor(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(m{"on_failure": `
		function on_failure(msg) return { action = "retry", delay_ms = msg.attempts == 1 and 250 or 600000 } end`})
	c.enqueue(queue, "a")
	k := c.consume(queue, 1)
	start := time.Now()
	c.accepted(k.next(), "-NAK")
	d := k.next()
	require.GreaterOrEqual(t, d.at.Sub(start), 250*time.Millisecond)
	c.accepted(d, "-NAK")
	require.EqualValues(t, 1, c.inspect(queue).Delayed)
	c.enqueue(queue, "b")
	require.Equal(t, "b", string(k.next().Data), "outside of the consumer's credit")
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

func TestMaxDeliveries(t *testing.T) {
	p := shared(t)
	hook := `function on_failure(msg) return { action = "retry" } end`
	broken := `function on_failure(msg) error("broken hook") end`
	tests := map[string]struct {
		settings m
		want     int
	}{
		"default without hook":          {m{}, 20},
		"explicit":                      {m{"max_deliveries": 3}, 3},
		"one":                           {m{"max_deliveries": 1}, 1},
		"explicit above a hook":         {m{"max_deliveries": 4, "on_failure": hook}, 4},
		"default when the hook fails":   {m{"on_failure": broken}, 20},
		"explicit above a failing hook": {m{"max_deliveries": 2, "on_failure": broken}, 2},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := p.client(t)
			queue := c.newQueue(tt.settings)
			sent := c.enqueue(queue, "poison")
			k := c.consume(queue, 1)
			for attempt := 1; attempt <= tt.want; attempt++ {
				d := k.next()
				require.Equal(t, attempt, d.attempt(t))
				c.accepted(d, `-NAK {"error":"crash"}`)
			}
			require.Zero(t, c.depth(queue))
			dead := c.consume(queue+".dlq", 1).next()
			require.Equal(t, sent.ID, dead.id())
			require.Equal(t, "max_deliveries", dead.Header.Get("Fila-Dead-Reason"))
			require.Equal(t, "crash", dead.Header.Get("Fila-Dead-Error"))
			k.none()
		})
	}
	for name, settings := range map[string]m{
		"no limit":                {"max_deliveries": 0},
		"the hook decides itself": {"on_failure": hook},
	} {
		t.Run(name, func(t *testing.T) {
			c := p.client(t)
			queue := c.newQueue(settings)
			c.enqueue(queue, "a")
			k := c.consume(queue, 1)
			for attempt := 1; attempt <= 30; attempt++ {
				d := k.next()
				require.Equal(t, attempt, d.attempt(t))
				c.accepted(d, "-NAK")
			}
			require.Zero(t, c.depth(queue+".dlq"))
		})
	}
}

// TestMaxDeliveriesByExpiry is the message that crashes its consumers.
func TestMaxDeliveriesByExpiry(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(m{"max_deliveries": 2, "visibility_timeout_ms": 100})
	sent := c.enqueue(queue, "poison")
	k := c.consume(queue, 1)
	k.take(2)
	dead := c.consume(queue+".dlq", 1).next()
	require.Equal(t, sent.ID, dead.id())
	require.Equal(t, "max_deliveries", dead.Header.Get("Fila-Dead-Reason"))
	require.Equal(t, "lease expired", dead.Header.Get("Fila-Dead-Error"))
	require.Zero(t, c.depth(queue))
}

// TestNoLimitInADeadLetterQueue nacks one there more often than any default.
func TestNoLimitInADeadLetterQueue(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(m{"max_deliveries": 1})
	c.enqueue(queue, "a")
	c.accepted(c.consume(queue, 1).next(), "-NAK")
	k := c.consume(queue+".dlq", 1)
	for attempt := 1; attempt <= 25; attempt++ {
		d := k.next()
		require.Equal(t, attempt, d.attempt(t))
		c.accepted(d, "-NAK")
	}
	require.EqualValues(t, 1, c.depth(queue+".dlq"))
}
