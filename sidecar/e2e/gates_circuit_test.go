package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOpenCircuitSurvivesARestart, with its time and cause, and with the attempts of the
// blocked messages.
func TestOpenCircuitSurvivesARestart(t *testing.T) {
	twice(t, func(t *testing.T, restart func(*testing.T, *proc)) {
		p := startFila(t, options{tail: "[circuit_defaults]\nthreshold = 2\ncooldown_ms = 3600000\nhalf_open_max_calls = 1\n"})
		c := p.client(t)
		c.createQueue("q", byHeaders(nil))
		c.enqueue("q", "api", "dest", "api")
		k := c.consume("q", 1)
		c.accepted(k.next(), "-NAK")
		c.accepted(k.next(), "-NAK")
		c.call("fila.admin.circuit-open.hand", nil, nil)
		c.enqueue("q", "hand", "dest", "hand")
		c.enqueue("q", "asked", "dest", "asked")
		c.accepted(k.next(), `-NAK {"retry_after_ms":3600000}`)
		c.parked("q", 3)
		before := []circuitInfo{c.circuit("api"), c.circuit("asked"), c.circuit("hand")}
		require.Equal(t, "failures", before[0].Cause)
		require.Equal(t, "retry_after", before[1].Cause)
		k.leave()
		restart(t, p)

		c = p.client(t)
		k = c.consume("q", 10)
		c.parked("q", 3)
		k.none()
		require.Equal(t, before, []circuitInfo{c.circuit("api"), c.circuit("asked"), c.circuit("hand")})
		for key, attempt := range map[string]int{"api": 3, "hand": 1, "asked": 2} {
			c.call("fila.admin.circuit-close."+key, nil, nil)
			d := k.next()
			require.Equal(t, key, string(d.Data))
			require.Equal(t, attempt, d.attempt(t))
			c.accepted(d, "")
		}
		// A closed circuit stays closed over a restart.
		k.leave()
		restart(t, p)
		c = p.client(t)
		c.enqueue("q", "api", "dest", "api")
		c.consume("q", 1).drain(1)
	})
}
