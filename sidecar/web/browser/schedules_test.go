package browser

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSchedules: a schedule is added, runs, is paused, resumed and deleted.
func TestSchedules(t *testing.T) {
	t.Parallel()
	f, b := run(t)
	f.queue("reports")
	b.visit("/schedules", "There are no schedules.")
	b.fill("queue", "reports")
	b.fill("name", "nightly")
	b.fill("schedule", "@every 1s")
	b.fill("headers", "Tenant: <b>acme</b>")
	b.fill("payload", "wake up")
	b.does("Add the schedule", "The schedule nightly of reports was added.")
	b.shows("main table", "@every 1s")
	b.until("document.querySelector('main td a[href^=\"/messages/\"]')") // a run, without a reload
	b.does("Pause", "was paused")
	b.shows("main table", "paused")
	b.does("Resume", "was resumed")
	b.click("td.act [popovertarget]")
	b.asks("Delete", "Delete the schedule nightly of reports")
	b.does("Delete the schedule", "was deleted")
	b.shows("main", "There are no schedules.")
	b.visit("/activity/audit?prefix=schedule:", "schedule-delete")
	b.visit("/queues/reports/messages?key=%3Cb%3Eacme%3C/b%3E")
	b.shows("main th", "…") // an id
	b.visit("/schedules")
	b.fill("queue", "reports")
	b.fill("name", "broken")
	b.fill("schedule", "now and then")
	b.expect(400)
	b.follow("Add the schedule")
	require.NotEmpty(t, b.text(".mistake"))
	require.Equal(t, "now and then", eval[string](b, "document.querySelector('#schedule').value"), "the input stays")
}
