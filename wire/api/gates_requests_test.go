package api

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

func TestKeyTail(t *testing.T) {
	for key, want := range map[string][2]string{
		"stripe":    {"stripe", ""},
		"tenant:*":  {"tenant:*", ""},
		"a.b":       {"a.b", ""},
		"vendor.*":  {"_", "vendor.*"},
		"*":         {"_", "*"},
		"_":         {"_", "_"},
		"a..b":      {"_", "a..b"},
		"two words": {"_", "two words"},
	} {
		tail, body := KeyTail(key)
		require.Equal(t, want, [2]string{tail, body}, key)
		require.Nil(t, resolveKey(tail, &body), key)
		require.Equal(t, key, body)
	}
	key := "a"
	require.Nil(t, resolveKey("a", &key))
	require.Equal(t, "a", key)
	for _, bad := range [][2]string{{"a", "b"}, {"_", ""}, {"", ""}, {"_", strings.Repeat("k", wire.MaxKeyBytes+1)}, {strings.Repeat("k", wire.MaxKeyBytes+1), ""}} {
		requireRefused(t, resolveKey(bad[0], &bad[1]), wire.CodeBadField, "key is ", bad[0])
	}
}

func TestParseThrottleSet(t *testing.T) {
	r, err := VerbThrottleSet.Parse("_", []byte(`{"key":"two words","rate":"1/3","burst":2.5,"concurrency":5,"limit":100,"window_ms":60000,
		"for_ms":600000,"if":{"rate":"","burst":0,"concurrency":4}}`))
	require.Nil(t, err)
	require.Equal(t, "two words", r.Key)
	require.Equal(t, []string{"rate", "burst", "concurrency", "limit", "window_ms"}, r.Names())
	require.Equal(t, wire.Rate("1/3"), *r.Rate)
	require.InDelta(t, 2.5, *r.Burst, 0)
	require.EqualValues(t, 600_000, r.ForMs)
	require.Equal(t, []string{"rate", "burst", "concurrency"}, r.If.Names())

	rate := wire.Rate("x")
	require.NotNil(t, ThrottleLimits{Rate: &rate}.Validate())
	require.Nil(t, ThrottleLimits{}.Validate())
}

func TestPauseEnd(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano()
	for _, tc := range []struct {
		r    PauseRequest
		want int64
	}{
		{PauseRequest{}, math.MaxInt64},
		{PauseRequest{ForMs: 1}, now + int64(time.Millisecond)},
		{PauseRequest{ForMs: wire.MaxSettingMs}, now + wire.MaxSettingMs*int64(time.Millisecond)},
		{PauseRequest{Until: "2026-01-02T03:04:06Z"}, now + int64(time.Second)},
		{PauseRequest{Until: "2026-01-02T04:04:05.5+01:00"}, now + int64(time.Second)/2},
	} {
		got, err := tc.r.End(now)
		require.Nil(t, err, tc.r)
		require.Equal(t, tc.want, got, tc.r)
	}
	for _, until := range []string{"2026-01-02T03:04:05Z", "2025-01-02T03:04:05Z", "2027-01-03T03:04:05Z", "1000-01-01T00:00:00Z", "soon"} {
		_, err := PauseRequest{Until: until}.End(now)
		require.NotNil(t, err, until)
		require.Contains(t, err.Description, "allowed is a future time as RFC 3339")
	}
}

// Any input is refused or is a request within bounds.
func FuzzGateRequests(f *testing.F) {
	for _, s := range []string{
		`{"rate":10,"burst":20,"for_ms":600000}`, `{"key":"a b","unset":["rate"],"if":{"rate":"","limit":0}}`, `{"kind":"key","queue":"q","name":"k","for_ms":1}`,
		`{"kind":"queue","name":"q","until":"2030-01-01T00:00:00Z"}`, `{"kind":"message","id":"x"}`, `{"kind":"key","queue":"q","key":"k"}`, `{"key":"*"}`, `{"limit":1}`,
	} {
		f.Add("k", []byte(s))
		f.Add("_", []byte(s))
	}
	f.Fuzz(func(t *testing.T, tail string, body []byte) {
		if r, err := VerbThrottleSet.Parse(tail, body); err == nil {
			require.NotEmpty(t, r.Key)
			require.LessOrEqual(t, len(r.Key), wire.MaxKeyBytes)
			require.NotZero(t, len(r.Names())+len(r.Unset))
			require.Nil(t, r.Validate())
		}
		if r, err := VerbCircuitOpen.Parse(tail, body); err == nil {
			require.NotEmpty(t, r.Key)
			require.True(t, r.ForMs >= 0 && r.ForMs <= wire.MaxSettingMs)
		}
		if r, err := VerbPause.Parse("", body); err == nil {
			until, err := r.End(0)
			require.True(t, err != nil || until > 0)
		}
		if r, err := VerbExplain.Parse("", body); err == nil {
			require.Contains(t, []string{ExplainKindMessage, ExplainKindKey, ExplainKindQueue}, r.Kind)
		}
		_, keyErr := VerbThrottleShow.Parse(tail, body)
		_, listErr := VerbConfigList.Parse("", body)
		for _, err := range []*wire.Error{keyErr, listErr} {
			require.True(t, err == nil || err.Code == 400)
		}
	})
}

// Setting a budget back that was removed since expects that there is none.
func TestSetBackARemovedBudget(t *testing.T) {
	budget, period, zone, parts, onEmpty := 5.0, "day", "Asia/Tokyo", []float64{0.5}, "refuse"
	change := LimitsChange{Old: ThrottleLimits{Budget: &budget, Period: &period, Zone: &zone, WarnAt: &parts, OnEmpty: &onEmpty}}
	req := change.Back()
	req.Key = "k"
	require.Nil(t, req.check())
	require.Equal(t, []string{"budget", "period", "zone", "warn_at", "on_empty"}, req.If.Names())
	require.Equal(t, ThrottleLimits{Budget: new(float64), Period: new(string), Zone: new(string), WarnAt: new([]float64), OnEmpty: new(string)}, *req.If)
}
