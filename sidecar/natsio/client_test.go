package natsio

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// TestClientOf: the name that NATS reports comes before the name that a client gives itself; both
// are cut, and escaped for terminals.
func TestClientOf(t *testing.T) {
	for want, h := range map[string]micro.Headers{
		"":                                  {},
		"cli":                               {wire.HeaderClient: {"cli"}, requestInfo: {"no JSON"}},
		"alice":                             {wire.HeaderClient: {"cli"}, requestInfo: {`{"acc":"A","user":"alice","name":"app"}`}},
		"app":                               {requestInfo: {`{"acc":"A","name":"app"}`}},
		`a\x1b[2J`:                          {wire.HeaderClient: {"a\x1b[2J"}},
		strings.Repeat("x", wire.MaxClient): {wire.HeaderClient: {strings.Repeat("x", 500)}},
		"x" + strings.Repeat("é", wire.MaxClient/2-1): {wire.HeaderClient: {"x" + strings.Repeat("é", 500)}},
	} {
		by, err := senderOf(h)
		require.Nil(t, err)
		require.Equal(t, want, by.Client)
	}
}

// TestUserOf: only NATS names the user.
func TestUserOf(t *testing.T) {
	for want, h := range map[string]micro.Headers{
		"":         {wire.HeaderClient: {"cli"}, requestInfo: {"no JSON"}},
		"A/alice":  {wire.HeaderClient: {"cli"}, requestInfo: {`{"acc":"A","user":"alice","name":"app"}`}},
		"/alice":   {requestInfo: {`{"user":"alice"}`}},
		`A/a\x1b[`: {requestInfo: {"{\"acc\":\"A\",\"user\":\"a\\u001b[\"}"}},
		"A/" + strings.Repeat("x", api.MaxGuardUserBytes-2): {requestInfo: {`{"acc":"A","user":"` + strings.Repeat("x", 500) + `"}`}},
	} {
		require.Equal(t, want, userOf(h))
	}
	require.Empty(t, userOf(nil))
	require.Empty(t, userOf(micro.Headers{requestInfo: {`{"acc":"A","name":"app"}`}}), "an account is no user")
}
