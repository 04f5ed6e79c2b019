package opscmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
)

// Commands returns the commands of those who run fila, or try it.
func Commands(env *command.Env) []*cobra.Command {
	return []*cobra.Command{newConfigCommand(env), newReloadCommand(env), newTopCommand(env), newWatchCommand(env), newDemoCommand(env), newBenchCommand(env), newManCommand(env), newVersionCommand(env)}
}

func newVersionCommand(env *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this binary",
		Args:  command.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			info := command.ReadBuildInfo()
			if env.JSON {
				return terminal.PrintJSON(cmd.OutOrStdout(), info)
			}
			line := "fila " + info.Version
			if info.Revision != "" {
				line += " " + info.Revision
			}
			if info.Modified {
				line += " (modified)"
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s %s\n", line, info.Go, info.Platform)
			return err
		},
	}
}
