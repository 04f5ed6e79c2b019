package api

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

func TestSenderHeaders(t *testing.T) {
	for _, s := range []Sender{{}, {Client: "a"}, {Client: "a", Owner: "billing", Reason: "contract 2026, §3", Force: true}} {
		h := s.Headers()
		got, err := ParseSender(func(name string) string { return strings.Join(h[name], "") })
		require.Nil(t, err)
		require.Equal(t, s, got)
	}
	require.Equal(t, []string{"a  b"}, Sender{Reason: "a\r\nb"}.Headers()[wire.HeaderReason])
	for header, values := range map[string][]string{
		wire.HeaderOwner:  {"two words", strings.Repeat("x", wire.MaxPolicyName+1), "a\x1b"},
		wire.HeaderReason: {strings.Repeat("x", MaxJobReason+1), "\xff"},
		wire.HeaderForce:  {"yes", "1", "TRUE"},
	} {
		for _, value := range values {
			_, err := ParseSender(func(name string) string {
				if name == header {
					return value
				}
				return ""
			})
			require.NotNil(t, err)
			require.Equal(t, wire.CodeBadHeaderValue, err.ErrCode)
			require.Contains(t, err.Description, "header "+header)
		}
	}
}

func TestOwnerTexts(t *testing.T) {
	for _, o := range []Owner{{Owner: "billing"}, {Owner: "billing", Reason: `a "contract"`}} {
		got, err := ReadOwner(o.Text())
		require.NoError(t, err)
		require.Equal(t, o, got)
	}
	for _, text := range []string{"", "two words", "{", `{}`, `{"owner":7}`, `{"owner":"two words"}`} {
		_, err := ReadOwner(text)
		require.Error(t, err, text)
	}
}
