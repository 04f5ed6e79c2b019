package control

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Limits come in a request and go out in a reply.
func TestLimitsOfRequestsAndReplies(t *testing.T) {
	rate, burst, n, window := wire.Rate("1/3"), 2.125, int64(7), int64(1500)
	full := api.ThrottleLimits{Rate: &rate, Burst: &burst, Concurrency: &n, Limit: &n, WindowMs: &window}
	texts := limitTexts(full)
	require.Equal(t, map[string]string{"rate": "1/3", "burst": "2.125", "concurrency": "7", "limit": "7", "window_ms": "1500"}, texts)
	require.Nil(t, checkLimits(texts))
	limits := (&override{Set: texts}).over(throttle.Limits{})
	require.Equal(t, throttle.Limits{Rate: throttle.Rate{Cost: 1000, Per: 3e9}, Burst: 2125, Concurrency: 7, Limit: 7, Window: 1_500_000_000}, limits)
	require.NoError(t, limits.Validate())
	require.Equal(t, full, WireLimits(limits))

	none, zero, noBurst := wire.Rate(""), int64(0), 0.0
	texts = limitTexts(api.ThrottleLimits{Rate: &none, Burst: &noBurst, Concurrency: &zero, Limit: &zero, WindowMs: &zero})
	require.Equal(t, map[string]string{"rate": "", "burst": "", "concurrency": "", "limit": "", "window_ms": ""}, texts)
	require.Nil(t, checkLimits(texts))
	require.Zero(t, (&override{Set: texts}).over(limits))
	require.Empty(t, limitTexts(api.ThrottleLimits{}))
	require.Equal(t, api.ThrottleLimits{}, WireLimits(throttle.Limits{}))
	large := 1e9
	require.Equal(t, "1000000000", limitTexts(api.ThrottleLimits{Burst: &large})["burst"])
	err := checkLimits(map[string]string{"burst": "1.0005"})
	refused(t, wire.CodeBadThrottle, err)
	require.Equal(t, `burst is "1.0005": allowed is a number of messages from 1 to 1000000000, with up to three digits after the point`, err.Description)
}

// A burst without a rate and a limit without a window have no effect.
func TestCompleteLimits(t *testing.T) {
	for _, half := range []throttle.Limits{{Burst: 2000}, {Limit: 2}, {Window: 2}, {}} {
		require.Zero(t, complete(half))
	}
	whole := throttle.Limits{Rate: perSecond(1), Burst: 2000, Limit: 3, Window: 4, Concurrency: 5}
	require.Equal(t, whole, complete(whole))
}

// An override is read as it was stored, and describes itself.
func TestOverridesAreKept(t *testing.T) {
	o := &override{Set: map[string]string{"rate": "2", "limit": "3"}, Unset: []string{"window_ms", "burst"}, Until: 1_700_000_000_000_000_000}
	text := toJSON(t, o)
	require.JSONEq(t, `{"set":{"rate":"2","limit":"3"},"unset":["window_ms","burst"],"until":1700000000000000000}`, text)
	require.Equal(t, "rate 2, limit 3, without burst, window_ms, until 2023-11-14T22:13:20Z", *o.audited())
	require.Nil(t, (*override)(nil).audited())
	again, err := readOverride(text)
	require.NoError(t, err)
	under := throttle.Limits{Rate: perSecond(1), Burst: 5000, Concurrency: 6, Window: 7}
	over := throttle.Limits{Rate: perSecond(2), Limit: 3, Concurrency: 6}
	require.Equal(t, over, o.over(under))
	require.Equal(t, over, again.over(under))
	require.Equal(t, under, (*override)(nil).over(under))
	for _, bad := range []string{"?", `{"set":{"rate":"x"}}`} {
		_, err = readOverride(bad)
		require.Error(t, err)
	}
}

// The table accepts and refuses the same values as wire, except for thousandths of a burst.
func TestLimitsAgreeWithTheWire(t *testing.T) {
	for _, text := range []string{
		"1", "0.5", "10.000", "1/3", "1/31536000", "1/31536001", "1000000000", "1000000001", "0", "0/1", "1/0", "", "1e3", "-1",
		"0.000000001", "0.0000001", "1.1234567891", "1000000000000000/1000000", "2/63072000", "9223372036854775807/9223372036854775807",
	} {
		require.Equal(t, wire.Rate(text).Check() == nil, checkMeaning("throttle:k:rate", text) == nil, "rate %s", text)
	}
	for _, n := range []int64{-1, 1, 1000, api.MaxGateValue, api.MaxGateValue + 1, wire.MaxSettingMs, wire.MaxSettingMs + 1} {
		for _, l := range []api.ThrottleLimits{{Concurrency: &n}, {Limit: &n}, {WindowMs: &n}} {
			require.Equal(t, l.Validate() == nil, checkLimits(limitTexts(l)) == nil, "%+v %d", l, n)
		}
	}
}
