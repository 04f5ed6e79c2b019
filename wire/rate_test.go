package wire

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRateCheck(t *testing.T) {
	for _, ok := range []Rate{"10", "0.5", ".5", "1/3", "2/4", "1000000000", "1/31536000", "0.1234567", "007", "10.000000000"} {
		require.NoError(t, ok.Check(), "%q", ok)
	}
	for _, bad := range []Rate{
		"", "0", "0.0", "-1", "+1", "1e3", "1.", ".", "/", "1/", "/3", "0/3", "1/0", "1/2/3", "1.5/2", "1 ", " 1", "1_0", "0x1", "ten", "NaN", "Inf",
		"1000000001", "1/31536001", "0.1234567891", "0.000000001", "99999999999999999999", "1/99999999999999999999", "9223372036854775807/9223372036854775806",
	} {
		require.ErrorContains(t, bad.Check(), "allowed is a number per second", "%q", bad)
	}
}

func TestRateJSON(t *testing.T) {
	for text, want := range map[string]Rate{
		`"10"`: "10", `10`: "10", `0.5`: "0.5", `"1\/3"`: "1/3", `-1`: "-1", `1e3`: "1e3", `""`: "", `null`: "",
	} {
		var l struct{ Rate Rate }
		require.NoError(t, json.Unmarshal([]byte(`{"rate":`+text+`}`), &l), text)
		require.Equal(t, want, l.Rate, text)
		b, err := json.Marshal(l.Rate)
		require.NoError(t, err)
		require.Equal(t, byte('"'), b[0], "always a string, so that nothing is rounded")
	}
}

func FuzzRate(f *testing.F) {
	for _, s := range []string{"10", "0.5", "1/3", ".5", "-1", "1e3", "1/0", "999999999999999999999", "1000000000"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		quoted, err := json.Marshal(s)
		require.NoError(t, err)
		var r Rate
		require.NoError(t, json.Unmarshal(quoted, &r))
		if r.Check() != nil {
			return
		}
		require.Equal(t, s, string(r))
		require.NotEmpty(t, s)
		again, err := json.Marshal(r)
		require.NoError(t, err)
		var back Rate
		require.NoError(t, json.Unmarshal(again, &back))
		require.Equal(t, r, back)
	})
}
