package browser

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/client"
	"github.com/filaq/fila/wire/api"
)

// TestMessage: the state of a message, its history, its payload on request, and actions on it.
func TestMessage(t *testing.T) {
	t.Parallel()
	f, b := run(t)
	f.load("busy")
	f.queue("orders")
	for range 4 {
		f.publish("orders", "first", tenant("acme"), client.Header("Gate", "vendor:stripe"))
	}
	failed := make(chan struct{}, 100)
	f.consume("orders", "worker", func(_ context.Context, m *client.Message) error {
		defer func() { failed <- struct{}{} }()
		return m.Nack(client.NackOptions{Error: "card <b>declined</b>", Code: "402", Delay: time.Hour})
	})
	for range 4 {
		<-failed
	}
	id := f.publish("orders", `{"amount": 12}`, tenant("globex"), client.Header("Plan", "gold"), client.Delay(time.Hour),
		client.Header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"))
	f.depth("orders", 5)

	b.visit("/queues/orders/messages?state=delayed", short(id), "5 messages")
	b.visit("/queues/orders/messages?key=acme", "4 messages")
	b.click("tbody a")
	b.at("/messages/")
	b.shows(".timeline", "Attempt 1: nacked after")
	b.shows(".timeline", "[402] card <b>declined</b>")
	b.shows(".timeline", "retried after")

	b.visit("/messages/" + id)
	b.shows(".sentence", "is delayed until")
	b.shows("main", "0af7651916cd43dd8448eb211c80319c")
	b.shows("main", "gold")
	require.NotContains(t, b.text("main"), "amount", "a payload is hidden until the user shows it")
	b.follow("Show the payload")
	b.shows("#payload-text", `{"amount": 12}`)

	b.follow("Edit")
	b.fill("headers", "Tenant: globex\nPlan: silver\n")
	b.fill("payload", "{\n\"amount\": 13}")
	b.fill("reason", "the amount was wrong")
	b.follow("Change the message")
	b.at("/jobs/")
	b.shows(".sentence", "edit: done")
	m, err := f.c.MessageShow(t.Context(), "orders", id, 1000)
	require.NoError(t, err)
	require.Equal(t, "{\n\"amount\": 13}", *m.Payload)
	require.Equal(t, []string{"silver"}, m.Headers["Plan"])
	require.NotContains(t, m.Headers, "Traceparent")

	b.visit("/messages/" + id)
	b.does("Run now", "Its delay has ended.")
	f.inspected("orders", func(q api.QueueInfo) bool { return q.Delayed == 5 }) // it has failed again

	f.queue("elsewhere")
	b.visit("/messages/" + id)
	b.follow("Move")
	b.at("/jobs/new")
	b.fill("to", "elsewhere")
	b.follow("Preview")
	b.shows(".sentence", "1 of 1 matching message")
	b.follow("Start the job")
	b.at("/jobs/")
	b.shows(".sentence", "move: done")
	f.depth("elsewhere", 1)

	b.visit("/messages/" + id)
	b.menu("message-menu")
	b.asks("Cancel the message", "This cannot be undone.")
	b.sound("message-cancel")
	b.follow("Remove the message")
	b.at("/queues/elsewhere/messages")
	b.shows(".note", "was removed from elsewhere")
	f.depth("elsewhere", 0)
	b.expect(404)
	b.visit("/messages/"+id, "This message is not here any more")

	b.visit("/activity/audit?prefix=message:")
	b.shows("main", "message:"+id)
	b.visit("/activity/audit?prefix=job:", "the amount was wrong")
}

// TestHeldMessage: the gates of a message, one by one.
func TestHeldMessage(t *testing.T) {
	t.Parallel()
	f, b := run(t)
	f.queue("orders")
	f.consume("orders", "worker", func(_ context.Context, _ *client.Message) error { return nil })
	_, err := f.c.Pause(t.Context(), api.PauseRequest{Kind: "throttle", Name: "vendor:stripe"})
	require.NoError(t, err)
	id := f.publish("orders", "x", tenant("acme"), client.Header("Gate", "vendor:stripe"), client.Header("Circuit", "bank"))
	b.visit("/messages/" + id)
	b.shows(".gates .holds", "throttle:vendor:stripe")
	b.shows(".gates .passes", "circuit:bank")
	_, err = f.c.Resume(t.Context(), api.PauseRequest{Kind: "throttle", Name: "vendor:stripe"})
	require.NoError(t, err)
	b.expect(404)
	b.shows("main", "This message is not here any more") // the page updates itself
}

// TestRoutesOfAMessage: the table says what shuts each route, and by which the message went.
func TestRoutesOfAMessage(t *testing.T) {
	t.Parallel()
	f, b := run(t)
	f.queue("chat", func(s *client.QueueSettings) {
		*s = client.QueueSettings{OnEnqueue: `function on_enqueue(msg)
  return { fairness_key = msg.headers["tenant"], routes = {
    { name = "openai", circuit_key = "openai", throttle_keys = { "openai:tpm" } },
    { name = "anthropic", circuit_key = "anthropic" },
  } }
end`, OnFailure: `function on_failure(msg) return { delay_ms = msg.route == "anthropic" and 3600000 or 0 } end`}
	})
	_, err := f.c.CircuitOpen(t.Context(), "openai", 0)
	require.NoError(t, err)
	f.consume("chat", "worker", func(_ context.Context, m *client.Message) error {
		return m.Nack(client.NackOptions{Error: "no answer", Code: "500"})
	})
	id := f.publish("chat", "hello", tenant("acme"))
	f.inspected("chat", func(q api.QueueInfo) bool { return q.Delayed == 1 }) // on_failure knows the route
	b.visit("/messages/" + id)
	b.shows(".timeline", "Attempt 1 by route anthropic: nacked after")
	b.shows(".routes tbody tr:nth-child(1)", "blocks circuit:openai")
	b.shows(".routes tbody tr:nth-child(1)", "throttle:openai:tpm")
	b.shows(".routes tbody tr:nth-child(2)", "admits")
	b.shows(".routes tbody tr:nth-child(2)", "1: nacked after")
	b.sound("message-routes")
	b.follow("throttle:openai:tpm")
	b.at("/gates/throttle")
}

// TestFind finds queues, keys and ids.
func TestFind(t *testing.T) {
	t.Parallel()
	f, b := run(t)
	f.queue("orders")
	f.queue("orders-eu")
	f.queue("mails")
	id := f.publish("mails", "x", tenant("acme <x>"))
	f.publish("orders", "x", tenant("acme <x>"))
	b.visit("/find")
	b.fill("text", "orders")
	b.press("\r")
	b.at("/find?text=orders")
	b.shows("main li", "orders-eu")
	b.fill("text", "acme <x>")
	b.press("\r")
	b.shows("main table", "mails")
	b.shows("main table", "orders")
	b.visit("/find?text="+url.QueryEscape(id), "no consumer")
	b.visit("/find?text=nobody", "matches nobody")
	b.visit("/find?text=sched", "Schedules", "Add a schedule")
}

// TestDeadLetters sorts out dead letters with the pages alone.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	f, b := run(t)
	f.load("busy")
	f.queue("orders", noRetries)
	f.consume("orders", "worker", nackByHeader, client.MaxInFlight(100))
	f.kill("orders", 120, "acme", "503", "dial tcp 10.0.0.7:5432: i/o timeout")
	f.kill("orders", 30, "globex", "402", "card declined")
	f.kill("orders", 2, "initech", "", "<script>alert(1)</script>")
	f.depth("orders.dlq", 152)

	b.visit("/dead", "orders")
	b.follow("orders")
	b.at("/queues/orders/dead")
	b.shows("main", "152 dead letters in 3 groups")
	b.shows("main", "<script>alert(#)")

	// Selected messages.
	b.follow("card declined")
	b.shows("main", "30 messages")
	b.click("tbody input[name=id]")
	b.click("#ticked") // with a filter, all that match are the default
	b.click("fieldset.bulk button[value=redrive]")
	b.at("/jobs/new")
	b.shows(".sentence", "1 of 1 matching message")
	b.follow("Back")
	b.at("/queues/orders/dead?error_group=")

	// All messages of a group.
	b.click("#all")
	b.follow("Delete")
	b.shows(".sentence", "30 of 30 matching messages")
	b.sound("dead-delete")
	b.reachable()
	b.fill("reason", "the cards are gone")
	b.follow("Start the job")
	b.at("/jobs/")
	b.shows(".sentence", "delete: done")
	f.depth("orders.dlq", 122)

	// Slowly, so that the job can be paused.
	b.visit("/queues/orders/dead?error_code=503", "50 messages")
	b.follow("Next")
	b.follow("From the beginning")
	b.click("#all")
	b.follow("Redrive")
	b.shows(".sentence", "120 of 120 matching messages")
	b.fill("rate", "5")
	b.follow("Start the job")
	b.at("/jobs/")
	b.shows(".sentence", "redrive: running")
	b.until("document.querySelector('#done').innerText != '0'") // without a reload
	b.follow("Pause")
	b.shows(".sentence", "redrive: paused")
	b.follow("Resume")
	b.shows(".sentence", "redrive: running")
	b.asks("Cancel the rest", "Its changes so far stay.")
	b.follow("Cancel the rest")
	b.shows(".sentence", "redrive: canceled")
	b.visit("/jobs?queue=orders", "canceled", "the cards are gone")
	b.at("/queues/orders/jobs")

	b.visit("/queues/orders/dead?error_code=503&attempts_min=none")
	b.shows(".mistake", "not a number of attempts")
	b.visit("/queues/orders/dead?died_before=yesterday")
	b.shows(".mistake", "yesterday")
	b.visit("/queues/orders/dead?error_contains=nothing+of+the+kind", "No message matches")
}

// TestLiveJobs: jobs on waiting messages.
func TestLiveJobs(t *testing.T) {
	t.Parallel()
	f, b := run(t)
	f.queue("orders")
	for range 5 {
		f.publish("orders", "x", tenant("acme"))
		f.publish("orders", "x", tenant("globex"), client.Delay(time.Hour))
	}
	do := func(query, op string, fields map[string]string, done string) {
		t.Helper()
		b.visit("/queues/orders/messages" + query)
		b.click("#all")
		b.follow(op)
		for name, value := range fields {
			b.fill(name, value)
		}
		if len(fields) > 0 {
			b.follow("Preview")
		}
		b.follow("Start the job")
		b.at("/jobs/")
		b.shows(".sentence", done)
	}
	do("?key=globex", "Run now", nil, "run-now: done")
	f.inspected("orders", func(q api.QueueInfo) bool { return q.Delayed == 0 })
	do("?key=acme", "Delay", map[string]string{"run_at": "2h"}, "delay: done")
	f.inspected("orders", func(q api.QueueInfo) bool { return q.Delayed == 5 })
	do("?key=acme", "Another key or weight", map[string]string{"new_key": "umbrella", "weight": "3"}, "reprioritise: done")
	b.visit("/queues/orders/messages?key=umbrella", "5 messages")
	do("", "Cancel", nil, "cancel: done")
	f.depth("orders", 0)
	b.expect(400)
	b.visit("/queues/orders/messages", "There are no messages.")
	b.visit("/jobs/new?queue=orders&op=cancel&which=ticked", "no message is selected")
	b.visit("/jobs/new?queue=orders&op=cancel", "which is missing")
}

// hostile are texts from producers that a browser must not interpret.
var hostile = []string{
	`<script>window.owned = 1</script>`,
	`<img src=x onerror="window.owned = 1">`,
	`"><svg onload=window.owned=1>`,
	`'"--></style></textarea></title><script>window.owned=1</script>`,
	`javascript:window.owned=1`,
	`{{.Author}}{{template "main" .}}`,
	`</pre><iframe src="javascript:window.owned=1"></iframe>`,
	`<a href="javascript:window.owned=1" id=bait>click</a>`,
	`<form action="/do/reload" method="post"><button>Run now</button></form>`,
	`<div hx-get="/do/reload" hx-trigger="load" hx-sse:connect="/live/">x</div>`,
	`<base href="http://127.0.0.2:9/"><meta http-equiv="refresh" content="0;url=http://127.0.0.2:9/">`,
	`data: x` + "\u2028" + `event: message`,
	"\u202egnp.exe \u0000\u0007\u001b[31m red",
	"invoice\u202egnp.exe \u2066a\u2067b\u2069 \u200f.\u061c",
	strings.Repeat("W", 3000),
	"🏴‍☠️ ﷽ 漢字 א",
}

// seen replaces characters that change the text direction, as a page shows them.
var seen = strings.NewReplacer("\u202e", "⟨U+202E⟩", "\u2066", "⟨U+2066⟩", "\u2067", "⟨U+2067⟩", "\u2069", "⟨U+2069⟩", "\u200f", "⟨U+200F⟩", "\u061c", "⟨U+061C⟩")

// unhurt fails if a text has become markup or has run.
func (b *tab) unhurt() {
	b.t.Helper()
	require.Equal(b.t, "undefined", eval[string](b, "typeof window.owned"))
	require.Zero(b.t, eval[int](b, `document.querySelectorAll('main script, main iframe, main img, main base, main meta, main #bait, main [hx-get], main [onload], main [onerror], main form form').length`))
	require.LessOrEqual(b.t, eval[int](b, "document.documentElement.scrollWidth - innerWidth"), 0, "it widens the page")
	require.Empty(b.t, b.complaints())
}

// TestHostile: payloads, headers, keys and errors of producers are text on every page.
func TestHostile(t *testing.T) {
	t.Parallel()
	f, b := run(t)
	f.queue("orders", noRetries)
	f.consume("orders", "worker", nackByHeader, client.MaxInFlight(100))
	_, err := f.c.Pause(t.Context(), api.PauseRequest{Kind: "queue", Name: "orders"})
	require.NoError(t, err)
	line := strings.NewReplacer("\n", " ", "\r", " ", "\x00", "", "\a", "", "\x1b", "")
	var ids []string
	for _, text := range hostile {
		key := text[:min(len(text), 200)]
		ids = append(ids, f.publish("orders", text, tenant(strings.ToValidUTF8(line.Replace(key), "")), client.Header("Evil", line.Replace(text)), client.Header("traceparent", line.Replace(text)),
			client.Header("Die-Of", line.Replace(text)), client.Header("Die-Code", "x<b>")))
	}
	for i, id := range ids {
		b.visit("/messages/" + id + "?payload=show")
		want := seen.Replace(hostile[i])
		if !strings.ContainsAny(want, "\x00\x1b") { // which HTML cannot show
			require.Equal(t, want, eval[string](b, "document.querySelector('#payload-text').textContent"))
		}
		b.unhurt()
		b.visit("/messages/" + id + "/edit")
		b.unhurt()
	}
	b.visit("/queues/orders/messages", "messages")
	b.unhurt()
	b.sound("hostile")
	_, err = f.c.Resume(t.Context(), api.PauseRequest{Kind: "queue", Name: "orders"})
	require.NoError(t, err)
	f.depth("orders.dlq", int64(len(ids)))
	b.visit("/queues/orders/dead", "dead letters in")
	b.unhurt()
	b.visit("/messages/" + ids[0])
	b.shows(".timeline", hostile[0])
	b.unhurt()
	b.expect(400)
	searches := []string{"/find?text=", "/queues/orders/dead?error_contains=", "/queues/orders/messages?key=", "/settings?prefix="}
	for i, text := range hostile { // web.TestPagesOfHostileNames has all pages
		b.visit(searches[i%len(searches)] + url.QueryEscape(text))
		b.unhurt()
	}
}
