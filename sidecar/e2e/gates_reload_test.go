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

type reloaded struct {
	Changes []string `json:"changes"`
}

const reloadFile = `
[circuit_defaults]
threshold = 7

[[throttle]]
key = "vendor:a"
rate = 10

[[throttle]]
key = "vendor:gone"
concurrency = 4

[[circuit]]
key = "api"
threshold = 3

[[retry_policy]]
name = "p"
initial_delay_ms = 300000

[[error_rule]]
name = "r"
code = "E"
retry_policy = "p"

[[queue]]
name = "q"
max_deliveries = 9
`

// TestReload: the verb and SIGHUP reload the configuration file.
func TestReload(t *testing.T) {
	t.Parallel()
	p := startFila(t, options{tail: reloadFile})
	c := p.client(t)
	require.Equal(t, "10", c.throttle("vendor:a").Rate)
	require.Equal(t, "file", c.throttle("vendor:a").Source)
	require.Equal(t, 3, c.circuit("api").Threshold)
	c.call("fila.admin.reload", nil, nil)

	id := c.enqueue("q", "x").ID
	k := c.consume("q", 1)
	k.failed("E", "")
	require.Equal(t, "delayed", c.explain(id).State)

	events := c.events("rules-reloaded._")
	p.rewrite(t,
		"threshold = 7", "threshold = 6",
		"rate = 10", "rate = 20\nburst = 5",
		"[[throttle]]\nkey = \"vendor:gone\"\nconcurrency = 4\n", "[[throttle]]\nkey = \"vendor:new\"\nlimit = 5\nwindow_ms = 1000\n",
		"threshold = 3", "threshold = 4",
		"code = \"E\"\nretry_policy = \"p\"", "code = \"E\"\nseverity = \"low\"",
		"max_deliveries = 9", "max_deliveries = 8\n\n[[queue]]\nname = \"fresh\"",
	)
	var reply reloaded
	c.call("fila.admin.reload", nil, &reply)
	for _, want := range []string{
		"circuit_defaults: threshold 7 -> 6",
		"throttle vendor:a: rate 10 -> 20",
		"throttle vendor:a: burst none -> 5",
		"throttle vendor:new: limit none -> 5",
		"throttle vendor:new: window_ms none -> 1000",
		"throttle vendor:gone: not in the file any more; what it has set stays",
		"circuit api: threshold 3 -> 4",
		"error_rule r: severity \"\" -> low, retry_policy p -> \"\"",
		"queue q: max_deliveries 9 -> 8",
		"queue fresh: added",
	} {
		require.Contains(t, reply.Changes, want)
		eventually(t, func() bool { return strings.Contains(p.log.String(), strings.ReplaceAll(want, `"`, `\"`)) }, "the log must say %q, too", want)
	}
	require.Len(t, reply.Changes, 10)
	require.Len(t, nextEvent(t, events).Data["changes"], 10)
	require.Equal(t, "20", c.throttle("vendor:a").Rate)
	require.EqualValues(t, 4, c.throttle("vendor:gone").Concurrency)
	require.Equal(t, 4, c.circuit("api").Threshold)
	require.EqualValues(t, 8, c.inspect("q").Settings["max_deliveries"])
	c.enqueue("fresh", "x")
	c.enqueue("q", "y")
	k.failed("E", "")
	c.accepted(k.next(), "") // at once

	// SIGHUP does the same; the file replaces what an operator has set meanwhile.
	c.limits("vendor:a", m{"rate": "33", "concurrency": 3})
	c.call("fila.admin.reload", nil, &reply)
	require.ElementsMatch(t, []string{"throttle vendor:a: rate 33 -> 20", "throttle vendor:a: concurrency 3 -> none"}, reply.Changes)
	nextEvent(t, events)
	p.rewrite(t, "rate = 20", "rate = \"1/3\"", "drain_timeout_ms = 200", "drain_timeout_ms = 201")
	p.Signal(t, syscall.SIGHUP)
	require.ElementsMatch(t, []any{
		"throttle vendor:a: rate 20 -> 1/3", "drain_timeout_ms: differs, but needs a restart; not applied",
	}, nextEvent(t, events).Data["changes"])
	require.Equal(t, "1/3", c.throttle("vendor:a").Rate)
	c.call("fila.admin.reload", nil, &reply)
	require.Equal(t, []string{"drain_timeout_ms: differs, but needs a restart; not applied"}, reply.Changes)
}
