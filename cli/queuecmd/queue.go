package queuecmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
)

// Commands returns fila queue.
func Commands(env *command.Env) []*cobra.Command {
	return []*cobra.Command{newQueueCommand(env)}
}

func newQueueCommand(env *command.Env) *cobra.Command {
	cmd := command.Group(&cobra.Command{Use: "queue", Aliases: []string{"queues", "q"}, Short: "Create, change, show and delete queues"})
	cmd.AddCommand(newQueueCreateCommand(env), newQueueUpdateCommand(env), newQueueDeleteCommand(env),
		newQueueListCommand(env), newQueueInspectCommand(env))
	return cmd
}

// queueFlags are the flags of the settings of a queue. Only those that were
// given are sent.
type queueFlags struct {
	visibility, dedupe, luaTimeout, luaCooldown terminal.Millis
	maxDeliveries, maxDepth, maxBytes, quantum  int64
	luaMemory, luaThreshold                     int64
	onEnqueue, onFailure, fairness, weight      string
	throttle                                    []string
	gates                                       gateFlags
	values                                      map[string]func() (any, error) // by flag name
	keys                                        map[string]string              // flag name -> key of config.toml
}

func (q *queueFlags) add(env *command.Env, cmd *cobra.Command) {
	fs := cmd.Flags()
	defaults := client.DefaultQueueSettings("")
	q.values, q.keys = map[string]func() (any, error){}, map[string]string{}
	script := func(p *string) func() (any, error) {
		return func() (any, error) { return scriptArgument(env, cmd.InOrStdin(), *p) }
	}
	ms := func(p *terminal.Millis) func() (any, error) { return func() (any, error) { return int64(*p), nil } }
	number := func(p *int64) func() (any, error) { return func() (any, error) { return *p, nil } }
	text := func(p *string) func() (any, error) { return func() (any, error) { return *p, nil } }
	setting := func(flag, key string, value func() (any, error)) { q.keys[flag], q.values[flag] = key, value }

	fs.StringVar(&q.onEnqueue, "on-enqueue", "", `Lua `+"`file`"+` with the on_enqueue hook; - reads standard input, "" removes it`)
	setting("on-enqueue", "on_enqueue", script(&q.onEnqueue))
	fs.StringVar(&q.onFailure, "on-failure", "", `Lua `+"`file`"+` with the on_failure hook; - reads standard input, "" removes it`)
	setting("on-failure", "on_failure", script(&q.onFailure))
	q.visibility, q.dedupe = terminal.Millis(defaults.VisibilityTimeoutMs), terminal.Millis(defaults.DedupeWindowMs)
	fs.Var(&q.visibility, "visibility-timeout", "how long a delivered message is leased")
	setting("visibility-timeout", "visibility_timeout_ms", ms(&q.visibility))
	fs.Int64Var(&q.maxDeliveries, "max-deliveries", 0, "dead-letter after so many deliveries; 0 is no limit (default 20, or what on_failure decides)")
	setting("max-deliveries", "max_deliveries", number(&q.maxDeliveries))
	fs.Int64Var(&q.maxDepth, "max-depth", 0, "refuse messages beyond this many; 0 is no limit")
	setting("max-depth", "max_depth", number(&q.maxDepth))
	fs.Int64Var(&q.maxBytes, "max-bytes", 0, "refuse messages beyond this many bytes in the queue; 0 is no limit")
	setting("max-bytes", "max_bytes", number(&q.maxBytes))
	fs.Var(&q.dedupe, "dedupe-window", "how long a Nats-Msg-Id is remembered; 0 is not at all")
	setting("dedupe-window", "dedupe_window_ms", ms(&q.dedupe))
	fs.Int64Var(&q.quantum, "quantum", defaults.Quantum, "what a turn adds to a flow of weight 1")
	setting("quantum", "quantum", number(&q.quantum))
	fs.StringVar(&q.fairness, "fairness-header", "", "`header` that is the fairness key, when there is no on_enqueue")
	setting("fairness-header", "fairness_header", text(&q.fairness))
	fs.StringVar(&q.weight, "weight-header", "", "`header` that is the weight, when there is no on_enqueue")
	setting("weight-header", "weight_header", text(&q.weight))
	fs.StringArrayVar(&q.throttle, "throttle-header", nil, "`header` that is a throttle key, when there is no on_enqueue; may be repeated")
	setting("throttle-header", "throttle_headers", func() (any, error) { return q.throttleHeaders(), nil })
	fs.Var(&q.luaTimeout, "lua-timeout", "time limit of a hook; 0 is the default of fila")
	setting("lua-timeout", "lua_timeout_ms", ms(&q.luaTimeout))
	fs.Int64Var(&q.luaMemory, "lua-memory-limit", 0, "memory limit of a hook in `bytes`; 0 is the default of fila")
	setting("lua-memory-limit", "lua_memory_limit_bytes", number(&q.luaMemory))
	fs.Int64Var(&q.luaThreshold, "lua-circuit-breaker-threshold", 0, "failures in a row that bypass a hook; 0 is the default of fila")
	setting("lua-circuit-breaker-threshold", "lua_circuit_breaker_threshold", number(&q.luaThreshold))
	fs.Var(&q.luaCooldown, "lua-circuit-breaker-cooldown", "how long a failing hook is bypassed; 0 is the default of fila")
	setting("lua-circuit-breaker-cooldown", "lua_circuit_breaker_cooldown_ms", ms(&q.luaCooldown))
	q.addGates(fs)
	command.Allow(cmd, "ordering", "key")
	command.Allow(cmd, "on-blocked", "wait", "skip")
}

// throttleHeaders lets --throttle-header "" remove them all.
func (q *queueFlags) throttleHeaders() []string {
	if len(q.throttle) == 1 && q.throttle[0] == "" {
		return []string{}
	}
	return q.throttle
}

// changes returns the settings that were given.
func (q *queueFlags) changes(fs *pflag.FlagSet) (client.QueueChanges, error) {
	if q.onEnqueue == "-" && q.onFailure == "-" {
		return nil, command.UsageError("--on-enqueue - and --on-failure -: standard input can be read once")
	}
	changes := client.QueueChanges{}
	for flag, key := range q.keys {
		if !fs.Changed(flag) {
			continue
		}
		value, err := q.values[flag]()
		if err != nil {
			return nil, command.UsageError("--%s: %w", flag, err)
		}
		changes[key] = value
	}
	return changes, nil
}

// maxScript bounds what is read as a script from standard input; the limit on
// scripts themselves is lower and is the hook compiler's to enforce.
const maxScript = 1 << 20

func scriptArgument(env *command.Env, in io.Reader, path string) (string, error) {
	switch path {
	case "":
		return "", nil
	case "-":
		text, err := io.ReadAll(io.LimitReader(in, maxScript))
		return string(text), err
	}
	return env.ReadScript(path)
}

func newQueueCreateCommand(env *command.Env) *cobra.Command {
	var q queueFlags
	cmd := &cobra.Command{
		Use:   "create QUEUE",
		Short: "Create a queue and its dead letter queue",
		Long: `Create a queue and its dead letter queue QUEUE.dlq. When the command returns,
the queue can be published to. Creating it again with the same settings is
fine; with others it is a conflict (exit code 5).`,
		Example: `  fila queue create orders --fairness-header tenant
  fila queue create orders --on-enqueue orders.lua --on-failure retry.lua \
      --visibility-timeout 30s --max-deliveries 20`,
		Args: command.Args("QUEUE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			settings := client.DefaultQueueSettings(args[0])
			changes, err := q.changes(cmd.Flags())
			if err != nil {
				return err
			}
			data, err := json.Marshal(changes)
			if err != nil {
				return err
			}
			if err := json.Unmarshal(data, &settings); err != nil {
				return err
			}
			return env.Online(cmd, func(ctx context.Context, s *command.Session) error {
				full, err := s.QueueCreate(ctx, settings)
				if err != nil {
					return err
				}
				return printSettings(env, cmd.OutOrStdout(), "created", full)
			})
		},
	}
	q.add(env, cmd)
	return cmd
}

func newQueueUpdateCommand(env *command.Env) *cobra.Command {
	var q queueFlags
	cmd := &cobra.Command{
		Use:   "update QUEUE",
		Short: "Change settings of a queue",
		Long: `Change the settings whose flags are given; the others stay. A queue that
config.toml declares gets its settings from there again at the next start.`,
		Example: `  fila queue update orders --max-deliveries 5
  fila queue update orders --on-failure ""`,
		Args:              command.Args("QUEUE"),
		ValidArgsFunction: env.Complete(command.QueueNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			changes, err := q.changes(cmd.Flags())
			if err != nil {
				return err
			}
			if len(changes) == 0 {
				return command.UsageError("nothing to change: give the flag of at least one setting")
			}
			return env.Online(cmd, func(ctx context.Context, s *command.Session) error {
				full, err := s.QueueUpdate(ctx, args[0], changes)
				if err != nil {
					return err
				}
				return printSettings(env, cmd.OutOrStdout(), "updated", full)
			})
		},
	}
	q.add(env, cmd)
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
		Args:              command.Args("QUEUE"),
		ValidArgsFunction: env.Complete(command.QueueNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return env.Online(cmd, func(ctx context.Context, s *command.Session) error {
				reply, err := s.QueueDelete(ctx, args[0], force)
				if err != nil {
					return err
				}
				if env.JSON {
					return terminal.PrintJSON(cmd.OutOrStdout(), reply)
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "queue %s deleted, %s with it\n", args[0], terminal.Plural(reply.Deleted, "message"))
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "delete messages, too")
	return cmd
}
