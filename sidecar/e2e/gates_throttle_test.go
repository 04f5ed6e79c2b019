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

// TestRateBoundsEveryInterval over a run with several consumers, and all arrive.
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

// TestBurstGoesAtOnce and nothing of what is beyond it.
func TestBurstGoesAtOnce(t *testing.T) {
	c := shared(t).client(t)
	queue, gate := c.newQueue(byHeaders(nil)), unique(t)
	info := c.limits(gate, m{"rate": seldom, "burst": 7})
	require.Equal(t, "open", info.State)
	require.InDelta(t, 7, info.Tokens, 0.001)
	c.enqueueAll(gated(queue, "a", gate, 20))
	k := c.consume(queue, 20)
	for i, d := range k.drain(7) {
		require.Equal(t, strconv.Itoa(i), string(d.Data))
	}
	c.parked(queue, 13)
	k.none()
	info = c.throttle(gate)
	require.Equal(t, "rate", info.State)
	require.InDelta(t, 0, info.Tokens, 0.001)
	require.Equal(t, 1, info.Waiting)
	require.True(t, timeOf(t, info.OpensAt).After(time.Now()))
	c.call("fila.admin.throttle-clear."+gate, nil, nil)
	for i, d := range k.drain(13) {
		require.Equal(t, strconv.Itoa(7+i), string(d.Data), "the order within a lane")
	}
}

// TestBurstByDefault is what the rate brings in a second, at least 1.
func TestBurstByDefault(t *testing.T) {
	c := shared(t).client(t)
	for rate, want := range map[string]float64{"1/3": 1, "0.5": 1, "25": 25, "5/2": 2.5} {
		require.InDelta(t, want, c.limits(unique(t), m{"rate": rate}).Tokens, 0.001, "rate %s", rate)
	}
}

func TestFractionRates(t *testing.T) {
	p := shared(t)
	for _, tt := range []struct {
		rate any
		per  float64
		n    int
	}{
		{0.5, 0.5, 2},
		{"10/3", 10.0 / 3, 4},
		{"12.5", 12.5, 12}, // a burst of 12.5
	} {
		t.Run(fmt.Sprint(tt.rate), func(t *testing.T) {
			t.Parallel()
			if testing.Short() && tt.per < 1 {
				t.Skip("takes two seconds")
			}
			c := p.client(t)
			queue, gate := c.newQueue(byHeaders(nil)), unique(t)
			c.limits(gate, m{"rate": tt.rate, "burst": 1})
			c.enqueueAll(gated(queue, "a", gate, tt.n))
			fs := flightsOf(t, c.consume(queue, 10).drain(tt.n), defaultVisibility)
			require.NoError(t, checkRate(fs, tt.per, 1))
		})
	}
}

func TestWindowBoundsEveryWindow(t *testing.T) {
	c := shared(t).client(t)
	queue, gate := c.newQueue(byHeaders(nil)), unique(t)
	const window = 400 * time.Millisecond
	c.limits(gate, m{"limit": 4, "window_ms": window.Milliseconds()})
	w := c.newCrew(defaultVisibility)
	w.join(queue, 2, 10, nil, nil)
	c.enqueueAll(gated(queue, "a", gate, 6))
	w.await(5) // what comes now meets a window that is half used
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

// TestCostsAreTakenFromTheBucket and count nothing in a window.
func TestCostsAreTakenFromTheBucket(t *testing.T) {
	c := shared(t).client(t)
	gate := unique(t)
	queue := c.newQueue(m{"on_enqueue": `function on_enqueue(msg)
		return { throttle_keys = { "` + gate + `" }, cost = tonumber(msg.headers["cost"]) }
	end`})
	rng := rand.New(rand.NewPCG(1, 2))
	c.limits(gate, m{"rate": 100, "burst": 10, "limit": 1000, "window_ms": 3_600_000})
	const n = 30
	costs := make([]float64, n)
	msgs := make([]*nats.Msg, n)
	for i := range msgs {
		costs[i] = float64(1+rng.IntN(40)) / 4 // 0.25 to 10
		msgs[i] = message(queue, strconv.Itoa(i), "cost", fmt.Sprint(costs[i]))
	}
	c.enqueueAll(msgs)
	ds := c.consume(queue, n).drain(n)
	fs := flightsOf(t, ds, defaultVisibility)
	for i, d := range ds {
		require.Equal(t, strconv.Itoa(i), string(d.Data), "one lane, in order")
		fs[i].cost = costs[i]
	}
	require.NoError(t, checkRate(fs, 100, 10))
	require.EqualValues(t, n, c.throttle(gate).InWindow)
}

// TestCostAboveTheBurst goes when the bucket is full and leaves it in debt.
func TestCostAboveTheBurst(t *testing.T) {
	c := shared(t).client(t)
	gate := unique(t)
	queue := c.newQueue(m{"on_enqueue": `function on_enqueue(msg)
		return { throttle_keys = { "` + gate + `" }, cost = tonumber(msg.headers["cost"]) }
	end`})
	c.limits(gate, m{"rate": 5, "burst": 2})
	k := c.consume(queue, 10)
	costs := map[string]float64{"first": 1, "big": 4, "last": 1}
	for _, name := range []string{"first", "big", "last"} {
		c.enqueue(queue, name, "cost", fmt.Sprint(costs[name]))
	}
	var fs []flight
	for _, d := range k.drain(3) {
		f := flightOf(t, d, defaultVisibility)
		f.cost = costs[string(d.Data)]
		fs = append(fs, f)
	}
	require.GreaterOrEqual(t, fs[1].start-fs[0].start, int64(200e6), "it waits until the bucket is full")
	require.GreaterOrEqual(t, fs[2].start-fs[1].start, int64(600e6), "the debt of 2 is paid first, then one more")
	require.NoError(t, checkRate(fs, 5, 2))

	c.limits(gate, m{"rate": seldom, "burst": 2})
	c.call("fila.admin.throttle-clear."+gate, nil, nil)
	c.limits(gate, m{"rate": seldom, "burst": 3}) // a new bucket is full
	c.enqueue(queue, "big", "cost", "7")
	k.drain(1)
	require.InDelta(t, -4, c.throttle(gate).Tokens, 0.001)
}

// TestConcurrencyPlaces come back by whatever ends a delivery.
func TestConcurrencyPlaces(t *testing.T) {
	c := shared(t).client(t)
	queue, gate := c.newQueue(byHeaders(m{"max_deliveries": 0})), unique(t)
	c.limits(gate, m{"concurrency": 2})
	c.enqueueAll(gated(queue, "a", gate, 6))
	k := c.consume(queue, 10)
	first := k.take(2)
	c.parked(queue, 4)
	k.none()
	info := c.throttle(gate)
	require.EqualValues(t, 2, info.InFlight)
	require.Equal(t, "concurrency", info.State)
	require.Empty(t, info.OpensAt, "nobody knows when")

	c.accepted(first[0], "") // ack
	third := k.next()
	require.Equal(t, "2", string(third.Data))
	k.none()
	c.accepted(first[1], `-NAK {"delay":"1h"}`) // nack
	fourth := k.next()
	require.Equal(t, "3", string(fourth.Data))
	k.none()
	c.accepted(third, "+TERM no use") // term
	fifth := k.next()
	require.Equal(t, "4", string(fifth.Data))
	k.none()
	c.accepted(fourth, "+WPI") // this is none
	k.none()
	c.accepted(fourth, "")
	sixth := k.next()
	require.Equal(t, "5", string(sixth.Data))
	c.accepted(fifth, "")
	c.accepted(sixth, "")
	require.Zero(t, c.throttle(gate).InFlight)
	require.EqualValues(t, 1, c.inspect(queue).Delayed)
}

// TestConcurrencyPlacesOfLostConsumers come back, too.
func TestConcurrencyPlacesOfLostConsumers(t *testing.T) {
	p := shared(t)
	c, gone := p.client(t), p.client(t)
	const visibility = 700 * time.Millisecond
	queue, gate := c.newQueue(byHeaders(m{"visibility_timeout_ms": visibility.Milliseconds(), "max_deliveries": 0})), unique(t)
	c.limits(gate, m{"concurrency": 1})

	// A delivery that nobody received never was in flight.
	deaf := c.subscribe(queue, unique(t))
	deaf.register(5)
	lost := c.events("consumer-lost." + queue)
	deaf.unsubscribe()
	sent := c.enqueue(queue, "a", "gate", gate)
	nextEvent(t, lost)
	eventually(t, func() bool { return c.throttle(gate).InFlight == 0 })

	// One that dies with what it holds keeps the place until its lease ends.
	dying := gone.consume(queue, 5)
	d := dying.next()
	require.Equal(t, sent.ID, d.id())
	require.Equal(t, 1, d.attempt(t))
	gone.nc.Close()
	c.enqueue(queue, "b", "gate", gate)
	k := c.consume(queue, 5)
	second := k.next()
	require.GreaterOrEqual(t, flightOf(t, second, visibility).start, d.timeHeader(t, "Fila-Deadline").UnixNano())
	c.accepted(second, "")
	c.accepted(k.next(), "")
	c.waitDepth(queue, 0)
	require.Zero(t, c.throttle(gate).InFlight)

	// A queue that is deleted gives up what it holds of a key that others share.
	other := c.newQueue(byHeaders(nil))
	c.enqueue(other, "x", "gate", gate)
	c.consume(other, 1).next()
	c.enqueue(queue, "c", "gate", gate)
	c.parked(queue, 1)
	c.call("fila.admin.queue-delete."+other, m{"force": true}, nil)
	c.accepted(k.next(), "")
}

// TestConcurrencyUnderLoad with consumers that ack, nack and forget.
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

// TestAllGatesOrNone: what a shut gate holds back has taken nothing of others.
func TestAllGatesOrNone(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(byHeaders(nil))
	narrow, wide := unique(t), unique(t)
	c.limits(narrow, m{"rate": seldom, "burst": 1})
	c.limits(wide, m{"rate": seldom, "burst": 5, "concurrency": 5})
	for range 4 {
		c.enqueue(queue, "both", "gate", narrow, "gate2", wide)
	}
	k := c.consume(queue, 10)
	k.drain(1)
	c.parked(queue, 3)
	for range 4 {
		c.enqueue(queue, "wide", "gate2", wide)
	}
	k.drain(4)
	k.none()
	require.InDelta(t, 0, c.throttle(wide).Tokens, 0.001, "4 and the one that went")
	require.Zero(t, c.throttle(wide).InFlight)
}

// TestUndeliveredGivesBack tokens and places in windows: they never were used.
func TestUndeliveredGivesBack(t *testing.T) {
	c := shared(t).client(t)
	queue, gate := c.newQueue(byHeaders(nil)), unique(t)
	c.limits(gate, m{"rate": "1/600", "burst": 2, "limit": 2, "window_ms": 3_600_000})
	deaf := c.subscribe(queue, unique(t))
	deaf.register(5)
	deaf.unsubscribe()
	lost := c.events("consumer-lost." + queue)
	c.enqueueAll(gated(queue, "a", gate, 3))
	nextEvent(t, lost)
	eventually(t, func() bool { i := c.throttle(gate); return i.InWindow == 0 && i.Tokens >= 1.999 }, "%+v", c.throttle(gate))
	k := c.consume(queue, 5)
	for i, d := range k.drain(2) {
		require.Equal(t, strconv.Itoa(i), string(d.Data))
		require.Equal(t, 1, d.attempt(t))
	}
	c.parked(queue, 1)
	k.none()
}
