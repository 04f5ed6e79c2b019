package opscmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
)

// Commands returns the commands of those who run fila, or try it.
func Commands(env *command.Env) []*cobra.Command {
	return []*cobra.Command{newConfigCommand(env), newReloadCommand(env), newTopCommand(env), newWatchCommand(env), newDemoCommand(env), newBenchCommand(env), newManCommand(env), newVersionCommand(env)}
}

func newVersionCommand(env *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this binary",
		RunE: func(cmd *cobra.Command, _ []string) error {
			info := command.ReadBuildInfo()
			return env.Show(cmd, info, func() string {
				line := "fila " + info.Version
				if info.Revision != "" {
					line += " " + info.Revision
				}
				if info.Modified {
					line += " (modified)"
				}
				return fmt.Sprintf("%s %s %s\n", line, info.Go, info.Platform)
			})
		},
	}
}
