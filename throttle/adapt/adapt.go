// Package adapt learns a limit from the overloads and successes of calls: it cuts the
// limit after an overload, grows fast to just below the level of that overload, and then
// more and more beyond it ([Level.Cut], [Level.Succeed]). It takes the time as an
// argument, and its state is a plain value that is compared, copied and stored.
//
// The growth is the one of BIC and CUBIC in TCP (Xu, Harfoush, Rhee, "Binary Increase
// Congestion Control for Fast Long-Distance Networks", INFOCOM 2004; RFC 9438), counted in
// limit's worths of successes instead of round trips. docs/adr/0041 says why not plain
// additive increase.
package adapt

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Ranges and defaults of [Settings], in thousandths.
const (
	One            = 1000
	LeastMin       = 1                   // 0.001
	Most           = 1_000_000_000 * One // of Min, Grow, GrowPerS and Start
	LeastBackoff   = 100                 // 0.1
	MostBackoff    = 950                 // 0.95
	DefaultBackoff = 700
)

// Settings say how a limit learns. All numbers are thousandths of the limit's unit:
// messages at once, or messages per second if only a rate is limited. The zero Settings
// do not learn.
type Settings struct {
	// Min is the lowest level, from LeastMin; 0: the limit does not learn.
	Min int64
	// Backoff is what a cut leaves of the level, LeastBackoff to MostBackoff.
	Backoff int64
	// Grow is the step of the growth next to the level of the last overload; 0: 1 at once,
	// or a fiftieth of a rate.
	Grow int64
	// GrowPerS bounds the growth per second; 0: a tenth of the ceiling.
	GrowPerS int64
	// Start is the level before the first overload or success; 0: the ceiling.
	Start int64
	// Expired makes expired leases count as overloads.
	Expired bool
}

// ErrSettings is wrapped by every error about Settings. The text names the field and the
// allowed values.
var ErrSettings = errors.New("adapt")

// Validate returns an error that wraps ErrSettings if a value is out of its range.
func (s Settings) Validate() error {
	bad := func(field string, value, low, high int64) error {
		if value >= low && value <= high {
			return nil
		}
		return fmt.Errorf("%w: %s is %s: allowed is %s to %s", ErrSettings, field, Format(value), Format(low), Format(high))
	}
	if s == (Settings{}) {
		return nil
	}
	for _, err := range []error{
		bad("min", s.Min, LeastMin, Most), bad("backoff", s.Backoff, LeastBackoff, MostBackoff),
		bad("grow", s.Grow, 0, Most), bad("grow_per_s", s.GrowPerS, 0, Most), bad("start", s.Start, 0, Most),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// Bounds are what a level learns within: the settings, and the ceiling in thousandths.
type Bounds struct {
	Settings
	Ceiling int64
	Rate    bool // the ceiling is a rate
}

func (b *Bounds) ceiling() float64 { return float64(b.Ceiling) / One }

// floor is the lowest level. It is never above the ceiling.
func (b *Bounds) floor() float64 { return float64(min(b.Min, b.Ceiling)) / One }

func (b *Bounds) grow() float64 {
	switch {
	case b.Grow > 0:
		return float64(b.Grow) / One
	case b.Rate:
		return b.ceiling() / 50
	}
	return 1
}

// PerSecond returns by how much a level grows in a second at most, in thousandths.
func (b *Bounds) PerSecond() int64 {
	if b.GrowPerS > 0 {
		return b.GrowPerS
	}
	return max(1, b.Ceiling/10)
}

// Constants of the growth, from the simulation of package provider.
const (
	// approach is the part of the distance to the target that a limit's worth of successes
	// covers.
	approach = 1.5
	// near is how far below the level of the last overload the target is, as a part of it;
	// at least one step.
	near = 1.0 / 32
	// plateau is how many limit's worths of successes after the target the growth reaches
	// one step for each.
	plateau = 4.0
	// slack is the longest time (ns) that counts for GrowPerS at once.
	slack = 100_000_000
	// afterglow is how long (ns) after a cut of a rate the overloads of new messages still count
	// as the same: the bucket of the provider, which the level before has emptied, fills up.
	// Calls at once have no such time, since no message is delivered before enough have ended.
	afterglow = 500_000_000
	// piece is how much of a limit's worth is counted at once, and pieces how many of them.
	piece, pieces = 0.25, 64
)

// Level is a learned limit. The zero Level is at the start.
type Level struct {
	// At is the level in the limit's unit; 0: the ceiling, or of the zero Level the start.
	At float64 `json:"at,omitempty"`
	// Last is the level at the last cut; 0: none.
	Last float64 `json:"last,omitempty"`
	// Beyond is how many limit's worths of successes came since the level is near Last.
	Beyond float64 `json:"beyond,omitempty"`
	// CutAt is when the level was cut last, and GrownAt when successes were counted last
	// (Unix ns).
	CutAt   int64 `json:"cut_at,omitempty"`
	GrownAt int64 `json:"grown_at,omitempty"`
	// Cuts counts the cuts.
	Cuts uint64 `json:"cuts,omitempty"`
}

// Value returns the level within bounds, in the limit's unit.
func (l *Level) Value(b *Bounds) float64 {
	at := l.At
	if *l == (Level{}) {
		at = float64(b.Start) / One
	}
	if at == 0 {
		return b.ceiling()
	}
	return min(max(at, b.floor()), b.ceiling())
}

// Thousandths returns Value in thousandths, rounded down.
func (l *Level) Thousandths(b *Bounds) int64 {
	return min(max(int64(math.Floor(l.Value(b)*One+1e-6)), min(b.Min, b.Ceiling)), b.Ceiling)
}

// Cut multiplies the level by the backoff after the overload of a message that was
// delivered at a time (Unix ns). An overload of a message that was delivered before the last
// cut, or of a rate within half a second after it, changes nothing: one burst of refusals is
// one cut.
func (l *Level) Cut(delivered, now int64, b *Bounds) (cut bool) {
	l.CutAt = min(l.CutAt, now) // the clock may have been set back
	same := l.CutAt
	if b.Rate {
		same += afterglow
	}
	if delivered <= same && l.Cuts > 0 {
		return false
	}
	level := l.Value(b)
	l.At, l.Last, l.Beyond = max(level*float64(b.Backoff)/One, b.floor()), level, 0
	l.CutAt, l.GrownAt = now, now
	l.Cuts++
	return true
}

// Succeed grows the level after n thousandths of successes, of messages for a limit at once
// and of costs for a rate. Call it only for successes while the limit held messages back:
// otherwise the level would drift to the ceiling in quiet hours.
func (l *Level) Succeed(n, now int64, b *Bounds) (grown bool) {
	gone := min(max(now-l.GrownAt, 0), slack)
	level, ceiling := l.Value(b), b.ceiling()
	l.GrownAt = now
	if level >= ceiling {
		l.At = 0
		return false
	}
	most := float64(b.PerSecond()) / One * float64(gone) / 1e9
	worth, from := float64(n)/One/level, level
	for i := 0; i < pieces && worth > 0; i++ {
		d := min(worth, piece)
		worth -= d
		level += l.step(level, d, b)
	}
	l.At = min(level, from+most, ceiling)
	if l.At >= ceiling {
		l.At = 0
	}
	return true
}

// step returns the growth of d limit's worths of successes.
func (l *Level) step(level, d float64, b *Bounds) float64 {
	grow, target := b.grow(), l.Target(b)
	if level < target {
		return min(target-level, max(grow, (target-level)*approach)*d)
	}
	l.Beyond += d
	part := l.Beyond / plateau
	return grow * part * part * d
}

// Target returns the level that growth approaches fast, in the limit's unit.
func (l *Level) Target(b *Bounds) float64 {
	if l.Last == 0 {
		return b.ceiling()
	}
	return min(b.ceiling(), l.Last-max(b.grow(), l.Last*near))
}

// Set sets the level. Growth continues from there as after a cut at that level.
func (l *Level) Set(level float64, now int64, b *Bounds) {
	l.At, l.Last, l.Beyond = min(max(level, b.floor()), b.ceiling()), level, 0
	l.GrownAt = now
	if l.At >= b.ceiling() {
		l.At = 0
	}
}

// Fit brings the level within new bounds. A level at the ceiling stays at the ceiling.
func (l *Level) Fit(b *Bounds) {
	if l.At != 0 {
		if l.At = min(max(l.At, b.floor()), b.ceiling()); l.At >= b.ceiling() {
			l.At = 0
		}
	}
}

// Format returns thousandths as a decimal number.
func Format(thousandths int64) string {
	return strconv.FormatFloat(float64(thousandths)/One, 'f', -1, 64)
}

// Text returns the settings in one line, "overload,min=4,backoff=0.7", or "" for the zero
// Settings. [Parse] reads it.
func (s Settings) Text() string {
	if s == (Settings{}) {
		return ""
	}
	var t strings.Builder
	t.WriteString("overload,min=" + Format(s.Min) + ",backoff=" + Format(s.Backoff))
	if s.Grow > 0 {
		t.WriteString(",grow=" + Format(s.Grow))
	}
	if s.GrowPerS > 0 {
		t.WriteString(",grow_per_s=" + Format(s.GrowPerS))
	}
	if s.Start > 0 {
		t.WriteString(",start=" + Format(s.Start))
	}
	if s.Expired {
		t.WriteString(",expired")
	}
	return t.String()
}

// Allowed describes the texts that [Parse] reads.
const Allowed = "overload, then any of ,min=M from 0.001, ,backoff=B from 0.1 to 0.95, ,grow=G, ,grow_per_s=S, ,start=L and ,expired, such as overload,min=4,backoff=0.7,grow=1"

// Parse reads the form of [Settings.Text]. min is 1 and backoff 0.7 if they are not named.
// An error wraps ErrSettings.
func Parse(text string) (Settings, error) {
	parts := strings.Split(text, ",")
	if parts[0] != "overload" {
		return Settings{}, fmt.Errorf("%w: signal is %q: allowed is overload", ErrSettings, parts[0])
	}
	s := Settings{Min: One, Backoff: DefaultBackoff}
	fields := map[string]*int64{"min": &s.Min, "backoff": &s.Backoff, "grow": &s.Grow, "grow_per_s": &s.GrowPerS, "start": &s.Start}
	for _, part := range parts[1:] {
		name, value, _ := strings.Cut(part, "=")
		if part == "expired" {
			s.Expired = true
			continue
		}
		at := fields[name]
		if at == nil {
			return Settings{}, fmt.Errorf("%w: %q is not known: allowed is %s", ErrSettings, name, Allowed)
		}
		delete(fields, name)
		n, ok := Thousandths(value)
		if !ok || n == 0 {
			return Settings{}, fmt.Errorf("%w: %s is %q: allowed is a number with up to three digits after the point", ErrSettings, name, value)
		}
		*at = n
	}
	return s, s.Validate()
}

// Thousandths parses a decimal number from 0 to 1e9 with up to three digits after the point.
func Thousandths(text string) (int64, bool) {
	digits, decimals, point := strings.Cut(text, ".")
	if digits == "" || len(decimals) > 3 || point && decimals == "" {
		return 0, false
	}
	n, err := strconv.ParseUint(digits+decimals+"000"[len(decimals):], 10, 62)
	return int64(n), err == nil && n <= Most
}
