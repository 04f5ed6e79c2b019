package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCommandLineThrottles(t *testing.T) {
	p := shared(t)
	c := p.client(t)
	queue, gate := c.newQueue(byHeaders(nil)), unique(t)
	require.Equal(t, 4, p.fila(t, "throttle", "show", gate).code)
	p.ok(t, "throttle", "set", gate, "--rate", "1/3600", "--burst", "2", "--concurrency", "5")
	require.Equal(t, 5, p.fila(t, "throttle", "set", gate, "--rate", "3", "--if-rate", "2").code)
	p.ok(t, "throttle", "set", gate, "--limit", "10", "--window", "1m", "--if-rate", "1/3600")
	var info throttleInfo
	p.okJSON(t, &info, "throttle", "show", gate)
	require.Equal(t, throttleInfo{
		Key: gate, Rate: "1/3600", Burst: 2, Concurrency: 5, Limit: 10, WindowMs: 60_000,
		Source: "operator", State: "open", Tokens: info.Tokens,
	}, info)
	c.enqueueAll(gated(queue, "a", gate, 4))
	k := c.consume(queue, 5)
	k.drain(2)
	c.parked(queue, 2)
	p.okJSON(t, &info, "throttle", "show", gate)
	require.Equal(t, "rate", info.State)
	require.EqualValues(t, 2, info.InWindow)
	require.Equal(t, 1, info.Waiting)
	require.True(t, timeOf(t, info.OpensAt).After(time.Now()))
	text := p.ok(t, "throttle", "show", gate)
	require.Contains(t, text, "1/3600")
	require.Contains(t, text, "rate")
	require.Contains(t, p.ok(t, "throttle", "list", gate), gate)
	p.ok(t, "throttle", "set", gate, "--rate", "1000", "--for", "1h")
	k.drain(2)
	p.okJSON(t, &info, "throttle", "show", gate)
	require.Equal(t, "override", info.Source)
	require.True(t, timeOf(t, info.OverrideUntil).After(time.Now().Add(50*time.Minute)))
	p.ok(t, "throttle", "set", gate, "--unset", "burst,concurrency")
	p.ok(t, "throttle", "clear", gate)
	require.Equal(t, 4, p.fila(t, "throttle", "clear", gate).code)
	require.Equal(t, 2, p.fila(t, "throttle", "set", gate).code, "nothing to set")
	require.NotZero(t, p.fila(t, "throttle", "set", gate, "--rate", "fast").code)
	require.Equal(t, 2, p.fila(t, "throttle", "set", gate, "--limit", "3").code, "without a window")

	log := p.ok(t, "config", "log", "throttle:"+gate)
	require.Contains(t, log, "throttle-clear")
	require.Contains(t, log, "1/3600")
	var entries struct {
		Total   int      `json:"total"`
		Entries []logged `json:"entries"`
	}
	p.okJSON(t, &entries, "config", "log", "throttle:"+gate, "--limit", "0")
	require.Len(t, entries.Entries, entries.Total)
	require.GreaterOrEqual(t, entries.Total, 9)
}

func TestCommandLineCircuits(t *testing.T) {
	p := shared(t)
	c := p.client(t)
	queue, dest := c.newQueue(byHeaders(nil)), unique(t)
	require.Equal(t, 4, p.fila(t, "circuit", "show", dest).code)
	p.ok(t, "circuit", "open", dest, "--for", "1h")
	c.toDest(queue, dest, 2)
	k := c.consume(queue, 5)
	c.parked(queue, 2)
	var info circuitInfo
	p.okJSON(t, &info, "circuit", "show", dest)
	require.Equal(t, circuitInfo{
		Key: dest, State: "open", OpenUntil: info.OpenUntil, Cause: "by hand",
		Threshold: 10, CooldownMs: 300_000, HalfOpenMaxCalls: 3, HalfOpenSuccesses: 1, Waiting: 1,
	}, info)
	require.True(t, timeOf(t, info.OpenUntil).After(time.Now().Add(50*time.Minute)))
	require.Contains(t, p.ok(t, "circuit", "show", dest), "open")
	require.Contains(t, p.ok(t, "circuit", "list", dest), dest)
	p.ok(t, "circuit", "close", dest)
	k.drain(2)
	p.ok(t, "circuit", "open", dest)
	p.okJSON(t, &info, "circuit", "reset", dest)
	require.Equal(t, "closed", info.State)
}

func TestCommandLinePauses(t *testing.T) {
	p := shared(t)
	c := p.client(t)
	for _, kind := range []string{"queue", "key", "throttle", "circuit"} {
		queue := c.newQueue(byHeaders(nil))
		args := map[string][]string{
			"queue": {queue}, "key": {queue, "acme"}, "throttle": {queue + ":gate"}, "circuit": {queue + ":dest"},
		}[kind]
		require.Equal(t, 4, p.fila(t, append([]string{"resume", kind}, args...)...).code, kind)
		p.ok(t, append(append([]string{"pause", kind}, args...), "--for", "1h")...)
		until := time.Now().Add(2 * time.Hour).UTC().Truncate(time.Second)
		p.ok(t, append(append([]string{"pause", kind}, args...), "--until", until.Format(time.RFC3339))...)
		require.Contains(t, p.ok(t, "pause", "list"), args[len(args)-1])
		id := c.enqueue(queue, "x", "tenant", "acme", "gate", queue+":gate", "dest", queue+":dest").ID
		k := c.consume(queue, 1)
		eventually(t, func() bool { e := c.explain(id); return e.BlockedBy != nil })
		k.none()
		p.ok(t, append([]string{"resume", kind}, args...)...)
		k.drain(1)
	}
}

func TestCommandLineExplains(t *testing.T) {
	p := shared(t)
	c := p.client(t)
	queue, gate := c.newQueue(byHeaders(nil)), unique(t)
	c.limits(gate, m{"rate": seldom, "burst": 1})
	c.enqueue(queue, "x", "tenant", "acme", "gate", gate)
	id := c.enqueue(queue, "y", "tenant", "acme", "gate", gate).ID
	c.consume(queue, 5).drain(1)
	c.parked(queue, 1)
	for _, args := range [][]string{{"message", id}, {"message", id, "--queue", queue}, {"key", queue, "acme"}, {"queue", queue}} {
		text := p.ok(t, append([]string{"explain"}, args...)...)
		require.Contains(t, text, gate, "%v", args)
		require.Contains(t, text, "rate", "%v", args)
	}
	var e explained
	p.okJSON(t, &e, "explain", "message", id)
	require.Equal(t, "parked", e.State)
	require.Equal(t, "throttle:"+gate, e.BlockedBy.Gate)
	var h held
	p.okJSON(t, &h, "explain", "queue", queue)
	require.EqualValues(t, 1, h.Parked)
	require.Equal(t, 4, p.fila(t, "explain", "message", "01981c2e-7b1c-7d3a-9b1e-2f4c5d6e7f80").code)
	require.Equal(t, 4, p.fila(t, "explain", "queue", unique(t)).code)
}

func TestCommandLineReload(t *testing.T) {
	t.Parallel()
	p := startFila(t, options{tail: reloadFile})
	require.Contains(t, p.ok(t, "reload"), "nothing has changed")
	p.rewrite(t, "rate = 10", "rate = 11")
	var reply reloaded
	p.okJSON(t, &reply, "reload")
	require.Equal(t, []string{"throttle vendor:a: rate 10 -> 11"}, reply.Changes)
	p.rewrite(t, "rate = 11", "rate = 12\nburts = 3")
	r := p.fila(t, "reload")
	require.NotZero(t, r.code)
	require.Contains(t, r.err, "burts")
	require.Less(t, strings.Count(r.err, "\n"), 3, r.err)
	require.Equal(t, "11", p.client(t).throttle("vendor:a").Rate)
}
