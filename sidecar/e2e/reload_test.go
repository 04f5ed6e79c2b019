package e2e

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// rewrite replaces texts of the configuration file, old and new in turn.
func (p *proc) rewrite(t testing.TB, pairs ...string) {
	t.Helper()
	old, err := os.ReadFile(p.config)
	require.NoError(t, err)
	text := strings.NewReplacer(pairs...).Replace(string(old))
	require.NotEqual(t, string(old), text, "the change changes nothing")
	require.NoError(t, os.WriteFile(p.config, []byte(text), 0o600))
}

// TestReload: SIGHUP reloads the configuration file.
func TestReload(t *testing.T) {
	t.Parallel()
	p := startFila(t, options{tail: "[[throttle]]\nkey = \"vendor:a\"\nrate = 10\n"})
	c := p.client(t)
	require.Equal(t, "10", c.throttle("vendor:a").Rate)
	events := c.events("rules-reloaded._")
	for _, rate := range []string{"20", `"1/3"`} {
		old := c.throttle("vendor:a").Rate
		p.rewrite(t, "rate = "+old, "rate = "+rate)
		p.Signal(t, syscall.SIGHUP)
		now := strings.Trim(rate, `"`)
		require.Equal(t, []any{"throttle vendor:a: rate " + old + " -> " + now}, nextEvent(t, events).Data["changes"])
		require.Equal(t, now, c.throttle("vendor:a").Rate)
	}
}
