package browser

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSchedules: one is added, makes its messages, is paused, resumed and deleted.
func TestSchedules(t *testing.T) {
	f := start(t, nil)
	f.queue("reports", nil)
	b := open(t, f.base)
	b.visit("/schedules")
	b.shows("main", "There is no schedule.")
	b.fill("queue", "reports")
	b.fill("name", "nightly")
	b.fill("schedule", "@every 1s")
	b.fill("headers", "Tenant: <b>acme</b>")
	b.fill("payload", "wake up")
	b.follow("Add the schedule")
	b.shows(".note", "The schedule nightly of reports was made.")
	b.shows("main table", "@every 1s")
	b.until("document.querySelector('main td a[href^=\"/messages/\"]')") // a run, by itself
	b.sound("schedules")
	b.reachable()
	b.follow("Pause")
	b.shows(".note", "was paused")
	b.shows("main table", "paused")
	b.follow("Resume")
	b.shows(".note", "was resumed")
	b.follow("Delete")
	b.shows("main", "Delete the schedule nightly of reports")
	b.follow("Delete the schedule")
	b.shows(".note", "was deleted")
	b.shows("main", "There is no schedule.")
	b.visit("/configuration?prefix=schedule:")
	b.shows("main", "schedule-delete")
	b.visit("/queues/reports/messages?key=%3Cb%3Eacme%3C/b%3E")
	b.shows("main th", "0") // an id
	b.visit("/schedules")
	b.fill("queue", "reports")
	b.fill("name", "broken")
	b.fill("schedule", "now and then")
	b.expect(400)
	b.follow("Add the schedule")
	require.NotEmpty(t, b.text(".mistake"))
}
