package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/hooks"
)

func newHookResetCommand(a *app) *cobra.Command {
	var hook string
	cmd := &cobra.Command{
		Use:   "reset QUEUE",
		Short: "Close the circuit of a queue's hooks",
		Long: `Close the circuit of a queue's hooks, so that they run again at once. A hook's
circuit opens after it has failed several times in a row; messages then go on
with safe defaults until the cooldown is over.`,
		Example: `  fila hook reset orders
  fila hook reset orders --hook on_failure`,
		Args:              needArgs("QUEUE"),
		ValidArgsFunction: a.complete(queueNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.online(cmd, func(ctx context.Context, s *session) error {
				reply, err := s.HookReset(ctx, args[0], hook)
				if err != nil {
					return err
				}
				if a.json {
					return printJSON(cmd.OutOrStdout(), reply)
				}
				t := newTable("HOOK", "CIRCUIT")
				for _, h := range reply.Hooks {
					t.row(h.Hook, h.State)
				}
				return t.print(cmd.OutOrStdout())
			})
		},
	}
	cmd.Flags().StringVar(&hook, "hook", "", "only this `hook`, on_enqueue or on_failure (default both)")
	allow(cmd, "hook", string(hooks.OnEnqueue), string(hooks.OnFailure))
	return cmd
}
