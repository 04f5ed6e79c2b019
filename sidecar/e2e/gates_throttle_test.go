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

// TestRateBoundsEveryInterval: no interval of a run with several consumers exceeds the rate,
// and all messages arrive.
func TestRateBoundsEveryInterval(t *testing.T) {
	c := shared(t).client(t)
	queue, gate := c.newQueue(byHeaders(nil)), unique(t)
	c.limits(gate, m{"rate": 40, "burst": 5})
	w := c.newCrew(defaultVisibility)
	w.join(queue, 3, 10, nil, nil)
	c.enqueueAll(gated(queue, "a", gate, 35))
	c.enqueueAll(gated(queue, "b", gate, 10))
	w.await(45)
	require.NoError(t, checkRate(w.all(), 40, 5))
	c.waitDepth(queue, 0)
}

func TestWindowBoundsEveryWindow(t *testing.T) {
	c := shared(t).client(t)
	queue, gate := c.newQueue(byHeaders(nil)), unique(t)
	const window = 400 * time.Millisecond
	c.limits(gate, m{"limit": 4, "window_ms": window.Milliseconds()})
	w := c.newCrew(defaultVisibility)
	w.join(queue, 2, 10, nil, nil)
	c.enqueueAll(gated(queue, "a", gate, 6))
	w.await(5) // the next ones meet a half used window
	c.enqueueAll(gated(queue, "b", gate, 9))
	w.await(15)
	require.NoError(t, checkWindow(w.all(), 4, window))

	c.limits(gate, m{"limit": 3, "window_ms": 3_600_000})
	c.enqueueAll(gated(queue, "c", gate, 20))
	eventually(t, func() bool { return c.throttle(gate).State == "window" })
	c.parked(queue, int64(35-w.count()))
	require.GreaterOrEqual(t, c.throttle(gate).InWindow, int64(3))
	require.LessOrEqual(t, w.count(), 18)
}

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
