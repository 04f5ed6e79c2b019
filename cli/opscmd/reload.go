package opscmd

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/wire/api"
)

func newReloadCommand(env *command.Env) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Make fila read its configuration file again",
		Long: `Make the running fila read its configuration file again, as SIGHUP does, and list
changes that need a restart. If the file has a mistake, nothing changes. In a cluster
all nodes reload, each its own file; SIGHUP reloads one node.`,
		Example: `  fila reload --dry-run
  fila reload
  fila reload --json`,
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, _ []string) (api.ReloadReply, error) {
			if dryRun {
				return s.ReloadDryRun(ctx)
			}
			return s.Reload(ctx)
		}, func(reply api.ReloadReply, _ []string) string {
			var b strings.Builder
			done, undone, same := "reloaded", "NOT reloaded", "reloaded, nothing has changed"
			if reply.DryRun {
				done, undone, same = "a reload would change, read", "NOT read", "a reload would change nothing"
			}
			if len(reply.Nodes) > 0 {
				b.WriteString(done + " at " + terminal.Clean(strings.Join(reply.Nodes, ", ")) + "\n")
			}
			for _, node := range reply.NotReloaded {
				b.WriteString(undone + " at " + terminal.Clean(node) + "\n")
			}
			if len(reply.Changes) == 0 {
				b.WriteString(same + "\n")
			} else if reply.DryRun && len(reply.Nodes) == 0 {
				b.WriteString("a reload would change:\n")
			}
			for _, change := range reply.Changes {
				b.WriteString(terminal.Clean(change) + "\n")
			}
			return b.String()
		}),
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only print what would change")
	return cmd
}
