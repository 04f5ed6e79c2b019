package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/throttle/adapt"
	"github.com/filaq/fila/throttle/budget"
	"github.com/filaq/fila/wire"
)

// ThrottleTable is one [[throttle]]: the limits of a throttle key or, if Key
// ends in '*', of every key that begins with what stands before it, each of them
// by itself. A field that is zero is not set.
type ThrottleTable struct {
	Key         string    `koanf:"key"`
	Rate        wire.Rate `koanf:"rate"`        // messages of cost 1 per second
	Burst       float64   `koanf:"burst"`       // cost that may go at once, 1 to 1e9 in steps of 0.001; needs a rate
	Concurrency int64     `koanf:"concurrency"` // messages in flight at once
	Limit       int64     `koanf:"limit"`       // messages in any window; needs a window
	WindowMs    int64     `koanf:"window_ms"`
	// Adapt makes Concurrency, or Rate if there is none, the ceiling of a learned level.
	Adapt AdaptTable `koanf:"adapt"`

	Budget float64   `koanf:"budget"`  // cost in a calendar period; needs a period
	Period string    `koanf:"period"`  // hour, day, week or month
	Zone   string    `koanf:"zone"`    // time zone of the period; empty: UTC
	WarnAt []float64 `koanf:"warn_at"` // parts of the budget at whose use to warn
	// OnEmpty is what becomes of messages that cost more than is left of the budget: hold, the
	// default, dead_letter or refuse.
	OnEmpty string `koanf:"on_empty"`
}

// AdaptTable says how a limit learns; see [adapt.Settings]. A number that is 0 has its default.
type AdaptTable struct {
	Signal   string  `koanf:"signal"`     // overload; empty: the limit does not learn
	Min      float64 `koanf:"min"`        // the lowest level, default 1
	Backoff  float64 `koanf:"backoff"`    // what a cut leaves, default 0.7
	Grow     float64 `koanf:"grow"`       // step next to the level of the last cut
	GrowPerS float64 `koanf:"grow_per_s"` // most growth in a second
	Start    float64 `koanf:"start"`      // the level at which it begins
	Expired  bool    `koanf:"expired"`    // expired leases count as overloads
}

// settings returns what the table sets. Its errors begin with the key of the table.
func (t AdaptTable) settings() (adapt.Settings, error) {
	if t == (AdaptTable{}) {
		return adapt.Settings{}, nil
	}
	if t.Signal != "overload" {
		return adapt.Settings{}, fmt.Errorf(".adapt.signal = %q: allowed is \"overload\"", t.Signal)
	}
	s := adapt.Settings{Min: adapt.One, Backoff: adapt.DefaultBackoff, Expired: t.Expired}
	for _, f := range []struct {
		name  string
		value float64
		into  *int64
	}{{"min", t.Min, &s.Min}, {"backoff", t.Backoff, &s.Backoff}, {"grow", t.Grow, &s.Grow}, {"grow_per_s", t.GrowPerS, &s.GrowPerS}, {"start", t.Start, &s.Start}} {
		if f.value == 0 {
			continue
		}
		n, ok := adapt.Thousandths(number(f.value))
		if !ok {
			return s, fmt.Errorf(".adapt.%s = %s: allowed is a number from 0.001 to 1e9 with at most three digits after the point", f.name, number(f.value))
		}
		*f.into = n
	}
	if err := s.Validate(); err != nil {
		return s, fmt.Errorf(".%s", strings.Replace(strings.Replace(err.Error(), ": ", ".", 1), " is ", " = ", 1))
	}
	return s, nil
}

// Limits returns what the table limits, as a gate takes it. Its errors begin with
// the key of the table, or a space.
func (t *ThrottleTable) Limits() (throttle.Limits, error) {
	l := throttle.Limits{
		Burst: int64(math.Round(t.Burst * throttle.One)), Concurrency: t.Concurrency,
		Limit: t.Limit, Window: t.WindowMs * int64(time.Millisecond),
	}
	if err := cmp.Or(
		within(".concurrency", t.Concurrency, 0, throttle.MaxConcurrency),
		within(".limit", t.Limit, 0, throttle.MaxLimit),
		within(".window_ms", t.WindowMs, 0, wire.MaxSettingMs),
	); err != nil {
		return l, err
	}
	const maxBurst = throttle.MaxBurst / throttle.One
	if t.Burst != 0 && !(t.Burst >= 1 && t.Burst <= maxBurst) {
		return l, fmt.Errorf(".burst = %s: allowed is 1 to %d", number(t.Burst), int64(maxBurst))
	}
	if float64(l.Burst)/throttle.One != t.Burst {
		return l, fmt.Errorf(".burst = %s: allowed are at most three digits after the point", number(t.Burst))
	}
	if t.Rate != "" {
		if err := t.Rate.Check(); err != nil {
			return l, fmt.Errorf(".rate = %q: %w", string(t.Rate), err)
		}
		l.Rate, _ = throttle.ParseRate(string(t.Rate)) // takes what Check does
	}
	if err := t.addBudget(&l); err != nil {
		return l, err
	}
	var err error
	if l.Adapt, err = t.Adapt.settings(); err != nil {
		return l, err
	}
	switch {
	case l.Adapt != (adapt.Settings{}) && t.Rate == "" && t.Concurrency == 0:
		return l, errors.New(".adapt is set without concurrency or rate, one of which is its ceiling")
	case t.Burst != 0 && t.Rate == "":
		return l, errors.New(".burst is set without rate: they go together")
	case (t.Limit == 0) != (t.WindowMs == 0):
		return l, fmt.Errorf(".limit = %d, window_ms = %d: they go together", t.Limit, t.WindowMs)
	case t.Rate == "" && t.Limit == 0 && t.Concurrency == 0 && t.Budget == 0:
		return l, errors.New(" limits nothing: set at least one of rate, concurrency, limit with window_ms, and budget with period")
	}
	return l, nil
}

// RouteTable is one [[route]]: a route of a choice, which the route_header of a queue names.
// The routes of a choice are in the order of their tables.
type RouteTable struct {
	Choice       string   `koanf:"choice" json:"-"`
	Name         string   `koanf:"name" json:"name"`                             // Fila-Route of a delivery
	CircuitKey   string   `koanf:"circuit_key" json:"circuit_key,omitempty"`     // empty: the one of the message
	ThrottleKeys []string `koanf:"throttle_keys" json:"throttle_keys,omitempty"` // beside the ones of the message
	Weight       float64  `koanf:"weight" json:"weight,omitempty"`               // 0: none
}

// RouteChoice has the routes of a choice in their order.
type RouteChoice struct {
	Routes []RouteTable `json:"routes"`
}

// Tables returns the routes as tables of a choice, and checks them.
func (r *RouteChoice) Tables(choice string) ([]RouteTable, error) {
	if len(r.Routes) == 0 {
		return nil, fmt.Errorf("routes is empty: allowed are 1 to %d", maxRoutes)
	}
	tables := slices.Clone(r.Routes)
	for i := range tables {
		tables[i].Choice = choice
	}
	return tables, checkRoutes(tables)
}

// Bounds of [[route]] tables, as of the routes of hooks.
const (
	maxRoutes      = 8
	maxRouteKeys   = 16
	maxRouteWeight = 1_000_000
)

// addBudget adds the budget of the table.
func (t *ThrottleTable) addBudget(l *throttle.Limits) error {
	if t.Budget == 0 {
		if t.Period != "" || t.Zone != "" || len(t.WarnAt) > 0 || t.OnEmpty != "" {
			return errors.New(".period, zone, warn_at and on_empty are set without budget: they go together")
		}
		return nil
	}
	const most = budget.MaxAmount / throttle.One
	if !(t.Budget >= 0.001 && t.Budget <= most) {
		return fmt.Errorf(".budget = %s: allowed is 0.001 to %d", number(t.Budget), int64(most))
	}
	if l.Budget.Amount = int64(math.Round(t.Budget * throttle.One)); float64(l.Budget.Amount)/throttle.One != t.Budget {
		return fmt.Errorf(".budget = %s: allowed are at most three digits after the point", number(t.Budget))
	}
	unit, ok := budget.ParseUnit(t.Period)
	if !ok {
		return fmt.Errorf(".period = %q: allowed is hour, day, week or month", t.Period)
	}
	if err := budget.CheckZone(t.Zone); err != nil {
		return fmt.Errorf(".zone = %q: %w", t.Zone, err)
	}
	if l.OnEmpty, ok = throttle.ParseOnEmpty(t.OnEmpty); !ok {
		return fmt.Errorf(".on_empty = %q: allowed is hold, dead_letter or refuse", t.OnEmpty)
	}
	l.Budget.Unit, l.Budget.Zone = unit, t.Zone
	for i, part := range t.WarnAt {
		at := int16(0)
		if part >= 0.001 && part <= 1 {
			at = int16(math.Round(part * 1000))
		}
		if i >= budget.MaxWarnings || at == 0 || i > 0 && at <= l.Budget.WarnAt[i-1] {
			return fmt.Errorf(".warn_at = %v: allowed are up to %d numbers from 0.001 to 1 in rising order", t.WarnAt, budget.MaxWarnings)
		}
		l.Budget.WarnAt[i] = at
	}
	return nil
}

// GuardTable is one [[guard]]: which further keys may come with a key when a caller
// asks for a call. Keys that end in '*' stand for all that begin with what is before
// it. Without any such table every key may come with every other.
type GuardTable struct {
	Key     string   `koanf:"key" json:"key"`
	With    []string `koanf:"with" json:"with"`       // the further keys
	Expired string   `koanf:"expired" json:"expired"` // what an expired permit is for the circuit: neutral, the default, or failure
}

// The outcome of an expired permit for the circuit: neutral, unless a table says failure.
const (
	ExpiredNeutral = "neutral"
	ExpiredFailure = "failure"
)

// Bounds implements [wire.Bounded].
func (t GuardTable) Bounds() []wire.Bound {
	return []wire.Bound{{Field: "expired", Text: t.Expired, OneOf: []string{ExpiredNeutral, ExpiredFailure}, Zero: ExpiredNeutral}}
}

func checkExpired(table, key, value string) error {
	if wire.OutOfBounds(GuardTable{Expired: value}) == nil {
		return nil
	}
	return fmt.Errorf("%s[%s].expired = %q: allowed are %q and %q", table, key, value, ExpiredNeutral, ExpiredFailure)
}

// ExpiredFails reports whether a permit with this first key that ends without a done counts
// as a failure. The table of the circuit goes first, then the [[guard]] tables in the order
// of the file.
func (c *Config) ExpiredFails(key string) bool {
	for i := range c.Circuits {
		if t := &c.Circuits[i]; t.Key == key && t.Expired != "" {
			return t.Expired == ExpiredFailure
		}
	}
	for i := range c.Guards {
		if t := &c.Guards[i]; t.Expired != "" && covers(t.Key, key) {
			return t.Expired == ExpiredFailure
		}
	}
	return false
}

// Pairs reports whether the table says which keys may come together: one that says of
// expired alone does not.
func (t GuardTable) Pairs() bool { return t.With != nil || t.Expired == "" }

// Allows reports whether the table lets a further key come with a first key.
func (t *GuardTable) Allows(key, with string) bool {
	return covers(t.Key, key) && anyCovers(t.With, with)
}

// covers reports whether a key is what a table names, or begins with it.
func covers(pattern, key string) bool {
	prefix, many := strings.CutSuffix(pattern, "*")
	return pattern == key || many && strings.HasPrefix(key, prefix)
}

func anyCovers(patterns []string, key string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return covers(pattern, key) })
}

// CircuitTable is one [[circuit]]: the limits of one circuit key. A limit that is
// zero has the value of [circuit_defaults], unless Zeros names it.
type CircuitTable struct {
	Key string `koanf:"key"`
	CircuitLimits
	Expired string   `koanf:"expired"` // see [ExpiredFailure]
	Zeros   []string `koanf:"-"`       // keys of limits that the file says are 0, where 0 is a value
}

// zeros returns what [CircuitTable.Zeros] is of a table of the file.
func zeros(table map[string]any) (keys []string) {
	for _, limit := range EachCircuitLimit {
		if limit.Zero != "" && table[limit.Key] == int64(0) {
			keys = append(keys, limit.Key)
		}
	}
	return keys
}

// CircuitLimits are the limits of a circuit.
type CircuitLimits struct {
	Threshold         int64 `koanf:"threshold" json:"threshold"`                     // failures in a row that open it, from 1
	CooldownMs        int64 `koanf:"cooldown_ms" json:"cooldown_ms"`                 // how long it stays open, from 1
	HalfOpenMaxCalls  int64 `koanf:"half_open_max_calls" json:"half_open_max_calls"` // probes at a time afterwards, from 1
	HalfOpenSuccesses int64 `koanf:"half_open_successes" json:"half_open_successes"` // of them that close it, from 1
	MaxFailures       int64 `koanf:"max_failures" json:"max_failures"`               // allowed within the window, in a row or not; one more holds the key; 0: any number
	FailureWindowMs   int64 `koanf:"failure_window_ms" json:"failure_window_ms"`     // that window, from 1
	FailureHoldMs     int64 `koanf:"failure_hold_ms" json:"failure_hold_ms"`         // how long the key is held; 0: until it is closed by hand
}

// CircuitLimit is one of the [CircuitLimits]: its key, and what it may be.
type CircuitLimit struct {
	Key, Unit string
	Low, High int64
	Zero      string // what 0 means, in words; empty: nothing
	Of        func(*CircuitLimits) *int64
}

const maxCircuitCount = wire.MaxFailures // failures and probes of a circuit

// EachCircuitLimit lists them, in the order of refusals.
var EachCircuitLimit = []CircuitLimit{
	{"threshold", "failures", 1, maxCircuitCount, "", func(l *CircuitLimits) *int64 { return &l.Threshold }},
	{"cooldown_ms", "milliseconds", 1, wire.MaxSettingMs, "", func(l *CircuitLimits) *int64 { return &l.CooldownMs }},
	{"half_open_max_calls", "messages", 1, maxCircuitCount, "", func(l *CircuitLimits) *int64 { return &l.HalfOpenMaxCalls }},
	{"half_open_successes", "messages", 1, maxCircuitCount, "", func(l *CircuitLimits) *int64 { return &l.HalfOpenSuccesses }},
	{"max_failures", "failures", 0, maxCircuitCount, "any number", func(l *CircuitLimits) *int64 { return &l.MaxFailures }},
	{"failure_window_ms", "milliseconds", 1, wire.MaxSettingMs, "", func(l *CircuitLimits) *int64 { return &l.FailureWindowMs }},
	{"failure_hold_ms", "milliseconds", 0, wire.MaxSettingMs, "until it is closed by hand", func(l *CircuitLimits) *int64 { return &l.FailureHoldMs }},
}

// Bounds implements [wire.Bounded].
func (l CircuitLimits) Bounds() (all []wire.Bound) {
	for _, limit := range EachCircuitLimit {
		all = append(all, wire.Bound{Field: limit.Key, Value: *limit.Of(&l), Min: limit.Low, Max: limit.High, Zero: limit.Zero})
	}
	return all
}

// check returns errors that begin with the key. low is the least value of
// limits that cannot be off: 0 where that means the default.
func (l *CircuitLimits) check(low int64) error {
	for _, limit := range EachCircuitLimit {
		if err := within(limit.Key, *limit.Of(l), min(low, limit.Low), limit.High); err != nil {
			return err
		}
	}
	return nil
}
