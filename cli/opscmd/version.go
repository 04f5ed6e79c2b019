package opscmd

import (
	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
)

// Commands returns the commands to operate and try fila.
func Commands(env *command.Env) []*cobra.Command {
	return []*cobra.Command{newConfigCommand(env), newReloadCommand(env), newStatusCommand(env), newTopCommand(env), newNoisyCommand(env), newLanesCommand(env), newWatchCommand(env), newAnnotateCommand(env), newMarksCommand(env), newDemoCommand(env), newBenchCommand(env), newSchemaCommand(env), newManCommand(env), newVersionCommand(env)}
}

func newVersionCommand(env *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this binary",
		RunE: func(cmd *cobra.Command, _ []string) error {
			info := command.ReadBuildInfo()
			return env.Show(cmd, info, info.String)
		},
	}
}
