package terminal

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// maxMs keeps durations within what fits an int64 of nanoseconds.
const maxMs = math.MaxInt64 / int64(time.Millisecond)

// ParseMs reads a duration as people write it on a command line, 30s or
// 1h30m, or as a bare number of milliseconds. It returns milliseconds.
// Negative values and fractions of a millisecond are refused.
func ParseMs(s string) (int64, error) {
	const allowed = "allowed is a duration such as 30s, 5m or 1h30m, or a number of milliseconds"
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		if n < 0 || n > maxMs {
			return 0, fmt.Errorf("%q: %s, 0 to %d", s, allowed, maxMs)
		}
		return n, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q: %s", s, allowed)
	}
	if d%time.Millisecond != 0 {
		return 0, fmt.Errorf("%q: nothing finer than a millisecond is allowed", s)
	}
	return d.Milliseconds(), nil
}

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

// String implements pflag.Value. What it prints, Set reads.
func (v *Millis) String() string { return FormatMs(int64(*v)) }

// Type implements pflag.Value; it is the placeholder in help texts.
func (v *Millis) Type() string { return "duration" }

// Duration returns it as Go has it.
func (v *Millis) Duration() time.Duration { return time.Duration(*v) * time.Millisecond }

// FormatMs prints milliseconds as a duration without needless zero units: 5m,
// not 5m0s.
func FormatMs(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d == 0:
		return "0s"
	case d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d%time.Minute == 0 && d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return d.String()
}
