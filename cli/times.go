package cli

import (
	"fmt"
	"regexp"
	"time"
)

// clock says what time it is; nil is the real one, and tests put their own. Its
// methods print times with their distance from now.
type clock func() time.Time

func (c clock) now() time.Time {
	if c != nil {
		return c()
	}
	return time.Now()
}

// when prints a time of a reply with its distance from now, as people ask for
// both. What is not a time is printed as it is.
func (c clock) when(stamp string) string {
	t, err := time.Parse(time.RFC3339, stamp)
	if err != nil {
		return orDash(stamp)
	}
	return t.UTC().Format(time.RFC3339) + " (" + c.distance(t) + ")"
}

var stampInText = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// stamps prints the times in a sentence of fila as when does.
func (c clock) stamps(sentence string) string {
	return stampInText.ReplaceAllStringFunc(sentence, c.when)
}

// soon prints only the distance of a time, for tables.
func (c clock) soon(stamp string) string {
	t, err := time.Parse(time.RFC3339, stamp)
	if err != nil {
		return orDash(stamp)
	}
	return c.distance(t)
}

func (c clock) distance(t time.Time) string {
	switch d := t.Sub(c.now()); {
	case d >= time.Millisecond:
		return "in " + span(d)
	case d <= -time.Millisecond:
		return span(-d) + " ago"
	}
	return "now"
}

// span prints a positive duration in the two units that matter.
func span(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Truncate(time.Millisecond).String()
	case d < time.Minute:
		return formatMs(d.Round(100 * time.Millisecond).Milliseconds())
	case d < time.Hour:
		return formatMs(d.Round(time.Second).Milliseconds())
	case d < 48*time.Hour:
		d = d.Round(time.Minute)
		if m := d % time.Hour / time.Minute; m > 0 {
			return fmt.Sprintf("%dh%dm", d/time.Hour, m)
		}
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

// age prints milliseconds as people say how old something is.
func age(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d <= 0:
		return "-"
	case d < time.Second:
		return d.String()
	case d < time.Minute:
		return d.Truncate(100 * time.Millisecond).String()
	case d < 48*time.Hour:
		return d.Truncate(time.Second).String()
	}
	return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}
