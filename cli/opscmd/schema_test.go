package opscmd

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/schemas"
)

// The schemas are in the binary: there is no server.
func TestSchemas(t *testing.T) {
	all := clitest.OK(t, program.RunAt(t, "schema", "list")).Out
	names := strings.Fields(all)
	require.True(t, slices.IsSorted(names))
	require.Subset(t, names, []string{"asyncapi", "error", "event.dead-lettered", "queue-create.request", "delivery.headers"})
	require.Equal(t, names, clitest.JSON[[]string](t, program.RunAt(t, "schema", "list", "--json")))
	for _, name := range names {
		want, ok := schemas.Get(name)
		require.True(t, ok)
		require.True(t, json.Valid(want), name)
		require.Equal(t, string(want), clitest.OK(t, program.RunAt(t, "schema", "show", name)).Out)
	}
	clitest.Complains(t, program.RunAt(t, "schema", "show", "queue-creat.request"), command.ExitUsage, "did you mean queue-create.request?")
	clitest.Complains(t, program.RunAt(t, "schema", "show", "../schemas"), command.ExitUsage, "fila schema list has all names")
}
