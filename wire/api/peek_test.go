package api

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

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

	m.SetContent(map[string][]string{"a": {"plain", "caf\xe9"}}, nil, 100)
	text, err := json.Marshal(m)
	require.NoError(t, err)
	require.Contains(t, string(text), `"headers":{"a":["plain","caf\\xe9"]}`)
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
