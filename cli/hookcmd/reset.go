package hookcmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
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
		Args:              command.Args("QUEUE"),
		ValidArgsFunction: env.Complete(command.QueueNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return env.Online(cmd, func(ctx context.Context, s *command.Session) error {
				reply, err := s.HookReset(ctx, args[0], hook)
				if err != nil {
					return err
				}
				if env.JSON {
					return terminal.PrintJSON(cmd.OutOrStdout(), reply)
				}
				t := terminal.NewTable("HOOK", "CIRCUIT")
				for _, h := range reply.Hooks {
					t.Row(h.Hook, h.State)
				}
				return t.Print(cmd.OutOrStdout())
			})
		},
	}
	cmd.Flags().StringVar(&hook, "hook", "", "only this `hook`, on_enqueue or on_failure (default both)")
	command.Allow(cmd, "hook", string(hooks.OnEnqueue), string(hooks.OnFailure))
	return cmd
}
