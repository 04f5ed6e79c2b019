package control

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// Kinds of keys of the runtime configuration that have a meaning.
const (
	kindThrottle = "throttle" // throttle:<key>:<setting>
	kindCircuit  = "circuit"  // circuit:<key>:<setting>
	kindWeight   = "weight"   // weight:<queue>:<fairness key>
)

// setting is what can be set of a T, under a name that is the last part of keys of
// the runtime configuration, a field of tables and of requests.
type setting[T any] struct {
	name    string
	allowed string // what its values are, in words
	// read makes what a text says count; the empty text is that it is not set. It
	// reports false, and changes nothing, for any other text that is no value.
	read func(into *T, text string) bool
	show func(from *T) string // as read takes it; "" if it is not set
	take func(into, from *T)
}

// throttleSettings are what limits a throttle key, in the order of refusals and
// lists.
var throttleSettings = []setting[throttle.Limits]{
	{
		name: "rate",
		allowed: fmt.Sprintf("a number of messages per second such as 10 or 0.5, or a fraction such as 1/3, from 1/31536000 to %d",
			throttle.MaxRate),
		read: readRate,
		show: func(l *throttle.Limits) string { return rateText(l.Rate) },
		take: func(into, from *throttle.Limits) { into.Rate = from.Rate },
	},
	number("burst", fmt.Sprintf("a number of messages from 1 to %d, with up to three digits after the point", throttle.MaxBurst/throttle.One),
		func(text string) (int64, bool) { return parseThousandths(text, throttle.One, throttle.MaxBurst) },
		func(n int64) string { return strconv.FormatFloat(float64(n)/throttle.One, 'f', -1, 64) },
		func(l *throttle.Limits) *int64 { return &l.Burst }),
	whole("concurrency", "messages", 1, throttle.MaxConcurrency, 1, func(l *throttle.Limits) *int64 { return &l.Concurrency }),
	whole("limit", "messages", 1, throttle.MaxLimit, 1, func(l *throttle.Limits) *int64 { return &l.Limit }),
	whole("window_ms", "milliseconds", 1, wire.MaxSettingMs, int64(time.Millisecond), func(l *throttle.Limits) *int64 { return &l.Window }),
}

// circuitSettings are the limits of a circuit.
var circuitSettings = []setting[config.CircuitTable]{
	ofCircuit("threshold", "failures", 1, config.MaxCircuitCount, ""),
	ofCircuit("cooldown_ms", "milliseconds", 1, wire.MaxSettingMs, ""),
	ofCircuit("half_open_max_calls", "messages", 1, config.MaxCircuitCount, ""),
	ofCircuit("half_open_successes", "messages", 1, config.MaxCircuitCount, ""),
	ofCircuit("max_failures", "failures", 0, config.MaxCircuitCount, "; 0 is any number"),
	ofCircuit("failure_window_ms", "milliseconds", 1, wire.MaxSettingMs, ""),
	ofCircuit("failure_hold_ms", "milliseconds", 0, wire.MaxSettingMs, "; 0 is until it is closed by hand"),
}

func ofCircuit(name, unit string, low, high int64, zero string) setting[config.CircuitTable] {
	s := whole(name, unit, low, high, 1, func(t *config.CircuitTable) *int64 { return t.Field(name) })
	s.allowed += zero
	return s
}

// find returns the setting of a name that is known.
func find[T any](settings []setting[T], name string) *setting[T] {
	return &settings[slices.IndexFunc(settings, func(s setting[T]) bool { return s.name == name })]
}

// number is a setting that is kept as a whole number; 0 is not set.
func number[T any](name, allowed string, parse func(string) (int64, bool), format func(int64) string, at func(*T) *int64) setting[T] {
	return setting[T]{
		name: name, allowed: allowed,
		read: func(into *T, text string) bool {
			n, ok := parse(text)
			if ok || text == "" {
				*at(into) = n
			}
			return ok || text == ""
		},
		show: func(from *T) string {
			if n := *at(from); n != 0 {
				return format(n)
			}
			return ""
		},
		take: func(into, from *T) { *at(into) = *at(from) },
	}
}

// whole is a number from low to high that is kept in so many parts of its unit.
func whole[T any](name, unit string, low, high, parts int64, at func(*T) *int64) setting[T] {
	return number(name, fmt.Sprintf("a whole number of %s from %d to %d", unit, low, high),
		func(text string) (int64, bool) {
			n, ok := parseWhole(text, low, high)
			return n * parts, ok
		},
		func(n int64) string { return strconv.FormatInt(n/parts, 10) }, at)
}

func readRate(l *throttle.Limits, text string) bool {
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

// rateText writes a rate as people do: 0.5 if it can be written so, otherwise 1/3.
func rateText(r throttle.Rate) string {
	if r == (throttle.Rate{}) {
		return ""
	}
	n, d := r.Cost/throttle.One, r.Per/int64(time.Second)
	for digits, ones := 0, int64(1); digits <= 9; digits, ones = digits+1, ones*10 {
		if ones%d == 0 {
			n *= ones / d // ones times the rate, which is 1e9 at most
			text := strconv.FormatInt(n/ones, 10)
			if digits > 0 {
				text += fmt.Sprintf(".%0*d", digits, n%ones)
			}
			return text
		}
	}
	return r.String()
}

// parseThousandths reads a decimal number with up to three digits after the point,
// without rounding.
func parseThousandths(s string, low, high int64) (int64, bool) {
	digits, decimals, point := strings.Cut(s, ".")
	if digits == "" || len(decimals) > 3 || point && decimals == "" {
		return 0, false
	}
	return parseWhole(digits+decimals+"000"[len(decimals):], low, high)
}

// parseWhole reads a number that is written in digits alone; 0 if it is none.
func parseWhole(s string, low, high int64) (int64, bool) {
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil || int64(n) < low || int64(n) > high {
		return 0, false
	}
	return int64(n), true
}

// meaning is what checks of texts need of a setting.
type meaning struct {
	name, allowed string
	// canonical is the one text of those that mean the same.
	canonical func(text string) (string, bool)
}

// same reports whether two texts mean the same.
func (m *meaning) same(a, b string) bool {
	first, ok := m.canonical(a)
	second, alsoOK := m.canonical(b)
	return a == b || ok && alsoOK && first == second
}

// meanings are the settings of a kind, by name.
var meanings = map[string][]meaning{kindThrottle: meaningsOf(throttleSettings), kindCircuit: meaningsOf(circuitSettings)}

func meaningsOf[T any](settings []setting[T]) []meaning {
	var list []meaning
	for _, s := range settings {
		list = append(list, meaning{s.name, s.allowed, func(text string) (string, bool) {
			var v T
			ok := text != "" && s.read(&v, text)
			return s.show(&v), ok
		}})
	}
	slices.SortFunc(list, func(a, b meaning) int { return cmp.Compare(a.name, b.name) })
	return list
}

// settingKey is the key of a setting in the runtime configuration.
func settingKey(kind, key, name string) string { return kind + ":" + key + ":" + name }

// splitSetting takes `throttle:<key>:<setting>` and `circuit:<key>:<setting>` apart.
// Keys may have colons, settings have none. m is nil for other keys.
func splitSetting(text string) (kind, key string, m *meaning) {
	kind, rest, _ := strings.Cut(text, ":")
	cut := strings.LastIndexByte(rest, ':')
	if cut <= 0 {
		return "", "", nil
	}
	i := slices.IndexFunc(meanings[kind], func(m meaning) bool { return m.name == rest[cut+1:] })
	if i < 0 {
		return "", "", nil
	}
	return kind, rest[:cut], &meanings[kind][i]
}

// splitWeight takes `weight:<queue>:<fairness key>` apart. Queue names have no
// colon, fairness keys may.
func splitWeight(text string) (queue, key string, ok bool) {
	rest, ok := strings.CutPrefix(text, kindWeight+":")
	queue, key, colon := strings.Cut(rest, ":")
	return queue, key, ok && colon && queue != "" && key != ""
}

// parseWeight reads a weight from 1 to 1,000,000 and returns it in thousandths.
func parseWeight(text string) (uint32, bool) {
	w, err := strconv.ParseFloat(text, 64)
	if err != nil || !(w >= 1 && w <= throttle.MaxCost/throttle.One) {
		return 0, false
	}
	return uint32(w*throttle.One + 0.5), true
}

// checkMeaning refuses a value that a key with a meaning cannot have. Other keys
// mean what hooks make of them.
func checkMeaning(key, value string) *wire.Error {
	kind, _, _ := strings.Cut(key, ":")
	switch kind {
	case kindWeight:
		if _, _, ok := splitWeight(key); !ok {
			return wire.BadConfigValue(key, value, "the key must be weight:<queue>:<fairness key>")
		}
		if _, ok := parseWeight(value); !ok {
			return wire.BadConfigValue(key, value, "allowed is a number from 1 to 1000000")
		}
	case kindThrottle, kindCircuit:
		_, name, m := splitSetting(key)
		if m == nil || len(name) > wire.MaxKeyBytes {
			var names []string
			for _, m := range meanings[kind] {
				names = append(names, m.name)
			}
			return wire.BadConfigValue(key, value, fmt.Sprintf("the key must be %s:<key of up to %d bytes>:<one of %s>",
				kind, wire.MaxKeyBytes, strings.Join(names, ", ")))
		}
		if _, ok := m.canonical(value); !ok {
			return wire.BadConfigValue(key, value, "allowed is "+m.allowed)
		}
	}
	return nil
}
