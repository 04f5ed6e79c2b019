package e2e

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// circuitLimits sets limits of a circuit key.
func (c *client) circuitLimits(key string, threshold, cooldownMs, calls, successes int) {
	c.t.Helper()
	c.set("circuit:"+key+":threshold", strconv.Itoa(threshold), "circuit:"+key+":cooldown_ms", strconv.Itoa(cooldownMs),
		"circuit:"+key+":half_open_max_calls", strconv.Itoa(calls), "circuit:"+key+":half_open_successes", strconv.Itoa(successes))
}

// toDest publishes n messages for a destination.
func (c *client) toDest(queue, dest string, n int) []string {
	c.t.Helper()
	ids := make([]string, n)
	for i := range ids {
		ids[i] = c.enqueue(queue, fmt.Sprint(dest, i), "dest", dest).ID
	}
	return ids
}

// nackAll nacks n deliveries one after the other, each with a delay of an hour.
func (k *consumer) nackAll(n int) {
	k.c.t.Helper()
	for range n {
		k.c.accepted(k.next(), `-NAK {"delay":"1h","error":"no answer"}`)
	}
}

// changed waits for a transition of a circuit.
func changed(t testing.TB, ch <-chan event, key, from, to, cause string) event {
	t.Helper()
	e := nextEvent(t, ch)
	require.Equal(t, "circuit-changed", e.Type)
	require.Equal(t, key, e.Key)
	require.Equal(t, from, e.Data["old"], "%v", e.Data)
	require.Equal(t, to, e.Data["new"], "%v", e.Data)
	require.Equal(t, cause, e.Data["cause"], "%v", e.Data)
	timeOf(t, e.Data["at"].(string))
	if to == "open" {
		require.NotEmpty(t, e.Data["until"])
	}
	return e
}

// TestCircuitOpensAndCloses: failures, blocked messages, probes.
func TestCircuitOpensAndCloses(t *testing.T) {
	c := shared(t).client(t)
	queue, dest := c.newQueue(byHeaders(m{"max_deliveries": 0})), unique(t)
	c.circuitLimits(dest, 3, 3_600_000, 2, 2)
	events := c.events("circuit-changed." + dest)
	ids := c.toDest(queue, dest, 10)
	k := c.consume(queue, 1)
	k.nackAll(2)
	c.accepted(k.next(), "") // a success ends the row of failures
	k.nackAll(3)
	e := changed(t, events, dest, "closed", "open", "failures")
	require.InDelta(t, 3, number(t, e.Data["consecutive_failures"]), 0)
	h := c.parked(queue, 4)
	k.none()
	info := c.circuit(dest)
	require.Equal(t, "open", info.State)
	require.Equal(t, "failures", info.Cause)
	require.Equal(t, 3, info.ConsecutiveFailures)
	require.Equal(t, 3, info.Threshold)
	require.Equal(t, 1, info.Waiting)
	require.Equal(t, e.Data["until"], info.OpenUntil)
	require.True(t, timeOf(t, info.OpenUntil).After(time.Now().Add(50*time.Minute)))
	require.Equal(t, "circuit", h.BlockedBy[0].Kind)
	require.Equal(t, "circuit:"+dest, h.BlockedBy[0].Gate)

	// No other message is blocked, and blocked messages lose no attempt.
	c.enqueue(queue, "to others", "dest", unique(t))
	c.enqueue(queue, "to nobody")
	k.drain(2)
	why := c.explain(ids[7])
	require.Equal(t, "parked", why.State)
	require.Equal(t, 1, why.Attempt)
	require.Equal(t, "circuit", why.BlockedBy.Kind)
	require.EqualValues(t, 1, why.Ahead)

	// A shorter cooldown acts at once.
	k.leave()
	wide := c.consume(queue, 10)
	c.set("circuit:"+dest+":cooldown_ms", "1")
	probes := wide.take(2)
	changed(t, events, dest, "open", "half-open", "time")
	wide.none()
	c.parked(queue, 2)
	info = c.circuit(dest)
	require.Equal(t, "half-open", info.State)
	require.Equal(t, 2, info.Probes)
	for _, d := range probes {
		require.Equal(t, 1, d.attempt(t))
	}
	c.accepted(probes[0], "")
	third := wide.next() // a probe slot is free again
	wide.none()
	c.accepted(probes[1], "")
	changed(t, events, dest, "half-open", "closed", "success")
	c.accepted(third, "")
	c.accepted(wide.next(), "")
	require.Equal(t, "closed", c.circuit(dest).State)
	require.Zero(t, c.circuit(dest).ConsecutiveFailures)
}

// TestOpenCircuitSurvivesARestart, with its time and cause, and with the attempts of the
// blocked messages.
func TestOpenCircuitSurvivesARestart(t *testing.T) {
	twice(t, func(t *testing.T, restart func(*testing.T, *proc)) {
		p := startFila(t, options{tail: "[circuit_defaults]\nthreshold = 2\ncooldown_ms = 3600000\nhalf_open_max_calls = 1\n"})
		c := p.client(t)
		c.createQueue("q", byHeaders(nil))
		c.toDest("q", "api", 1)
		k := c.consume("q", 1)
		c.accepted(k.next(), "-NAK")
		c.accepted(k.next(), "-NAK")
		c.call("fila.admin.circuit-open.hand", nil, nil)
		c.toDest("q", "hand", 1)
		c.toDest("q", "asked", 1)
		c.accepted(k.next(), `-NAK {"retry_after_ms":3600000}`)
		c.parked("q", 3)
		before := []circuitInfo{c.circuit("api"), c.circuit("asked"), c.circuit("hand")}
		require.Equal(t, "failures", before[0].Cause)
		require.Equal(t, "retry_after", before[1].Cause)
		k.leave()
		restart(t, p)

		c = p.client(t)
		k = c.consume("q", 10)
		c.parked("q", 3)
		k.none()
		require.Equal(t, before, []circuitInfo{c.circuit("api"), c.circuit("asked"), c.circuit("hand")})
		for key, attempt := range map[string]int{"api": 3, "hand": 1, "asked": 2} {
			c.call("fila.admin.circuit-close."+key, nil, nil)
			d := k.next()
			require.Equal(t, key+"0", string(d.Data))
			require.Equal(t, attempt, d.attempt(t))
			c.accepted(d, "")
		}
		// A closed circuit stays closed over a restart.
		k.leave()
		restart(t, p)
		c = p.client(t)
		c.toDest("q", "api", 1)
		c.consume("q", 1).drain(1)
	})
}

// TestCircuitFromOnEnqueue: the hook names the circuit. A queue with a circuit header as well
// is refused.
func TestCircuitFromOnEnqueue(t *testing.T) {
	c := shared(t).client(t)
	dest := unique(t)
	const hook = `function on_enqueue(msg)
		return { circuit_key = msg.headers["vendor"] }
	end`
	c.refused(400, "fila.admin.queue-create."+unique(t), m{"circuit_header": "dest", "on_enqueue": hook})
	queue := c.newQueue(m{"on_enqueue": hook})
	c.call("fila.admin.circuit-open."+dest, nil, nil)
	c.enqueue(queue, "held", "vendor", dest)
	c.enqueue(queue, "goes", "dest", dest)
	k := c.consume(queue, 5)
	require.Equal(t, "goes", string(k.drain(1)[0].Data))
	c.parked(queue, 1)
	k.none()
	c.call("fila.admin.circuit-close."+dest, nil, nil)
	k.drain(1)
}
