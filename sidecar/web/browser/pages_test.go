package browser

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/client"
	"github.com/filaq/fila/sidecar/config"
)

// TestOverview: queues under load, with figures that move by themselves.
func TestOverview(t *testing.T) {
	f := start(t, nil)
	f.load("orders")
	f.queue("mails", nil)
	b := open(t, f.base)
	b.visit("/")
	b.shows("main table", "orders")
	b.until(`[...document.querySelectorAll('main tr')].some(r => r.innerText.includes('orders') && /[1-9][\d.,]*\/s/.test(r.innerText))`)
	b.sound("overview")
	b.reachable()
	b.fill("find", "mail")
	b.press("\r")
	b.at("/?find=mail")
	b.until("document.querySelectorAll('main tbody tr').length == 2") // with its dead letters
	b.visit("/nowhere-else")                                          // is no page
	b.shows("main", "There is no such page")
	require.Contains(t, b.complaints()[0], "404")
	b.complaints()
}

// TestQueue: what is done about a queue, and that a purge has to be typed.
func TestQueue(t *testing.T) {
	f := start(t, nil)
	f.load("busy")
	f.queue("orders", nil)
	for range 12 {
		f.publish("orders", "x", tenant("acme"))
	}
	f.publish("orders", "x", tenant("globex"))
	b := open(t, f.base)
	b.visit("/queues/orders")
	b.shows("main", "no consumer is registered")
	b.shows("main table", "globex")
	b.sound("queue")
	b.reachable()

	b.fill("#pause-for", "1h")
	b.submit("#pause-for")
	b.shows(".note", "Paused: queue orders.")
	b.shows(".warning", "paused")
	b.follow("Resume the queue")
	b.shows(".note", "Resumed: queue orders.")
	b.fill("#weight-key", "globex")
	b.fill("#weight", "5")
	b.submit("#weight")
	b.shows(".note", "globex has the weight 5")
	v, err := f.c.ExplainKey(t.Context(), "orders", "globex")
	require.NoError(t, err)
	require.Equal(t, 5.0, v.Weight)

	b.follow("Purge the queue")
	b.shows("main", "This cannot be undone")
	b.sound("queue-purge")
	b.fill("typed", "order")
	b.expect(422)
	b.submit("#typed")
	b.shows(".mistake", "That is not orders.")
	f.depth("orders", 13)
	b.fill("typed", "orders")
	b.submit("#typed")
	b.shows(".note", "Removed 13 messages of orders.")
	f.depth("orders", 0)
	b.visit("/configuration?prefix=queue:orders")
	b.shows("main", "queue-purge")
	b.visit("/queues/busy")
	b.until("document.querySelector('.chart canvas')") // after two points of the past
	b.sound("queue-busy")
}

// TestGates: limits with an end, circuits opened and closed by hand.
func TestGates(t *testing.T) {
	f := start(t, func(cfg *config.Config) {
		cfg.Throttles = append(cfg.Throttles, config.ThrottleTable{Key: "tenant:acme", Concurrency: 3})
	})
	f.queue("orders", nil)
	f.consume("orders", "worker", func(context.Context, *client.Message) error { return nil })
	for range 30 {
		f.publish("orders", "x", tenant("acme"), client.Header("Gate", "vendor:stripe"), client.Header("Circuit", "bank"))
	}
	b := open(t, f.base)
	b.visit("/gates")
	b.shows("main table", "tenant:acme")
	b.shows("main table", "rate")
	b.sound("gates")
	b.reachable()
	b.follow("vendor:stripe")
	b.at("/gates/throttle")
	b.sound("gate-throttle")
	b.reachable()
	b.fill("#rate", "1000")
	b.fill("#burst", "1000")
	b.fill("#for", "1h")
	b.submit("#rate")
	b.shows(".note", "The limits of vendor:stripe are set for 1h.")
	b.shows("main", "override")
	f.depth("orders", 0)
	b.follow("Take all limits away")
	b.shows("main", "Take all limits of vendor:stripe away")
	b.follow("Take the limits away")
	b.shows(".note", "has no limits of its own any more")

	b.at("/gates")
	b.fill("#open-key", "bank")
	b.fill("#open-for", "30m")
	b.submit("#open-for")
	b.shows(".note", "The circuit bank is open for 30m.")
	b.follow("bank")
	b.at("/gates/circuit?key=bank")
	b.sound("gate-circuit")
	b.reachable()
	b.visit("/")
	b.shows("main", "bank")
	b.visit("/gates/circuit?key=bank")
	b.follow("Close")
	b.shows(".note", "The circuit bank is closed.")
}

// TestEvents: they come by themselves, and stand still when paused.
func TestEvents(t *testing.T) {
	f := start(t, nil)
	b := open(t, f.base)
	b.visit("/events")
	f.queue("late-comer", nil)
	b.shows("main table", "late-comer")
	b.sound("events")
	b.reachable()
	b.follow("Pause")
	f.queue("later-still", nil)
	b.shows("main", "late-comer")
	b.follow("Go on")
	b.shows("main table", "later-still")
}

// TestViewersSeeNoPayload: who has the token of a viewer sees pages without anything to do,
// and no payload.
func TestViewersSeeNoPayload(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("a-token-to-look-with"), 0o600))
	f := start(t, func(cfg *config.Config) { cfg.HTTP.ViewerToken = file })
	f.queue("orders", nil)
	id := f.publish("orders", "top secret", client.Delay(time.Hour))
	b := open(t, f.base)
	b.visit("/messages/" + id)
	b.at("/login")
	b.sound("login")
	b.reachable()
	b.fill("token", "wrong")
	b.expect(401)
	b.submit("#token")
	b.shows(".mistake", "There is no such token.")
	b.fill("token", "a-token-to-look-with")
	b.submit("#token")
	b.at("/messages/" + id)
	b.shows("main", "Only operators may see it.")
	b.visit("/messages/" + id + "?payload=show")
	require.NotContains(t, b.text("main"), "top secret")
	b.expect(403)
	for _, path := range []string{"/", "/queues/orders", "/queues/orders/messages", "/dead/orders", "/gates", "/configuration", "/jobs", "/hooks"} {
		b.visit(path)
		require.Zero(t, eval[int](b, "document.querySelectorAll('main form[method=post]').length"), path)
	}
	b.visit("/messages/" + id + "/edit")
	b.shows("main", "Only operators may do that.")
}

// TestWithoutScript: pages and forms do what they do with script, but for what moves.
func TestWithoutScript(t *testing.T) {
	f := start(t, nil)
	f.queue("orders", nil)
	id := f.publish("orders", "x", tenant("acme"), client.Delay(time.Hour))
	b := open(t, f.base)
	b.scripts(false)
	b.visit("/queues/orders/messages")
	b.follow(id)
	b.shows("footer", "Times are UTC.")
	b.follow("Run now")
	b.shows(".note", "It is ready now.")
	b.follow("Cancel")
	b.follow("Remove the message")
	b.shows(".note", "was removed")
	f.depth("orders", 0)
}

// TestPrinted: a table on paper has its text alone.
func TestPrinted(t *testing.T) {
	f := start(t, nil)
	f.queue("orders", nil)
	b := open(t, f.base)
	b.visit("/")
	b.shows("main table", "orders")
	b.printed()
	require.False(t, eval[bool](b, "document.querySelector('header').checkVisibility() || document.querySelector('main form').checkVisibility()"))
	require.True(t, eval[bool](b, "document.querySelector('main table').checkVisibility()"))
	b.shot("printed")
}
