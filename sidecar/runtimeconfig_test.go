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
	wholes := []string{"1", "10", "1000000000000000"}
	notWhole := []string{"", "0", "-1", "1.5", "abc", "NaN", "1e3", "10 ", "0x10", "1000000000000001", "99999999999999999999"}
	for key, values := range map[string]struct{ good, bad []string }{
		"throttle:stripe:rate": {
			[]string{"1", "0.5", "10", "1e3", "1000000000"},
			[]string{"", "0", "-1", "abc", "NaN", "Inf", "+Inf", "-Inf", "1000000001", "10 ", "10/s"},
		},
		"throttle:stripe:burst": {
			[]string{"1", "2.5", "1000000000"},
			[]string{"", "0", "0.999", "-1", "abc", "NaN", "Inf", "1000000001"},
		},
		"throttle:stripe:concurrency":        {wholes, notWhole},
		"throttle:stripe:limit":              {wholes, notWhole},
		"throttle:stripe:window_ms":          {wholes, notWhole},
		"throttle:a:b:rate":                  {[]string{"1"}, []string{"x"}}, // keys may have colons
		"circuit:stripe:threshold":           {wholes, notWhole},
		"circuit:stripe:cooldown_ms":         {wholes, notWhole},
		"circuit:stripe:half_open_max_calls": {wholes, notWhole},
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
		"circuit:stripe:rate":       {nil, []string{"1"}},
		"circuit:threshold":         {nil, []string{"1"}},
		"rate_limit:acme":           {[]string{"", "10", "anything"}, nil}, // hooks make of it what they like
		"weights":                   {[]string{"", "0"}, nil},
		"throttles:x:rate":          {[]string{"", "0"}, nil},
	} {
		for _, v := range values.good {
			require.Nil(t, checkMeaning(key, v), "%s = %q", key, v)
		}
		for _, v := range values.bad {
			err := checkMeaning(key, v)
			require.NotNil(t, err, "%s = %q", key, v)
			require.Equal(t, 400, err.Code)
			require.Contains(t, err.Description, key, "the error names the key")
		}
	}
	require.Equal(t, "burst, concurrency, limit, rate, window_ms", settingsOf("throttle"))
}

func TestRuntimeConfigPut(t *testing.T) {
	c := newRuntimeConfig([]store.Entry{{Key: "a", Value: "1"}})
	var saved []*store.Batch
	save := func(b *store.Batch) error { saved = append(saved, b); return nil }
	fine := func(*string) *wire.Error { return nil }
	two := "2"

	previous, err := c.put("a", &two, fine, save)
	require.Nil(t, err)
	require.Equal(t, "1", *previous)
	previous, err = c.put("b", &two, func(now *string) *wire.Error { require.Nil(t, now); return nil }, save)
	require.Nil(t, err)
	require.Nil(t, previous)
	require.Len(t, saved, 2)

	_, err = c.put("a", nil, func(now *string) *wire.Error { return wire.ConfigMismatch("a", now) }, save)
	require.NotNil(t, err)
	require.Len(t, saved, 2, "what the check refuses is not written")
	_, err = c.put("a", nil, fine, func(*store.Batch) error { return errors.New("disk") })
	require.NotNil(t, err)
	v, ok := c.Get("a")
	require.True(t, ok && v == "2", "what is not on disk does not count")

	previous, err = c.put("a", nil, fine, save)
	require.Nil(t, err)
	require.Equal(t, "2", *previous)
	_, ok = c.Get("a")
	require.False(t, ok)
	require.Equal(t, []string{"a"}, saved[2].DeleteConfig)
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
