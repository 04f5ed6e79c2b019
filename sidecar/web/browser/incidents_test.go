package browser

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/client"
	"github.com/filaq/fila/wire/api"
)

// Each test is an incident that a newcomer solves with the pages alone: who suffers, why, since
// when, and the fix. docs/dashboard.md shows the first one, with the screenshots of the test.

// A deploy breaks some invoices: of three kinds of dead letters one is fixed and redriven, one
// deleted, one inspected.
func TestIncidentOfABadDeploy(t *testing.T) {
	t.Parallel()
	f, b := run(t)
	f.load("mails")
	f.queue("invoices", noRetries)
	var mended atomic.Bool
	f.consume("invoices", "invoicer", func(ctx context.Context, m *client.Message) error {
		if mended.Load() && m.Header.Get("Die-Code") == "500" {
			return nil
		}
		return nackByHeader(ctx, m)
	}, client.MaxInFlight(50))
	f.kill("invoices", 240, "acme", "500", "template invoice.html: line 42: no field \"vat\"")
	f.kill("invoices", 60, "globex", "500", "template invoice.html: line 42: no field \"vat\"")
	f.kill("invoices", 25, "initech", "550", "mailbox unavailable: <billing@initech.example>")
	f.kill("invoices", 3, "umbrella", "", "panic: runtime error: index out of range [3] with length 3")
	f.depth("invoices.dlq", 328)

	// What is wrong, and where? Start at the overview.
	b.visit("/", "invoices")
	b.follow("Dead letters")
	b.shows("main table", "328")
	b.shot("incident-dead")
	b.follow("invoices")

	// The groups show the cause, the time and the tenants.
	b.shows("section[aria-labelledby=groups]", "328 dead letters in 3 groups.")
	b.shows("section[aria-labelledby=groups]", "acme (240), globex (60)")
	b.window("incident-groups")
	b.follow("template invoice.html: line #: no field <text>")
	b.shows("main", "50 messages")
	b.click("tbody th a.mono")
	b.shows(".timeline", `[500] template invoice.html: line 42: no field "vat"`)
	b.shows(".timeline", "dead-lettered: max_deliveries")
	b.window("incident-message")
	eval[bool](b, "history.back() || true")
	b.at("/queues/invoices/dead?error_group=")

	// The fixed version runs: redrive slowly.
	mended.Store(true)
	b.click("fieldset.bulk button[value=redrive]") // of all that match
	b.shows(".sentence", "300 of 300 matching messages")
	b.fill("rate", "100")
	b.fill("reason", "INC-7: vat is back")
	b.window("incident-dry-run")
	b.follow("Start the job")
	b.shows(".sentence", "redrive: ")
	b.window("incident-job")
	b.shows(".sentence", "redrive: done")
	f.depth("invoices.dlq", 28)
	f.depth("invoices", 0)

	// A closed mailbox stays closed: delete.
	b.visit("/queues/invoices/dead")
	b.follow("mailbox unavailable: <<id>>")
	b.click("fieldset.bulk button[value=delete]")
	b.follow("Start the job")
	b.shows(".sentence", "delete: done")
	b.visit("/queues/invoices/dead", "3 dead letters")
	b.visit("/activity/audit?prefix=job:", "INC-7: vat is back")
}

// A customer asks for its orders: an operator has forgotten a pause of its vendor.
func TestIncidentOfAForgottenPause(t *testing.T) {
	t.Parallel()
	f, b := run(t)
	f.load("mails")
	f.queue("orders")
	f.consume("orders", "worker", func(context.Context, *client.Message) error { return nil })
	_, err := f.c.Pause(t.Context(), api.PauseRequest{Kind: "throttle", Name: "vendor:stripe"})
	require.NoError(t, err)
	for range 40 {
		f.publish("orders", "x", tenant("globex"), client.Header("Gate", "vendor:stripe"))
		f.publish("orders", "x", tenant("acme"))
	}
	f.depth("orders", 40)
	b.visit("/")
	b.shows("main", "vendor:stripe") // the pause with its time
	b.at("/")
	b.strike(slash)
	b.fill("dialog [name=text]", "globex")
	b.shows("dialog .results", "Fairness key globex")
	b.visit("/find?text=globex")
	b.shows("main table", "vendor:stripe") // the reason why globex waits
	b.follow("orders")
	b.at("/queues/orders/messages?key=globex")
	b.click("tbody th a.mono")
	b.shows(".gates .holds", "throttle:vendor:stripe (paused)")
	b.shows("main", "blocked since")
	b.click(".gates .holds a")
	b.shows("section[aria-labelledby=waiters]", "orders") // and no other queue
	b.does("Resume", "Resumed")
	f.inspected("orders", func(q api.QueueInfo) bool { return q.Parked < 40 })
}

// An operator has lowered the limit of all tenants: the page of the prefix names the keys that wait, and
// sets it back.
func TestIncidentOfAWrongLimit(t *testing.T) {
	t.Parallel()
	f, b := run(t)
	f.queue("reports")
	f.consume("reports", "worker", func(context.Context, *client.Message) error { return nil })
	for _, rate := range []string{"200", "1/60"} {
		_, err := f.c.ThrottleSet(t.Context(), client.ThrottleChange{Key: "tenant:*", Rate: rate})
		require.NoError(t, err)
	}
	for range 20 {
		f.publish("reports", "x", tenant("acme"), client.Header("Gate", "tenant:acme"))
	}
	f.depth("reports", 19)
	b.visit("/gates/throttle?key=tenant:*", "Each key has its own bucket")
	b.shows("section[aria-labelledby=keys]", "tenant:acme")
	b.shows("section[aria-labelledby=changes]", "1/60")
	b.sound("throttle-prefix")
	b.asks("Set back to 200/s", "This changes all throttle keys that begin with tenant: and have no limits of their own.")
	b.does("Set back", "The limits of tenant:* are set back to 200/s.")
	f.depth("reports", 0)
	b.shows("section[aria-labelledby=keys]", "No message waits for these limits.")
}

// One tenant has sent so much slow work that other tenants wait.
// TestAReleaseIsSetBack from the first group of dead letters that followed it.
func TestAReleaseIsSetBack(t *testing.T) {
	t.Parallel()
	f, b := run(t)
	for _, release := range []string{"1", "2"} {
		_, err := f.c.ConfigSet(t.Context(), "release", release, nil)
		require.NoError(t, err)
	}
	f.queue("invoices", noRetries)
	f.consume("invoices", "worker", nackByHeader)
	f.kill("invoices", 3, "acme", "500", "no field vat")
	f.depth("invoices.dlq", 3)
	b.visit("/queues/invoices/dead", "release from 1 to 2")
	b.asks("Set release back to 1", "Set release from 2 back to 1?")
	b.does("Set it back", "release is set back to 1")
	entry, err := f.c.ConfigGet(t.Context(), "release")
	require.NoError(t, err)
	require.Equal(t, "1", entry.Value)
}

func TestIncidentOfANoisyTenant(t *testing.T) {
	t.Parallel()
	f, b := run(t)
	f.queue("reports")
	release := make(chan struct{})
	f.consume("reports", "worker", func(ctx context.Context, _ *client.Message) error {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return nil
	}, client.MaxInFlight(40), client.Concurrency(40))
	for range 60 {
		f.publish("reports", "slow", tenant("acme"))
	}
	f.inspected("reports", func(q api.QueueInfo) bool { return q.InFlight == 40 })
	for range 5 {
		f.publish("reports", "quick", tenant("globex"))
	}
	b.visit("/")
	b.shows(".finding", "acme has 100 % of the consumers' work, but is entitled to 50 %; meanwhile globex has waited for")
	b.shows(".finding", "5 messages of 1 tenant wait.")
	b.sound("incident-noisy")
	// acme is paused, and the deliveries in flight end.
	b.visit("/queues/reports/messages?key=acme", "messages")
	b.follow("Tenants")
	b.shows("main", "acme")
	b.menu("key-pause")
	b.fill("#key-name", "acme")
	b.fill("#key-for", "30m")
	b.sends("#key-for", "Paused: key acme of queue reports.")
	close(release)
	f.inspected("reports", func(q api.QueueInfo) bool { return q.InFlight == 0 && q.Pending == 20 }) // the messages of globex are done
}
