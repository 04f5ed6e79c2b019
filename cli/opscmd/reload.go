package opscmd

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
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
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, _ []string) (client.ReloadReply, error) {
			reply, err := s.Reload(ctx)
			return reply, command.Hint(err, wire.CodeReloadFailed, "correct the file and reload again; until then what was loaded before holds")
		}, func(reply client.ReloadReply, _ []string) string {
			if len(reply.Changes) == 0 {
				return "reloaded, nothing has changed\n"
			}
			var b strings.Builder
			for _, change := range reply.Changes {
				b.WriteString(terminal.Clean(change) + "\n")
			}
			return b.String()
		}),
	}
}
