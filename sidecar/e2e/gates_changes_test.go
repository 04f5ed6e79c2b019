package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestChangesActOnTheBacklog at once, by each limit and each way to set it.
func TestChangesActOnTheBacklog(t *testing.T) {
	c := shared(t).client(t)
	queue, gate := c.newQueue(byHeaders(nil)), unique(t)
	prefix := "throttle:" + gate + ":"
	c.set(prefix+"rate", seldom, prefix+"burst", "1")
	c.enqueueAll(gated(queue, "a", gate, 100))
	k := c.consume(queue, 100)
	k.drain(1)
	c.parked(queue, 99)
	c.set(prefix+"rate", "1000")
	k.drain(99)
	c.limits(gate, m{"concurrency": 2, "unset": []string{"rate", "burst"}})
	c.enqueueAll(gated(queue, "a", gate, 20))
	ds := k.take(2)
	c.parked(queue, 18)
	k.none()
	c.set(prefix+"concurrency", "5")
	ds = append(ds, k.take(3)...)
	k.none()
	c.set(prefix+"concurrency", "1") // what is in flight stays in flight
	for i, d := range ds {
		k.none()
		require.EqualValues(t, 5-i, c.throttle(gate).InFlight)
		c.accepted(d, "")
	}
	last := k.next()
	k.none()
	c.call("fila.admin.config-delete."+prefix+"concurrency", nil, nil)
	c.accepted(last, "")
	k.drain(14)
	c.waitDepth(queue, 0)

	// A window that grows, in number and then in time.
	c.limits(gate, m{"limit": 2, "window_ms": 3_600_000})
	c.enqueueAll(gated(queue, "a", gate, 10))
	k.drain(2)
	c.parked(queue, 8)
	c.limits(gate, m{"limit": 5})
	k.drain(3)
	c.parked(queue, 5)
	k.none()
	c.limits(gate, m{"window_ms": 1})
	k.drain(5)
}

// TestUnlimitedKeysGetLimits while they are in use.
func TestUnlimitedKeysGetLimits(t *testing.T) {
	c := shared(t).client(t)
	queue, gate := c.newQueue(byHeaders(nil)), unique(t)
	c.enqueueAll(gated(queue, "a", gate, 10))
	k := c.consume(queue, 3)
	ds := k.take(3)
	c.limits(gate, m{"concurrency": 1}) // counts what is in flight already
	require.EqualValues(t, 3, c.throttle(gate).InFlight)
	for _, d := range ds {
		k.none()
		c.accepted(d, "")
	}
	d := k.next()
	k.none()
	c.accepted(d, "")
	k.drain(6)
}

// TestOverrideEndsByItself and what was set before holds again.
func TestOverrideEndsByItself(t *testing.T) {
	c := shared(t).client(t)
	queue, gate := c.newQueue(byHeaders(nil)), unique(t)
	c.limits(gate, m{"rate": seldom, "burst": 1})
	c.enqueueAll(gated(queue, "a", gate, 1000))
	k := c.consume(queue, 1000)
	k.drain(1)
	c.parked(queue, 999)
	changes := c.events("config-changed.>")
	info := c.limits(gate, m{"rate": 100, "for_ms": 300})
	require.Equal(t, "override", info.Source)
	require.Equal(t, "100", info.Rate)
	require.InDelta(t, 1, info.Burst, 0, "what it does not name stays")
	until := timeOf(t, info.OverrideUntil)
	for _, text := range []string{"set", "ended"} {
		for {
			if e := nextEvent(t, changes); e.Data["key"] == "throttle:"+gate+":override" || e.Key == "throttle:"+gate+":override" {
				break
			}
		}
		t.Log("override", text)
	}
	info = c.throttle(gate)
	require.Equal(t, "operator", info.Source)
	require.Equal(t, seldom, info.Rate)
	require.Empty(t, info.OverrideUntil)
	h := c.explainQueue(queue)
	require.Less(t, h.Parked, int64(999))
	c.parked(queue, h.Parked)
	k.exactly(t, int(999-h.Parked), func(f flight) {
		require.Less(t, f.start, until.UnixNano()+int64(time.Second), "it ends, on a slow machine somewhat later")
	})

	// A second one replaces the first, and one ends by hand.
	c.limits(gate, m{"rate": 100, "for_ms": 3_600_000})
	c.limits(gate, m{"concurrency": 1, "unset": []string{"rate", "burst"}, "for_ms": 3_600_000})
	d := k.next()
	info = c.throttle(gate)
	require.Empty(t, info.Rate, "%+v", info)
	require.EqualValues(t, 1, info.Concurrency)
	c.call("fila.admin.throttle-clear."+gate, nil, nil)
	c.accepted(d, "")
	k.drain(int(h.Parked) - 1)
}

// exactly takes n deliveries, after which there must be none, and looks at each.
func (k *consumer) exactly(t testing.TB, n int, look func(flight)) {
	t.Helper()
	for _, d := range k.drain(n) {
		look(flightOf(t, d, defaultVisibility))
	}
	k.none()
}

// TestCompareAndSet of limits, and what is refused.
func TestCompareAndSet(t *testing.T) {
	c := shared(t).client(t)
	gate := unique(t)
	subject := "fila.admin.throttle-set." + gate
	e := c.refused(409, subject, m{"rate": 1, "if": m{"rate": "5"}})
	require.Equal(t, 14409, e.ErrCode)
	c.refused(404, "fila.admin.throttle-show."+gate, nil)
	c.limits(gate, m{"rate": 1, "if": m{"rate": "", "concurrency": 0}})
	c.limits(gate, m{"rate": "2", "concurrency": 4, "if": m{"rate": "1"}})
	e = c.refused(409, subject, m{"rate": 3, "if": m{"rate": "1"}})
	require.Contains(t, e.Description, "2")
	c.refused(409, subject, m{"rate": 3, "if": m{"concurrency": 0}})
	c.limits(gate, m{"rate": "0.5", "if": m{"rate": 2.0, "concurrency": 4}})
	c.limits(gate, m{"unset": []string{"concurrency"}, "if": m{"rate": "1/2"}})
	require.Equal(t, "0.5", c.throttle(gate).Rate)
	require.Zero(t, c.throttle(gate).Concurrency)
	// An override compares with what is in force.
	c.limits(gate, m{"rate": 9, "for_ms": 3_600_000, "if": m{"rate": "0.5"}})
	c.refused(409, subject, m{"rate": 8, "for_ms": 3_600_000, "if": m{"rate": "0.5"}})
	key := "throttle:" + gate + ":rate"
	c.refused(409, "fila.admin.config-set."+key, m{"value": "7", "if_value": "9"})
	c.call("fila.admin.config-set."+key, m{"value": "7", "if_value": "0.5"}, nil)
	require.Equal(t, "9", c.throttle(gate).Rate, "the override is above")

	for _, body := range []m{
		{},
		{"rate": 0},
		{"rate": -1},
		{"rate": "fast"},
		{"rate": "1/0"},
		{"rate": 1e10},
		{"burst": 0.5},
		{"concurrency": 0},
		{"concurrency": 1.5},
		{"limit": -1},
		{"limit": 3}, // without a window
		{"window_ms": 0},
		{"unset": []string{"speed"}},
		{"rate": 1, "unset": []string{"rate"}},
		{"rate": 1, "for_ms": -1},
		{"rat": 1},
		{"rate": 1, "key": "other"},
	} {
		c.refused(400, subject, body)
	}
	for _, value := range []string{"", "0", "x", "-3", "1e3"} {
		c.refused(400, "fila.admin.config-set."+key, m{"value": value})
	}
	c.refused(400, "fila.admin.config-set.throttle:"+gate+":speed", m{"value": "1"})
	c.refused(400, "fila.admin.config-set.circuit:"+gate+":threshold", m{"value": "0"})
}

// TestPrefixes give every key limits of its own, until it has some itself.
func TestPrefixes(t *testing.T) {
	c := shared(t).client(t)
	queue, base := c.newQueue(byHeaders(nil)), unique(t)
	c.limits(base+":*", m{"concurrency": 1})
	c.limits(base+":vip:*", m{"concurrency": 2})
	c.limits(base+":own", m{"concurrency": 3})
	want := map[string]int{":a": 1, ":b": 1, ":vip:x": 2, ":own": 3}
	for key := range want {
		c.enqueueAll(gated(queue, key, base+key, 5))
	}
	k := c.consume(queue, 100)
	require.Equal(t, want, counts(k.take(7)))
	c.parked(queue, 13)
	k.none()
	require.Equal(t, "prefix "+base+":*, operator", c.throttle(base+":a").Source)
	require.Equal(t, "prefix "+base+":vip:*, operator", c.throttle(base+":vip:x").Source)
	require.Equal(t, "operator", c.throttle(base+":own").Source)
	var list struct {
		Total     int            `json:"total"`
		Throttles []throttleInfo `json:"throttles"`
	}
	c.call("fila.admin.throttle-list", m{"prefix": base}, &list)
	require.Equal(t, 6, list.Total)
	require.Equal(t, base+":*", list.Throttles[0].Key)
	c.call("fila.admin.throttle-list", m{"prefix": base, "offset": 4, "limit": 1}, &list)
	require.Equal(t, 6, list.Total)
	require.Len(t, list.Throttles, 1)
	require.Equal(t, base+":vip:*", list.Throttles[0].Key)

	c.limits(base+":*", m{"concurrency": 2})
	require.Equal(t, map[string]int{":a": 1, ":b": 1}, counts(k.take(2)))
	c.call("fila.admin.throttle-clear."+base+":own", nil, nil)
	k.none() // now it has the prefix's 2, and 3 in flight
	require.Equal(t, "prefix "+base+":*, operator", c.throttle(base+":own").Source)
	c.call("fila.admin.throttle-clear."+base+":*", nil, nil)
	require.Equal(t, map[string]int{":a": 3, ":b": 3, ":own": 2}, counts(k.take(8)))
	k.none()
	c.refused(404, "fila.admin.throttle-clear."+base+":*", nil)
}

// TestWeightsActBehindGates: also a new weight counts for what is parked.
func TestWeightsActBehindGates(t *testing.T) {
	c := shared(t).client(t)
	queue, gate := c.newQueue(byHeaders(nil)), unique(t)
	c.limits(gate, m{"concurrency": 1})
	c.enqueueAll(gated(queue, "a", gate, 300))
	c.enqueueAll(gated(queue, "b", gate, 300))
	k := c.consume(queue, 10)
	n := counts(k.drain(100))
	require.InDelta(t, 50, n["a"], 3, "%v", n)
	c.set("weight:"+queue+":a", "4")
	k.drain(2)
	n = counts(k.drain(100))
	require.InDelta(t, 80, n["a"], 5, "%v", n)
	require.InDelta(t, 4, c.explainKey(queue, "a").Weight, 0)
	require.Equal(t, "operator", c.explainKey(queue, "a").WeightBy)
	c.call("fila.admin.config-delete.weight:"+queue+":a", nil, nil)
	// The weight of the latest message is that of its flow, parked or not.
	msg := gated(queue, "b", gate, 1)
	msg[0].Header.Set("weight", "4")
	c.enqueueAll(msg)
	k.drain(2)
	n = counts(k.drain(100))
	require.InDelta(t, 80, n["b"], 5, "%v", n)
}
