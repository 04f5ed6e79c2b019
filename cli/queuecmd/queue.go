package queuecmd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Commands returns fila queue.
func Commands(env *command.Env) []*cobra.Command {
	group := &cobra.Command{Use: "queue", Aliases: []string{"queues", "q"}, Short: "Create, change, show, empty and delete queues"}
	return []*cobra.Command{command.Group(group, newQueueCreateCommand(env), newQueueUpdateCommand(env), newQueueDeleteCommand(env),
		newQueuePurgeCommand(env), newQueueListCommand(env), newQueueInspectCommand(env), newQueueWantedCommand(env))}
}

func newQueueCreateCommand(env *command.Env) *cobra.Command {
	var changes client.QueueChanges
	cmd := &cobra.Command{
		Use:   "create QUEUE",
		Short: "Create a queue and its dead letter queue",
		Long: `Create a queue and its dead letter queue QUEUE.dlq. Creating it again with the same
settings does nothing; with others it is a conflict (exit code 5).`,
		Example: `  fila queue create orders --fairness-header tenant
  fila queue create orders --on-enqueue orders.lua --on-failure retry.lua \
      --visibility-timeout 30s --max-deliveries 20`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (reply api.QueueReply, err error) {
			body, err := json.Marshal(changes)
			if err != nil {
				return reply, err
			}
			return client.Call(ctx, s.Client, api.VerbQueueCreate, args[0], body)
		}, func(r api.QueueReply, _ []string) string { return showSettings(r, "created") }),
	}
	given := addSettings(cmd)
	cmd.PreRunE = func(*cobra.Command, []string) (err error) {
		changes, err = given()
		return err
	}
	return command.Owned(cmd)
}

func newQueueUpdateCommand(env *command.Env) *cobra.Command {
	var changes client.QueueChanges
	cmd := &cobra.Command{
		Use:   "update QUEUE",
		Short: "Change settings of a queue",
		Long: `Change the settings whose flags are given; the others stay. At the next start
config.toml restores the settings of its queues.`,
		Example: `  fila queue update orders --max-deliveries 5
  fila queue update orders --on-failure ""`,
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (api.QueueReply, error) {
			return s.QueueUpdate(ctx, wire.Source(args[0]), changes)
		}, func(r api.QueueReply, _ []string) string { return showSettings(r, "updated") }),
	}
	given := addSettings(cmd)
	cmd.PreRunE = func(*cobra.Command, []string) (err error) {
		if changes, err = given(); err == nil && len(changes) == 0 {
			err = command.UsageError("nothing to change: give the flag of at least one setting")
		}
		return err
	}
	return command.Owned(cmd)
}

func newQueueDeleteCommand(env *command.Env) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:     "delete QUEUE",
		Aliases: []string{"rm"},
		Short:   "Delete a queue and its dead letter queue",
		Long: `Delete a queue and its dead letter queue. It is a conflict (exit code 5) if one has
messages, or if the queue belongs to another owner; --force deletes it all the same.`,
		Example: `  fila queue delete orders
  fila queue delete orders --force`,
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (api.QueueDeleteReply, error) {
			reply, err := s.QueueDelete(ctx, args[0], force)
			return reply, command.Hint(err, wire.CodeNotForDLQ, "`fila queue purge "+args[0]+"` removes its messages")
		}, func(reply api.QueueDeleteReply, args []string) string {
			return fmt.Sprintf("queue %s deleted, %s with it\n%s", args[0], terminal.Plural(reply.Deleted, "message"), command.Warnings(reply.Warnings))
		}),
	}
	cmd.Flags().BoolVar(&force, "force", false, "also if it has messages or belongs to another owner")
	return command.Owned(cmd)
}

func newQueuePurgeCommand(env *command.Env) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "purge QUEUE",
		Short: "Remove the pending and delayed messages of a queue",
		Long: `Remove the messages of a queue or dead letter queue that are pending or delayed when
the command begins. Messages in flight continue. Without --force the command only
counts the messages (exit code 5).`,
		Example: `  fila queue purge orders --force
  fila queue purge orders.dlq --force --timeout 1m`,
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (api.QueuePurgeReply, error) {
			return purge(ctx, s, args[0], force)
		}, func(reply api.QueuePurgeReply, args []string) string {
			return fmt.Sprintf("%s removed from %s\n", terminal.Plural(reply.Purged, "message"), args[0])
		}),
	}
	cmd.Flags().BoolVar(&force, "force", false, "remove them")
	return cmd
}

func purge(ctx context.Context, s *command.Session, queue string, force bool) (reply api.QueuePurgeReply, err error) {
	if !force {
		info, err := s.QueueInspect(ctx, queue, 0)
		if n := info.Pending + info.Delayed; err == nil && n > 0 {
			err = command.Exit(command.ExitConflict, fmt.Errorf("%s in queue %s; --force removes the pending and delayed ones", terminal.Plural(n, "message"), queue))
		}
		return reply, err
	}
	if reply.Purged, err = s.QueuePurge(ctx, queue); err != nil && reply.Purged > 0 {
		err = s.Explain(err)
		err = command.Exit(command.ExitCode(err), fmt.Errorf("%s removed before an error: %w", terminal.Plural(reply.Purged, "message"), err))
	}
	return reply, err
}

func newQueueListCommand(env *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:     "list [PATTERN]",
		Aliases: []string{"ls"},
		Short:   "List all queues, or those whose names match a pattern",
		Long:    `List all queues, or those whose names match a quoted pattern of *, ? and [a-z].`,
		Example: `  fila queue list
  fila queue list 'orders-*'
  fila queue list '*.dlq' --json`,
		ValidArgsFunction: env.Complete(command.QueueNames),
		PreRunE: func(_ *cobra.Command, args []string) error {
			if _, err := path.Match(pattern(args), ""); err != nil {
				return command.UsageError("PATTERN %q: allowed are *, ? and [...], as in orders-*", args[0])
			}
			return nil
		},
		RunE: command.AskList(env, func(ctx context.Context, s *command.Session) ([]api.QueueSummary, error) {
			return s.QueueList(ctx)
		}, func(queues []api.QueueSummary, args []string) api.QueueList {
			queues = slices.DeleteFunc(queues, func(q api.QueueSummary) bool {
				fits, _ := path.Match(pattern(args), q.Name) // checked above
				return !fits
			})
			return api.QueueList{Total: len(queues), Queues: queues}
		}, showQueues),
	}
}

func showQueues(list api.QueueList, args []string) string {
	t := terminal.NewTable("QUEUE", "READY", "BLOCKED", "DELAYED", "IN FLIGHT", "CONSUMERS", "SIZE", "OLDEST")
	for _, q := range list.Queues {
		t.Row(q.Name, q.Ready, q.Blocked, q.Delayed, q.InFlight, q.Consumers, terminal.Size(q.Bytes), terminal.Age(q.OldestAgeMs))
	}
	if len(args) > 0 {
		return t.Or("no queue matches " + terminal.Clean(args[0]) + "; `fila queue list` shows all")
	}
	return t.Or("no queues; create one with `fila queue create NAME`")
}

// pattern returns the pattern for the names of the listed queues.
func pattern(args []string) string {
	if len(args) == 0 {
		return "*"
	}
	return args[0]
}

func newQueueInspectCommand(env *command.Env) *cobra.Command {
	var flows int
	cmd := &cobra.Command{
		Use:     "inspect QUEUE",
		Aliases: []string{"info", "show"},
		Short:   "Show a queue with its settings and who set them, consumers, flows and hooks",
		Example: `  fila queue inspect orders
  fila queue inspect orders --flows 100 --json`,
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (api.QueueInfo, error) {
			return s.QueueInspect(ctx, args[0], flows)
		}, func(info api.QueueInfo, _ []string) string { return showQueue(env, info) }),
	}
	cmd.Flags().IntVar(&flows, "flows", 20, "show the flows with the most pending messages, up to 1000")
	return cmd
}

func showQueue(env *command.Env, info api.QueueInfo) string {
	facts := terminal.NewTable("queue", info.Name)
	if info.Shard != nil {
		facts.Row("shard", fmt.Sprintf("%d, owned by %s", *info.Shard, info.Owner))
	}
	facts.Row("ready", info.Ready)
	if info.Blocked > 0 {
		facts.Row("blocked", fmt.Sprintf("%d (`fila explain queue %s` says by what)", info.Blocked, info.Name))
	}
	facts.Row("delayed", info.Delayed)
	facts.Row("in flight", info.InFlight)
	facts.Row("wanted", fmt.Sprintf("%d within 1m (`fila queue wanted %s`)", info.Wanted, info.Name))
	if info.Moving > 0 {
		facts.Row("moving", fmt.Sprintf("%d (`fila job list`)", info.Moving))
	}
	facts.Row("oldest", terminal.Age(info.OldestAgeMs))
	facts.Row("size", terminal.Size(info.Bytes))
	facts.Row("quantum", info.Quantum)
	facts.Row("flows", info.Flows)
	facts.Row("consumers", info.Consumers)
	facts.Fact("dead letters", info.DLQ)
	settingRows(facts, info.Settings)

	consumers := terminal.NewTable("CONSUMER", "IN FLIGHT", "CREDIT", "MAX", "EXPIRES")
	for _, c := range info.ConsumerList {
		name := c.Name
		if c.Fetch {
			name = strings.TrimSpace(name + " (fetch)")
		}
		consumers.Row(name, c.InFlight, c.Credit, c.MaxInFlight, terminal.OrDash(c.ExpiresAt))
	}
	if info.MoreConsumers > 0 {
		consumers.Row(fmt.Sprintf("(%d more)", info.MoreConsumers), "", "", "", "")
	}
	flows := terminal.NewTable("FLOW", "WEIGHT", "DEFICIT", "READY", "SHARE")
	for _, f := range info.TopFlows {
		flows.Row(f.Key, terminal.Number(f.Weight), terminal.Number(f.Deficit), f.Ready, fmt.Sprintf("%.1f%%", f.Share*100))
	}
	if info.MoreFlows > 0 {
		flows.Row(fmt.Sprintf("(%d more)", info.MoreFlows), "", "", "", "")
	}
	hooks := terminal.NewTable("HOOK", "CIRCUIT", "RUNS", "FAILURES", "IN A ROW", "BYPASSED", "WARNINGS", "LAST ERROR")
	for _, h := range info.Hooks {
		hooks.Row(h.Hook, h.State, h.Runs, h.Failures, h.ConsecutiveFailures, h.Bypassed, h.Warnings, terminal.OrDash(h.LastError))
	}
	counters := terminal.NewTable("COUNTER", "SINCE START")
	for _, name := range slices.Sorted(maps.Keys(info.Counters)) {
		counters.Row(name, info.Counters[name])
	}
	return terminal.Sections(facts.String(), env.Sources(info.Sources), consumers.Or(""), flows.Or(""), hooks.Or(""), counters.Or(""))
}

// settingRows shows the settings that no other row shows, except those that are 0 or empty.
func settingRows(t *terminal.Table, s wire.QueueSettings) {
	t.Row("visibility timeout", wire.FormatMs(s.VisibilityTimeoutMs))
	t.Row("max deliveries", maxDeliveries(s))
	t.Row("dedupe window", wire.FormatMs(s.DedupeWindowMs))
	count := func(n int64) string { return strconv.FormatInt(n, 10) }
	for _, limit := range []struct {
		name  string
		value int64
		text  func(int64) string
	}{
		{"max depth", s.MaxDepth, count},
		{"max size", s.MaxBytes, terminal.Size},
		{"hook timeout", s.LuaTimeoutMs, wire.FormatMs},
		{"hook memory", s.LuaMemoryLimitBytes, terminal.Size},
		{"hook circuit threshold", s.LuaCircuitBreakerThreshold, count},
		{"hook circuit cooldown", s.LuaCircuitBreakerCooldownMs, wire.FormatMs},
		{"priority age", s.PriorityAgeMs, wire.FormatMs},
		{"priority reserved from", s.PriorityReserved, count},
		{"starvation alarm after", s.StarveAfterMs, wire.FormatMs},
		{"max pending per key", s.MaxPendingPerKey, count},
		{"max failures per key", s.MaxFailuresPerKey, func(int64) string { return failureLimit(s) }},
	} {
		if limit.value != 0 {
			t.Row(limit.name, limit.text(limit.value))
		}
	}
	t.Fact("fairness header", s.FairnessHeader)
	t.Fact("weight header", s.WeightHeader)
	t.Fact("throttle headers", strings.Join(s.ThrottleHeaders, ", "))
	t.Fact("circuit header", s.CircuitHeader)
	t.Fact("route header", s.RouteHeader)
	t.Fact("priority header", s.PriorityHeader)
	t.Row("retries", retries(s))
	t.Fact("ordering", ordering(s))
	t.Fact("enqueue rate", enqueueRate(s.EnqueueRate, s.EnqueueBurst))
	t.Fact("enqueue rate per key", enqueueRate(s.EnqueueRatePerKey, s.EnqueueBurstPerKey))
	t.Fact("enqueue schedules", s.EnqueueSchedules)
	t.Fact("on_enqueue", lines(s.OnEnqueue))
	t.Fact("on_failure", lines(s.OnFailure))
}

func maxDeliveries(s wire.QueueSettings) string {
	switch {
	case s.MaxDeliveries == nil && s.OnFailure != "":
		return "on_failure decides"
	case s.MaxDeliveries == nil:
		return fmt.Sprintf("%d (default)", wire.DefaultMaxDeliveries)
	case *s.MaxDeliveries == 0:
		return "no limit"
	}
	return strconv.FormatInt(*s.MaxDeliveries, 10)
}

// retries describes the retries of a failure without a decision by nack, on_failure or error
// rule.
func retries(s wire.QueueSettings) string {
	switch {
	case s.RetryPolicy != "":
		return "policy " + s.RetryPolicy
	case s.RetryInitialMs == 0:
		return "at once"
	}
	text := "after " + wire.FormatMs(s.RetryInitialMs) + ", doubling to " + wire.FormatMs(s.RetryMaxMs)
	switch s.RetryJitter {
	case 0:
		return text
	case 1:
		return text + ", full jitter"
	}
	return text + ", jitter " + strconv.FormatFloat(s.RetryJitter, 'f', -1, 64)
}

func ordering(s wire.QueueSettings) string {
	if s.Ordering == "" {
		return ""
	}
	return "by " + s.Ordering + ", on_blocked " + cmp.Or(s.OnBlocked, "wait")
}

func enqueueRate(rate wire.Rate, burst int64) string {
	if rate == "" {
		return ""
	}
	return rate.TextWithBurst(float64(burst))
}

func failureLimit(s wire.QueueSettings) string {
	hold := "until resumed"
	if s.FailureHoldMs != 0 {
		hold = "for " + wire.FormatMs(s.FailureHoldMs)
	}
	return fmt.Sprintf("%d in %s, then held %s", s.MaxFailuresPerKey, wire.FormatMs(cmp.Or(s.FailureWindowMs, 60_000)), hold)
}

func lines(script string) string {
	if script == "" {
		return ""
	}
	return terminal.Plural(int64(strings.Count(strings.TrimRight(script, "\n"), "\n")+1), "line") + " of Lua"
}

// showSettings shows the settings of a queue after its creation or change.
func showSettings(r api.QueueReply, done string) string {
	t := terminal.NewTable("queue", cmp.Or(terminal.Clean(r.Name), "?")+" "+done)
	t.Row("quantum", r.Quantum)
	settingRows(t, r.QueueSettings)
	return t.String() + command.Warnings(r.Warnings)
}
