package terminal

import (
	"testing"
	"time"

	"github.com/filaq/fila/wire"

	"github.com/stretchr/testify/require"
)

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		1500 * time.Microsecond: "1ms", 900 * time.Millisecond: "900ms", 1540 * time.Millisecond: "1.5s", 59*time.Second + 999*time.Millisecond: "1m",
		time.Minute: "1m", 90*time.Second + 1: "1m30s", time.Hour: "1h", 10*time.Minute - 20*time.Millisecond: "10m", 90*time.Minute + 29*time.Second: "1h30m", 47 * time.Hour: "47h",
		time.Hour - 1:  "1h",
		49 * time.Hour: "2d1h",
	} {
		require.Equal(t, want, Span(d))
	}
	a := Clock(func() time.Time { return time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC) })
	require.Equal(t, "2026-01-02T12:00:00Z (now)", a.When("2026-01-02T12:00:00.0001Z"))
	require.Equal(t, "2026-01-02T11:59:58Z (2s ago)", a.When("2026-01-02T13:59:58+02:00"))
	require.Equal(t, "-", a.When(""))
	for stamp, want := range map[string]string{
		"2026-01-02T11:59:59.922Z": "78ms", "2026-01-02T10:29:00Z": "1h31m", "2026-01-02T12:00:01Z": "0s", "": "-",
	} {
		require.Equal(t, want, a.Age(stamp), "an age is no \"ago\"")
	}
	for ms, want := range map[int64]string{0: "-", -1: "-", 1: "1ms", 90_500: "1m31s", 49 * 3_600_000: "2d1h"} {
		require.Equal(t, want, Age(ms))
	}
	require.Equal(t, "soon", a.When("soon"))
	require.Equal(t, "in 1h", a.Soon("2026-01-02T13:00:00Z"))
}

func TestParseMs(t *testing.T) {
	for in, want := range map[string]int64{
		"0": 0, "30s": 30_000, "1h30m": 5_400_000, "1.5s": 1_500, "5ms": 5, "1000us": 1,
		"9223372036854ms": 9_223_372_036_854,
	} {
		got, err := ParseMs(in)
		require.NoError(t, err, in)
		require.Equal(t, want, got, in)
	}
	for _, in := range []string{"", "abc", "-1", "5", "30000", "-5s", "30 s", "1d", "1.5", "9223372036855ms", "99999999999999999999s", "10us", "1e3"} {
		_, err := ParseMs(in)
		require.Error(t, err, in)
		require.ErrorContains(t, err, "allowed", in)
	}
	_, err := ParseMs("5")
	require.ErrorContains(t, err, `"5" has no unit: write 5ms or 5s`)
	require.ErrorContains(t, new(Duration).Set("1.5"), "write 1.5ms or 1.5s")
}

func TestFormatMs(t *testing.T) {
	for in, want := range map[int64]string{
		0: "0s", 5: "5ms", 1_500: "1.5s", 30_000: "30s", 90_000: "1m30s", 120_000: "2m", 3_600_000: "1h", 5_400_000: "1h30m", 3_661_000: "1h1m1s",
	} {
		require.Equal(t, want, wire.FormatMs(in))
		back, err := ParseMs(want)
		require.NoError(t, err)
		require.Equal(t, in, back)
	}
}
