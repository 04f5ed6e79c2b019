package messagecmd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

func newRedriveCommand(env *command.Env) *cobra.Command {
	var count int64
	cmd := &cobra.Command{
		Use:   "redrive QUEUE",
		Short: "Move dead letters back to their queue",
		Long: `Move dead letters of a queue back to it, oldest first. They pass on_enqueue again,
keep their id and start with attempt 1. QUEUE is the queue or its dead letter queue.

A redrive is a job ("fila job"). The command prints its id and waits up to
--timeout; the job continues without it.`,
		Example: `  fila redrive orders.dlq
  fila redrive orders --count 10`,
		ValidArgsFunction: env.Complete(deadLetterQueues),
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (api.RedriveReply, error) {
			reply, err := s.Redrive(ctx, wire.DeadLetters(args[0]), count)
			if errors.Is(err, client.ErrNoReply) {
				err = fmt.Errorf("%w; a redrive is a job and goes on: `fila job list --queue %s` shows it", err, wire.Source(args[0]))
			}
			return reply, err
		}, func(reply api.RedriveReply, args []string) string {
			text := fmt.Sprintf("%s redriven from %s", terminal.Plural(reply.Redriven, "message"), wire.DeadLetters(args[0]))
			if reply.Job != "" { // older versions of fila do not send it
				text += ", job " + reply.Job
			}
			return text + "\n"
		}),
	}
	cmd.Flags().Int64Var(&count, "count", 0, "move at most this many; 0 is all")
	command.Bound(cmd, "count", 0, math.MaxInt64, "is 0 (all) and more")
	return cmd
}

// deadLetterQueues completes the queues that can be redriven.
func deadLetterQueues(ctx context.Context, s *command.Session, args []string, prefix string) ([]string, error) {
	names, err := command.QueueNames(ctx, s, args, prefix)
	return slices.DeleteFunc(names, func(name string) bool { return !wire.IsDLQ(name) }), err
}
