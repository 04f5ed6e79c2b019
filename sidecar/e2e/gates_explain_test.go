package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestExplainEveryState of a message, by its gates.
func TestExplainEveryState(t *testing.T) {
	p := shared(t)
	c := p.client(t)
	queue := c.newQueue(byHeaders(m{"visibility_timeout_ms": 3_600_000}))
	gate := func(name string) string { return queue + ":" + name }
	c.limits(gate("rate"), m{"rate": "1/3600", "burst": 1})
	c.limits(gate("window"), m{"limit": 1, "window_ms": 3_600_000})
	c.limits(gate("places"), m{"concurrency": 1, "for_ms": 3_600_000})
	c.limits(gate("pre:*"), m{"rate": "1/3600"})
	c.pauseOf(m{"kind": "throttle", "name": gate("paused"), "for_ms": 3_600_000})
	c.pauseOf(m{"kind": "key", "queue": queue, "name": "held"})
	c.call("fila.admin.circuit-open."+gate("api"), m{"for_ms": 3_600_000}, nil)

	// Nobody consumes yet.
	ready := c.enqueue(queue, "ready", "tenant", "ready")
	e := c.explain(ready.ID)
	require.Equal(t, "pending", e.State)
	require.Contains(t, e.Reason, "consumer")
	require.Equal(t, queue, e.Queue)
	require.Equal(t, "ready", e.Key)
	require.Equal(t, 1, e.Attempt)
	delayed := c.enqueue(queue, "delayed", "Fila-Delay", "1h")
	e = c.explain(delayed.ID)
	require.Equal(t, "delayed", e.State)
	require.Equal(t, e.ReadyAt, e.Estimate)
	require.True(t, timeOf(t, e.ReadyAt).After(time.Now().Add(50*time.Minute)))

	k := c.consume(queue, 20)
	require.Equal(t, ready.ID, k.next().id())
	e = c.explain(ready.ID)
	require.Equal(t, "leased", e.State)
	require.Equal(t, k.name, e.Consumer)
	require.True(t, timeOf(t, e.LeaseUntil).After(time.Now().Add(50*time.Minute)))

	for _, tt := range []struct {
		name, header, kind, gate, setBy string
		opens                           bool
	}{
		{"rate", "gate", "rate", "throttle:" + gate("rate"), "operator", true},
		{"window", "gate", "window", "throttle:" + gate("window"), "operator", true},
		{"places", "gate", "concurrency", "throttle:" + gate("places"), "override until ", false},
		{"pre:x", "gate", "rate", "throttle:" + gate("pre:x"), "prefix " + gate("pre:*") + ", operator", true},
		{"paused", "gate", "paused", "throttle:" + gate("paused"), "", true},
		{"api", "dest", "circuit", "circuit:" + gate("api"), "default", true},
		{"held", "tenant", "paused", "key:held", "", false},
	} {
		value := gate(tt.name)
		if tt.header == "tenant" {
			value = tt.name
		} else {
			c.enqueue(queue, "first", tt.header, value) // takes what the gate admits, if anything
		}
		second := c.enqueue(queue, "second", tt.header, value)
		eventually(t, func() bool { e = c.explain(second.ID); return e.State == "parked" }, "%s: %+v", tt.name, e)
		require.NotNil(t, e.BlockedBy, tt.name)
		require.Equal(t, tt.kind, e.BlockedBy.Kind, tt.name)
		require.Equal(t, tt.gate, e.BlockedBy.Gate)
		require.False(t, e.BlockedBy.Open, tt.name)
		require.Contains(t, e.BlockedBy.SetBy, tt.setBy, tt.name)
		require.Contains(t, e.Reason, tt.gate)
		require.False(t, timeOf(t, e.BlockedSince).After(time.Now().Add(time.Second)))
		if tt.opens {
			require.True(t, timeOf(t, e.BlockedBy.OpensAt).After(time.Now().Add(30*time.Minute)), "%s: %+v", tt.name, e)
		} else {
			require.Empty(t, e.BlockedBy.OpensAt, tt.name)
			require.Empty(t, e.Estimate, tt.name)
		}
		if tt.header != "tenant" {
			require.Len(t, e.Gates, 1, tt.name)
			require.NotEmpty(t, e.Gates[0].InUse, tt.name)
		}
	}

	// How far: the estimate of a rate counts those in front.
	third := c.enqueue(queue, "third", "gate", gate("rate"))
	eventually(t, func() bool { return c.explain(third.ID).State == "parked" })
	e = c.explain(third.ID)
	require.EqualValues(t, 1, e.Ahead)
	away := time.Until(timeOf(t, e.Estimate))
	require.Greater(t, away, 100*time.Minute)
	require.Less(t, away, 121*time.Minute)

	byKind := map[string]float64{}
	for _, kind := range []string{"rate", "window", "concurrency", "reserved", "turn", "circuit", "paused", "order"} {
		byKind[kind] = p.metric(t, "fila_queue_parked", "queue", queue, "blocked_by", kind)
	}
	require.Equal(t, map[string]float64{
		"rate": 3, "window": 1, "concurrency": 1, "circuit": 2, "paused": 3, "reserved": 0, "turn": 0, "order": 0,
	}, byKind)
	h := c.explainQueue(queue)
	require.EqualValues(t, 10, h.Parked)
	require.EqualValues(t, 1, h.Delayed)
	require.Equal(t, 1, h.Consumers)
	require.Len(t, h.BlockedBy, 7)
	var sum int64
	for i, b := range h.BlockedBy {
		sum += b.Messages
		if i > 0 {
			require.LessOrEqual(t, b.Messages, h.BlockedBy[i-1].Messages, "the largest first")
		}
	}
	require.EqualValues(t, 10, sum)
	require.EqualValues(t, 10, number(t, object(t, []byte(c.dump(queue)))["parked"]))
	require.EqualValues(t, 10, c.inspect(queue).Pending, "parked ones are pending")

	hk := c.explainKey(queue, "held")
	require.EqualValues(t, 1, hk.Parked)
	require.Equal(t, "until resumed", hk.Paused)
	require.Equal(t, "key:held", hk.BlockedBy[0].Gate)
	hk = c.explainKey(queue, "default")
	require.EqualValues(t, 9, hk.Parked)
	require.EqualValues(t, 4, hk.InFlight)
	require.EqualValues(t, 1, hk.Delayed)
	require.InDelta(t, 1, hk.Weight, 0)
	require.Equal(t, "default", hk.WeightBy)

	// Dead, and gone.
	c.call("fila.admin.resume", m{"kind": "key", "queue": queue, "name": "held"}, nil)
	var last delivery
	for last = k.next(); last.key() != "held"; last = k.next() {
		require.Equal(t, "first", string(last.Data))
	}
	c.accepted(last, "+TERM no use")
	e = c.explain(last.id())
	require.Equal(t, "dead", e.State)
	require.Equal(t, queue+".dlq", e.Queue)
	require.Contains(t, e.Reason, "no use")
	dead := c.consume(queue+".dlq", 1).next()
	require.Equal(t, "leased", c.explain(dead.id()).State)
	c.accepted(dead, "")
	require.Equal(t, "unknown", c.explain(dead.id()).State)
	require.Equal(t, "unknown", c.explain("01981c2e-7b1c-7d3a-9b1e-2f4c5d6e7f80").State)

	// Where it is asked for makes no difference, and what cannot be asked is refused.
	var in explained
	c.call("fila.admin.explain", m{"kind": "message", "id": third.ID, "queue": queue}, &in)
	require.Equal(t, "parked", in.State)
	for _, body := range []m{
		{},
		{"kind": "message"},
		{"kind": "message", "id": "x"},
		{"kind": "key", "queue": queue},
		{"kind": "key", "key": "a"},
		{"kind": "queue"},
		{"kind": "queue", "queue": queue, "id": third.ID},
		{"kind": "flow", "queue": queue},
	} {
		c.refused(400, "fila.admin.explain", body)
	}
	c.refused(404, "fila.admin.explain", m{"kind": "queue", "queue": unique(t)})
	c.refused(404, "fila.admin.explain", m{"kind": "message", "id": third.ID, "queue": unique(t)})
}
