package natsio

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

// TestClientOf: what NATS says of who asks comes before what the client says of itself;
// neither can be long, or write to a terminal.
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
		require.Equal(t, want, clientOf(h))
	}
}
