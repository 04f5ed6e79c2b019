package config

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/filaq/fila/throttle"
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
		require.Equal(t, strconv.FormatFloat(table.Burst*throttle.One, 'f', 0, 64), strconv.FormatInt(limits.Burst, 10))
		if table.Rate != "" {
			rate, err := throttle.ParseRate(string(table.Rate))
			require.NoError(t, err)
			require.Equal(t, rate, limits.Rate)
		}
	})
}

// A [[circuit]] and [circuit_defaults] have the same limits, each under its key.
func TestCircuitTableFields(t *testing.T) {
	for _, key := range []string{
		"threshold", "cooldown_ms", "half_open_max_calls", "half_open_successes", "max_failures", "failure_window_ms", "failure_hold_ms",
	} {
		var table CircuitTable
		*table.Field(key) = 7
		require.Equal(t, []Change{{Table: "circuit", Field: key, Old: int64(0), New: int64(7)}}, circuitChanges(CircuitTable{}, table))

		c := Default()
		table = c.CircuitDefaults.Table()
		*table.Field(key) = -1
		c.Circuits = []CircuitTable{table}
		c.Circuits[0].Key = "k"
		require.ErrorContains(t, c.Validate(), "circuit[k]."+key+" = -1: allowed is 0 to ")
	}
	require.Nil(t, new(CircuitTable).Field("key"))
}
