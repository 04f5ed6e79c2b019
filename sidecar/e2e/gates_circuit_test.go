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

// toDest builds messages for a destination.
func (c *client) toDest(queue, dest string, n int) []string {
	c.t.Helper()
	ids := make([]string, n)
	for i := range ids {
		ids[i] = c.enqueue(queue, fmt.Sprint(dest, i), "dest", dest).ID
	}
	return ids
}

// nackAll nacks n deliveries one after the other; each message waits for an hour
// afterwards.
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

// TestCircuitOpensAndCloses once around: failures, parked messages, probes.
func TestCircuitOpensAndCloses(t *testing.T) {
	c := shared(t).client(t)
	queue, dest := c.newQueue(byHeaders(m{"max_deliveries": 0})), unique(t)
	c.circuitLimits(dest, 3, 3_600_000, 2, 2)
	events := c.events("circuit-changed." + dest)
	ids := c.toDest(queue, dest, 10)
	k := c.consume(queue, 1)
	k.nackAll(2)
	c.accepted(k.next(), "") // a success ends the row
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

	// Nothing else waits with them, and they lose no attempt.
	c.enqueue(queue, "to others", "dest", unique(t))
	c.enqueue(queue, "to nobody")
	k.drain(2)
	why := c.explain(ids[7])
	require.Equal(t, "parked", why.State)
	require.Equal(t, 1, why.Attempt)
	require.Equal(t, "circuit", why.BlockedBy.Kind)
	require.EqualValues(t, 1, why.Ahead)

	// A shorter cooldown counts at once.
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
	third := wide.next() // a place for a probe is free again
	wide.none()
	c.accepted(probes[1], "")
	changed(t, events, dest, "half-open", "closed", "success")
	c.accepted(third, "")
	c.accepted(wide.next(), "")
	require.Equal(t, "closed", c.circuit(dest).State)
	require.Zero(t, c.circuit(dest).ConsecutiveFailures)
}

// TestFailedProbeOpensAgain for another cooldown.
func TestFailedProbeOpensAgain(t *testing.T) {
	c := shared(t).client(t)
	queue, dest := c.newQueue(byHeaders(m{"max_deliveries": 0})), unique(t)
	const cooldown = 150 * time.Millisecond
	c.circuitLimits(dest, 1, int(cooldown.Milliseconds()), 1, 1)
	events := c.events("circuit-changed." + dest)
	c.toDest(queue, dest, 5)
	k := c.consume(queue, 10)
	for _, d := range k.take(5)[:4] { // the first opens it, the others are late
		c.accepted(d, `-NAK {"delay":"1h"}`)
	}
	e := changed(t, events, dest, "closed", "open", "failures")
	c.toDest(queue, dest, 2)
	opened := timeOf(t, e.Data["at"].(string)).UnixNano()
	probe := k.next()
	changed(t, events, dest, "open", "half-open", "time")
	require.GreaterOrEqual(t, flightOf(t, probe, defaultVisibility).start, opened+int64(cooldown))
	k.none()
	c.accepted(probe, `-NAK {"delay":"1h"}`)
	e = changed(t, events, dest, "half-open", "open", "failures")
	opened = timeOf(t, e.Data["at"].(string)).UnixNano()
	probe = k.next()
	require.Equal(t, 1, probe.attempt(t))
	require.GreaterOrEqual(t, flightOf(t, probe, defaultVisibility).start, opened+int64(cooldown))
	changed(t, events, dest, "open", "half-open", "time")
	c.accepted(probe, "")
	changed(t, events, dest, "half-open", "closed", "success")
}

// TestExpiredLeasesAreFailures and what nobody received is none.
func TestExpiredLeasesAreFailures(t *testing.T) {
	c := shared(t).client(t)
	queue, dest := c.newQueue(byHeaders(m{"visibility_timeout_ms": 150})), unique(t)
	c.circuitLimits(dest, 1, 3_600_000, 1, 1)
	events := c.events("circuit-changed." + dest)
	deaf := c.subscribe(queue, unique(t))
	lost := c.events("consumer-lost." + queue)
	deaf.register(1)
	deaf.unsubscribe()
	id := c.toDest(queue, dest, 1)[0]
	nextEvent(t, lost)
	require.Equal(t, "closed", c.circuit(dest).State)
	k := c.consume(queue, 1)
	k.next()
	changed(t, events, dest, "closed", "open", "failures")
	eventually(t, func() bool { return c.explain(id).State == "parked" })
	require.Equal(t, 2, c.explain(id).Attempt)

	// A probe that nobody received says nothing, either.
	k.leave()
	deaf = c.subscribe(queue, unique(t))
	deaf.register(1)
	deaf.unsubscribe()
	c.set("circuit:"+dest+":cooldown_ms", "1")
	nextEvent(t, lost)
	changed(t, events, dest, "open", "half-open", "time")
	require.Equal(t, "half-open", c.circuit(dest).State)
	c.call("fila.admin.queue-update."+queue, m{"visibility_timeout_ms": 3_600_000}, nil) // this one does not end
	k = c.consume(queue, 1)
	d := k.next()
	require.Equal(t, 2, d.attempt(t))
	require.NoError(t, d.Respond(nil))
	changed(t, events, dest, "half-open", "closed", "success")
}

// TestRetryAfterShutsForEverybody in all queues, for its time and no longer.
func TestRetryAfterShutsForEverybody(t *testing.T) {
	c := shared(t).client(t)
	settings := byHeaders(nil)
	one, two, dest := c.newQueue(settings), c.newQueue(settings), unique(t)
	events := c.events("circuit-changed." + dest)
	k := c.consume(one, 1)
	c.toDest(one, dest, 3)
	d := k.next()
	sent := time.Now()
	const wait = 600 * time.Millisecond
	c.accepted(d, fmt.Sprintf(`-NAK {"retry_after_ms":%d,"error":"429"}`, wait.Milliseconds()))
	e := changed(t, events, dest, "closed", "open", "retry_after")
	until := timeOf(t, e.Data["until"].(string))
	require.False(t, until.Before(sent.Add(wait)))
	// A shorter one does not shorten it, nor does a header.
	c.toDest(two, dest, 2)
	other := c.consume(two, 1)
	c.toDest(two, unique(t), 1)
	d = other.next()
	require.NotContains(t, string(d.Data), dest, "another destination goes on")
	c.accepted(d, "")
	for i, d := range append(k.drain(3), other.drain(2)...) {
		require.GreaterOrEqual(t, flightOf(t, d, defaultVisibility).start, until.UnixNano(), "delivery %d", i)
	}
	e = nextEvent(t, events)
	require.Equal(t, "closed", e.Data["new"], "as it was before: %v", e.Data)

	// The header says the same.
	c.toDest(one, dest, 2)
	require.Equal(t, "closed", c.circuit(dest).State)
	msg := natsMsg(k.next().Reply, "-NAK", "Fila-Retry-After-Ms", "3600000")
	require.Nil(t, c.answerMsg(msg))
	changed(t, events, dest, "closed", "open", "retry_after")
	c.parked(one, 2)
	k.none()
	c.call("fila.admin.circuit-close."+dest, nil, nil)
	k.drain(2)

	// Without a circuit key there is nobody to shut.
	c.enqueue(one, "no key")
	c.accepted(k.next(), `-NAK {"retry_after_ms":3600000}`)
	c.accepted(k.next(), "")
}

// TestCircuitByHand is all the verbs.
func TestCircuitByHand(t *testing.T) {
	c := shared(t).client(t)
	queue, dest := c.newQueue(byHeaders(nil)), unique(t)
	e := c.refused(404, "fila.admin.circuit-show."+dest, nil)
	require.Equal(t, 15404, e.ErrCode)
	c.refused(404, "fila.admin.circuit-close."+dest, nil)
	c.refused(404, "fila.admin.circuit-reset."+dest, nil)
	c.refused(400, "fila.admin.circuit-open."+dest, m{"for_ms": -1})
	c.refused(400, "fila.admin.circuit-open."+dest, m{"until": "x"})

	events := c.events("circuit-changed." + dest)
	var info circuitInfo
	c.call("fila.admin.circuit-open."+dest, nil, &info)
	require.Equal(t, circuitInfo{
		Key: dest, State: "open", OpenUntil: "closed", Cause: "by hand",
		Threshold: 10, CooldownMs: 300_000, HalfOpenMaxCalls: 3, HalfOpenSuccesses: 1,
	}, info)
	changed(t, events, dest, "closed", "open", "by hand")
	c.toDest(queue, dest, 3)
	k := c.consume(queue, 5)
	c.parked(queue, 3)
	k.none()
	var list struct {
		Total    int           `json:"total"`
		Circuits []circuitInfo `json:"circuits"`
	}
	c.call("fila.admin.circuit-list", m{"prefix": dest}, &list)
	require.Equal(t, 1, list.Total)
	require.Equal(t, c.circuit(dest), list.Circuits[0])
	require.Equal(t, 1, list.Circuits[0].Waiting)
	c.call("fila.admin.circuit-close."+dest, nil, nil)
	changed(t, events, dest, "open", "closed", "by hand")
	k.drain(3)

	// For a time, and then probes go out.
	c.call("fila.admin.circuit-open."+dest, m{"for_ms": 200}, &info)
	changed(t, events, dest, "closed", "open", "by hand")
	c.toDest(queue, dest, 1)
	require.GreaterOrEqual(t, flightOf(t, k.drain(1)[0], defaultVisibility).start, timeOf(t, info.OpenUntil).UnixNano())
	changed(t, events, dest, "open", "half-open", "time")
	changed(t, events, dest, "half-open", "closed", "success")

	// One that is closed by hand counts from 0.
	c.circuitLimits(dest, 2, 3_600_000, 1, 1)
	fail := func(n int) {
		c.toDest(queue, dest, n)
		k.nackAll(n)
	}
	fail(2)
	changed(t, events, dest, "closed", "open", "failures")
	c.call("fila.admin.circuit-close."+dest, nil, nil)
	changed(t, events, dest, "open", "closed", "by hand")
	fail(1)
	require.Equal(t, "closed", c.circuit(dest).State)
	fail(1)
	changed(t, events, dest, "closed", "open", "failures")
	c.call("fila.admin.circuit-reset."+dest, nil, &info)
	require.Equal(t, "closed", info.State)
	require.Zero(t, info.ConsecutiveFailures)
	changed(t, events, dest, "open", "closed", "by hand")
	fail(1)
	require.Equal(t, 1, c.circuit(dest).ConsecutiveFailures)
	require.Equal(t, "closed", c.circuit(dest).State)

	// A key that is not legal in a subject stands in the body.
	odd := "two words " + dest
	c.call("fila.admin.circuit-open._", m{"key": odd}, &info)
	require.Equal(t, odd, info.Key)
	c.toDest(queue, odd, 1)
	c.parked(queue, 1)
	c.call("fila.admin.circuit-close._", m{"key": odd}, nil)
	k.drain(1)
}

// TestOpenCircuitSurvivesARestart with its time and cause, and so do the
// attempts of what waits behind it.
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
		// A circuit that was closed stays closed over the next one.
		k.leave()
		restart(t, p)
		c = p.client(t)
		c.toDest("q", "api", 1)
		c.consume("q", 1).drain(1)
	})
}

// TestCircuitFromOnEnqueue: the hook names the circuit. A header that names one
// beside it is refused.
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
