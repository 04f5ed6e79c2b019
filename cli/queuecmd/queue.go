package queuecmd

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
)

// Commands returns fila queue.
func Commands(env *command.Env) []*cobra.Command {
	group := &cobra.Command{Use: "queue", Aliases: []string{"queues", "q"}, Short: "Create, change, show and delete queues"}
	return []*cobra.Command{command.Group(group, newQueueCreateCommand(env), newQueueUpdateCommand(env), newQueueDeleteCommand(env),
		newQueueListCommand(env), newQueueInspectCommand(env))}
}

func newQueueCreateCommand(env *command.Env) *cobra.Command {
	var changes client.QueueChanges
	cmd := &cobra.Command{
		Use:   "create QUEUE",
		Short: "Create a queue and its dead letter queue",
		Long: `Create a queue and its dead letter queue QUEUE.dlq. When the command returns,
the queue can be published to. Creating it again with the same settings is
fine; with others it is a conflict (exit code 5).`,
		Example: `  fila queue create orders --fairness-header tenant
  fila queue create orders --on-enqueue orders.lua --on-failure retry.lua \
      --visibility-timeout 30s --max-deliveries 20`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (settings client.QueueSettings, err error) {
			settings = client.DefaultQueueSettings(args[0])
			data, err := json.Marshal(changes)
			if err == nil {
				err = json.Unmarshal(data, &settings)
			}
			if err != nil {
				return settings, err
			}
			return s.QueueCreate(ctx, settings)
		}, func(s client.QueueSettings, _ []string) string { return showSettings(s, "created") }),
	}
	given := addSettings(cmd)
	cmd.PreRunE = func(*cobra.Command, []string) (err error) {
		changes, err = given()
		return err
	}
	return cmd
}

func newQueueUpdateCommand(env *command.Env) *cobra.Command {
	var changes client.QueueChanges
	cmd := &cobra.Command{
		Use:   "update QUEUE",
		Short: "Change settings of a queue",
		Long: `Change the settings whose flags are given; the others stay. A queue that
config.toml declares gets its settings from there again at the next start.`,
		Example: `  fila queue update orders --max-deliveries 5
  fila queue update orders --on-failure ""`,
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (client.QueueSettings, error) {
			return s.QueueUpdate(ctx, args[0], changes)
		}, func(s client.QueueSettings, _ []string) string { return showSettings(s, "updated") }),
	}
	given := addSettings(cmd)
	cmd.PreRunE = func(*cobra.Command, []string) (err error) {
		if changes, err = given(); err == nil && len(changes) == 0 {
			err = command.UsageError("nothing to change: give the flag of at least one setting")
		}
		return err
	}
	return cmd
}

func newQueueDeleteCommand(env *command.Env) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:     "delete QUEUE",
		Aliases: []string{"rm"},
		Short:   "Delete a queue and its dead letter queue",
		Long: `Delete a queue and its dead letter queue. If there are messages in one of them
it is a conflict (exit code 5), unless --force deletes them, too.`,
		Example: `  fila queue delete orders
  fila queue delete orders --force`,
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (client.QueueDeleteReply, error) {
			return s.QueueDelete(ctx, args[0], force)
		},
			func(reply client.QueueDeleteReply, args []string) string {
				return fmt.Sprintf("queue %s deleted, %s with it\n", args[0], terminal.Plural(reply.Deleted, "message"))
			}),
	}
	cmd.Flags().BoolVar(&force, "force", false, "delete messages, too")
	return cmd
}
