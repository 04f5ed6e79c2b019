package wire

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDecodeStrict(t *testing.T) {
	type request struct {
		Value   string  `json:"value"`
		IfValue *string `json:"if_value"`
	}
	v := "5"
	for body, want := range map[string]request{
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
		var got request
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
		{`{"max_inflight":1}`, CodeUnknownField, `unknown field "max_inflight": allowed are consumer, max_in_flight, ttl_ms, headers, batch, batch_bytes, batch_wait_ms, leave`},
		{`{"Consumer":"a"}`, CodeUnknownField, `"Consumer"`},
		{`{"":1}`, CodeUnknownField, `""`},
		{`{"consumer":"a","consumer":"b"}`, CodeUnknownField, "given twice"},
		{`{"consumer":"a","\u0063onsumer":"a"}`, CodeUnknownField, "given twice"},
	} {
		var r ConsumeRequest
		err := DecodeStrict([]byte(tc.body), &r)
		require.NotNil(t, err, tc.body)
		require.Equal(t, tc.code, err.ErrCode, "%s: %v", tc.body, err)
		require.Contains(t, err.Description, tc.text, tc.body)
	}
}

func FuzzDecodeStrict(f *testing.F) {
	for _, s := range []string{"", "{}", `{"value":"1","if_value":null}`, `{"name":"q","throttle_headers":["a"],"max_deliveries":3}`, `{"a":{"a":1}}`, "{} {}", `{"delay":1e9}`, `{"rate":0.5,"if":{"rate":"1/3"},"unset":["burst"]}`, `{"enqueue_rate":{}}`, `{"checks":[{"key":"{}]","with":["a\\""]}]}`, `{"key" : "a" , "caller":"b"}`, `{"key":"a"}}`, `{"key":"a","key":"b"}`, `{"key":"a" "b"}`} {
		f.Add([]byte(s))
	}
	type nested struct {
		ConsumeRequest
		Rate *Rate `json:"rate"`
		If   *struct {
			Rate *Rate `json:"rate"`
		} `json:"if"`
		Checks []struct {
			Key  string   `json:"key"`
			With []string `json:"with"`
		} `json:"checks"`
	}
	base := DefaultQueueSettings("q")
	f.Fuzz(func(t *testing.T, body []byte) {
		in := slices.Clone(body)
		for _, into := range []any{&ConsumeRequest{}, &nakBody{}, &QueueSettings{}, &nested{}, &struct{}{}} {
			seen, err := DecodeNamed(body, into)
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
