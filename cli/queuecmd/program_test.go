package queuecmd

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
)

var program = clitest.Program(func(env *command.Env) []*cobra.Command {
	env.ReadScript = func(path string) (string, error) {
		text, err := os.ReadFile(path)
		return string(text), err
	}
	return Commands(env)
})
