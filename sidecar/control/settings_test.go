package control

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/throttle/adapt"
	"github.com/filaq/fila/throttle/budget"
	"github.com/filaq/fila/wire"
)

// Each key with a meaning accepts valid values and refuses others.
func TestMeaningsOfKeys(t *testing.T) {
	number := func(high string) (good, bad []string) {
		return []string{"1", "10", high}, []string{"", "-1", "+1", "1.5", "abc", "NaN", "1e3", "10 ", "0x10", high + "1", "99999999999999999999"}
	}
	counts, noCounts := number("1000000")
	times, noTimes := number("31536000000")
	gates, noGates := number("1000000000")
	zero := []string{"0"}
	for key, values := range map[string]struct{ good, bad []string }{
		"throttle:stripe:rate": {
			[]string{"1", "0.5", "10", "1/3", "1/31536000", "0.000000032", "1000000000"},
			[]string{"", "0", "-1", "1e3", "abc", "NaN", "Inf", "1000000001", "10 ", "10/s", "1/31536001", "0.0000000001"},
		},
		"throttle:stripe:burst": {
			[]string{"1", "2.5", "2.125", "1000000000"},
			[]string{
				"", "0", "0.999", "1.0005", "-1", "1e3", "abc", "NaN", "Inf", "1000000000.001",
				".", "1.", ".5", "+1", "1 ", "0.000", "1.-1", "99999999999999999999", "0x1",
			},
		},
		"throttle:stripe:concurrency":        {gates, append(noGates, zero...)},
		"throttle:stripe:limit":              {gates, append(noGates, zero...)},
		"throttle:stripe:window_ms":          {times, append(noTimes, zero...)},
		"throttle:a:b:rate":                  {[]string{"1"}, []string{"x"}}, // keys may have colons
		"throttle:tenant:*:rate":             {[]string{"1"}, []string{"x"}},
		"throttle:*:rate":                    {[]string{"1"}, []string{"x"}},
		"circuit:stripe:threshold":           {counts, append(noCounts, zero...)},
		"circuit:stripe:cooldown_ms":         {times, append(noTimes, zero...)},
		"circuit:stripe:half_open_max_calls": {counts, append(noCounts, zero...)},
		"circuit:stripe:half_open_successes": {counts, append(noCounts, zero...)},
		"circuit:stripe:max_failures":        {append(counts, zero...), noCounts},
		"circuit:stripe:failure_window_ms":   {times, append(noTimes, zero...)},
		"circuit:stripe:failure_hold_ms":     {append(times, zero...), noTimes},
		"weight:orders:acme": {
			[]string{"1", "1.5", "1000000", "1e6"},
			[]string{"", "0", "0.999", "-1", "abc", "NaN", "Inf", "1000001"},
		},
		"weight:orders.dlq:a:b":      {[]string{"2"}, []string{"none"}},
		"weight:orders":              {nil, []string{"1"}},
		"weight:orders:":             {nil, []string{"1"}},
		"weight::acme":               {nil, []string{"1"}},
		"weight":                     {nil, []string{"1"}},
		"throttle:stripe":            {nil, []string{"1"}},
		"throttle:rate":              {nil, []string{"1"}},
		"throttle::rate":             {nil, []string{"1"}},
		"throttle:stripe:speed":      {nil, []string{"1"}},
		"throttle:stripe:Rate":       {nil, []string{"1"}},
		"throttle:stripe:threshold":  {nil, []string{"1"}},
		"throttle:stripe:override":   {nil, []string{"1"}},
		"circuit:stripe:rate":        {nil, []string{"1"}},
		"circuit:vendor:*:threshold": {nil, []string{"1"}},
		"circuit:threshold":          {nil, []string{"1"}},
		"rate_limit:acme":            {[]string{"", "10", "anything"}, nil}, // hooks make of it what they like
		"weights":                    {[]string{"", "0"}, nil},
		"throttles:x:rate":           {[]string{"", "0"}, nil},

		"throttle:" + strings.Repeat("k", wire.MaxKeyBytes) + ":rate":   {[]string{"1"}, nil},
		"throttle:" + strings.Repeat("k", wire.MaxKeyBytes+1) + ":rate": {nil, []string{"1"}},
	} {
		for _, v := range values.good {
			require.Nil(t, checkMeaning(key, v), "%s = %q", key, v)
		}
		for _, v := range values.bad {
			err := checkMeaning(key, v)
			refused(t, wire.CodeBadConfigValue, err, "%s = %q", key, v)
			require.Regexp(t, "allowed is|the key must be", err.Description, "%s = %q", key, v)
		}
	}
	require.Contains(t, checkMeaning("throttle:k:speed", "1").Description, "<one of adapt, budget, burst, concurrency, level, limit, on_empty, period, rate, warn_at, window_ms, zone>")
}

// show returns the text that read accepts, and "" for a setting that is not set.
func TestSettingsReadWhatTheyShow(t *testing.T) {
	full := limits{
		throttle.Limits{Rate: throttle.Rate{Cost: 1000, Per: 3e9}, Burst: 2125, Concurrency: 7, Limit: 8, Window: int64(1500 * time.Millisecond), Adapt: adapt.Settings{Min: 500, Backoff: 800}, Level: 2500, Budget: budget.Terms{Amount: 2500, Period: budget.Period{Unit: budget.Week, Zone: "Asia/Tokyo"}, WarnAt: [budget.MaxWarnings]int16{500, 950}}, OnEmpty: throttle.DeadLetter},
		config.CircuitLimits{Threshold: 1, CooldownMs: 2, HalfOpenMaxCalls: 3, HalfOpenSuccesses: 4, MaxFailures: 5, FailureWindowMs: 6, FailureHoldMs: 7},
	}
	var none, read limits
	got := make(map[string]string)
	for _, s := range settings {
		got[s.kind+" "+s.name] = s.show(&full)
		require.Empty(t, s.show(&none), s.name)
		require.True(t, s.read(&read, s.show(&full)), s.name)
		before := read
		require.False(t, s.read(&read, "x"), s.name)
		require.Equal(t, before, read, "what is no value changes nothing")
		gone := full
		require.True(t, s.read(&gone, ""))
		require.Empty(t, s.show(&gone), s.name)
		key, same := splitSetting(s.key("a:b"))
		require.Equal(t, "a:b", key)
		require.Equal(t, s.name, same.name)
	}
	require.Equal(t, map[string]string{
		"throttle rate": "1/3", "throttle burst": "2.125", "throttle concurrency": "7", "throttle limit": "8", "throttle window_ms": "1500",
		"throttle adapt": "overload,min=0.5,backoff=0.8", "throttle level": "2.5",
		"throttle budget": "2.5", "throttle period": "week", "throttle zone": "Asia/Tokyo", "throttle warn_at": "0.5,0.95", "throttle on_empty": "dead_letter",
		"circuit threshold": "1", "circuit cooldown_ms": "2", "circuit half_open_max_calls": "3", "circuit half_open_successes": "4",
		"circuit max_failures": "5", "circuit failure_window_ms": "6", "circuit failure_hold_ms": "7",
	}, got)
	require.Equal(t, full, read)
}

func TestParseThousandths(t *testing.T) {
	for s, want := range map[string]int64{"1": 1000, "2.5": 2500, "1.001": 1001, "0.25": 250, "12.30": 12_300, "1000000000": throttle.MaxBurst} {
		n, ok := parseThousandths(s, 1, throttle.MaxBurst)
		require.True(t, ok, s)
		require.Equal(t, want, n, s)
	}
}

func TestSameMeaning(t *testing.T) {
	same := func(key, a, b string) bool {
		_, s := splitSetting(key)
		return s.same(a, b)
	}
	for _, x := range [][3]string{
		{"throttle:k:rate", "0.5", "1/2"},
		{"throttle:k:burst", "2", "2.0"},
		{"throttle:k:limit", "07", "7"},
		{"throttle:k:rate", "x", "x"},
		{"circuit:k:threshold", "5", "05"},
		{"circuit:k:max_failures", "0", "00"},
	} {
		require.True(t, same(x[0], x[1], x[2]), x)
	}
	for _, x := range [][3]string{
		{"throttle:k:rate", "0.5", "0.6"},
		{"throttle:k:rate", "", "1"},
		{"throttle:k:rate", "1", ""},
		{"throttle:k:rate", "x", "y"},
		{"throttle:k:burst", "x", "1"},
		{"circuit:k:max_failures", "0", "1"},
		{"circuit:k:max_failures", "0", ""},
	} {
		require.False(t, same(x[0], x[1], x[2]), x)
	}
}

func TestParseWeight(t *testing.T) {
	for text, want := range map[string]uint32{"1": 1000, "2.5": 2500, "1.0004": 1000, "1.0006": 1001, "1000000": 1_000_000_000} {
		w, ok := parseWeight(text)
		require.True(t, ok, text)
		require.Equal(t, want, w, text)
	}
	for _, text := range []string{"", "0", "0.9999", "-1", "1000001", "NaN", "Inf", "x", "1 "} {
		_, ok := parseWeight(text)
		require.False(t, ok, text)
	}
}
