package terminal

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseMs(t *testing.T) {
	for in, want := range map[string]int64{
		"0": 0, "30000": 30_000, "30s": 30_000, "1h30m": 5_400_000, "1.5s": 1_500, "5ms": 5, "1000us": 1,
		"9223372036854": 9_223_372_036_854,
	} {
		got, err := ParseMs(in)
		require.NoError(t, err, in)
		require.Equal(t, want, got, in)
	}
	for _, in := range []string{"", "abc", "-1", "-5s", "30 s", "1d", "1.5", "9223372036855", "99999999999999999999", "10us", "1e3"} {
		_, err := ParseMs(in)
		require.Error(t, err, in)
		require.ErrorContains(t, err, "allowed", in)
	}
}

func TestFormatMs(t *testing.T) {
	for in, want := range map[int64]string{
		0: "0s", 5: "5ms", 1_500: "1.5s", 30_000: "30s", 90_000: "1m30s", 120_000: "2m", 3_600_000: "1h", 5_400_000: "1h30m0s",
	} {
		require.Equal(t, want, FormatMs(in))
		back, err := ParseMs(want)
		require.NoError(t, err)
		require.Equal(t, in, back)
	}
}
