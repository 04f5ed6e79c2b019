package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pauseInfo is a pause as fila tells it.
type pauseInfo struct {
	Kind  string `json:"kind"`
	Queue string `json:"queue"`
	Name  string `json:"name"`
	Since string `json:"since"`
	Until string `json:"until"`
	By    string `json:"by"`
}

func (c *client) pauseOf(body m) pauseInfo {
	c.t.Helper()
	var info pauseInfo
	c.call("fila.admin.pause", body, &info)
	return info
}

func (c *client) pauses() []pauseInfo {
	c.t.Helper()
	var list struct {
		Total  int         `json:"total"`
		Pauses []pauseInfo `json:"pauses"`
	}
	c.call("fila.admin.pause-list", m{"limit": 1000}, &list)
	require.Len(c.t, list.Pauses, list.Total)
	return list.Pauses
}

// fourPauses are pauses of each kind, any of which holds a message of the queue
// with key acme, throttle key QUEUE:gate and circuit key QUEUE:dest.
func fourPauses(queue string) map[string]m {
	return map[string]m{
		"queue":    {"kind": "queue", "name": queue},
		"key":      {"kind": "key", "queue": queue, "name": "acme"},
		"throttle": {"kind": "throttle", "name": queue + ":gate"},
		"circuit":  {"kind": "circuit", "name": queue + ":dest"},
	}
}

// TestPauses of each kind hold what they name and nothing else, until they are
// resumed, and until their time is over.
func TestPauses(t *testing.T) {
	p := shared(t)
	for kind := range fourPauses("") {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			c := p.client(t)
			queue, other := c.newQueue(byHeaders(nil)), c.newQueue(byHeaders(nil))
			body := fourPauses(queue)[kind]
			e := c.refused(404, "fila.admin.resume", body)
			require.Equal(t, 16404, e.ErrCode)
			begin, end := c.events("paused."+body["name"].(string)), c.events("resumed."+body["name"].(string))
			headers := []string{"tenant", "acme", "gate", queue + ":gate", "dest", queue + ":dest"}
			in := c.enqueue(queue, "in flight", headers...)
			k, ko := c.consume(queue, 2), c.consume(other, 2)
			flying := k.next()
			info := c.pauseOf(body)
			require.Equal(t, kind, info.Kind)
			require.Equal(t, body["name"], info.Name)
			require.Equal(t, "operator", info.By)
			require.Empty(t, info.Until)
			require.Contains(t, c.pauses(), info)
			require.Equal(t, kind, nextEvent(t, begin).Data["kind"])
			waiting := c.enqueue(queue, "waits", headers...)
			c.enqueue(other, "goes", "tenant", "acme")
			if kind != "queue" {
				c.enqueue(queue, "goes", "tenant", "other")
				require.Equal(t, "goes", string(k.drain(1)[0].Data))
			}
			ko.drain(1)
			eventually(t, func() bool {
				why := c.explain(waiting.ID)
				return why.BlockedBy != nil && (kind == "queue" || why.State == "parked")
			})
			k.none()
			why := c.explain(waiting.ID)
			require.Equal(t, map[string]string{
				"queue": "queue:" + queue, "key": "key:acme", "throttle": "throttle:" + queue + ":gate", "circuit": "circuit:" + queue + ":dest",
			}[kind], why.BlockedBy.Gate)
			if kind != "circuit" {
				require.Equal(t, "paused", why.BlockedBy.Kind)
			}

			c.accepted(flying, "+WPI") // its lease runs on
			c.accepted(flying, "")
			require.Equal(t, "unknown", c.explain(in.ID).State)
			k.none()
			c.call("fila.admin.resume", body, nil)
			nextEvent(t, end)
			d := k.drain(1)[0]
			require.Equal(t, waiting.ID, d.id())
			require.Equal(t, 1, d.attempt(t))

			// For a time, and another one instead.
			timed := m{"for_ms": 3_600_000}
			for k, v := range body {
				timed[k] = v
			}
			c.pauseOf(timed)
			timed["for_ms"] = 250
			info = c.pauseOf(timed)
			until := timeOf(t, info.Until)
			c.enqueue(queue, "waits", headers...)
			require.GreaterOrEqual(t, flightOf(t, k.drain(1)[0], defaultVisibility).start, until.UnixNano())
			nextEvent(t, end)
			require.NotContains(t, c.pauses(), info)
			delete(timed, "for_ms")
			timed["until"] = time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
			require.Equal(t, timed["until"], c.pauseOf(timed).Until)
			c.call("fila.admin.resume", body, nil)
			c.enqueue(queue, "goes", headers...)
			k.drain(1)
		})
	}
}

func TestPausesThatCannotBe(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(nil)
	for _, body := range []m{
		{},
		{"kind": "flow", "name": "x"},
		{"kind": "key", "name": "x"},
		{"kind": "queue", "name": "a b"},
		{"kind": "queue", "name": queue, "queue": queue},
		{"kind": "throttle", "name": "x*"},
		{"kind": "throttle"},
		{"kind": "queue", "name": queue, "until": "tomorrow"},
		{"kind": "queue", "name": queue, "until": "2001-01-01T00:00:00Z"},
		{"kind": "queue", "name": queue, "for_ms": -1},
		{"kind": "queue", "name": queue, "for_ms": 1, "until": "2100-01-01T00:00:00Z"},
		{"kind": "queue", "name": queue, "untli": "x"},
	} {
		c.refused(400, "fila.admin.pause", body)
	}
	c.refused(404, "fila.admin.pause", m{"kind": "queue", "name": unique(t)})
	c.refused(404, "fila.admin.pause", m{"kind": "key", "queue": unique(t), "name": "x"})
	c.refused(400, "fila.admin.resume", m{"kind": "queue", "name": queue, "for_ms": 5})
	require.NotContains(t, c.dump(queue), "paused")
}

// TestPausesSurviveARestart of all kinds, with their time.
func TestPausesSurviveARestart(t *testing.T) {
	twice(t, func(t *testing.T, restart func(*testing.T, *proc)) {
		p := startFila(t, options{})
		c := p.client(t)
		settings := byHeaders(nil)
		c.createQueue("q", settings)
		c.createQueue("whole", settings)
		c.pauseOf(m{"kind": "queue", "name": "whole"})
		c.pauseOf(m{"kind": "key", "queue": "q", "name": "acme"})
		c.pauseOf(m{"kind": "throttle", "name": "gate", "for_ms": 3_600_000})
		c.pauseOf(m{"kind": "circuit", "name": "dest"})
		c.pauseOf(m{"kind": "key", "queue": "q", "name": "short", "for_ms": 1})
		c.pauseOf(m{"kind": "throttle", "name": "resumed"})
		c.call("fila.admin.resume", m{"kind": "throttle", "name": "resumed"}, nil)
		c.enqueue("whole", "")
		c.enqueue("q", "key", "tenant", "acme")
		c.enqueue("q", "throttle", "gate", "gate")
		c.enqueue("q", "circuit", "dest", "dest")
		c.enqueue("q", "nothing", "tenant", "short", "gate", "resumed")
		eventually(t, func() bool { return len(c.pauses()) == 4 })
		before := c.pauses()
		restart(t, p)

		c = p.client(t)
		require.Equal(t, before, c.pauses())
		whole := c.consume("whole", 5)
		k := c.consume("q", 5)
		require.Equal(t, "nothing", string(k.drain(1)[0].Data))
		c.parked("q", 3)
		k.none()
		whole.none()
		require.NotEmpty(t, c.explainQueue("whole").Paused)
		for _, pause := range before {
			c.call("fila.admin.resume", m{"kind": pause.Kind, "queue": pause.Queue, "name": pause.Name}, nil)
			if pause.Kind == "queue" {
				whole.drain(1)
			} else {
				require.Equal(t, pause.Kind, string(k.drain(1)[0].Data))
			}
		}
		require.Empty(t, c.pauses())
		k.leave()
		whole.leave()
		restart(t, p)
		c = p.client(t)
		require.Empty(t, c.pauses())
	})
}

// TestPausedQueueTakesMessages and forgets its pauses when it is deleted.
func TestPausedQueueTakesMessages(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(byHeaders(nil))
	c.pauseOf(m{"kind": "queue", "name": queue})
	c.pauseOf(m{"kind": "key", "queue": queue, "name": "acme"})
	c.enqueue(queue, "x")
	require.EqualValues(t, 1, c.inspect(queue).Pending)
	reply := c.do(natsMsg("fila.fetch."+queue, `{"batch":1}`))
	require.Equal(t, "404", reply.Header.Get("Status"), "a fetch finds nothing")
	c.call("fila.admin.queue-delete."+queue, m{"force": true}, nil)
	c.createQueue(queue, byHeaders(nil))
	c.enqueue(queue, "y", "tenant", "acme")
	c.consume(queue, 1).drain(1)
}

// TestFailuresHoldAKey after too many within the window, by themselves.
func TestFailuresHoldAKey(t *testing.T) {
	c := shared(t).client(t)
	queue, tenant := c.newQueue(byHeaders(m{"max_failures_per_key": 3, "max_deliveries": 0, "failure_hold_ms": 300})), unique(t)
	heldEvents := c.events("held." + tenant)
	c.enqueueAll(gated(queue, tenant, "", 10))
	k := c.consume(queue, 1)
	k.nackAll(4)
	e := nextEvent(t, heldEvents)
	require.Equal(t, queue, e.Queue)
	require.Equal(t, "max_failures", e.Data["by"])
	until := timeOf(t, e.Data["until"].(string))
	c.enqueue(queue, "other", "tenant", "other")
	require.Equal(t, "other", string(k.drain(1)[0].Data))
	for _, d := range k.drain(6) {
		require.GreaterOrEqual(t, flightOf(t, d, defaultVisibility).start, until.UnixNano())
	}

	// By hand, if the time is not limited.
	c.call("fila.admin.queue-update."+queue, m{"failure_hold_ms": 0}, nil)
	c.enqueueAll(gated(queue, tenant, "", 5))
	k.nackAll(4)
	nextEvent(t, heldEvents)
	c.parked(queue, 1)
	k.none()
	require.Equal(t, "until resumed", c.explainKey(queue, tenant).Paused)
	c.call("fila.admin.resume", m{"kind": "key", "queue": queue, "name": tenant}, nil)
	k.drain(1)
}

// TestFailuresHoldACircuit after too many within the window, in a row or not.
func TestFailuresHoldACircuit(t *testing.T) {
	t.Parallel()
	p := startFila(t, options{tail: "[[circuit]]\nkey = \"api\"\nmax_failures = 3\nfailure_hold_ms = 3600000\n"})
	c := p.client(t)
	c.createQueue("q", byHeaders(nil))
	heldEvents := c.events("held.api")
	c.toDest("q", "api", 12)
	k := c.consume("q", 1)
	for range 3 {
		k.nackAll(1)
		k.drain(1) // a success between them
	}
	require.Equal(t, "closed", c.circuit("api").State)
	k.nackAll(1)
	require.Equal(t, "max_failures", nextEvent(t, heldEvents).Data["cause"])
	c.parked("q", 5)
	k.none()
	require.Equal(t, "max_failures", c.circuit("api").Cause)
	c.call("fila.admin.circuit-close.api", nil, nil)
	k.drain(5)
}

// TestClosingAPausedCircuit ends the pause, too: it must not come back with a
// restart.
func TestClosingAPausedCircuit(t *testing.T) {
	t.Parallel()
	p := startFila(t, options{})
	c := p.client(t)
	c.createQueue("q", byHeaders(nil))
	c.pauseOf(m{"kind": "circuit", "name": "api"})
	c.call("fila.admin.circuit-close.api", nil, nil)
	c.toDest("q", "api", 1)
	c.consume("q", 1).drain(1)
	require.Empty(t, c.pauses())
	p.Kill9(t)
	p.Restart(t)
	c = p.client(t)
	c.toDest("q", "api", 1)
	c.consume("q", 1).drain(1)
}
