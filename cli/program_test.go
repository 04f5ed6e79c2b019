package cli

import (
	"context"
	"testing"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
)

func programWith(newServer serverFactory) clitest.Program {
	return func(env *command.Env) []*cobra.Command { return (&app{env, newServer}).commands() }
}

var program = programWith(nil)

// root is fila with all its commands.
func root() *cobra.Command { return newRootCommand(&app{Env: &command.Env{}}) }

// serve runs fila serve with a server of the test.
func serve(t *testing.T, ctx context.Context, newServer serverFactory, args ...string) clitest.Result {
	t.Helper()
	return programWith(newServer).RunEnv(t, ctx, &command.Env{}, "", append([]string{"serve"}, args...)...)
}
