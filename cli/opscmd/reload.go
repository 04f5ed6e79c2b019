package opscmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/wire"
)

func newReloadCommand(env *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "reload",
		Short: "Make fila read its configuration file again",
		Long: `Make the running fila read its configuration file again and take its error
rules, retry policies, throttles, circuits and queues, all or nothing, as SIGHUP
does. What needs a restart stays as it is, and is named.`,
		Example: `  fila reload
  fila reload --json`,
		Args: command.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return env.Online(cmd, func(ctx context.Context, s *command.Session) error {
				reply, err := s.Reload(ctx)
				if err != nil {
					return command.Hint(err, wire.CodeReloadFailed, "correct the file and reload again; until then what was loaded before holds")
				}
				if env.JSON {
					return terminal.PrintJSON(cmd.OutOrStdout(), reply)
				}
				if len(reply.Changes) == 0 {
					_, err := fmt.Fprintln(cmd.OutOrStdout(), "reloaded, nothing has changed")
					return err
				}
				for _, change := range reply.Changes {
					if _, err := fmt.Fprintln(cmd.OutOrStdout(), terminal.Clean(change)); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}
