package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// orderedFlight is a delivery of a queue with strict order.
type orderedFlight struct {
	flight
	n int // of the message within its key
}

// runOrdered lets several consumers work on keys with strict order, of whose
// messages every fourth fails once or twice, and returns the flights of each key
// in their order.
func runOrdered(t *testing.T, c *client, queue string, keys, n int, nack string) map[string][]orderedFlight {
	var mu sync.Mutex
	byKey := map[string][]orderedFlight{}
	rng := rand.New(rand.NewPCG(5, 6))
	fails := map[string]int{}
	var msgs []*nats.Msg
	for i := range n {
		for key := range keys {
			name := fmt.Sprint("k", key)
			msgs = append(msgs, message(queue, strconv.Itoa(i), "tenant", name))
			if rng.IntN(4) == 0 {
				fails[name+"/"+strconv.Itoa(i)] = 1 + rng.IntN(2)
			}
		}
	}
	done := 0
	w := c.newCrew(defaultVisibility)
	w.join(queue, 3, 4, func() { pause(context.Background(), time.Millisecond) }, func(d delivery) string {
		attempt := d.attempt(t)
		f := orderedFlight{flight: flightOf(t, d, defaultVisibility)}
		f.n, _ = strconv.Atoi(string(d.Data))
		mu.Lock()
		defer mu.Unlock()
		f.end = time.Now().UnixNano() // before the answer is sent
		byKey[d.key()] = append(byKey[d.key()], f)
		if attempt <= fails[d.key()+"/"+string(d.Data)] {
			return nack
		}
		done++
		return ""
	})
	c.enqueueAll(msgs)
	eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return done >= keys*n }, "%s", c.dump(queue))
	w.end()
	c.waitDepth(queue, 0)
	mu.Lock()
	defer mu.Unlock()
	for key, fs := range byKey {
		slices.SortFunc(fs, func(a, b orderedFlight) int { return int(min(max(a.start-b.start, -1), 1)) })
		for i := 1; i < len(fs); i++ {
			require.GreaterOrEqual(t, fs[i].start, fs[i-1].end, "key %s: two in flight: %d and %d", key, fs[i-1].n, fs[i].n)
		}
	}
	require.Len(t, byKey, keys)
	return byKey
}

// TestStrictOrder with several consumers and retries, which keep their place.
func TestStrictOrder(t *testing.T) {
	p := shared(t)
	for name, nack := range map[string]string{"at once": "-NAK", "delayed": "-NAK 20ms"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := p.client(t)
			queue := c.newQueue(m{"fairness_header": "tenant", "ordering": "key"})
			for key, fs := range runOrdered(t, c, queue, 4, 25, nack) {
				want, attempt := 0, 1
				for _, f := range fs {
					if f.n == want+1 {
						want, attempt = f.n, 1
					}
					require.Equal(t, want, f.n, "key %s", key)
					require.Equal(t, attempt, f.attempt, "key %s, message %d", key, f.n)
					attempt++
				}
				require.Equal(t, 24, want)
			}
		})
	}
}

// TestStrictOrderSkips what waits for its retry, still one at a time; what has
// not been tried yet keeps its order.
func TestStrictOrderSkips(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(m{"fairness_header": "tenant", "ordering": "key", "on_blocked": "skip"})
	for key, fs := range runOrdered(t, c, queue, 4, 25, "-NAK 15ms") {
		next := 0
		for _, f := range fs {
			if f.attempt == 1 {
				require.Equal(t, next, f.n, "key %s", key)
				next++
			}
		}
		require.Equal(t, 25, next)
	}
}

// TestStrictOrderWaitsOrSkips at gates and retries that take for ever.
func TestStrictOrderWaitsOrSkips(t *testing.T) {
	p := shared(t)
	for _, mode := range []string{"wait", "skip"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			c := p.client(t)
			gate := unique(t)
			queue := c.newQueue(byHeaders(m{"ordering": "key", "on_blocked": mode}))
			c.call("fila.admin.pause", m{"kind": "throttle", "name": gate}, nil)
			k := c.consume(queue, 10)
			c.enqueue(queue, "first", "tenant", "a", "gate", gate)
			c.enqueue(queue, "second", "tenant", "a")
			c.enqueue(queue, "third", "tenant", "a")
			other := c.enqueue(queue, "other key", "tenant", "b")
			var retried string
			if mode == "wait" {
				d := k.next()
				require.Equal(t, other.ID, d.id(), "keys go in parallel")
				c.parked(queue, 3)
				k.none()
				why := c.explainKey(queue, "a")
				require.EqualValues(t, 3, why.Parked)
				c.call("fila.admin.resume", m{"kind": "throttle", "name": gate}, nil)
				for _, want := range []string{"first", "second", "third"} {
					d := k.next()
					require.Equal(t, want, string(d.Data))
					k.none()
					c.accepted(d, "")
				}
				c.accepted(d, `-NAK {"delay":"1h"}`)
				retried = d.id()
				later := c.enqueue(queue, "later", "tenant", "b")
				why2 := c.explain(later.ID)
				eventually(t, func() bool { why2 = c.explain(later.ID); return why2.State == "parked" })
				require.Equal(t, "order", why2.BlockedBy.Kind)
				k.none()
				require.Equal(t, "delayed", c.explain(retried).State)
				return
			}
			got := map[string]string{}
			for len(got) < 2 {
				d := k.next()
				got[d.key()] = string(d.Data)
				c.accepted(d, "")
			}
			require.Equal(t, map[string]string{"a": "second", "b": "other key"}, got)
			d := k.next()
			require.Equal(t, "third", string(d.Data))
			c.call("fila.admin.resume", m{"kind": "throttle", "name": gate}, nil)
			c.enqueue(queue, "fourth", "tenant", "a")
			eventually(t, func() bool { h := c.explainKey(queue, "a"); return h.InFlight == 1 && h.Parked == 2 })
			k.none() // one at a time
			c.accepted(d, `-NAK {"delay":"1h"}`)
			for _, want := range []string{"first", "fourth"} { // the first takes its place again
				d := k.next()
				require.Equal(t, want, string(d.Data))
				c.accepted(d, "")
			}
			require.EqualValues(t, 1, c.inspect(queue).Delayed)
		})
	}
}

// TestStrictOrderOverARestart: what is leased holds its key.
func TestStrictOrderOverARestart(t *testing.T) {
	twice(t, func(t *testing.T, restart func(*testing.T, *proc)) {
		p := startFila(t, options{})
		c := p.client(t)
		c.createQueue("q", m{"fairness_header": "tenant", "ordering": "key", "visibility_timeout_ms": 3_600_000})
		k := c.consume("q", 10)
		for _, payload := range []string{"0", "1", "2"} {
			c.enqueue("q", payload, "tenant", "leased")
			c.enqueue("q", payload, "tenant", "retried")
		}
		ds := map[string]delivery{}
		for _, d := range k.take(2) {
			ds[d.key()] = d
		}
		k.none()
		c.accepted(ds["leased"], "+WPI")
		c.accepted(ds["retried"], "-NAK 500ms")
		k.leave()
		restart(t, p)

		c = p.client(t)
		k = c.consume("q", 10)
		for i, want := range []string{"0", "1", "2"} {
			d := k.next()
			require.Equal(t, "retried", d.key())
			require.Equal(t, want, string(d.Data))
			if i == 0 {
				require.Equal(t, 2, d.attempt(t))
			}
			c.accepted(d, "")
		}
		k.none()
		c.accepted(ds["leased"], "")
		for _, want := range []string{"1", "2"} {
			d := k.next()
			require.Equal(t, want, string(d.Data))
			c.accepted(d, "")
		}
	})
}

// TestStrictOrderGoesOnWithoutTheDead: a message that is dead-lettered, or
// deleted by its TTL, no longer holds its key.
func TestStrictOrderGoesOnWithoutTheDead(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(m{"fairness_header": "tenant", "ordering": "key", "max_deliveries": 2})
	k := c.consume(queue, 10)
	for _, payload := range []string{"0", "1", "2"} {
		c.enqueue(queue, payload, "tenant", "a")
	}
	c.accepted(k.next(), "+TERM no")
	for attempt := 1; attempt <= 2; attempt++ {
		d := k.next()
		require.Equal(t, "1", string(d.Data))
		require.Equal(t, attempt, d.attempt(t))
		c.accepted(d, "-NAK")
	}
	d := k.next()
	require.Equal(t, "2", string(d.Data))
	c.accepted(d, "")

	// Turning it off lets them go in parallel, turning it on again does not end
	// what is in flight.
	c.enqueueAll(gated(queue, "b", "", 4))
	first := k.next()
	k.none()
	c.call("fila.admin.queue-update."+queue, m{"ordering": ""}, nil)
	rest := k.take(3)
	c.call("fila.admin.queue-update."+queue, m{"ordering": "key"}, nil)
	c.enqueue(queue, "last", "tenant", "b")
	for _, d := range append(rest, first) {
		k.none()
		c.accepted(d, "")
	}
	require.Equal(t, "last", string(k.drain(1)[0].Data))
}
