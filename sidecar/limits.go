package sidecar

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// Names of the limits of a throttle key: the last part of its configuration
// keys, and the fields of requests.
const (
	limitRate        = "rate"
	limitBurst       = "burst"
	limitConcurrency = "concurrency"
	limitLimit       = "limit"
	limitWindow      = "window_ms"
)

var limitNames = []string{limitRate, limitBurst, limitConcurrency, limitLimit, limitWindow}

// limitTexts are limits as they are set, by their names. What is not set is not
// in it.
type limitTexts map[string]string

// setLimit reads the text of a limit into l, or reports false and changes
// nothing.
func setLimit(l *throttle.Limits, name, text string) bool {
	var n int64
	ok := false
	switch name {
	case limitRate:
		rate, err := throttle.ParseRate(text)
		if err != nil {
			return false
		}
		l.Rate, ok = rate, true
	case limitBurst:
		if n, ok = parseThousandths(text, throttle.One, throttle.MaxBurst); ok {
			l.Burst = n
		}
	case limitConcurrency:
		if n, ok = parseWhole(text, 1, throttle.MaxConcurrency); ok {
			l.Concurrency = n
		}
	case limitLimit:
		if n, ok = parseWhole(text, 1, throttle.MaxLimit); ok {
			l.Limit = n
		}
	case limitWindow:
		if n, ok = parseWhole(text, 1, wire.MaxSettingMs); ok {
			l.Window = n * int64(time.Millisecond)
		}
	}
	return ok
}

// isLimit tells texts that a limit can have from others.
func isLimit(name string) func(string) bool {
	return func(text string) bool { return setLimit(new(throttle.Limits), name, text) }
}

// parseThousandths reads a decimal number with up to three digits after the
// point, without rounding.
func parseThousandths(s string, low, high int64) (int64, bool) {
	digits, decimals, point := strings.Cut(s, ".")
	if digits == "" || len(decimals) > 3 || point && decimals == "" {
		return 0, false
	}
	return parseWhole(digits+decimals+"000"[len(decimals):], low, high)
}

// limits are what the texts amount to. A burst without a rate, a limit without
// its window or the other way round, and what does not parse has no effect.
func (t limitTexts) limits() throttle.Limits {
	var l throttle.Limits
	for name, text := range t {
		setLimit(&l, name, text)
	}
	if l.Rate == (throttle.Rate{}) {
		l.Burst = 0
	}
	if l.Limit == 0 || l.Window == 0 {
		l.Limit, l.Window = 0, 0
	}
	return l
}

// sameLimit reports whether two texts of a limit mean the same; empty is not
// set.
func sameLimit(name, a, b string) bool {
	if a == b || a == "" || b == "" {
		return a == b
	}
	var x, y throttle.Limits
	return setLimit(&x, name, a) && setLimit(&y, name, b) && x == y
}

// wire returns the texts as the fields of requests and replies.
func (t limitTexts) wire() wire.ThrottleLimits {
	var l wire.ThrottleLimits
	if text, ok := t[limitRate]; ok {
		rate := wire.Rate(text)
		l.Rate = &rate
	}
	if burst, err := strconv.ParseFloat(t[limitBurst], 64); err == nil {
		l.Burst = &burst
	}
	for name, field := range map[string]**int64{
		limitConcurrency: &l.Concurrency, limitLimit: &l.Limit, limitWindow: &l.WindowMs,
	} {
		if n, err := strconv.ParseInt(t[name], 10, 64); err == nil {
			*field = &n
		}
	}
	return l
}

// textsOf returns the fields that are given as texts; one that is zero is an
// empty text.
func textsOf(l wire.ThrottleLimits) limitTexts {
	t := make(limitTexts)
	if l.Rate != nil {
		t[limitRate] = string(*l.Rate)
	}
	if l.Burst != nil {
		t[limitBurst] = ""
		if *l.Burst != 0 {
			t[limitBurst] = strconv.FormatFloat(*l.Burst, 'f', -1, 64)
		}
	}
	for name, v := range map[string]*int64{limitConcurrency: l.Concurrency, limitLimit: l.Limit, limitWindow: l.WindowMs} {
		if v == nil {
			continue
		}
		t[name] = ""
		if *v != 0 {
			t[name] = strconv.FormatInt(*v, 10)
		}
	}
	return t
}

// check refuses texts that are no limits.
func (t limitTexts) check() *wire.Error {
	for _, name := range limitNames {
		if text, ok := t[name]; ok && !isLimit(name)(text) {
			return wire.BadThrottle(fmt.Sprintf("%s is %q: allowed is %s", name, text, meanings[kindThrottle+":"+name].allowed))
		}
	}
	return nil
}

// String is for the audit log: "rate 10, burst 20".
func (t limitTexts) String() string {
	var parts []string
	for _, name := range limitNames {
		if text, ok := t[name]; ok {
			parts = append(parts, name+" "+text)
		}
	}
	return strings.Join(parts, ", ")
}

// with returns the texts with set on top of them, and without those that unset
// names.
func (t limitTexts) with(set limitTexts, unset []string) limitTexts {
	all := maps.Clone(t)
	if all == nil {
		all = make(limitTexts)
	}
	maps.Copy(all, set)
	for _, name := range unset {
		delete(all, name)
	}
	return all
}

// tableTexts are the limits of a [[throttle]].
func tableTexts(table *ThrottleTable) (limitTexts, *wire.Error) {
	t := textsOf(wire.ThrottleLimits{
		Rate: &table.Rate, Burst: &table.Burst, Concurrency: &table.Concurrency, Limit: &table.Limit, WindowMs: &table.WindowMs,
	})
	maps.DeleteFunc(t, func(_, text string) bool { return text == "" })
	if err := t.check(); err != nil {
		return nil, wire.BadThrottle("throttle[" + table.Key + "]: " + err.Description)
	}
	return t, nil
}

// override are limits of a throttle key for a time, on top of those that are set.
type override struct {
	Set   limitTexts `json:"set,omitempty"`
	Unset []string   `json:"unset,omitempty"`
	Until int64      `json:"until"` // Unix ns
}

// String is for the audit log: "rate 10, without burst, until ...".
func (o *override) String() string {
	var parts []string
	if len(o.Set) > 0 {
		parts = append(parts, o.Set.String())
	}
	if len(o.Unset) > 0 {
		parts = append(parts, "without "+strings.Join(slices.Sorted(slices.Values(o.Unset)), ", "))
	}
	return strings.Join(append(parts, "until "+timestamp(o.Until)), ", ")
}

// audited is String for a change, nil if there is no override.
func (o *override) audited() *string {
	if o == nil {
		return nil
	}
	s := o.String()
	return &s
}
