package calendar

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// names are the cron schedules that have a name.
var names = map[string]string{
	"@yearly":   "0 0 0 1 1 *",
	"@annually": "0 0 0 1 1 *",
	"@monthly":  "0 0 0 1 * *",
	"@weekly":   "0 0 0 * * 0",
	"@daily":    "0 0 0 * * *",
	"@midnight": "0 0 0 * * *",
	"@hourly":   "0 0 * * * *",
}

// cron is the times of a wall clock, each field as a set of bits.
type cron struct {
	second, minute, hour, day, month, weekday uint64

	anyDay, anyWeekday bool // the field has a *: the other one decides
	everyHour          bool // the hour field names all hours: runs follow each other over changes of the clock
	zone               *time.Location
}

// field is what a field of cron may have.
type field struct {
	name     string
	min, max int
	words    []string // words[i] stands for min+i
}

var fields = [...]field{
	{name: "second", max: 59},
	{name: "minute", max: 59},
	{name: "hour", max: 23},
	{name: "day of month", min: 1, max: 31},
	{name: "month", min: 1, max: 12, words: []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
	{name: "day of week", max: 6, words: []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}},
}

func parseCron(text string, zone *time.Location) (*cron, error) {
	parts := strings.Fields(text)
	if len(parts) != len(fields) {
		return nil, fmt.Errorf("cron has six fields (second, minute, hour, day of month, month, day of week), and not %d", len(parts))
	}
	c := &cron{zone: zone}
	for i, into := range []*uint64{&c.second, &c.minute, &c.hour, &c.day, &c.month, &c.weekday} {
		set, err := fields[i].parse(parts[i])
		if err != nil {
			return nil, fmt.Errorf("%s %q: %w", fields[i].name, parts[i], err)
		}
		*into = set
	}
	c.everyHour = c.hour == 1<<24-1
	c.anyDay, c.anyWeekday = strings.Contains(parts[3], "*"), strings.Contains(parts[5], "*")
	return c, nil
}

// parse reads a list of numbers and ranges, with steps.
func (f *field) parse(text string) (set uint64, err error) {
	for part := range strings.SplitSeq(text, ",") {
		span, by, stepped := strings.Cut(part, "/")
		from, to, ranged := strings.Cut(span, "-")
		low, high, step := f.min, f.max, 1
		if span != "*" {
			if low, err = f.value(from); err != nil {
				return 0, err
			}
			switch {
			case ranged:
				if high, err = f.value(to); err != nil {
					return 0, err
				}
			case !stepped: // 5/15 is 5 and every 15th after it
				high = low
			}
		}
		if stepped {
			if step, err = strconv.Atoi(by); err != nil || step < 1 {
				return 0, fmt.Errorf("the step %q is not a number above 0", by)
			}
		}
		if low > high {
			return 0, fmt.Errorf("the range %s ends before it begins", span)
		}
		for n := low; n <= high; n += step {
			set |= 1 << n
		}
	}
	return set, nil
}

func (f *field) value(text string) (int, error) {
	for i, word := range f.words {
		if strings.EqualFold(text, word) {
			return f.min + i, nil
		}
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < f.min || n > f.max {
		allowed := fmt.Sprintf("%d to %d", f.min, f.max)
		if f.words != nil {
			allowed += fmt.Sprintf(" and %s to %s", f.words[0], f.words[len(f.words)-1])
		}
		return 0, fmt.Errorf("%q: allowed are %s", text, allowed)
	}
	return n, nil
}

// horizon is how far a run may be away: 29 February comes after eight years at most.
const horizon = 9 * 366 * 24 * time.Hour

// maxSteps bounds the search for a run. Periods of the zone, days and months are steps. The horizon
// has 3,300 days and a few periods a year.
const maxSteps = 10_000

var errNever = errors.New("no such day exists")

// next is the first run after a time; false: there is none within the horizon.
func (c *cron) next(after time.Time) (time.Time, bool) {
	at, _, ok := c.search(after)
	return at, ok
}

// search is next, and also returns the number of its steps. It visits one period of the zone after
// the other, in each of which the wall clock has the same offset from UTC. Each step gets nearer to
// the horizon by at least a second, whatever the data of the zone are.
func (c *cron) search(after time.Time) (at time.Time, steps int, ok bool) {
	t := after.Truncate(time.Second).Add(time.Second)
	limit := t.Add(horizon)
	for t.Before(limit) && steps < maxSteps {
		p := periodAt(t, c.zone, limit)
		from := onWall(t, p.offset)
		if !c.everyHour {
			switch {
			case p.before > p.offset: // set back: what comes again has been
				from = later(from, onWall(p.start, p.before))
			case p.before < p.offset && t.Equal(p.start): // put forward: what is skipped comes now
				_, n, ok := c.first(onWall(t, p.before), from)
				if steps += n; ok {
					return t.UTC(), steps, true
				}
			}
		}
		wall, n, ok := c.first(from, onWall(p.end, p.offset))
		if steps += n + 1; ok {
			return wall.Add(-time.Duration(p.offset) * time.Second), steps, true
		}
		t = p.end
	}
	return time.Time{}, steps, false
}

// period is a time in which a zone stays as far from UTC.
type period struct {
	start, end time.Time
	offset     int // seconds ahead of UTC
	before     int // just before start; offset if that is not known
}

// periodAt is the period of a zone around t, cut at limit. Its end is after t. Beyond the
// table of a zone [time.Time.ZoneBounds] ends some periods too soon, even before t (on 31
// December of leap years): then the end is found by looking at the offsets of a day.
func periodAt(t time.Time, zone *time.Location, limit time.Time) period {
	local := t.In(zone)
	_, offset := local.Zone()
	p := period{offset: offset, before: offset}
	start, end := local.ZoneBounds()
	if !start.IsZero() && !start.After(t) {
		p.start = start
		_, p.before = start.Add(-time.Nanosecond).Zone()
	}
	switch {
	case end.IsZero() || end.After(limit):
		end = limit
	case !end.After(t):
		end = changeWithin(t, 24*time.Hour, zone)
	}
	p.end = end
	return p
}

// changeWithin returns when a zone changes its offset within a time after t, or the end of that
// time if it does not.
func changeWithin(t time.Time, within time.Duration, zone *time.Location) time.Time {
	offset := func(at time.Time) int { _, offset := at.In(zone).Zone(); return offset }
	had, end := offset(t), t.Add(within)
	if offset(end) == had {
		return end
	}
	low := t // offset(low) == had, offset(end) != had
	for end.Sub(low) > time.Second {
		if mid := low.Add((end.Sub(low) / 2).Truncate(time.Second)); offset(mid) == had {
			low = mid
		} else {
			end = mid
		}
	}
	return end
}

// onWall returns what a wall clock that is offset seconds ahead of UTC shows, as a time in UTC.
func onWall(t time.Time, offset int) time.Time {
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// first returns the first time of c on a wall clock, from a time on and before another, and how
// many days and months it tried.
func (c *cron) first(from, before time.Time) (at time.Time, steps int, ok bool) {
	for ; from.Before(before); steps++ {
		year, month, day := from.Date()
		if c.month&(1<<month) == 0 {
			from = time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC)
			continue
		}
		if c.onDay(day, from.Weekday()) {
			if h, m, s, ok := c.inDay(from.Clock()); ok {
				at := time.Date(year, month, day, h, m, s, 0, time.UTC)
				return at, steps, at.Before(before)
			}
		}
		from = time.Date(year, month, day+1, 0, 0, 0, 0, time.UTC)
	}
	return time.Time{}, steps, false
}

// onDay reports whether c has times on a day. If both fields name days, one of them is enough.
func (c *cron) onDay(day int, weekday time.Weekday) bool {
	inMonth, inWeek := c.day&(1<<day) != 0, c.weekday&(1<<weekday) != 0
	if c.anyDay || c.anyWeekday {
		return inMonth && inWeek
	}
	return inMonth || inWeek
}

// inDay is the first time of a day from the given one on.
func (c *cron) inDay(hour, minute, second int) (h, m, s int, ok bool) {
	if c.hour&(1<<hour) != 0 {
		if c.minute&(1<<minute) != 0 {
			if s, ok := above(c.second, second); ok {
				return hour, minute, s, true
			}
		}
		if m, ok := above(c.minute, minute+1); ok {
			return hour, m, lowest(c.second), true
		}
	}
	h, ok = above(c.hour, hour+1)
	return h, lowest(c.minute), lowest(c.second), ok
}

// above is the smallest number of a set from n on.
func above(set uint64, n int) (int, bool) {
	rest := set >> n << n
	return lowest(rest), rest != 0
}

func lowest(set uint64) int { return bits.TrailingZeros64(set) }
