package terminal

import (
	"fmt"
	"regexp"
	"time"

	"github.com/filaq/fila/wire"
)

// Clock returns the present time; nil is the system's clock, and tests set their own. Its
// methods print times with their distance from now.
type Clock func() time.Time

// Now returns the present time.
func (c Clock) Now() time.Time {
	if c != nil {
		return c()
	}
	return time.Now()
}

// When prints a time of a reply with its distance from now. It prints other text unchanged.
func (c Clock) When(stamp string) string {
	t, err := time.Parse(time.RFC3339, stamp)
	if err != nil {
		return OrDash(stamp)
	}
	return t.UTC().Format(time.RFC3339) + " (" + c.distance(t) + ")"
}

// WhenSet is When, but prints nothing for an empty time.
func (c Clock) WhenSet(stamp string) string {
	if stamp == "" {
		return ""
	}
	return c.When(stamp)
}

var stampInText = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// Stamps rewrites the times in a sentence as When does.
func (c Clock) Stamps(sentence string) string {
	return stampInText.ReplaceAllStringFunc(sentence, c.When)
}

// Age prints the time since stamp.
func (c Clock) Age(stamp string) string {
	t, err := time.Parse(time.RFC3339, stamp)
	if err != nil {
		return OrDash(stamp)
	}
	return Span(max(c.Now().Sub(t), 0))
}

// Soon prints only the distance of a time, for tables.
func (c Clock) Soon(stamp string) string {
	t, err := time.Parse(time.RFC3339, stamp)
	if err != nil {
		return OrDash(stamp)
	}
	return c.distance(t)
}

func (c Clock) distance(t time.Time) string {
	switch d := t.Sub(c.Now()); {
	case d >= time.Millisecond:
		return "in " + Span(d)
	case d <= -time.Millisecond:
		return Span(-d) + " ago"
	}
	return "now"
}

// Span prints a positive duration in the two units that matter.
func Span(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Truncate(time.Millisecond).String()
	case d < time.Minute:
		return wire.FormatMs(d.Round(100 * time.Millisecond).Milliseconds())
	case d < time.Hour:
		return wire.FormatMs(d.Round(time.Second).Milliseconds())
	case d < 48*time.Hour:
		d = d.Round(time.Minute)
		if m := d % time.Hour / time.Minute; m > 0 {
			return fmt.Sprintf("%dh%dm", d/time.Hour, m)
		}
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

// Age prints the age in milliseconds of the oldest of some objects; 0 means that there is none.
func Age(ms int64) string {
	if ms <= 0 {
		return "-"
	}
	return Span(time.Duration(ms) * time.Millisecond)
}

// ParseMs reads a duration as people write it on a command line, such as 30s or
// 1h30m, and returns milliseconds. Negative values and fractions of a millisecond
// are refused.
func ParseMs(s string) (int64, error) {
	d, err := parseDuration(s)
	if err == nil && d%time.Millisecond != 0 {
		err = fmt.Errorf("%q: nothing finer than a millisecond is allowed", s)
	}
	return d.Milliseconds(), err
}

// parseDuration refuses bare numbers except 0, because their unit would be a guess.
func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err == nil && d >= 0 {
		return d, nil
	}
	const allowed = "allowed is a duration such as 30s, 5m or 1h30m"
	if bareNumber.MatchString(s) {
		return 0, fmt.Errorf("%q has no unit: write %s or %ss; %s", s, asMilliseconds(s), s, allowed)
	}
	return 0, fmt.Errorf("%q: %s", s, allowed)
}

// asMilliseconds suggests how to write a bare number of milliseconds. The fields of the
// protocol and of config.toml are in milliseconds, so that is likely what the user means.
func asMilliseconds(number string) string {
	text := number + "ms"
	if d, err := time.ParseDuration(text); err == nil && d >= time.Second && d%time.Millisecond == 0 {
		return wire.FormatMs(d.Milliseconds()) + " (" + number + " milliseconds)"
	}
	return text
}

var bareNumber = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)

// Duration is a flag whose value is a duration of any precision.
type Duration time.Duration

// Set implements pflag.Value.
func (v *Duration) Set(s string) error {
	d, err := parseDuration(s)
	if err != nil {
		return err
	}
	*v = Duration(d)
	return nil
}

// String implements pflag.Value.
func (v *Duration) String() string { return time.Duration(*v).String() }

// Type implements pflag.Value; it is the placeholder in help texts.
func (v *Duration) Type() string { return "duration" }

// Millis is a flag whose value is a duration in milliseconds.
type Millis int64

// Set implements pflag.Value.
func (v *Millis) Set(s string) error {
	ms, err := ParseMs(s)
	if err != nil {
		return err
	}
	*v = Millis(ms)
	return nil
}

// String implements pflag.Value. Set accepts the result.
func (v *Millis) String() string { return wire.FormatMs(int64(*v)) }

// Type implements pflag.Value; it is the placeholder in help texts.
func (v *Millis) Type() string { return "duration" }

// Duration converts the value.
func (v *Millis) Duration() time.Duration { return time.Duration(*v) * time.Millisecond }
