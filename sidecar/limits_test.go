package sidecar

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

func TestParseThousandths(t *testing.T) {
	for s, want := range map[string]int64{"1": 1000, "2.5": 2500, "1.001": 1001, "0.25": 250, "12.30": 12_300, "1000000000": throttle.MaxBurst} {
		n, ok := parseThousandths(s, 1, throttle.MaxBurst)
		require.True(t, ok, s)
		require.Equal(t, want, n, s)
	}
	for _, s := range []string{"", ".", "1.", ".5", "1.0001", "-1", "+1", "1e3", "1 ", "0", "0.000", "1.-1", "1000000000.001", "99999999999999999999", "NaN", "0x1"} {
		_, ok := parseThousandths(s, 1, throttle.MaxBurst)
		require.False(t, ok, s)
	}
}

// TestTextsOfLimits goes from a request to texts and back.
func TestTextsOfLimits(t *testing.T) {
	rate, burst, n, window := wire.Rate("1/3"), 2.125, int64(7), int64(1500)
	full := wire.ThrottleLimits{Rate: &rate, Burst: &burst, Concurrency: &n, Limit: &n, WindowMs: &window}
	texts := textsOf(full)
	require.Equal(t, limitTexts{"rate": "1/3", "burst": "2.125", "concurrency": "7", "limit": "7", "window_ms": "1500"}, texts)
	require.Equal(t, full, texts.wire())
	require.Equal(t, "rate 1/3, burst 2.125, concurrency 7, limit 7, window_ms 1500", texts.String())
	require.Equal(t, throttle.Limits{
		Rate: throttle.Rate{Cost: 1000, Per: 3e9}, Burst: 2125, Concurrency: 7, Limit: 7, Window: int64(1500 * time.Millisecond),
	}, texts.limits())
	require.Nil(t, texts.check())
	require.NoError(t, texts.limits().Validate())

	none, zero, noBurst := wire.Rate(""), int64(0), 0.0
	require.Equal(t, limitTexts{"rate": "", "burst": "", "concurrency": "", "limit": "", "window_ms": ""},
		textsOf(wire.ThrottleLimits{Rate: &none, Burst: &noBurst, Concurrency: &zero, Limit: &zero, WindowMs: &zero}))
	require.Empty(t, textsOf(wire.ThrottleLimits{}))
	require.Equal(t, wire.ThrottleLimits{}, limitTexts(nil).wire())
	large := 1e9
	require.Equal(t, "1000000000", textsOf(wire.ThrottleLimits{Burst: &large})["burst"])

	for _, half := range []limitTexts{{"burst": "2"}, {"limit": "2"}, {"window_ms": "2"}, {"rate": "x", "burst": "2"}, nil} {
		require.Zero(t, half.limits())
	}
	require.Equal(t, limitTexts{"rate": "2", "limit": "3"},
		limitTexts{"rate": "1", "burst": "5"}.with(limitTexts{"rate": "2", "limit": "3"}, []string{"burst", "window_ms"}))
	require.False(t, setLimit(&throttle.Limits{}, "speed", "1"))
}

// TestLimitsAgreeWithTheWire takes what wire lets through, and refuses what it
// refuses, but for thousandths of a burst.
func TestLimitsAgreeWithTheWire(t *testing.T) {
	for _, text := range []string{
		"1", "0.5", "10.000", "1/3", "1/31536000", "1/31536001", "1000000000", "1000000001", "0", "0/1", "1/0", "", "1e3", "-1",
		"0.000000001", "0.0000001", "1.1234567891", "1000000000000000/1000000", "2/63072000", "9223372036854775807/9223372036854775807",
	} {
		require.Equal(t, wire.Rate(text).Check() == nil, isLimit(limitRate)(text), "rate %s", text)
	}
	for _, n := range []int64{-1, 1, 1000, wire.MaxGateValue, wire.MaxGateValue + 1, wire.MaxSettingMs, wire.MaxSettingMs + 1} {
		for _, l := range []wire.ThrottleLimits{{Concurrency: &n}, {Limit: &n}, {WindowMs: &n}} {
			require.Equal(t, l.Validate() == nil, textsOf(l).check() == nil, "%+v %d", l, n)
		}
	}
}

func TestSameLimit(t *testing.T) {
	for _, same := range [][3]string{{"rate", "0.5", "1/2"}, {"burst", "2", "2.0"}, {"limit", "07", "7"}, {"rate", "", ""}, {"rate", "x", "x"}} {
		require.True(t, sameLimit(same[0], same[1], same[2]), same)
	}
	for _, other := range [][3]string{{"rate", "0.5", "0.6"}, {"rate", "", "1"}, {"rate", "1", ""}, {"rate", "x", "y"}, {"burst", "x", "1"}} {
		require.False(t, sameLimit(other[0], other[1], other[2]), other)
	}
}
