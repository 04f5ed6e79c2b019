package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/filaq/fila/client"
)

// clock is the present time; tests put their own.
func (a *app) clock() time.Time {
	if a.now != nil {
		return a.now()
	}
	return time.Now()
}

// when prints a time of a reply with its distance from now, as people ask for
// both. What is not a time is printed as it is.
func (a *app) when(stamp string) string {
	t, err := time.Parse(time.RFC3339, stamp)
	if err != nil {
		return orDash(stamp)
	}
	return t.UTC().Format(time.RFC3339) + " (" + a.distance(t) + ")"
}

var stampInText = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// stamps prints the times in a sentence of fila as when does.
func (a *app) stamps(sentence string) string {
	return stampInText.ReplaceAllStringFunc(sentence, a.when)
}

// soon prints only the distance of a time, for tables.
func (a *app) soon(stamp string) string {
	t, err := time.Parse(time.RFC3339, stamp)
	if err != nil {
		return orDash(stamp)
	}
	return a.distance(t)
}

func (a *app) distance(t time.Time) string {
	switch d := t.Sub(a.clock()); {
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

// hint adds to a refusal with this number what to do about it.
func hint(err error, errCode int, text string) error {
	var refused *client.Error
	if !errors.As(err, &refused) || refused.ErrCode != errCode {
		return err
	}
	with := *refused
	with.Description += ": " + text
	return &with
}

func perSecond(rate client.Rate) string {
	if strings.Contains(string(rate), "/") {
		return string(rate) + " per second" // 1/3/s would be read as something else
	}
	return string(rate) + "/s"
}

// words are the limits of a throttle key as people say them.
func words(l client.ThrottleLimits) string {
	var parts []string
	if l.Rate != nil {
		parts = append(parts, "rate "+perSecond(*l.Rate))
	}
	if l.Burst != nil {
		burst := "burst " + number(*l.Burst)
		if l.Rate == nil {
			burst += " (no effect without a rate)"
		}
		parts = append(parts, burst)
	}
	if l.Concurrency != nil {
		parts = append(parts, fmt.Sprintf("concurrency %d", *l.Concurrency))
	}
	switch {
	case l.Limit != nil && l.WindowMs != nil:
		parts = append(parts, fmt.Sprintf("%d in any %s", *l.Limit, formatMs(*l.WindowMs)))
	case l.Limit != nil:
		parts = append(parts, fmt.Sprintf("limit %d (no effect without a window)", *l.Limit))
	case l.WindowMs != nil:
		parts = append(parts, "window "+formatMs(*l.WindowMs)+" (no effect without a limit)")
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}
