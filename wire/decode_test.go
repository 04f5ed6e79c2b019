package wire

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDecodeStrict(t *testing.T) {
	v := "5"
	for body, want := range map[string]ConfigSetRequest{
		"":                               {},
		" \n\t":                          {},
		"{}":                             {},
		" {} ":                           {},
		`{"value":"10"}`:                 {Value: "10"},
		`{"value":"10","if_value":"5"}`:  {Value: "10", IfValue: &v},
		`{"value":null,"if_value":null}`: {},
		`{"value":"é\u00e9"}`:            {Value: "éé"},
		`{"val\u0075e":"1"}`:             {Value: "1"},
	} {
		var got ConfigSetRequest
		require.Nil(t, DecodeStrict([]byte(body), &got), body)
		require.Equal(t, want, got, body)
	}
	got := FetchRequest{Batch: 7, ExpiresMs: 9}
	require.Nil(t, DecodeStrict([]byte(`{"expires_ms":1}`), &got))
	require.Equal(t, FetchRequest{Batch: 7, ExpiresMs: 1}, got, "what is not mentioned stays")
}

func TestDecodeStrictRefused(t *testing.T) {
	for _, tc := range []struct {
		body string
		code int
		text string
	}{
		{"null", CodeBadJSON, "a JSON object is expected"},
		{"[]", CodeBadJSON, "a JSON object is expected"},
		{`"x"`, CodeBadJSON, "a JSON object is expected"},
		{"5", CodeBadJSON, "a JSON object is expected"},
		{"hello", CodeBadJSON, "a JSON object is expected"},
		{"{", CodeBadJSON, "ends too early"},
		{`{"consumer"`, CodeBadJSON, "ends too early"},
		{`{"consumer":`, CodeBadJSON, "ends too early"},
		{`{"consumer":"a"`, CodeBadJSON, "ends too early"},
		{`{"consumer":"a",}`, CodeBadJSON, "invalid character"},
		{`{consumer:"a"}`, CodeBadJSON, "invalid character"},
		{`{1:2}`, CodeBadJSON, ""},
		{`{"consumer" "a"}`, CodeBadJSON, "colon"},
		{`{"consumer":"a"]`, CodeBadJSON, "invalid character"},
		{"{} {}", CodeBadJSON, "data after"},
		{"{}x", CodeBadJSON, "data after"},
		{`{"max_in_flight":NaN}`, CodeBadJSON, "invalid character"},
		{"{\"consumer\":\"\xff\"}", CodeBadJSON, "UTF-8"},
		{`{"consumer":5}`, CodeBadJSON, "consumer: a string is expected, got number"},
		{`{"consumer":{}}`, CodeBadJSON, "consumer: a string is expected, got object"},
		{`{"leave":"yes"}`, CodeBadJSON, "leave: true or false is expected, got string"},
		{`{"max_in_flight":"64"}`, CodeBadJSON, "max_in_flight: a whole number of 64 bits is expected, got string"},
		{`{"max_in_flight":1.5}`, CodeBadJSON, "max_in_flight: a whole number of 64 bits is expected, got number 1.5"},
		{`{"ttl_ms":9223372036854775808}`, CodeBadJSON, "got number 9223372036854775808"},
		{`{"max_inflight":1}`, CodeUnknownField, `unknown field "max_inflight": allowed are consumer, max_in_flight, ttl_ms, leave`},
		{`{"Consumer":"a"}`, CodeUnknownField, `"Consumer"`},
		{`{"":1}`, CodeUnknownField, `""`},
		{`{"consumer":"a","consumer":"b"}`, CodeUnknownField, "given twice"},
		{`{"consumer":"a","\u0063onsumer":"a"}`, CodeUnknownField, "given twice"},
	} {
		var r ConsumeRequest
		err := DecodeStrict([]byte(tc.body), &r)
		requireRefused(t, err, tc.code, tc.text, tc.body)
	}
}

// Clients and the command line decode replies the same way.
func TestRepliesRoundTrip(t *testing.T) {
	prev := "5"
	for _, tc := range []struct {
		reply any
		into  any
		json  string
	}{
		{&EnqueueReply{ID: "i", Queue: "q"}, &EnqueueReply{}, `{"id":"i","queue":"q"}`},
		{&EnqueueReply{ID: "i", Queue: "q", Duplicate: true}, &EnqueueReply{}, `{"id":"i","queue":"q","duplicate":true}`},
		{&ConsumeReply{Deliver: "d", MaxInFlight: 64, VisibilityTimeoutMs: 30000}, &ConsumeReply{}, `{"deliver":"d","max_in_flight":64,"visibility_timeout_ms":30000}`},
		{&QueueDeleteReply{Deleted: 3}, &QueueDeleteReply{}, `{"deleted":3}`},
		{
			&QueueList{Total: 1, Queues: []QueueSummary{{Name: "q", Pending: 1, Parked: 1, Delayed: 2, InFlight: 3, Consumers: 4, Bytes: 5, OldestAgeMs: 6, DLQ: "q.dlq"}}},
			&QueueList{},
			`{"total":1,"queues":[{"name":"q","pending":1,"parked":1,"delayed":2,"in_flight":3,"consumers":4,"bytes":5,"oldest_age_ms":6,"dlq":"q.dlq"}]}`,
		},
		{&ConfigSetReply{Key: "k", Value: "10", Previous: &prev}, &ConfigSetReply{}, `{"key":"k","value":"10","previous":"5"}`},
		{&ConfigSetReply{Key: "k", Value: "10"}, &ConfigSetReply{}, `{"key":"k","value":"10","previous":null}`},
		{&ConfigList{Total: 1, Entries: []ConfigEntry{{"k", "v"}}}, &ConfigList{}, `{"total":1,"entries":[{"key":"k","value":"v"}]}`},
		{&RedriveReply{Redriven: 2, Job: "j"}, &RedriveReply{}, `{"redriven":2,"job":"j"}`},
		{
			&HookResetReply{Queue: "q", Hooks: []HookInfo{{Hook: HookOnEnqueue, State: "closed"}}},
			&HookResetReply{},
			`{"queue":"q","hooks":[{"hook":"on_enqueue","state":"closed","runs":0,"failures":0,"bypassed":0,"warnings":0,"consecutive_failures":0}]}`,
		},
		{
			&Event{Type: EventConsumerLost, Time: "t", Queue: "q", Data: map[string]any{"consumer": "w"}},
			&Event{},
			`{"type":"consumer-lost","time":"t","queue":"q","data":{"consumer":"w"}}`,
		},
	} {
		b, err := json.Marshal(tc.reply)
		require.NoError(t, err)
		require.JSONEq(t, tc.json, string(b))
		require.Nil(t, DecodeStrict(b, tc.into), tc.json)
		require.Equal(t, tc.reply, tc.into)
	}
}

func TestQueueInfoJSON(t *testing.T) {
	info := QueueInfo{
		QueueSummary: QueueSummary{Name: "q", Consumers: 1},
		Settings:     DefaultQueueSettings("q"),
		Quantum:      1, Flows: 2,
		ConsumerList: []ConsumerInfo{{Name: "w", MaxInFlight: 64, InFlight: 1, Credit: 63}},
		TopFlows:     []FlowInfo{{Key: "a", Weight: 1.5, Deficit: 0.5, Pending: 3, Share: 0.6}},
		Hooks:        []HookInfo{},
		Counters:     map[string]int64{"enqueued": 4},
	}
	b, err := json.Marshal(info)
	require.NoError(t, err)
	var keys map[string]any
	require.NoError(t, json.Unmarshal(b, &keys))
	for _, k := range []string{"name", "pending", "parked", "delayed", "in_flight", "consumers", "bytes", "oldest_age_ms", "settings", "quantum", "flows", "consumer_list", "top_flows", "hooks", "counters"} {
		require.Contains(t, keys, k)
	}
	var got QueueInfo
	require.Nil(t, DecodeStrict(b, &got))
	require.Equal(t, info, got)
}

func FuzzDecodeStrict(f *testing.F) {
	for _, s := range []string{"", "{}", `{"value":"1","if_value":null}`, `{"name":"q","throttle_headers":["a"],"max_deliveries":3}`, `{"a":{"a":1}}`, "{} {}", `{"delay":1e9}`, `{"rate":0.5,"if":{"rate":"1/3"},"unset":["burst"]}`, `{"enqueue_rate":{}}`, `{"checks":[{"key":"{}]","with":["a\\""]}]}`, `{"key" : "a" , "caller":"b"}`, `{"key":"a"}}`, `{"key":"a","key":"b"}`, `{"key":"a" "b"}`} {
		f.Add([]byte(s))
	}
	base := DefaultQueueSettings("q")
	f.Fuzz(func(t *testing.T, body []byte) {
		in := slices.Clone(body)
		for _, into := range []any{&ConfigSetRequest{}, &ConsumeRequest{}, &nakBody{}, &QueueInfo{}, &ThrottleSetRequest{}, &ExplainRequest{}, &GuardCheckRequest{}, &GuardDoneRequest{}, &struct{}{}} {
			seen, err := decodeStrict(body, into)
			if err != nil {
				require.Equal(t, 400, err.Code)
				require.NotContains(t, err.Description, "\n")
				continue
			}
			if len(bytes.TrimSpace(body)) > 0 {
				scanned, err := scanObject(bytes.TrimSpace(body), fieldNames(into))
				require.Nil(t, err, "what was skimmed only is no less strict")
				require.ElementsMatch(t, scanned, seen)
			}
			// The standard decoder accepts what the strict one accepts, and each
			// field is a field of the type and occurs once.
			var m map[string]json.RawMessage
			if len(seen) > 0 {
				require.NoError(t, json.Unmarshal(body, &m))
			}
			require.Len(t, seen, len(m))
			for _, name := range seen {
				require.Contains(t, fieldNames(into), name)
				require.Contains(t, m, name)
			}
		}
		p, err := base.Patch(body)
		if err == nil {
			require.NoError(t, p.Validate())
			again, merr := json.Marshal(p)
			require.NoError(t, merr)
			q, err := base.Patch(again)
			require.Nil(t, err)
			require.True(t, p.Equal(q))
		}
		require.True(t, base.Equal(DefaultQueueSettings("q")))
		require.Equal(t, in, body)
	})
}
