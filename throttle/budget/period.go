package budget

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// Unit is the length of a period.
type Unit uint8

// The units. A week begins on Monday.
const (
	None Unit = iota // no period: no budget
	Hour
	Day
	Week
	Month
)

var units = [...]string{"", "hour", "day", "week", "month"}

// String returns the name of the unit: "hour", "day", "week" or "month".
func (u Unit) String() string {
	if int(u) >= len(units) {
		return "unknown"
	}
	return units[u]
}

// ParseUnit returns the unit of a name.
func ParseUnit(name string) (Unit, bool) {
	for u := Hour; u <= Month; u++ {
		if units[u] == name {
			return u, true
		}
	}
	return None, false
}

// Period is a calendar period of a time zone.
type Period struct {
	Unit Unit   `json:"unit"`
	Zone string `json:"zone,omitempty"` // of the IANA database; empty: UTC
}

// zones caches time zones by name, since loading one reads a file.
var zones sync.Map

// zone returns the time zone of a name. Local would be another one at each node.
func zone(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	if loc, ok := zones.Load(name); ok {
		return loc.(*time.Location), nil
	}
	if name == "Local" {
		return nil, errors.New("the time zone Local is another one at each node")
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("the time zone is not known: %w", err)
	}
	zones.Store(name, loc)
	return loc, nil
}

// CheckZone returns what is wrong with the name of a time zone.
func CheckZone(name string) error {
	_, err := zone(name)
	return err
}

// Around returns the period that includes a time: from start up to, but not including, end, which
// is the start of the next one. All are Unix ns. Hours are hours of UTC, and all other periods
// begin with a day of the time zone: at midnight, or, if the clock jumps over it, when the clock
// has jumped.
func (p Period) Around(t int64) (start, end int64) {
	if p.Unit == Hour {
		start = t - mod(t, int64(time.Hour))
		return start, start + int64(time.Hour)
	}
	loc, err := zone(p.Zone)
	if err != nil { // it was checked when it was set
		loc = time.UTC
	}
	y, m, d := time.Unix(0, t).In(loc).Date()
	switch p.Unit {
	case Week:
		d -= (int(time.Date(y, m, d, 12, 0, 0, 0, loc).Weekday()) + 6) % 7
	case Month:
		d = 1
	}
	// The date of the clock is not enough: where a clock goes back over midnight, it shows the
	// day before once more.
	for start = p.begin(y, m, d, loc); start > t; start = p.begin(y, m, d, loc) {
		y, m, d = p.add(y, m, d, -1)
	}
	for {
		y, m, d = p.add(y, m, d, 1)
		if end = p.begin(y, m, d, loc); end > t {
			return start, end
		}
		start = end
	}
}

func mod(n, by int64) int64 { return (n%by + by) % by }

// add returns the date of the n-th period after one that begins on a date.
func (p Period) add(y int, m time.Month, d, n int) (int, time.Month, int) {
	switch p.Unit {
	case Week:
		d += 7 * n
	case Month:
		m += time.Month(n)
	default:
		d += n
	}
	return time.Date(y, m, d, 12, 0, 0, 0, time.UTC).Date()
}

// begin returns the first moment of a day.
func (p Period) begin(y int, m time.Month, d int, loc *time.Location) int64 {
	sameDay := func(t time.Time) bool {
		year, month, day := t.Date()
		return year == y && month == m && day == d
	}
	at := time.Date(y, m, d, 12, 0, 0, 0, loc)
	y, m, d = at.Date() // in range
	for {
		hour, minute, second := at.Clock()
		midnight := at.Add(-time.Duration(hour*3600+minute*60+second)*time.Second - time.Duration(at.Nanosecond()))
		changed, _ := at.ZoneBounds() // of the offset
		switch {
		case changed.IsZero() || changed.Before(midnight):
			return midnight.UnixNano()
		case !sameDay(changed.Add(-1)): // the clock has jumped over midnight, or at midnight
			return changed.UnixNano()
		}
		at = changed.Add(-1)
	}
}
