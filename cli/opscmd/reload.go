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
does. What needs a restart stays as it is, and is named. In a cluster all nodes
reload, each the file that it has; SIGHUP is for one.`,
		Example: `  fila reload
  fila reload --json`,
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, _ []string) (client.ReloadReply, error) {
			reply, err := s.Reload(ctx)
			return reply, command.Hint(err, wire.CodeReloadFailed, "correct the file and reload again; until then what was loaded before holds")
		}, func(reply client.ReloadReply, _ []string) string {
			var b strings.Builder
			if len(reply.Nodes) > 0 {
				b.WriteString("reloaded at " + terminal.Clean(strings.Join(reply.Nodes, ", ")) + "\n")
			}
			for _, node := range reply.NotReloaded {
				b.WriteString("NOT reloaded at " + terminal.Clean(node) + "\n")
			}
			if len(reply.Changes) == 0 {
				b.WriteString("reloaded, nothing has changed\n")
			}
			for _, change := range reply.Changes {
				b.WriteString(terminal.Clean(change) + "\n")
			}
			return b.String()
		}),
	}
}
