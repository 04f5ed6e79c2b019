package rate

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseAndFormat(t *testing.T) {
	for text, want := range map[string]struct {
		messages, seconds int64
		text              string
	}{
		"1": {1, 1, "1"}, "10.000": {10, 1, "10"}, ".5": {1, 2, "0.5"}, "1/2": {1, 2, "0.5"}, "5/2": {5, 2, "2.5"}, "2.50": {5, 2, "2.5"},
		"1/3": {1, 3, "1/3"}, "2/6": {1, 3, "1/3"}, "10/3": {10, 3, "10/3"}, "1/8": {1, 8, "0.125"}, "0.05": {1, 20, "0.05"},
		"100/86400": {1, 864, "1/864"}, "0.123456": {1929, 15625, "0.123456"}, "0.000000032": {1, 31_250_000, "0.000000032"},
		"1/31536000": {1, MaxSeconds, "1/31536000"}, "1000000000": {MaxPerSecond, 1, "1000000000"}, "999999999.5": {1_999_999_999, 2, "999999999.5"},
	} {
		n, d, err := Parse(text)
		require.NoError(t, err, text)
		require.Equal(t, []int64{want.messages, want.seconds}, []int64{n, d}, text)
		require.Equal(t, want.text, Format(n, d), text)
		n, d, err = Parse(want.text)
		require.NoError(t, err, text)
		require.Equal(t, []int64{want.messages, want.seconds}, []int64{n, d}, "Parse(Format) of %s", text)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{
		"", "0", "-1", "+1", "1e3", "NaN", "1/0", "0/1", "1.", "1.0000000001", "1000000001", "1/31536001", "1/2/3", " 1", "1_0",
		"99999999999999999999", "1000000000000000/3", "0.00000001",
	} {
		_, _, err := Parse(text)
		require.ErrorIs(t, err, ErrSyntax, text)
	}
}
