package hookcmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
	"github.com/filaq/fila/hooks"
)

func newHookResetCommand(env *command.Env) *cobra.Command {
	var hook string
	cmd := &cobra.Command{
		Use:   "reset QUEUE",
		Short: "Close the circuit of a queue's hooks",
		Long: `Close the circuit of a queue's hooks, so that they run again at once. A hook's
circuit opens after it has failed several times in a row; messages then go on
with safe defaults until the cooldown is over.`,
		Example: `  fila hook reset orders
  fila hook reset orders --hook on_failure`,
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (client.HookResetReply, error) {
			return s.HookReset(ctx, args[0], hook)
		},
			func(reply client.HookResetReply, _ []string) string {
				t := terminal.NewTable("HOOK", "CIRCUIT")
				for _, h := range reply.Hooks {
					t.Row(h.Hook, h.State)
				}
				return t.String()
			}),
	}
	cmd.Flags().StringVar(&hook, "hook", "", "only this `hook`, on_enqueue or on_failure (default both)")
	command.Allow(cmd, "hook", string(hooks.OnEnqueue), string(hooks.OnFailure))
	return cmd
}
