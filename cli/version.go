package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// opsCommands returns the commands of those who run fila, or try it.
func opsCommands(a *app) []*cobra.Command {
	return []*cobra.Command{newConfigCommand(a), newReloadCommand(a), newTopCommand(a), newWatchCommand(a), newDemoCommand(a), newBenchCommand(a), newManCommand(a), newVersionCommand(a)}
}

func newVersionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this binary",
		Args:  needArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			info := readBuildInfo()
			if a.json {
				return printJSON(cmd.OutOrStdout(), info)
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
