package e2e

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// TestNothingWaitsWithAShutGate: neither the same flow nor others.
func TestNothingWaitsWithAShutGate(t *testing.T) {
	c := shared(t).client(t)
	queue, gate, dest := c.newQueue(byHeaders(nil)), unique(t), unique(t)
	c.limits(gate, m{"rate": seldom, "burst": 1})
	c.call("fila.admin.circuit-open."+dest, nil, nil)
	const n = 100
	shut := gated(queue, "a", gate, n) // in front of all others
	for i, msg := range shut {
		if i%2 == 0 {
			msg.Header.Set("dest", dest)
		}
	}
	c.enqueueAll(shut)
	k := c.consume(queue, 3)
	require.Equal(t, "1", string(k.drain(1)[0].Data), "the only token")
	c.parked(queue, n-1)
	c.enqueueAll(gated(queue, "a", "", n))
	c.enqueueAll(gated(queue, "a", unique(t), n))
	c.enqueueAll(gated(queue, "b", "", n))
	got := k.drain(3 * n)
	require.Equal(t, map[string]int{"a": 2 * n, "b": n}, counts(got))
	byLane := map[string][]delivery{}
	for _, d := range got {
		lane := d.key() + d.Header.Get("gate")
		byLane[lane] = append(byLane[lane], d)
	}
	require.Len(t, byLane, 3)
	for lane, ds := range byLane {
		require.Len(t, ds, n, lane)
		requireFifo(t, ds)
	}
	k.none()
	c.parked(queue, n-1)

	// The gates open, and each lane goes in its order.
	c.call("fila.admin.throttle-clear."+gate, nil, nil)
	c.call("fila.admin.circuit-close."+dest, nil, nil)
	next := map[string]int{"": 3, dest: 0}
	for range n - 1 {
		d := k.next()
		lane := d.Header.Get("dest")
		require.Equal(t, strconv.Itoa(next[lane]), string(d.Data), "lane %q", lane)
		next[lane] += 2
		require.NoError(t, d.Respond(nil))
	}
	c.waitDepth(queue, 0)
}

// TestSharesBehindOneBucket go by weight: 3 to 1 over the whole run and at every
// moment of it.
func TestSharesBehindOneBucket(t *testing.T) {
	c := shared(t).client(t)
	queue, gate := c.newQueue(byHeaders(nil)), unique(t)
	c.limits(gate, m{"rate": 60, "burst": 1})
	var msgs []*nats.Msg
	const n = 120
	for tenant, weight := range map[string]string{"light": "1", "heavy": "3"} {
		for _, msg := range gated(queue, tenant, gate, n) {
			msg.Header.Set("weight", weight)
			msgs = append(msgs, msg)
		}
	}
	c.enqueueAll(msgs)
	ds := c.consume(queue, 10).drain(n) // both stay backlogged
	fs := flightsOf(t, ds, defaultVisibility)
	require.NoError(t, checkRate(fs, 60, 1))
	requireFifo(t, ds)
	heavy := 0
	for i, f := range fs {
		if f.key == "heavy" {
			heavy++
		}
		require.InDelta(t, 0.75*float64(i+1), float64(heavy), 3, "after %d deliveries", i+1)
	}
}

// TestQueuesTakeTurnsAtAGate whatever they have.
func TestQueuesTakeTurnsAtAGate(t *testing.T) {
	c := shared(t).client(t)
	gate := unique(t)
	small, large := c.newQueue(byHeaders(nil)), c.newQueue(byHeaders(nil))
	idle := c.newQueue(byHeaders(nil)) // waits, too, but nobody consumes from it
	c.limits(gate, m{"rate": 50, "burst": 1})
	c.enqueueAll(gated(idle, "a", gate, 50))
	c.enqueueAll(gated(large, "a", gate, 300))
	c.enqueueAll(gated(large, "b", gate, 300))
	c.enqueueAll(gated(small, "a", gate, 25))
	w := c.newCrew(defaultVisibility)
	w.join(large, 1, 10, nil, nil)
	w.join(small, 1, 10, nil, nil)
	c.waitDepth(small, 0)
	w.end()
	fs := w.all()
	require.NoError(t, checkRate(fs, 50, 1))
	fromLarge := len(fs) - 25
	require.GreaterOrEqual(t, fromLarge, 15)
	require.LessOrEqual(t, fromLarge, 45, "the small one gets every second token")
}

// TestSharesOfPlacesInFlight go by weight as well.
func TestSharesOfPlacesInFlight(t *testing.T) {
	c := shared(t).client(t)
	queue, gate := c.newQueue(byHeaders(nil)), unique(t)
	c.limits(gate, m{"concurrency": 1})
	var msgs []*nats.Msg
	const n = 400
	for i, weight := range []string{"1", "2", "5"} {
		for _, msg := range gated(queue, fmt.Sprint("t", i), gate, n) {
			msg.Header.Set("weight", weight)
			msgs = append(msgs, msg)
		}
	}
	c.enqueueAll(msgs)
	ds := c.consume(queue, 10).drain(n)
	requireFifo(t, ds)
	got := counts(ds)
	for tenant, share := range map[string]float64{"t0": 1.0 / 8, "t1": 2.0 / 8, "t2": 5.0 / 8} {
		require.InDelta(t, share*n, float64(got[tenant]), 8, "%v", got)
	}
}

// TestFlowsAreFairBesideGates: what a gate lets through takes no more than its
// turn from a flow that waits for nothing.
func TestFlowsAreFairBesideGates(t *testing.T) {
	c := shared(t).client(t)
	queue, gate := c.newQueue(byHeaders(nil)), unique(t)
	c.limits(gate, m{"concurrency": 1})
	const n = 300
	c.enqueueAll(gated(queue, "gated", gate, n))
	c.enqueueAll(gated(queue, "free", "", n))
	got := counts(c.consume(queue, 4).drain(n))
	require.GreaterOrEqual(t, got["free"], n/2-5, "%v", got)
	require.Positive(t, got["gated"])
}

// TestManyGatesStarveNobody: one message needs two contended keys, everybody
// else one of them.
func TestManyGatesStarveNobody(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	c := shared(t).client(t)
	queue, one, two := c.newQueue(byHeaders(nil)), unique(t), unique(t)
	c.limits(one, m{"concurrency": 1})
	c.limits(two, m{"concurrency": 1})
	c.enqueueAll(gated(queue, "one", one, 2000))
	c.enqueueAll(gated(queue, "two", two, 2000))
	k := c.consume(queue, 3)
	held := k.take(2) // both are taken before it comes, and never are both free at one moment
	id := c.enqueue(queue, "", "tenant", "both", "gate", one, "gate2", two).ID
	eventually(t, func() bool { return c.explain(id).State == "parked" })
	for {
		require.NoError(t, held[0].Respond(nil))
		held = held[1:]
		for len(held) < 2 { // one place may be kept for the message
			select {
			case d := <-k.ch:
				held = append(held, d)
				if d.id() == id {
					return
				}
				continue
			case <-time.After(20 * time.Millisecond):
			}
			if len(held) == 0 {
				held = append(held, k.next())
				if held[0].id() == id {
					return
				}
			}
			break
		}
	}
}

// TestOrderWithinALane holds at rates and places, of all flows that wait there.
func TestOrderWithinALane(t *testing.T) {
	c := shared(t).client(t)
	queue, gate := c.newQueue(byHeaders(nil)), unique(t)
	c.limits(gate, m{"rate": 300, "burst": 2, "concurrency": 2})
	var msgs []*nats.Msg
	const n, flows = 30, 4
	for i := range n {
		for f := range flows {
			msgs = append(msgs, message(queue, strconv.Itoa(i), "tenant", fmt.Sprint("t", f), "gate", gate))
		}
	}
	c.enqueueAll(msgs)
	ds := c.consume(queue, 10).drain(n * flows)
	slices.SortStableFunc(ds, func(a, b delivery) int {
		return int(min(max(flightOf(t, a, defaultVisibility).start-flightOf(t, b, defaultVisibility).start, math.MinInt32), math.MaxInt32))
	})
	requireFifo(t, ds)
}
