package e2e

import (
	"testing"

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
