package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCallsOverAKill: the place of a call that may go on is not given to another one
// after kill -9, by any key that limits how many there are.
func TestCallsOverAKill(t *testing.T) {
	t.Parallel()
	p := startFila(t, options{tail: "[[throttle]]\nkey = \"tenant:*\"\nconcurrency = 1\n"})
	c := p.client(t)
	var answer struct {
		Allowed      bool   `json:"allowed"`
		Permit       string `json:"permit"`
		Gate         string `json:"gate"`
		Key          string `json:"key"`
		RetryAfterMs int64  `json:"retry_after_ms"`
	}
	c.call("fila.guard.check.vendor", m{"with": []string{"tenant:acme"}, "ttl_ms": 600_000}, &answer)
	require.True(t, answer.Allowed)
	p.Kill9(t)
	p.Start(t)
	c = p.client(t)
	answer.Allowed = false
	c.call("fila.guard.check.other", m{"with": []string{"tenant:acme"}}, &answer)
	require.False(t, answer.Allowed)
	require.Equal(t, "paused", answer.Gate)
	require.Equal(t, "tenant:acme", answer.Key)
	require.Greater(t, answer.RetryAfterMs, int64(500_000))
	require.Less(t, answer.RetryAfterMs, int64(660_001))
	c.call("fila.guard.check.vendor", m{"with": []string{"tenant:globex"}}, &answer)
	require.True(t, answer.Allowed)
}
