package sidecar

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// TestMeaningsOfKeys lists what each key with a meaning takes and refuses.
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
			[]string{"", "0", "0.999", "1.0005", "-1", "1e3", "abc", "NaN", "Inf", "1000000000.001"},
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
		"weight:orders.dlq:a:b":     {[]string{"2"}, []string{"none"}},
		"weight:orders":             {nil, []string{"1"}},
		"weight:orders:":            {nil, []string{"1"}},
		"weight::acme":              {nil, []string{"1"}},
		"weight":                    {nil, []string{"1"}},
		"throttle:stripe":           {nil, []string{"1"}},
		"throttle:rate":             {nil, []string{"1"}},
		"throttle::rate":            {nil, []string{"1"}},
		"throttle:stripe:speed":     {nil, []string{"1"}},
		"throttle:stripe:Rate":      {nil, []string{"1"}},
		"throttle:stripe:threshold": {nil, []string{"1"}},
		"throttle:stripe:override":  {nil, []string{"1"}},
		"circuit:stripe:rate":       {nil, []string{"1"}},
		"circuit:threshold":         {nil, []string{"1"}},
		"rate_limit:acme":           {[]string{"", "10", "anything"}, nil}, // hooks make of it what they like
		"weights":                   {[]string{"", "0"}, nil},
		"throttles:x:rate":          {[]string{"", "0"}, nil},

		"throttle:" + strings.Repeat("k", wire.MaxKeyBytes) + ":rate":   {[]string{"1"}, nil},
		"throttle:" + strings.Repeat("k", wire.MaxKeyBytes+1) + ":rate": {nil, []string{"1"}},
	} {
		for _, v := range values.good {
			require.Nil(t, checkMeaning(key, v), "%s = %q", key, v)
		}
		for _, v := range values.bad {
			err := checkMeaning(key, v)
			require.NotNil(t, err, "%s = %q", key, v)
			require.Equal(t, 400, err.Code)
			require.Regexp(t, "allowed is|the key must be", err.Description, "%s = %q", key, v)
		}
	}
	require.Equal(t, "burst, concurrency, limit, rate, window_ms", settingsOf("throttle"))
}

func TestRuntimeConfigIsOnDisk(t *testing.T) {
	c := newRuntimeConfig([]store.Entry{{Key: "a", Value: "1"}, {Key: "\x00gates", Value: "{}"}})
	_, ok := c.Get("\x00gates")
	require.False(t, ok, "fila's own entries are not the operators'")
	var saved []*store.Batch
	save := func(b *store.Batch, _ []change) error { saved = append(saved, b); return nil }
	to := func(value *string) func() (map[string]*string, *wire.Error) {
		return func() (map[string]*string, *wire.Error) { return map[string]*string{"a": value}, nil }
	}
	two := "2"
	changes, err := c.edit(to(&two), save)
	require.Nil(t, err)
	require.Equal(t, "1", *changes[0].old)
	require.Len(t, saved, 1)

	_, err = c.edit(func() (map[string]*string, *wire.Error) { return nil, wire.ConfigMismatch("a", nil) }, save)
	require.NotNil(t, err)
	require.Len(t, saved, 1, "what is refused is not written")
	_, err = c.edit(to(nil), func(*store.Batch, []change) error { return errors.New("disk") })
	require.NotNil(t, err)
	v, ok := c.Get("a")
	require.True(t, ok && v == "2", "what is not on disk does not count")

	changes, err = c.edit(to(nil), save)
	require.Nil(t, err)
	require.Equal(t, "2", *changes[0].old)
	_, ok = c.Get("a")
	require.False(t, ok)
	require.Equal(t, []string{"a"}, saved[1].DeleteConfig)
}

// TestRuntimeConfigEdit makes several changes as one, and leaves out what is so
// already.
func TestRuntimeConfigEdit(t *testing.T) {
	c := newRuntimeConfig([]store.Entry{{Key: "a", Value: "1"}, {Key: "b", Value: "2"}, {Key: "c", Value: "3"}})
	one, four := "1", "4"
	var saved store.Batch
	changes, err := c.edit(func() (map[string]*string, *wire.Error) {
		return map[string]*string{"a": &one, "b": &four, "c": nil, "d": &four, "e": nil}, nil
	}, func(b *store.Batch, changes []change) error {
		saved = *b
		require.Len(t, changes, 3)
		v, _ := c.Get("b")
		require.Equal(t, "2", v, "not before it is on disk")
		return nil
	})
	require.Nil(t, err)
	require.Equal(t, []store.Entry{{Key: "b", Value: "4"}, {Key: "d", Value: "4"}}, saved.PutConfig)
	require.Equal(t, []string{"c"}, saved.DeleteConfig)
	two, three := "2", "3"
	require.Equal(t, []change{{"b", &two, &four}, {"c", &three, nil}, {"d", nil, &four}}, changes)
	list, total := c.list("", 0, 10)
	require.Equal(t, []wire.ConfigEntry{{Key: "a", Value: "1"}, {Key: "b", Value: "4"}, {Key: "d", Value: "4"}}, list)
	require.Equal(t, 3, total)
}

func TestRuntimeConfigList(t *testing.T) {
	var entries []store.Entry
	for _, k := range strings.Fields("b:2 a b:1 b:3 c") {
		entries = append(entries, store.Entry{Key: k, Value: "v" + k})
	}
	c := newRuntimeConfig(entries)
	for _, tc := range []struct {
		prefix        string
		offset, limit int
		want          string
		total         int
	}{
		{"", 0, 100, "a b:1 b:2 b:3 c", 5},
		{"b:", 0, 100, "b:1 b:2 b:3", 3},
		{"b:", 1, 1, "b:2", 3},
		{"b:", 2, 9, "b:3", 3},
		{"b:", 3, 9, "", 3},
		{"b:", 1000, 9, "", 3},
		{"x", 0, 9, "", 0},
	} {
		list, total := c.list(tc.prefix, tc.offset, tc.limit)
		var keys []string
		for _, e := range list {
			require.Equal(t, "v"+e.Key, e.Value)
			keys = append(keys, e.Key)
		}
		require.Equal(t, tc.want, strings.Join(keys, " "))
		require.Equal(t, tc.total, total)
		require.NotNil(t, list, "an empty list is [] in JSON")
	}
}

func TestWeightsOfAQueue(t *testing.T) {
	c := newRuntimeConfig([]store.Entry{
		{Key: "weight:orders:acme", Value: "2.5"},
		{Key: "weight:orders:a:b", Value: "7"},
		{Key: "weight:orders2:acme", Value: "9"},
		{Key: "weight:orders:bad", Value: "x"},
		{Key: "weight", Value: "1"},
	})
	require.Equal(t, map[string]uint32{"acme": 2500, "a:b": 7000}, c.weights("orders"))
	require.Empty(t, c.weights("other"))
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
