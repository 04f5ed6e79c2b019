package control

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/throttle/adapt"
	"github.com/filaq/fila/throttle/budget"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Kinds of keys of the runtime configuration that have a meaning.
const (
	kindThrottle = "throttle" // throttle:<key>:<setting>
	kindCircuit  = "circuit"  // circuit:<key>:<setting>
	kindWeight   = "weight"   // weight:<queue>:<fairness key>
)

// limits are the settings of a throttle or circuit key. A zero field is not set.
type limits struct {
	throttle.Limits
	config.CircuitLimits
}

// setting is the last part of a key of the runtime configuration. Tables and requests have
// a field of the same name.
type setting struct {
	kind, name string
	allowed    string // describes the valid values
	// read sets a value from its text; the empty text unsets it. For an invalid text
	// it changes nothing and returns false.
	read func(into *limits, text string) bool
	show func(from *limits) string // the text for read; "" if it is not set
}

// settings has all settings. Within a kind they are in the order of refusals and lists.
var settings = append([]setting{
	{
		kind: kindThrottle, name: "rate",
		allowed: fmt.Sprintf("a number of messages per second such as 10 or 0.5, or a fraction such as 1/3, from 1/31536000 to %d",
			throttle.MaxRate),
		read: readRate,
		show: func(l *limits) string { return rateText(l.Rate) },
	},
	number(kindThrottle, "burst", fmt.Sprintf("a number of messages from 1 to %d, with up to three digits after the point", throttle.MaxBurst/throttle.One),
		func(text string) (int64, bool) { return parseThousandths(text, throttle.One, throttle.MaxBurst) },
		func(n int64) string { return strconv.FormatFloat(float64(n)/throttle.One, 'f', -1, 64) },
		func(l *limits) *int64 { return &l.Burst }),
	whole(kindThrottle, "concurrency", "messages", 1, throttle.MaxConcurrency, 1, func(l *limits) *int64 { return &l.Concurrency }),
	whole(kindThrottle, "limit", "messages", 1, throttle.MaxLimit, 1, func(l *limits) *int64 { return &l.Limit }),
	whole(kindThrottle, "window_ms", "milliseconds", 1, wire.MaxSettingMs, int64(time.Millisecond), func(l *limits) *int64 { return &l.Window }),
	{
		kind: kindThrottle, name: "adapt", allowed: adapt.Allowed, read: readAdapt,
		show: func(l *limits) string { return l.Adapt.Text() },
	},
	number(kindThrottle, "level", "a number from 0.001 to 1000000000, with up to three digits after the point",
		func(text string) (int64, bool) { return parseThousandths(text, 1, adapt.Most) },
		adapt.Format, func(l *limits) *int64 { return &l.Level }),
	number(kindThrottle, "budget", fmt.Sprintf("a cost from 0.001 to %d, with up to three digits after the point", int64(budget.MaxAmount/throttle.One)),
		func(text string) (int64, bool) { return parseThousandths(text, 1, budget.MaxAmount) },
		func(n int64) string { return strconv.FormatFloat(float64(n)/throttle.One, 'f', -1, 64) },
		func(l *limits) *int64 { return &l.Budget.Amount }),
	{
		kind: kindThrottle, name: "period", allowed: "hour, day, week or month",
		read: func(l *limits, text string) bool {
			unit, ok := budget.ParseUnit(text)
			if ok || text == "" {
				l.Budget.Unit = unit
			}
			return ok || text == ""
		},
		show: func(l *limits) string { return l.Budget.Unit.String() },
	},
	{
		kind: kindThrottle, name: "zone", allowed: "a time zone such as Europe/Berlin, or UTC",
		read: func(l *limits, text string) bool {
			if budget.CheckZone(text) != nil {
				return false
			}
			l.Budget.Zone = text
			return true
		},
		show: func(l *limits) string { return l.Budget.Zone },
	},
	{
		kind: kindThrottle, name: "warn_at", allowed: api.AllowedParts,
		read: func(l *limits, text string) bool {
			parts, err := api.ParseParts(text)
			if err != nil {
				return false
			}
			l.Budget.WarnAt = [budget.MaxWarnings]int16{}
			for i, part := range parts {
				l.Budget.WarnAt[i] = int16(math.Round(part * 1000))
			}
			return true
		},
		show: func(l *limits) string { return api.PartsText(warnings(l.Budget.WarnAt)) },
	},
	{
		kind: kindThrottle, name: "on_empty", allowed: "hold, dead_letter or refuse",
		read: func(l *limits, text string) bool {
			e, ok := throttle.ParseOnEmpty(text)
			if ok {
				l.OnEmpty = e
			}
			return ok
		},
		show: func(l *limits) string { return l.OnEmpty.String() },
	},
}, ofCircuits()...)

func ofCircuits() (settings []setting) {
	for _, limit := range config.EachCircuitLimit {
		s := whole(kindCircuit, limit.Key, limit.Unit, limit.Low, limit.High, 1, func(l *limits) *int64 { return limit.Of(&l.CircuitLimits) })
		if limit.Zero != "" {
			s.allowed += "; 0 is " + limit.Zero
		}
		settings = append(settings, s)
	}
	return settings
}

// whole is a setting with whole numbers from low to high of a unit, each stored as `parts`.
func whole(kind, name, unit string, low, high, parts int64, at func(*limits) *int64) setting {
	return number(kind, name, fmt.Sprintf("a whole number of %s from %d to %d", unit, low, high),
		func(text string) (int64, bool) {
			n, ok := parseWhole(text, low, high)
			return n * parts, ok
		},
		func(n int64) string { return strconv.FormatInt(n/parts, 10) }, at)
}

// number is a setting that is stored as a whole number.
func number(kind, name, allowed string, parse func(string) (int64, bool), format func(int64) string, at func(*limits) *int64) setting {
	return setting{
		kind: kind, name: name, allowed: allowed,
		read: func(into *limits, text string) bool {
			n, ok := parse(text)
			if ok || text == "" {
				*at(into) = n
			}
			return ok || text == ""
		},
		show: func(from *limits) string {
			if n := *at(from); n != 0 {
				return format(n)
			}
			return ""
		},
	}
}

// settingsOf iterates over the settings of a kind.
func settingsOf(kind string) iter.Seq[*setting] {
	return func(yield func(*setting) bool) {
		for i := range settings {
			if settings[i].kind == kind && !yield(&settings[i]) {
				return
			}
		}
	}
}

// key returns the key of a setting in the runtime configuration.
func (s *setting) key(of string) string { return s.kind + ":" + of + ":" + s.name }

// canonical returns the one text for all texts with the same meaning.
func (s *setting) canonical(text string) (string, bool) {
	var l limits
	ok := text != "" && s.read(&l, text)
	return s.show(&l), ok
}

// same reports whether two texts have the same meaning.
func (s *setting) same(a, b string) bool {
	first, ok := s.canonical(a)
	second, alsoOK := s.canonical(b)
	return a == b || ok && alsoOK && first == second
}

func readRate(l *limits, text string) bool {
	if text == "" {
		l.Rate = throttle.Rate{}
		return true
	}
	rate, err := throttle.ParseRate(text)
	if err == nil {
		l.Rate = rate
	}
	return err == nil
}

func readAdapt(l *limits, text string) bool {
	if text == "" {
		l.Adapt = adapt.Settings{}
		return true
	}
	s, err := adapt.Parse(text)
	if err == nil {
		l.Adapt = s
	}
	return err == nil
}

// rateText returns the text of a rate, empty for the zero Rate.
func rateText(r throttle.Rate) string {
	if r == (throttle.Rate{}) {
		return ""
	}
	return r.String()
}

// parseThousandths parses a decimal number with up to three digits after the point, without
// rounding.
func parseThousandths(s string, low, high int64) (int64, bool) {
	digits, decimals, point := strings.Cut(s, ".")
	if digits == "" || len(decimals) > 3 || point && decimals == "" {
		return 0, false
	}
	return parseWhole(digits+decimals+"000"[len(decimals):], low, high)
}

// parseWhole parses a number from low to high that has only digits.
func parseWhole(s string, low, high int64) (int64, bool) {
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil || int64(n) < low || int64(n) > high {
		return 0, false
	}
	return int64(n), true
}

// splitSetting splits `throttle:<key>:<setting>` or `circuit:<key>:<setting>`. Keys may have
// colons, settings have none. s is nil for other keys.
func splitSetting(text string) (key string, s *setting) {
	kind, rest, _ := strings.Cut(text, ":")
	if cut := strings.LastIndexByte(rest, ':'); cut > 0 {
		for s := range settingsOf(kind) {
			if s.name == rest[cut+1:] {
				return rest[:cut], s
			}
		}
	}
	return "", nil
}

// splitWeight splits `weight:<queue>:<fairness key>`. Queue names have no colon, fairness
// keys may.
func splitWeight(text string) (queue, key string, ok bool) {
	rest, ok := strings.CutPrefix(text, kindWeight+":")
	queue, key, colon := strings.Cut(rest, ":")
	return queue, key, ok && colon && queue != "" && key != ""
}

// parseWeight parses a weight from 1 to 1,000,000 and returns it in thousandths.
func parseWeight(text string) (uint32, bool) {
	w, err := strconv.ParseFloat(text, 64)
	if err != nil || !(w >= 1 && w <= throttle.MaxCost/throttle.One) {
		return 0, false
	}
	return uint32(w*throttle.One + 0.5), true
}

// checkMeaning refuses invalid values of keys with a meaning. Other keys mean what hooks make
// of them.
func checkMeaning(key, value string) *wire.Error {
	kind, _, _ := strings.Cut(key, ":")
	switch kind {
	case "owner":
		if _, err := api.ReadOwner(value); err != nil {
			return wire.BadConfigValue(key, value, err.Error()+", or JSON with owner and reason")
		}
	case kindWeight:
		if _, _, ok := splitWeight(key); !ok {
			return wire.BadConfigValue(key, value, "the key must be weight:<queue>:<fairness key>")
		}
		if _, ok := parseWeight(value); !ok {
			return wire.BadConfigValue(key, value, "allowed is a number from 1 to 1000000")
		}
	case kindThrottle, kindCircuit:
		name, s := splitSetting(key)
		if s == nil || len(name) > wire.MaxKeyBytes {
			var names []string
			for s := range settingsOf(kind) {
				names = append(names, s.name)
			}
			slices.Sort(names)
			return wire.BadConfigValue(key, value, fmt.Sprintf("the key must be %s:<key of up to %d bytes>:<one of %s>",
				kind, wire.MaxKeyBytes, strings.Join(names, ", ")))
		}
		if _, prefix := isPrefix(name); prefix && kind == kindCircuit {
			return wire.BadConfigValue(key, value, "the key must be circuit:<one key>:<setting>, without a prefix; the settings of all other circuits are in [circuit_defaults] of config.toml")
		}
		if _, ok := s.canonical(value); !ok {
			return wire.BadConfigValue(key, value, "allowed is "+s.allowed)
		}
	}
	return nil
}
