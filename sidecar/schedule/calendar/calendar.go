package calendar

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // the container has no time zones
)

const (
	// MinEvery is the shortest interval of @every.
	MinEvery = time.Second
	// MaxAhead is the longest one, and how far away @at may be.
	MaxAhead = 10 * 365 * 24 * time.Hour
	// MaxCounted is how many runs [Schedule.Due] counts.
	MaxCounted = 10_000
)

// Schedule is when something runs. It never changes.
type Schedule struct {
	at    time.Time     // of @at
	every time.Duration // of @every
	from  time.Time     // from which every is counted
	cron  *cron
}

// Parse parses a schedule that is created at a time, from which @every counts. zone is the name of
// a time zone, which only cron schedules have; empty: none.
func Parse(text, zone string, made time.Time) (*Schedule, error) {
	kind, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	rest = strings.TrimSpace(rest)
	if zone != "" && (kind == "@at" || kind == "@every") {
		return nil, fmt.Errorf("%s goes without a time zone", kind)
	}
	switch kind {
	case "@at":
		at, err := time.Parse(time.RFC3339, rest)
		switch {
		case err != nil:
			return nil, errors.New("@at needs a time as in RFC 3339, such as @at 2026-03-29T02:30:00Z")
		case at.After(made.Add(MaxAhead)):
			return nil, errors.New("@at is more than ten years away")
		case at.Before(time.Unix(0, 0)):
			return nil, errors.New("@at is before 1970")
		}
		return &Schedule{at: at.UTC()}, nil
	case "@every":
		every, err := time.ParseDuration(rest)
		if err != nil || every < MinEvery || every > MaxAhead {
			return nil, fmt.Errorf("@every is %q: allowed is a duration from 1s to ten years with its unit, such as @every 90m", rest)
		}
		return &Schedule{every: every, from: made.UTC().Truncate(time.Second)}, nil
	}
	text = strings.TrimSpace(text)
	if strings.HasPrefix(kind, "@") {
		named, ok := names[text]
		if !ok {
			return nil, errors.New("allowed are @at, @every, @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly and six fields of cron")
		}
		text = named
	}
	loc, err := parseZone(zone)
	if err != nil {
		return nil, err
	}
	c, err := parseCron(text, loc)
	if err != nil {
		return nil, err
	}
	if _, ok := c.next(made); !ok {
		return nil, errNever
	}
	return &Schedule{cron: c}, nil
}

// parseZone finds a time zone by its name. Local would be another one at each node.
func parseZone(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	loc, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		return nil, fmt.Errorf("time zone %q is not known; allowed are names of IANA such as Europe/Berlin, and UTC", name)
	}
	return loc, nil
}

// Zone is the time zone of a cron schedule; other schedules are in UTC.
func (s *Schedule) Zone() *time.Location {
	if s.cron == nil {
		return time.UTC
	}
	return s.cron.zone
}

// Once reports whether the schedule runs once.
func (s *Schedule) Once() bool { return s.cron == nil && s.every == 0 }

// Begin returns the time after which the runs begin of a schedule that is created at a time. It is
// this time, except for a schedule that runs once: its run may be earlier.
func (s *Schedule) Begin(made time.Time) time.Time {
	if s.Once() && !s.at.After(made) {
		return s.at.Add(-time.Nanosecond)
	}
	return made
}

// Next returns the first run after a time, in UTC, and false if there is none.
func (s *Schedule) Next(after time.Time) (time.Time, bool) {
	after = after.UTC()
	switch {
	case s.cron != nil:
		return s.cron.next(after)
	case s.every > 0:
		gone := max(after.Sub(s.from), 0)
		return s.from.Add(gone - gone%s.every + s.every), true
	}
	return s.at, s.at.After(after)
}

// Due returns the newest runs between two times, at most most of them, and how many there are in
// all. It counts up to [MaxCounted]; most is less.
func (s *Schedule) Due(after, until time.Time, most int) (newest []time.Time, all int) {
	newest, all = s.between(after, until, most)
	if all < MaxCounted {
		return newest, all
	}
	// The runs found so far are the oldest. Search for a later start, low to high, from which only
	// the newest runs are left.
	for low, high := after, until; high.Sub(low) > time.Second; {
		mid := low.Add(high.Sub(low) / 2)
		found, n := s.between(mid, until, most)
		switch {
		case n == MaxCounted:
			low = mid
		case n < most:
			high = mid
		default:
			return found, all
		}
	}
	return newest, all
}

// between is Due that stops after MaxCounted runs.
func (s *Schedule) between(after, until time.Time, most int) (newest []time.Time, all int) {
	for all < MaxCounted {
		t, ok := s.Next(after)
		if !ok || t.After(until) {
			break
		}
		if len(newest) == most {
			newest = newest[1:]
		}
		newest, after = append(newest, t), t
		all++
	}
	return newest, all
}
