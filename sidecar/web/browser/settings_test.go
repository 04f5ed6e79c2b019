package browser

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/client"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/wire/api"
)

// TestConfiguration: keys are set, changed and deleted, and the audit log names the client.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	f, b := run(t)
	b.visit("/settings?prefix=greet", "No key begins with this prefix.")
	b.visit("/settings", "vendor:stripe")
	b.visit("/settings?prefix=greet")
	b.menu("set")
	b.fill("#key", "greeting")
	b.fill("#value", "<b>hello</b>")
	b.submit("#value")
	b.shows(".note", "greeting is set.")
	b.shows("main table", "<b>hello</b>")

	const entry = "td.act [popovertarget]"
	b.click(entry)
	b.fill("td.act :popover-open [name=value]", "good evening")
	b.follow("Set")
	b.shows("main table", "good evening")
	v, err := f.c.ConfigGet(t.Context(), "greeting")
	require.NoError(t, err)
	require.Equal(t, "good evening", v.Value)

	// Another client was faster.
	b.visit("/settings")
	_, err = f.c.ConfigSet(t.Context(), "greeting", "hi", nil)
	require.NoError(t, err)
	b.click(entryOf("greeting"))
	b.fill("td.act :popover-open [name=value]", "too late")
	b.expect(409)
	b.follow("Set")
	b.shows(".mistake", "hi")
	b.until("document.querySelector('td.act :popover-open [name=value]')?.value == 'too late'") // the row is open again

	b.visit("/settings?prefix=greet")
	b.click(entry)
	b.asks("Delete", "Delete the configuration key greeting")
	b.does("Delete the key", "greeting is deleted.")
	b.visit("/activity/audit?prefix=greet")
	b.shows("main table", "config-delete")
	b.shows("main table", "the pages")
	b.shows("main table", "<b>hello</b> → good evening")
	_, err = f.c.ConfigGet(t.Context(), "greeting")
	require.Error(t, err)
}

// entryOf is the button of the menu of a key.
func entryOf(key string) string { return "[popovertarget][aria-label=" + quote("Change "+key) + "]" }

// TestReload: the configuration files are read again, and the page lists the changes.
func TestReload(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config.toml")
	write := func(rate int) {
		require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "[[throttle]]\nkey = \"vendor:stripe\"\nrate = %d\n", rate), 0o600))
	}
	write(2)
	loaded, err := config.Load(config.Sources{File: file})
	require.NoError(t, err)
	f, b := run(t, func(cfg *config.Config) {
		cfg.Throttles = loaded.Throttles
		now := *cfg
		cfg.Reload = func() (config.Config, error) { // keeps the settings of the test
			next, err := loaded.Reload()
			now.Throttles = next.Throttles
			return now, err
		}
	})
	b.visit("/settings")
	b.does("Reload the configuration files", "Nothing has changed.")
	write(7)
	b.does("Reload the configuration files", "vendor:stripe")
	k, err := f.c.ThrottleShow(t.Context(), "vendor:stripe")
	require.NoError(t, err)
	require.EqualValues(t, "7", *k.Rate)
	b.visit("/activity/audit", "file")
	b.visit("/settings")
	write(-1)
	b.expect(400)
	b.follow("Reload the configuration files")
	b.shows(".mistake", "rate")
}

const hook = `function on_enqueue(msg)
  fila.log("tenant " .. (msg.headers["Tenant"] or "?"))
  return { fairness_key = msg.headers["Tenant"], weight = 2 }
end
`

// TestHooks: the source of a hook, its state, and a trial of another source.
func TestHooks(t *testing.T) {
	t.Parallel()
	f, b := run(t)
	f.queue("orders", func(s *client.QueueSettings) {
		s.OnEnqueue, s.FairnessHeader, s.ThrottleHeaders, s.CircuitHeader = hook, "", nil, ""
		s.OnFailure = "function on_failure(msg)\n  error('<i>it broke</i>')\nend\n"
		s.LuaCircuitBreakerThreshold, s.LuaCircuitBreakerCooldownMs = 1, 3_600_000
	})
	f.publish("orders", "x", tenant("acme"))
	failed := make(chan struct{}, 100)
	f.consume("orders", "worker", func(_ context.Context, m *client.Message) error {
		defer func() { failed <- struct{}{} }()
		return m.Nack(client.NackOptions{Error: "no"})
	})
	<-failed
	f.inspected("orders", func(q api.QueueInfo) bool {
		for _, h := range q.Hooks {
			if h.State == "open" {
				return true
			}
		}
		return false
	})
	b.visit("/settings/hooks", "<i>it broke</i>")
	b.follow("orders")
	b.at("/queues/orders/hooks")
	b.shows(".source", "function on_enqueue(msg)")
	b.shows("main", "open")
	b.asks("Close its circuit", "opens again if the script still fails")
	b.does("Close the circuit", "run again")

	b.fill("headers", "Tenant: globex")
	b.does("Check and run on the sample", "The script loads and runs on the sample.")
	b.shows("main", "globex")
	b.shows("pre", "info: tenant globex")
	b.sound("hook-tried")
	b.reachable()

	b.fill("script", "function on_enqueue(msg)\n  return { fairness_key = nope.x }\nend")
	b.follow("Check and run on the sample")
	b.shows(".mistake", "fails on the sample at line 2")
	b.fill("script", "function on_enqueue(msg\n")
	b.follow("Check and run on the sample")
	b.shows(".mistake", "The script is refused")
	b.fill("script", "function on_enqueue(msg) while true do end end")
	b.follow("Check and run on the sample")
	b.shows(".mistake", "fails on the sample")
	b.choose("hook", "on_failure")
	b.fill("script", "function on_failure(msg) return { action = 'retry', delay_ms = 5000 } end")
	b.follow("Check and run on the sample")
	b.shows("main", "5s")

	b.visit("/queues/orders/hooks")
	b.fill("script", "function on_enqueue(msg) return { fairness_key = 'saved' } end")
	b.fill("form.card [name=reason]", "a trial")
	b.does("Save the script", "Saved on_enqueue of orders")
	b.shows(".source", "fairness_key = 'saved'")
	b.shows("main", "a trial")
	b.asks("Roll back", "Roll on_enqueue of orders back to its previous version?")
	b.does("Roll back", "on_enqueue of orders is rolled back")
	b.shows(".source", "weight = 2")
}
