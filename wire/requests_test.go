package wire

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseRequests(t *testing.T) {
	consume, err := ParseConsume([]byte(`{"consumer":"worker-1"}`))
	require.Nil(t, err)
	require.Equal(t, ConsumeRequest{Consumer: "worker-1", MaxInFlight: 64}, consume)
	consume, err = ParseConsume([]byte(`{"consumer":"w","max_in_flight":65536,"ttl_ms":1500,"leave":true}`))
	require.Nil(t, err)
	require.Equal(t, ConsumeRequest{Consumer: "w", MaxInFlight: 65536, TTLMs: 1500, Leave: true}, consume)
	require.Equal(t, 1500*time.Millisecond, consume.TTL())

	fetch, err := ParseFetch(nil)
	require.Nil(t, err)
	require.Equal(t, FetchRequest{Batch: 1}, fetch)
	fetch, err = ParseFetch([]byte(`{"batch":10,"expires_ms":5000}`))
	require.Nil(t, err)
	require.Equal(t, 5*time.Second, fetch.Expires())
	require.Equal(t, 10, fetch.Batch)

	del, err := ParseQueueDelete([]byte(`{"force":true}`))
	require.Nil(t, err)
	require.True(t, del.Force)

	list, err := ParseList(nil)
	require.Nil(t, err)
	require.Equal(t, ListRequest{Limit: 100}, list)

	inspect, err := ParseQueueInspect(nil)
	require.Nil(t, err)
	require.Equal(t, 20, inspect.Flows)
	inspect, err = ParseQueueInspect([]byte(`{"flows":0}`))
	require.Nil(t, err)
	require.Zero(t, inspect.Flows)

	set, err := ParseConfigSet("k", []byte(`{"value":""}`))
	require.Nil(t, err)
	require.Equal(t, ConfigSetRequest{}, set)

	configs, err := ParseConfigList([]byte(`{"prefix":"throttle:","offset":5,"limit":1000}`))
	require.Nil(t, err)
	require.Equal(t, ConfigListRequest{Prefix: "throttle:", Offset: 5, Limit: 1000}, configs)

	redrive, err := ParseRedrive(nil)
	require.Nil(t, err)
	require.Zero(t, redrive.Count)

	reset, err := ParseHookReset([]byte(`{"hook":"on_failure"}`))
	require.Nil(t, err)
	require.Equal(t, HookOnFailure, reset.Hook)
}

func TestParseRequestsRefused(t *testing.T) {
	parsers := map[string]func([]byte) *Error{
		"consume":    func(b []byte) *Error { _, err := ParseConsume(b); return err },
		"fetch":      func(b []byte) *Error { _, err := ParseFetch(b); return err },
		"delete":     func(b []byte) *Error { _, err := ParseQueueDelete(b); return err },
		"list":       func(b []byte) *Error { _, err := ParseList(b); return err },
		"inspect":    func(b []byte) *Error { _, err := ParseQueueInspect(b); return err },
		"set":        func(b []byte) *Error { _, err := ParseConfigSet("k", b); return err },
		"configs":    func(b []byte) *Error { _, err := ParseConfigList(b); return err },
		"redrive":    func(b []byte) *Error { _, err := ParseRedrive(b); return err },
		"hook-reset": func(b []byte) *Error { _, err := ParseHookReset(b); return err },
		"empty":      ParseEmpty,
	}
	for name, parse := range parsers {
		err := parse([]byte(`{"unheard_of":1}`))
		require.NotNil(t, err, name)
		require.Equal(t, CodeUnknownField, err.ErrCode, name)
		err = parse([]byte("[]"))
		require.NotNil(t, err, name)
		require.Equal(t, CodeBadJSON, err.ErrCode, name)
	}
	for _, tc := range []struct {
		parser, body string
		code         int
		text         string
	}{
		{"consume", "", CodeBadConsumerName, `consumer name ""`},
		{"consume", `{"consumer":"a.b"}`, CodeBadConsumerName, "allowed are 1 to 64 bytes"},
		{"consume", `{"consumer":"w","max_in_flight":0}`, CodeBadField, "max_in_flight is 0: allowed are 1 to 65536"},
		{"consume", `{"consumer":"w","max_in_flight":-1}`, CodeBadField, "max_in_flight is -1"},
		{"consume", `{"consumer":"w","max_in_flight":65537}`, CodeBadField, "max_in_flight is 65537"},
		{"consume", `{"consumer":"w","ttl_ms":-1}`, CodeBadField, "ttl_ms is -1"},
		{"consume", `{"consumer":"w","ttl_ms":9223372036854775807}`, CodeBadField, "ttl_ms is 9223372036854775807"},
		{"fetch", `{"batch":0}`, CodeBadField, "batch is 0: allowed are 1 to 65536"},
		{"fetch", `{"batch":65537}`, CodeBadField, "batch is 65537"},
		{"fetch", `{"expires_ms":-1}`, CodeBadField, "expires_ms is -1"},
		{"fetch", `{"expires_ms":3600001}`, CodeBadField, "allowed are 0 to 3600000"},
		{"list", `{"offset":-1}`, CodeBadField, "offset is -1"},
		{"list", `{"limit":0}`, CodeBadField, "limit is 0: allowed are 1 to 1000"},
		{"list", `{"limit":1001}`, CodeBadField, "limit is 1001"},
		{"configs", `{"offset":-1}`, CodeBadField, "offset is -1"},
		{"configs", `{"limit":-1}`, CodeBadField, "limit is -1"},
		{"inspect", `{"flows":-1}`, CodeBadField, "flows is -1"},
		{"inspect", `{"flows":1001}`, CodeBadField, "allowed are 0 to 1000"},
		{"set", "", CodeBadField, "value is missing"},
		{"set", `{"if_value":"x"}`, CodeBadField, "value is missing"},
		{"set", `{"value":10}`, CodeBadJSON, "value: a string is expected"},
		{"set", `{"value":"` + strings.Repeat("x", MaxConfigValue+1) + `"}`, CodeBadConfigValue, "at most 65536 bytes"},
		{"redrive", `{"count":-1}`, CodeBadField, "count is -1"},
		{"hook-reset", `{"hook":"on_dequeue"}`, CodeBadField, "on_dequeue"},
	} {
		err := parsers[tc.parser]([]byte(tc.body))
		require.NotNil(t, err, "%s %s", tc.parser, tc.body)
		require.Equal(t, tc.code, err.ErrCode, "%s %.80s: %v", tc.parser, tc.body, err)
		require.Contains(t, err.Description, tc.text)
	}
}
