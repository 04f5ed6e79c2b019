package wire

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestKeyTail(t *testing.T) {
	for key, want := range map[string][2]string{
		"stripe":   {"stripe", ""},
		"tenant:*": {"tenant:*", ""},
		"a.b":      {"a.b", ""},
		"vendor.*": {"_", "vendor.*"},
		"*":        {"_", "*"},
		"_":        {"_", "_"},
		"two words": {
			"_", "two words",
		},
		"a..b": {"_", "a..b"},
	} {
		tail, body := KeyTail(key)
		require.Equal(t, want, [2]string{tail, body}, key)
		got, err := resolveKey(tail, body)
		require.Nil(t, err, key)
		require.Equal(t, key, got)
	}
	key, err := resolveKey("a", "a")
	require.Nil(t, err)
	require.Equal(t, "a", key)
	for _, bad := range [][2]string{{"a", "b"}, {"_", ""}, {"", ""}, {"_", strings.Repeat("k", MaxKeyBytes+1)}, {strings.Repeat("k", MaxKeyBytes+1), ""}} {
		_, err := resolveKey(bad[0], bad[1])
		require.NotNil(t, err, bad)
		require.Equal(t, CodeBadField, err.ErrCode)
		require.Contains(t, err.Description, "key is ")
	}
}

func TestParseThrottleSet(t *testing.T) {
	r, err := ParseThrottleSet("_", []byte(`{"key":"two words","rate":"1/3","burst":2.5,"concurrency":5,"limit":100,"window_ms":60000,
		"for_ms":600000,"if":{"rate":"","burst":0,"concurrency":4}}`))
	require.Nil(t, err)
	require.Equal(t, "two words", r.Key)
	require.Equal(t, []string{"rate", "burst", "concurrency", "limit", "window_ms"}, r.Names())
	require.Equal(t, Rate("1/3"), *r.Rate)
	require.InDelta(t, 2.5, *r.Burst, 0)
	require.EqualValues(t, 600_000, r.ForMs)
	require.Equal(t, []string{"rate", "burst", "concurrency"}, r.If.Names())

	r, err = ParseThrottleSet("tenant:*", []byte(`{"unset":["burst","rate"],"limit":1}`))
	require.Nil(t, err)
	require.Equal(t, "tenant:*", r.Key)
	require.Equal(t, []string{"burst", "rate"}, r.Unset)

	for _, tc := range []struct {
		body string
		code int
		text string
	}{
		{``, CodeBadThrottle, "nothing to set"},
		{`{"if":{"rate":"5"},"for_ms":1}`, CodeBadThrottle, "nothing to set"},
		{`{"rate":null}`, CodeBadThrottle, "nothing to set"},
		{`{"rate":"fast"}`, CodeBadThrottle, `rate is "fast": allowed is a number per second`},
		{`{"rate":0}`, CodeBadThrottle, `rate is "0"`},
		{`{"rate":""}`, CodeBadThrottle, `rate is ""`},
		{`{"burst":0}`, CodeBadThrottle, "burst is 0: allowed are 1 to 1000000000"},
		{`{"burst":0.5}`, CodeBadThrottle, "burst is 0.5"},
		{`{"burst":1e10}`, CodeBadThrottle, "burst is 1e+10"},
		{`{"concurrency":0}`, CodeBadThrottle, "concurrency is 0: allowed are 1 to 1000000000"},
		{`{"concurrency":1000000001}`, CodeBadThrottle, "concurrency is 1000000001"},
		{`{"limit":-1}`, CodeBadThrottle, "limit is -1"},
		{`{"window_ms":0}`, CodeBadThrottle, "window_ms is 0: allowed are 1 to 31536000000"},
		{`{"window_ms":31536000001}`, CodeBadThrottle, "window_ms is 31536000001"},
		{`{"unset":["speed"]}`, CodeBadThrottle, `unset names "speed"`},
		{`{"unset":["rate","rate"]}`, CodeBadThrottle, "twice"},
		{`{"rate":1,"unset":["rate"]}`, CodeBadThrottle, "rate is given and in unset"},
		{`{"rate":1,"if":{"limit":-1}}`, CodeBadThrottle, "limit is -1"},
		{`{"rate":1,"if":{"rate":"x"}}`, CodeBadThrottle, `rate is "x"`},
		{`{"rate":1,"if":{"speed":1}}`, CodeBadJSON, "speed"},
		{`{"rate":1,"for_ms":-1}`, CodeBadField, "for_ms is -1"},
		{`{"rate":1,"for_ms":31536000001}`, CodeBadField, "for_ms is 31536000001"},
		{`{"rate":1,"key":"other"}`, CodeBadField, `the subject names "k"`},
		{`{"limit":1.5}`, CodeBadJSON, "limit: a whole number"},
		{`{"speed":1}`, CodeUnknownField, "allowed are key, rate, burst, concurrency, limit, window_ms, unset, for_ms, if"},
	} {
		got, err := ParseThrottleSet("k", []byte(tc.body))
		require.NotNil(t, err, tc.body)
		require.Equal(t, tc.code, err.ErrCode, "%s: %v", tc.body, err)
		require.Contains(t, err.Description, tc.text)
		require.Zero(t, got)
	}
	rate := Rate("x")
	require.NotNil(t, ThrottleLimits{Rate: &rate}.Validate())
	require.Nil(t, ThrottleLimits{}.Validate())
}

func TestParseGateRequests(t *testing.T) {
	key, err := ParseThrottleKey("stripe", nil)
	require.Nil(t, err)
	require.Equal(t, "stripe", key.Key)
	circuit, err := ParseCircuitKey("_", []byte(`{"key":"a b"}`))
	require.Nil(t, err)
	require.Equal(t, "a b", circuit.Key)
	open, err := ParseCircuitOpen("stripe", []byte(`{"for_ms":5000}`))
	require.Nil(t, err)
	require.Equal(t, CircuitOpenRequest{Key: "stripe", ForMs: 5000}, open)
	list, err := ParseGateList([]byte(`{"prefix":"tenant:","offset":1}`))
	require.Nil(t, err)
	require.Equal(t, GateListRequest{Prefix: "tenant:", Offset: 1, Limit: 100}, list)
	pauses, err := ParsePauseList(nil)
	require.Nil(t, err)
	require.Equal(t, ListRequest{Limit: 100}, pauses)
	log, err := ParseConfigLog([]byte(`{"prefix":"throttle:","limit":1000}`))
	require.Nil(t, err)
	require.Equal(t, ConfigLogRequest{Prefix: "throttle:", Limit: 1000}, log)
	for _, body := range []string{
		`{"kind":"message","id":"x"}`, `{"kind":"message","id":"x","queue":"q.dlq"}`, `{"kind":"key","queue":"q","key":"a b"}`, `{"kind":"queue","queue":"q"}`,
	} {
		_, err := ParseExplain([]byte(body))
		require.Nil(t, err, body)
	}
}

func TestParseGateRequestsRefused(t *testing.T) {
	parsers := map[string]func([]byte) *Error{
		"throttle-set":  func(b []byte) *Error { _, err := ParseThrottleSet("k", b); return err },
		"throttle-key":  func(b []byte) *Error { _, err := ParseThrottleKey("k", b); return err },
		"throttle-list": func(b []byte) *Error { _, err := ParseGateList(b); return err },
		"circuit-key":   func(b []byte) *Error { _, err := ParseCircuitKey("_", b); return err },
		"circuit-open":  func(b []byte) *Error { _, err := ParseCircuitOpen("k", b); return err },
		"pause":         func(b []byte) *Error { _, err := ParsePause(b); return err },
		"resume":        func(b []byte) *Error { _, err := ParseResume(b); return err },
		"pause-list":    func(b []byte) *Error { _, err := ParsePauseList(b); return err },
		"config-log":    func(b []byte) *Error { _, err := ParseConfigLog(b); return err },
		"explain":       func(b []byte) *Error { _, err := ParseExplain(b); return err },
	}
	for name, parse := range parsers {
		err := parse([]byte(`{"unheard_of":1}`))
		require.NotNil(t, err, name)
		require.Equal(t, CodeUnknownField, err.ErrCode, name)
		err = parse([]byte("[]"))
		require.NotNil(t, err, name)
		require.Equal(t, CodeBadJSON, err.ErrCode, name)
	}
	long := strings.Repeat("k", MaxKeyBytes+1)
	for _, tc := range []struct {
		parser, body string
		code         int
		text         string
	}{
		{"throttle-key", `{"key":"other"}`, CodeBadField, `the subject names "k"`},
		{"circuit-key", ``, CodeBadField, "key is missing"},
		{"circuit-open", `{"for_ms":-1}`, CodeBadField, "for_ms is -1"},
		{"circuit-open", `{"key":"x"}`, CodeBadField, "the subject names"},
		{"throttle-list", `{"limit":0}`, CodeBadField, "limit is 0"},
		{"config-log", `{"limit":1001}`, CodeBadField, "limit is 1001"},
		{"config-log", `{"offset":-1}`, CodeBadField, "offset is -1"},
		{"pause", ``, CodeBadField, `kind is ""`},
		{"pause", `{"kind":"tenant","name":"a"}`, CodeBadField, "allowed are queue, key, throttle and circuit"},
		{"pause", `{"kind":"queue"}`, CodeBadField, "allowed is the name of a queue"},
		{"pause", `{"kind":"queue","name":"a b"}`, CodeBadField, `name is "a b"`},
		{"pause", `{"kind":"queue","name":"a","queue":"a"}`, CodeBadField, "only a fairness key has one"},
		{"pause", `{"kind":"throttle","name":""}`, CodeBadField, "name is missing"},
		{"pause", `{"kind":"circuit","name":"` + long + `"}`, CodeBadField, "1 to 256 bytes"},
		{"pause", `{"kind":"key","name":"a"}`, CodeBadField, "a fairness key needs the name of its queue"},
		{"pause", `{"kind":"queue","name":"a","for_ms":-1}`, CodeBadField, "for_ms is -1"},
		{"pause", `{"kind":"queue","name":"a","until":"tomorrow"}`, CodeBadField, `until is "tomorrow": allowed is a future time as RFC 3339`},
		{"pause", `{"kind":"queue","name":"a","until":"9999-01-01T00:00:00Z"}`, CodeBadField, "within 365 days"},
		{"pause", `{"kind":"queue","name":"a","until":"2030-01-01T00:00:00Z","for_ms":1}`, CodeBadField, "not together with for_ms"},
		{"resume", `{"kind":"queue","name":"a","until":"2030-01-01T00:00:00Z"}`, CodeBadField, "only a pause has a time"},
		{"resume", `{"kind":"queue","name":"a","for_ms":1}`, CodeBadField, "only a pause has a time"},
		{"resume", `{"kind":"queue"}`, CodeBadField, "name"},
		{"explain", ``, CodeBadField, `kind is "": allowed are message, key and queue`},
		{"explain", `{"kind":"message"}`, CodeBadField, "id is missing"},
		{"explain", `{"kind":"message","id":"x","key":"y"}`, CodeBadField, "a message is named by its id"},
		{"explain", `{"kind":"message","id":"x","queue":"a b"}`, CodeBadQueueName, `"a b"`},
		{"explain", `{"kind":"key","queue":"q"}`, CodeBadField, "key is missing"},
		{"explain", `{"kind":"key","key":"k"}`, CodeBadQueueName, `""`},
		{"explain", `{"kind":"key","queue":"q","key":"k","id":"x"}`, CodeBadField, "ask for kind message"},
		{"explain", `{"kind":"queue"}`, CodeBadQueueName, `""`},
		{"explain", `{"kind":"queue","queue":"q","key":"k"}`, CodeBadField, "ask for kind key"},
	} {
		err := parsers[tc.parser]([]byte(tc.body))
		require.NotNil(t, err, "%s %s", tc.parser, tc.body)
		require.Equal(t, tc.code, err.ErrCode, "%s %.80s: %v", tc.parser, tc.body, err)
		require.Contains(t, err.Description, tc.text, "%s %.80s", tc.parser, tc.body)
	}
}

func TestPauseEnd(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano()
	for _, tc := range []struct {
		r    PauseRequest
		want int64
	}{
		{PauseRequest{}, math.MaxInt64},
		{PauseRequest{ForMs: 1}, now + int64(time.Millisecond)},
		{PauseRequest{ForMs: MaxSettingMs}, now + MaxSettingMs*int64(time.Millisecond)},
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

// Whatever a client sends, the answer is a refusal or a request within bounds.
func FuzzGateRequests(f *testing.F) {
	for _, s := range []string{
		`{"rate":10,"burst":20,"for_ms":600000}`, `{"key":"a b","unset":["rate"],"if":{"rate":"","limit":0}}`, `{"kind":"key","queue":"q","name":"k","for_ms":1}`,
		`{"kind":"queue","name":"q","until":"2030-01-01T00:00:00Z"}`, `{"kind":"message","id":"x"}`, `{"kind":"key","queue":"q","key":"k"}`, `{"key":"*"}`, `{"limit":1}`,
	} {
		f.Add("k", []byte(s))
		f.Add("_", []byte(s))
	}
	f.Fuzz(func(t *testing.T, tail string, body []byte) {
		if r, err := ParseThrottleSet(tail, body); err == nil {
			require.NotEmpty(t, r.Key)
			require.LessOrEqual(t, len(r.Key), MaxKeyBytes)
			require.NotZero(t, len(r.Names())+len(r.Unset))
			require.Nil(t, r.Validate())
		}
		if r, err := ParseCircuitOpen(tail, body); err == nil {
			require.NotEmpty(t, r.Key)
			require.True(t, r.ForMs >= 0 && r.ForMs <= MaxSettingMs)
		}
		if r, err := ParsePause(body); err == nil {
			until, err := r.End(0)
			require.True(t, err != nil || until > 0)
		}
		if r, err := ParseExplain(body); err == nil {
			require.Contains(t, []string{ExplainKindMessage, ExplainKindKey, ExplainKindQueue}, r.Kind)
		}
		for _, err := range []*Error{
			func() *Error { _, err := ParseThrottleKey(tail, body); return err }(),
			func() *Error { _, err := ParseGateList(body); return err }(),
			func() *Error { _, err := ParseConfigLog(body); return err }(),
		} {
			require.True(t, err == nil || err.Code == 400)
		}
	})
}
