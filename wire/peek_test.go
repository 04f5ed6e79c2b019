package wire

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestParsePeek(t *testing.T) {
	for body, want := range map[string]PeekRequest{
		"":   {Limit: 10, PayloadBytes: 1024},
		"{}": {Limit: 10, PayloadBytes: 1024},
		`{"key":"a b","limit":1000,"after":7,"payload_bytes":0}`: {Key: "a b", Limit: 1000, After: 7},
	} {
		got, err := ParsePeek([]byte(body))
		require.Nil(t, err, body)
		require.Equal(t, want, got, body)
	}
	for body, text := range map[string]string{
		`{"limit":0}`:             "limit is 0: allowed are 1 to 1000",
		`{"limit":1001}`:          "limit is 1001",
		`{"payload_bytes":-1}`:    "payload_bytes is -1: allowed are 0 to 65536",
		`{"payload_bytes":65537}`: "payload_bytes is 65537",
		`{"after":-1}`:            "after",
		`{"queue":"q"}`:           `unknown field "queue"`,
		`{"key":"` + strings.Repeat("k", MaxKeyBytes+1) + `"}`: "1 to 256 bytes",
	} {
		_, err := ParsePeek([]byte(body))
		require.NotNil(t, err, body)
		require.Equal(t, 400, err.Code, body)
		require.Contains(t, err.Description, text, body)
	}
	require.True(t, VerbHasTail(VerbPeek))
}

func TestPeekedContent(t *testing.T) {
	for _, tc := range []struct {
		payload string
		limit   int
		text    string
		bytes   string
		cut     bool
	}{
		{"", 0, "", "", false},
		{"hello", 5, "hello", "", false},
		{"hello", 4, "hell", "", true},
		{"hello", 0, "", "", true},
		{"aé", 2, "a", "", true}, // not half a rune
		{"aé", 3, "aé", "", false},
		{"日本", 5, "日", "", true},
		{"a\xff", 10, "", "a\xff", false},
		{"a\xffbc", 3, "", "a\xffb", true},
		{"a\xc3", 10, "", "a\xc3", false}, // it does end in half a rune
	} {
		var m PeekedMessage
		m.SetContent(nil, []byte(tc.payload), tc.limit)
		require.Equal(t, len(tc.payload), m.PayloadBytes)
		require.Equal(t, tc.cut, m.PayloadCut, "%q", tc.payload)
		if tc.bytes != "" {
			require.Nil(t, m.Payload)
			require.Equal(t, tc.bytes, string(m.PayloadBase64))
			continue
		}
		require.NotNil(t, m.Payload, "%q", tc.payload)
		require.Equal(t, tc.text, *m.Payload)
	}

	h := map[string][]string{"b": {"22", "2"}, "a": {"1"}, "c": {"333"}}
	for limit, want := range map[int]map[string][]string{
		0: {},
		2: {"a": {"1"}},
		7: {"a": {"1"}, "b": {"22", "2"}},
		9: {"a": {"1"}, "b": {"22", "2"}},
	} {
		var m PeekedMessage
		m.SetContent(h, nil, limit)
		require.Equal(t, want, m.Headers, limit)
		require.True(t, m.HeadersCut)
	}
	var m PeekedMessage
	m.SetContent(h, nil, 100)
	require.Equal(t, h, m.Headers)
	require.False(t, m.HeadersCut)
}

func FuzzPeekedContent(f *testing.F) {
	f.Add("aé日\xff", 3)
	f.Fuzz(func(t *testing.T, payload string, limit int) {
		limit = max(0, min(limit, MaxPeekPayload))
		var m PeekedMessage
		m.SetContent(nil, []byte(payload), limit)
		if m.Payload != nil {
			require.True(t, utf8.ValidString(*m.Payload))
			require.True(t, strings.HasPrefix(payload, *m.Payload))
			require.LessOrEqual(t, len(*m.Payload), limit)
			return
		}
		require.True(t, strings.HasPrefix(payload, string(m.PayloadBase64)))
		require.LessOrEqual(t, len(m.PayloadBase64), limit)
	})
}
