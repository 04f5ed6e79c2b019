package e2e

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// seldom is a rate that brings no token while a test runs.
const seldom = "1/31536000"

// TestConcurrencyUnderLoad: consumers ack, nack, and never answer.
func TestConcurrencyUnderLoad(t *testing.T) {
	c := shared(t).client(t)
	const visibility = 300 * time.Millisecond
	queue := c.newQueue(byHeaders(m{"visibility_timeout_ms": visibility.Milliseconds(), "max_deliveries": 0}))
	both, one := unique(t), unique(t)
	c.limits(both, m{"concurrency": 4})
	c.limits(one, m{"concurrency": 2})
	rng := rand.New(rand.NewPCG(3, 4))
	var msgs []*nats.Msg
	const n = 120
	for i := range n {
		msg := message(queue, strconv.Itoa(i), "tenant", fmt.Sprint("t", i%5), "gate", both)
		if i%2 == 0 {
			msg.Header.Set("gate2", one)
		}
		msgs = append(msgs, msg)
	}
	var fs []flight
	even := map[string]bool{}
	left := n
	ks := []*consumer{c.consume(queue, 3), c.consume(queue, 3), c.consume(queue, 3)}
	c.enqueueAll(msgs)
	for left > 0 {
		var d delivery
		select {
		case d = <-ks[0].ch:
		case d = <-ks[1].ch:
		case d = <-ks[2].ch:
		case <-time.After(patience):
			require.Fail(t, "no delivery", c.dump(queue))
		}
		f := flightOf(t, d, visibility)
		payload := ""
		switch roll := rng.IntN(100); {
		case roll < 3:
			payload = "forget"
		case roll < 20:
			payload = "-NAK"
		}
		if payload != "forget" {
			f.end = min(f.end, time.Now().UnixNano())
			e := c.answer(d, payload)
			if e == nil && payload == "" {
				left--
			}
			require.True(t, e == nil || e.Code == 409, "%v", e)
		}
		fs = append(fs, f)
		if d.Header.Get("gate2") != "" {
			even[f.id] = true
		}
	}
	sortFlights(fs)
	require.NoError(t, checkConcurrency(fs, 4))
	var narrow []flight
	for _, f := range fs {
		if even[f.id] {
			narrow = append(narrow, f)
		}
	}
	require.NotEmpty(t, narrow)
	require.NoError(t, checkConcurrency(narrow, 2))
	c.waitDepth(queue, 0)
	require.Zero(t, c.throttle(both).InFlight)
	require.Zero(t, c.throttle(one).InFlight)
}

// TestSharesBehindOneBucket: shares follow the weights, 3 to 1, over the whole run and at every
// moment of it, and no interval exceeds the rate.
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
	ds := c.consume(queue, 10).drain(n) // both have a backlog all the time
	fs := make([]flight, n)
	next := map[string]int{}
	for i, d := range ds {
		fs[i] = flightOf(t, d, defaultVisibility)
		require.Equal(t, strconv.Itoa(next[d.key()]), string(d.Data), "order within %s", d.key())
		next[d.key()]++
	}
	sortFlights(fs)
	require.NoError(t, checkRate(fs, 60, 1))
	heavy := 0
	for i, f := range fs {
		if f.key == "heavy" {
			heavy++
		}
		require.InDelta(t, 0.75*float64(i+1), float64(heavy), 3, "after %d deliveries", i+1)
	}
}

// TestStrictOrder: two consumers and retries. A key has one message in flight, and retries keep
// their place.
func TestStrictOrder(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(m{"fairness_header": "tenant", "ordering": "key"})
	const keys, n = 3, 10
	var msgs []*nats.Msg
	for key := range keys {
		msgs = append(msgs, gated(queue, fmt.Sprint("k", key), "", n)...)
	}
	ks := []*consumer{c.consume(queue, 4), c.consume(queue, 4)}
	c.enqueueAll(msgs)
	next, held := map[string]int{}, map[string]delivery{}
	take := func(d delivery) {
		require.NotContains(t, held, d.key(), "two of a key in flight")
		require.Equal(t, strconv.Itoa(next[d.key()]), string(d.Data), "order within %s", d.key())
		held[d.key()] = d
	}
	left := keys * n
	eventually(t, func() bool {
		for range 5 { // as many as come at once
			select {
			case d := <-ks[0].ch:
				take(d)
			case d := <-ks[1].ch:
				take(d)
			case <-time.After(time.Millisecond):
			}
		}
		for key, d := range held {
			if next[key]%3 == 1 && d.attempt(t) == 1 {
				c.accepted(d, "-NAK 20ms")
				continue
			}
			next[key]++
			left--
			c.accepted(d, "")
		}
		clear(held)
		return left == 0
	}, "%s", c.dump(queue))
	c.waitDepth(queue, 0)
}
