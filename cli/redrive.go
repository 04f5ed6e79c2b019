package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/hooks"
)

func newRedriveCommand(a *app) *cobra.Command {
	var count int64
	cmd := &cobra.Command{
		Use:   "redrive QUEUE.dlq",
		Short: "Move dead letters back to their queue",
		Long: `Move messages of a dead letter queue back to their queue, oldest first. They go
through on_enqueue again, keep their id and start with attempt 1. Messages that
a consumer of the dead letter queue holds are skipped.`,
		Example: `  fila redrive orders.dlq
  fila redrive orders.dlq --count 10`,
		Args:              needArgs("QUEUE.dlq"),
		ValidArgsFunction: a.complete(deadLetterQueues),
		RunE: func(cmd *cobra.Command, args []string) error {
			if count < 0 {
				return usageError("--count %d: allowed is 0 (all) and more", count)
			}
			return a.online(cmd, func(ctx context.Context, s *session) error {
				reply, err := s.Redrive(ctx, args[0], count)
				if err != nil {
					return err
				}
				if a.json {
					return printJSON(cmd.OutOrStdout(), reply)
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s redriven from %s\n", plural(reply.Redriven, "message"), args[0])
				return err
			})
		},
	}
	cmd.Flags().Int64Var(&count, "count", 0, "move at most so many; 0 is all")
	return cmd
}

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
