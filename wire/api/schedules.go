package api

import (
	"cmp"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/filaq/fila/wire"
)

// States of a schedule.
const (
	ScheduleActive = "active"
	SchedulePaused = "paused"
)

// Bounds of schedules.
const (
	MaxScheduleName  = 64       // bytes
	MaxScheduleText  = 256      // bytes of a schedule, and of a time zone
	MaxScheduleBytes = 64 << 10 // of headers and payload
	ScheduleNext     = 5        // upcoming runs shown
	ScheduleRuns     = 5        // past runs shown
)

// ScheduleAddRequest makes a schedule of a queue, or replaces the one of the same name.
// Adding it unchanged does nothing.
type ScheduleAddRequest struct {
	Name     string              `json:"name"`
	Schedule string              `json:"schedule"`
	TimeZone string              `json:"time_zone,omitempty"` // of cron; empty: UTC
	Missed   string              `json:"missed"`              // default one
	TTLMs    int64               `json:"ttl_ms,omitempty"`    // of its messages; 0: for ever
	Headers  map[string][]string `json:"headers,omitempty"`
	Payload  []byte              `json:"payload,omitempty"` // base64
}

// Check checks everything but Schedule and TimeZone, which package schedule parses.
func (r *ScheduleAddRequest) Check() *wire.Error {
	if err := wire.CheckName("schedule name", r.Name, MaxScheduleName); err != nil {
		return wire.BadSchedule(err.Error())
	}
	switch {
	case r.Schedule == "":
		return wire.BadSchedule("schedule is missing: allowed is a schedule such as @every 90m")
	case len(r.Schedule) > MaxScheduleText || len(r.TimeZone) > MaxScheduleText:
		return wire.BadSchedule("the schedule or its time zone has more than " + strconv.Itoa(MaxScheduleText) + " bytes")
	}
	if out := wire.OutOfBounds(r); out != nil {
		return wire.BadSchedule(out.Error())
	}
	size := len(r.Payload)
	for name, values := range r.Headers {
		switch {
		case wire.Reserved(name):
			return wire.HeaderReserved(name, "a schedule cannot set them; ttl_ms sets the TTL of its messages")
		case !wire.LegalHeaderName(name):
			return wire.BadHeaderName(name)
		}
		for _, v := range values {
			if wire.HeaderValue(v) != v || !utf8.ValidString(v) {
				return wire.BadSchedule("a value of header " + wire.Quote(name) + " is not one line of UTF-8")
			}
			size += len(name) + len(v)
		}
	}
	if size > MaxScheduleBytes {
		return wire.MessageTooLarge(int64(size), MaxScheduleBytes)
	}
	return nil
}

// Bounds implements [wire.Bounded].
func (r *ScheduleAddRequest) Bounds() []wire.Bound {
	return []wire.Bound{
		{Field: "missed", Text: r.Missed, OneOf: []string{wire.MissedSkip, wire.MissedOne, wire.MissedAll}},
		{Field: "ttl_ms", Value: r.TTLMs, Min: 1000, Max: int64(wire.MaxDelay / time.Millisecond), Zero: "for ever"},
	}
}

// ScheduleChange describes that a schedule is replaced.
func ScheduleChange(old, next string) string {
	return "schedule " + wire.Quote(old) + " -> " + wire.Quote(next)
}

// ScheduleRequest names a schedule of the queue at the end of the subject.
type ScheduleRequest struct {
	Name string `json:"name"`
}

// ScheduleListRequest asks for a page of schedules, by queue and name.
type ScheduleListRequest struct {
	Queue string `json:"queue,omitempty"` // empty: the schedules of all queues
	After string `json:"after,omitempty"` // Next of the previous page
	Limit int    `json:"limit"`           // 1 to 1000, default 100
}

func (r *ScheduleListRequest) check() *wire.Error {
	return cmp.Or(checkOptionalQueue(r.Queue), wire.CheckBounds(r))
}

// Bounds implements [wire.Bounded].
func (r *ScheduleListRequest) Bounds() []wire.Bound { return []wire.Bound{boundOfLimit(r.Limit)} }

// ScheduleInfo is a schedule. It answers all verbs about one schedule.
type ScheduleInfo struct {
	Queue     string              `json:"queue"`
	Name      string              `json:"name"`
	Schedule  string              `json:"schedule"`
	TimeZone  string              `json:"time_zone,omitempty"`
	Missed    string              `json:"missed"`
	TTLMs     int64               `json:"ttl_ms,omitempty"`
	State     string              `json:"state"`
	Why       string              `json:"why,omitempty"` // why its last run is late
	CreatedAt string              `json:"created_at"`
	ByEnqueue bool                `json:"by_enqueue,omitempty"` // a producer made it
	Replaced  bool                `json:"replaced,omitempty"`   // of schedule-add: it replaced one of the same name
	Unchanged bool                `json:"unchanged,omitempty"`  // of schedule-add: it existed already
	Next      []string            `json:"next"`                 // up to five upcoming runs, in its time zone
	Last      []ScheduleRun       `json:"last"`                 // up to five past runs, newest first
	Runs      int64               `json:"runs"`                 // made
	MissedN   int64               `json:"missed_runs"`          // not made
	Bytes     int64               `json:"bytes"`                // of headers and payload
	Headers   map[string][]string `json:"headers,omitempty"`    // of schedule-show
	Payload   []byte              `json:"payload,omitempty"`    // of schedule-show; base64
	Warnings  []string            `json:"warnings,omitempty"`   // of schedule-add and schedule-delete, as in [ConfigSetReply]
}

// ScheduleRun is a past run of a schedule.
type ScheduleRun struct {
	At     string `json:"at"`      // when it was due
	MadeAt string `json:"made_at"` // when it ran
	ID     string `json:"id"`      // of its message
}

// ScheduleList is a page of schedules.
type ScheduleList struct {
	Total     int            `json:"total"` // of all pages
	Schedules []ScheduleInfo `json:"schedules"`
	Next      string         `json:"next,omitempty"`           // After of the next request
	Missing   []int          `json:"missing_shards,omitempty"` // shards of a cluster that did not answer
}

// Cursor returns After of the page that begins after s.
func (s *ScheduleInfo) Cursor() string { return s.Queue + "/" + s.Name }
