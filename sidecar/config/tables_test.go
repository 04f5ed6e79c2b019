package config

import (
	"reflect"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/throttle/adapt"
	"github.com/filaq/fila/wire"
)

// The limits of a table that is valid are those that a gate can keep, and are
// what the table says.
func TestThrottleTablesAreLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := ThrottleTable{
			Key:         "k",
			Rate:        rapid.SampledFrom([]wire.Rate{"", "1", "0.001", "1/31536000", "1000000000", "0", "1e3"}).Draw(t, "rate"),
			Burst:       rapid.SampledFrom([]float64{0, 1, 1.5, 1.001, 999_999_999.999, 1e9, 2e9, -1, 1.0001}).Draw(t, "burst"),
			Concurrency: rapid.SampledFrom([]int64{0, 1, 1_000_000_000, 1_000_000_001, -1}).Draw(t, "concurrency"),
			Limit:       rapid.SampledFrom([]int64{0, 1, 1_000_000_000, 1_000_000_001, -1}).Draw(t, "limit"),
			WindowMs:    rapid.SampledFrom([]int64{0, 1, wire.MaxSettingMs, wire.MaxSettingMs + 1, -1}).Draw(t, "window"),
			Adapt: rapid.SampledFrom([]AdaptTable{
				{},
				{Signal: "overload"},
				{Signal: "overload", Min: 0.001, Backoff: 0.95, Grow: 1e9, GrowPerS: 0.5, Start: 10, Expired: true},
				{Signal: "latency"},
				{Min: 4},
				{Signal: "overload", Min: -1},
				{Signal: "overload", Backoff: 1},
				{Signal: "overload", Grow: 0.0001},
			}).Draw(t, "adapt"),
		}
		c := Default()
		c.Throttles = []ThrottleTable{table}
		limits, err := table.Limits()
		require.Equal(t, err == nil, c.Validate() == nil)
		if err != nil {
			return
		}
		require.NoError(t, limits.Validate())
		require.NotEqual(t, throttle.Limits{}, limits)
		require.Equal(t, table.Concurrency, limits.Concurrency)
		require.Equal(t, table.Limit, limits.Limit)
		require.Equal(t, table.WindowMs*1e6, limits.Window)
		require.Equal(t, table.Adapt.Signal != "", limits.Adapt != adapt.Settings{})
		require.Equal(t, strconv.FormatFloat(table.Burst*throttle.One, 'f', 0, 64), strconv.FormatInt(limits.Burst, 10))
		if table.Rate != "" {
			rate, err := throttle.ParseRate(string(table.Rate))
			require.NoError(t, err)
			require.Equal(t, rate, limits.Rate)
		}
	})
}

// A [[circuit]] and [circuit_defaults] have the same limits, each under its key.
func TestCircuitLimits(t *testing.T) {
	require.Equal(t, reflect.TypeFor[CircuitLimits]().NumField(), len(EachCircuitLimit))
	for _, limit := range EachCircuitLimit {
		var limits CircuitLimits
		*limit.Of(&limits) = 7
		require.Equal(t, []string{"circuit_defaults: " + limit.Key + " 0 -> 7"},
			tableLine("circuit_defaults", "", CircuitLimits{}, limits))

		c := Default()
		limits = c.CircuitDefaults
		*limit.Of(&limits) = -1
		c.Circuits = []CircuitTable{{Key: "k", CircuitLimits: limits}}
		require.ErrorContains(t, c.Validate(), "circuit[k]."+limit.Key+" = -1: allowed is 0 to ")
	}
}

// A [[route]] has a choice and a name of its own in it, and gates that can exist.
func TestRouteTables(t *testing.T) {
	for want, routes := range map[string][]RouteTable{
		"":                        {{Choice: "a", Name: "one", CircuitKey: "c", ThrottleKeys: []string{"k"}, Weight: 2.5}, {Choice: "a", Name: "two"}, {Choice: "b", Name: "one"}},
		`choice "": allowed are`:  {{Name: "one"}},
		`name "x y": allowed are`: {{Choice: "a", Name: "x y"}},
		"a/one":                   {{Choice: "a", Name: "one"}, {Choice: "a", Name: "one"}},
		"key \"\\x01\"":           {{Choice: "a", Name: "one", CircuitKey: "\x01"}},
		"has an empty key":        {{Choice: "a", Name: "one", ThrottleKeys: []string{""}}},
		"allowed are at most 16":  {{Choice: "a", Name: "one", ThrottleKeys: make([]string, 17)}},
		"weight = 0.5":            {{Choice: "a", Name: "one", Weight: 0.5}},
		"more than 8 routes": {
			{Choice: "a", Name: "1"},
			{Choice: "a", Name: "2"},
			{Choice: "a", Name: "3"},
			{Choice: "a", Name: "4"},
			{Choice: "a", Name: "5"},
			{Choice: "a", Name: "6"},
			{Choice: "a", Name: "7"},
			{Choice: "a", Name: "8"},
			{Choice: "a", Name: "9"},
		},
	} {
		c := Default()
		c.Routes = routes
		if err := c.Validate(); want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
}
