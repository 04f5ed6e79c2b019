package browser

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/client"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/sidecar/e2e/natstest"
)

// TestOverview: queues under load, with figures that update themselves.
func TestOverview(t *testing.T) {
	t.Parallel()
	f, b := run(t)
	f.load("orders")
	f.queue("mails")
	b.visit("/queues", "orders")
	b.until(moving)
	b.fill("find", "mail")
	b.press("\r")
	b.at("/queues?find=mail")
	b.until("document.querySelectorAll('main tbody tr').length == 1") // dead letters are a column
	b.visit("/", "All is well")
	b.shows("footer", "imes are of Europe/Berlin")
	b.visit("/activity/audit", "queue-create")
	b.until("/ago$|^now$/.test(document.querySelector('main time').innerText)")
	b.choose("#times", "zone")
	b.until("/\\d\\d:\\d\\d:\\d\\d$/.test(document.querySelector('main time').innerText)")
	b.choose("#times", "utc")
	b.shows("footer", "Times are UTC.")
	b.visit("/jobs")
	b.shows("footer", "Times are UTC.") // the browser remembers it
}

// TestQueue: actions on a queue; a purge needs the name of the queue.
func TestQueue(t *testing.T) {
	t.Parallel()
	f, b := run(t)
	f.queue("orders")
	for range 12 {
		f.publish("orders", "x", tenant("acme"))
	}
	f.publish("orders", "x", tenant("globex"))
	b.visit("/queues/orders", "No consumer is registered")

	b.menu("pause")
	b.fill("#pause-for", "soon")
	b.expect(400)
	b.submit("#pause-for")
	b.shows(".mistake", "\"soon\" is not a duration")
	b.shows(".field-error", "\"soon\" is not a duration") // the form is open, with what was typed
	require.Equal(t, "soon", eval[string](b, "document.querySelector('#pause-for').value"))
	b.sound("queue-refused")
	b.fill("#pause-for", "1h")
	b.sends("#pause-for", "Paused: queue orders.")
	b.shows(".finding", "A pause is in force")
	b.does("Resume", "Resumed: queue orders.")
	b.visit("/queues/orders/tenants", "globex")
	b.menu("key-weight")
	b.fill("#weight-key", "globex")
	b.fill("#weight", "5")
	b.sends("#weight", "The weight of globex is 5")
	v, err := f.c.ExplainKey(t.Context(), "orders", "globex")
	require.NoError(t, err)
	require.Equal(t, 5.0, v.Weight)

	b.menu("queue-menu")
	b.asks("Purge the queue", "This cannot be undone")
	b.sound("queue-purge")
	b.fill("#typed", "order")
	b.expect(422)
	b.submit("#typed")
	b.shows(".mistake", "The typed name is not orders.")
	f.depth("orders", 13)
	b.fill("#typed", "orders")
	b.sends("#typed", "Removed 13 messages of orders.")
	f.depth("orders", 0)
	b.visit("/activity/audit?prefix=queue:orders", "queue-purge")
	b.visit("/queues/orders/settings")
	b.menu("queue-menu")
	b.asks("Delete the queue", "with all of its messages")
	b.fill("#typed", "orders")
	b.sends("#typed", "Deleted the queue orders")
	b.at("/queues")
	b.visit("/queues", "There is no queue yet.")
}

// TestGates: limits with an end, circuits opened and closed by hand.
func TestGates(t *testing.T) {
	t.Parallel()
	f, b := run(t, func(cfg *config.Config) {
		cfg.Throttles = append(cfg.Throttles, config.ThrottleTable{Key: "tenant:acme", Concurrency: 3})
	})
	f.queue("orders")
	f.consume("orders", "worker", func(context.Context, *client.Message) error { return nil })
	for range 30 {
		f.publish("orders", "x", tenant("acme"), client.Header("Gate", "vendor:stripe"), client.Header("Circuit", "bank"))
	}
	b.visit("/gates", "tenant:acme", "rate")
	b.follow("vendor:stripe")
	b.at("/gates/throttle")
	b.fill("#rate", "1000")
	b.fill("#burst", "1000")
	b.fill("#for", "1h")
	b.sends("#rate", "The limits of vendor:stripe are set for 1h.")
	b.shows("main", "override")
	f.depth("orders", 0)
	b.menu("gate-menu")
	b.asks("Remove all limits", "Remove all limits of vendor:stripe")
	b.does("Remove the limits", "has no limits of its own now")

	b.at("/gates")
	b.menu("open")
	b.fill("#open-key", "bank")
	b.fill("#open-for", "30m")
	b.sends("#open-for", "The circuit bank is open for 30m.")
	b.follow("bank")
	b.at("/gates/circuit?key=bank")
	b.visit("/", "bank")
	b.visit("/gates/circuit?key=bank")
	b.does("Close", "The circuit bank is closed.")
	b.at("/gates")
	b.menu("open")
	b.fill("#open-key", "bank")
	b.sends("#open-for", "The circuit bank is open until an operator closes it.")
	b.follow("bank")
	b.menu("gate-menu")
	b.does("Close and forget all failures", "The circuit bank is closed, and its failures are forgotten.")
	open, err := f.c.CircuitList(t.Context(), "")
	require.NoError(t, err)
	for _, c := range open {
		require.Equal(t, "closed", c.State, c.Key)
	}
}

// TestEvents: events appear by themselves, and pausing stops them.
func TestEvents(t *testing.T) {
	t.Parallel()
	f, b := run(t)
	b.visit("/activity")
	f.queue("late-comer")
	b.shows("main table", "late-comer")
	b.follow("Stop the list")
	b.until("!document.querySelector('main .live').hasAttribute('hx-sse:connect')")
	f.queue("later-still")
	b.shows("main", "late-comer")
	b.follow("Update the list")
	b.shows("main table", "later-still")
}

// TestEventsAreRefused: if NATS does not permit the subscription to events, the page says what
// is missing.
func TestEventsAreRefused(t *testing.T) {
	t.Parallel()
	needBrowser(t)
	ns := natstest.Start(t, func(o *server.Options) {
		o.Users = []*server.User{{
			Username: "fila", Password: "secret", Permissions: &server.Permissions{Subscribe: &server.SubjectPermission{Deny: []string{"fila.event.>"}}},
		}}
	})
	_, b := run(t, func(cfg *config.Config) { cfg.NATS.URL = "nats://fila:secret@" + ns.Addr().String() })
	b.visit("/activity", "fila's NATS user needs permission to subscribe to fila.event.>", "Permissions Violation")
	b.sound("events-refused")
}

// TestViewersSeeNoPayload: with a viewer token pages have no forms and show no payload.
func TestViewersSeeNoPayload(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("a-token-to-look-with"), 0o600))
	f, b := run(t, func(cfg *config.Config) { cfg.HTTP.ViewerToken = file })
	f.queue("orders")
	id := f.publish("orders", "top secret", client.Delay(time.Hour))
	b.visit("/messages/" + id)
	b.at("/login")
	b.fill("token", "wrong")
	b.expect(401)
	b.submit("#token")
	b.shows(".mistake", "The token is wrong.")
	b.fill("token", "a-token-to-look-with")
	b.submit("#token")
	b.at("/messages/" + id)
	b.shows("main", "Only operators can see the payload.")
	b.visit("/messages/" + id + "?payload=show")
	require.NotContains(t, b.text("main"), "top secret")
	b.expect(403)
	for _, path := range []string{"/", "/queues/orders", "/queues/orders/messages", "/queues/orders/tenants", "/queues/orders/dead", "/queues/orders/hooks", "/gates", "/schedules", "/settings", "/jobs", "/settings/hooks", "/activity/audit"} {
		b.visit(path)
		require.Zero(t, eval[int](b, "document.querySelectorAll('main form[method=post]').length"), path)
	}
	b.visit("/messages/"+id+"/edit", "Only operators may do this.")
}

// TestWithoutScript: pages and forms work without scripts, apart from updates.
func TestWithoutScript(t *testing.T) {
	t.Parallel()
	f, b := run(t)
	f.queue("orders")
	id := f.publish("orders", "x", tenant("acme"), client.Delay(time.Hour))
	b.scripts(false)
	b.visit("/queues/orders/messages")
	b.follow(short(id))
	b.shows("footer", "Exact times are UTC.")
	b.does("Run now", "Its delay has ended.")
	b.menu("message-menu")
	b.follow("Cancel the message")
	b.does("Remove the message", "was removed")
	f.depth("orders", 0)
}

// TestPrinted: on paper a table has only its text.
func TestPrinted(t *testing.T) {
	t.Parallel()
	f, b := run(t)
	f.queue("orders")
	f.publish("orders", "x", tenant("acme"))
	for _, path := range []string{"/", "/queues/orders/messages"} {
		b.visit(path, "orders")
		b.printed()
		require.True(t, eval[bool](b, "document.querySelector('main table').checkVisibility()"), path)
		require.False(t, eval[bool](b, "[...document.querySelectorAll('header, footer, button, input, nav')].some(e => e.checkVisibility())"), path)
	}
}
