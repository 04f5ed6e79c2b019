package queuecmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
)

func newQueueListCommand(env *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List all queues",
		Example: `  fila queue list
  fila queue list --json`,
		Args: command.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return env.Online(cmd, func(ctx context.Context, s *command.Session) error {
				queues, err := s.QueueList(ctx)
				if err != nil {
					return err
				}
				if env.JSON {
					return terminal.PrintJSON(cmd.OutOrStdout(), client.QueueList{Total: len(queues), Queues: queues})
				}
				if len(queues) == 0 {
					_, err := fmt.Fprintln(cmd.OutOrStdout(), "no queues; make one with `fila queue create NAME`")
					return err
				}
				t := terminal.NewTable("QUEUE", "PENDING", "PARKED", "DELAYED", "IN FLIGHT", "CONSUMERS", "SIZE", "OLDEST")
				for _, q := range queues {
					t.Row(q.Name, q.Pending, q.Parked, q.Delayed, q.InFlight, q.Consumers, terminal.Size(q.Bytes), terminal.Age(q.OldestAgeMs))
				}
				return t.Print(cmd.OutOrStdout())
			})
		},
	}
}

func newQueueInspectCommand(env *command.Env) *cobra.Command {
	var flows int
	cmd := &cobra.Command{
		Use:     "inspect QUEUE",
		Aliases: []string{"info"},
		Short:   "Show a queue with its consumers, flows and hooks",
		Example: `  fila queue inspect orders
  fila queue inspect orders --flows 100 --json`,
		Args:              command.Args("QUEUE"),
		ValidArgsFunction: env.Complete(command.QueueNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return env.Online(cmd, func(ctx context.Context, s *command.Session) error {
				info, err := s.QueueInspect(ctx, args[0], flows)
				if err != nil {
					return err
				}
				if env.JSON {
					return terminal.PrintJSON(cmd.OutOrStdout(), info)
				}
				return printQueue(cmd.OutOrStdout(), info)
			})
		},
	}
	cmd.Flags().IntVar(&flows, "flows", 20, "how many flows to show, those with the most pending messages, up to 1000")
	return cmd
}

func printQueue(w io.Writer, info client.QueueInfo) error {
	facts := terminal.NewTable("queue", info.Name)
	facts.Row("pending", info.Pending)
	if info.Parked > 0 {
		facts.Row("of them parked", fmt.Sprintf("%d, wait for a gate (`fila explain queue %s`)", info.Parked, info.Name))
	}
	facts.Row("delayed", info.Delayed)
	facts.Row("in flight", info.InFlight)
	facts.Row("oldest", terminal.Age(info.OldestAgeMs))
	facts.Row("size", terminal.Size(info.Bytes))
	facts.Row("quantum", info.Quantum)
	facts.Row("flows", info.Flows)
	facts.Row("consumers", info.Consumers)
	if info.DLQ != "" {
		facts.Row("dead letters", info.DLQ)
	}
	settingRows(facts, info.Settings)
	if err := facts.Print(w); err != nil {
		return err
	}

	consumers := terminal.NewTable("CONSUMER", "IN FLIGHT", "CREDIT", "MAX", "EXPIRES")
	for _, c := range info.ConsumerList {
		name := c.Name
		if c.Fetch {
			name = strings.TrimSpace(name + " (fetch)")
		}
		consumers.Row(name, c.InFlight, c.Credit, c.MaxInFlight, terminal.OrDash(c.ExpiresAt))
	}
	flows := terminal.NewTable("FLOW", "WEIGHT", "DEFICIT", "PENDING", "SHARE")
	for _, f := range info.TopFlows {
		flows.Row(f.Key, terminal.Number(f.Weight), terminal.Number(f.Deficit), f.Pending, fmt.Sprintf("%.1f%%", f.Share*100))
	}
	hooks := terminal.NewTable("HOOK", "CIRCUIT", "RUNS", "FAILURES", "IN A ROW", "BYPASSED", "WARNINGS", "LAST ERROR")
	for _, h := range info.Hooks {
		hooks.Row(h.Hook, h.State, h.Runs, h.Failures, h.ConsecutiveFailures, h.Bypassed, h.Warnings, terminal.OrDash(h.LastError))
	}
	counters := terminal.NewTable("COUNTER", "SINCE START")
	for _, name := range slices.Sorted(maps.Keys(info.Counters)) {
		counters.Row(name, info.Counters[name])
	}
	for _, t := range []*terminal.Table{consumers, flows, hooks, counters} {
		if t.Empty() {
			continue
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
		if err := t.Print(w); err != nil {
			return err
		}
	}
	return nil
}

// settingRows shows the settings that are not said elsewhere.
func settingRows(t *terminal.Table, s client.QueueSettings) {
	t.Row("visibility timeout", terminal.FormatMs(s.VisibilityTimeoutMs))
	t.Row("max deliveries", maxDeliveries(s))
	t.Row("dedupe window", terminal.FormatMs(s.DedupeWindowMs))
	limit := func(name string, n int64, text string) {
		if n != 0 {
			t.Row(name, text)
		}
	}
	limit("max depth", s.MaxDepth, strconv.FormatInt(s.MaxDepth, 10))
	limit("max size", s.MaxBytes, terminal.Size(s.MaxBytes))
	limit("hook timeout", s.LuaTimeoutMs, terminal.FormatMs(s.LuaTimeoutMs))
	limit("hook memory", s.LuaMemoryLimitBytes, terminal.Size(s.LuaMemoryLimitBytes))
	limit("hook circuit threshold", s.LuaCircuitBreakerThreshold, strconv.FormatInt(s.LuaCircuitBreakerThreshold, 10))
	limit("hook circuit cooldown", s.LuaCircuitBreakerCooldownMs, terminal.FormatMs(s.LuaCircuitBreakerCooldownMs))
	limit("max pending per key", s.MaxPendingPerKey, strconv.FormatInt(s.MaxPendingPerKey, 10))
	limit("max failures per key", s.MaxFailuresPerKey, failureLimit(s))
	for _, header := range []struct{ name, value string }{
		{"fairness header", s.FairnessHeader},
		{"weight header", s.WeightHeader},
		{"throttle headers", strings.Join(s.ThrottleHeaders, ", ")},
		{"circuit header", s.CircuitHeader},
		{"retry policy", s.RetryPolicy},
		{"ordering", ordering(s)},
		{"enqueue rate", enqueueRate(s.EnqueueRate, s.EnqueueBurst)},
		{"enqueue rate per key", enqueueRate(s.EnqueueRatePerKey, s.EnqueueBurstPerKey)},
		{"on_enqueue", lines(s.OnEnqueue)},
		{"on_failure", lines(s.OnFailure)},
	} {
		if header.value != "" {
			t.Row(header.name, header.value)
		}
	}
}

func maxDeliveries(s client.QueueSettings) string {
	switch {
	case s.MaxDeliveries == nil && s.OnFailure != "":
		return "on_failure decides"
	case s.MaxDeliveries == nil:
		return fmt.Sprintf("%d (default)", client.DefaultMaxDeliveries)
	case *s.MaxDeliveries == 0:
		return "no limit"
	}
	return strconv.FormatInt(*s.MaxDeliveries, 10)
}

func ordering(s client.QueueSettings) string {
	if s.Ordering == "" {
		return ""
	}
	return "by " + s.Ordering + ", on_blocked " + cmp.Or(s.OnBlocked, "wait")
}

func enqueueRate(rate client.Rate, burst int64) string {
	switch {
	case rate == "":
		return ""
	case burst == 0:
		return terminal.PerSecond(string(rate))
	}
	return fmt.Sprintf("%s, burst %d", terminal.PerSecond(string(rate)), burst)
}

func failureLimit(s client.QueueSettings) string {
	hold := "until resumed"
	if s.FailureHoldMs != 0 {
		hold = "for " + terminal.FormatMs(s.FailureHoldMs)
	}
	return fmt.Sprintf("%d in %s, then held %s", s.MaxFailuresPerKey, terminal.FormatMs(cmp.Or(s.FailureWindowMs, 60_000)), hold)
}

func lines(script string) string {
	if script == "" {
		return ""
	}
	return terminal.Plural(int64(strings.Count(strings.TrimRight(script, "\n"), "\n")+1), "line") + " of Lua"
}

func printSettings(env *command.Env, w io.Writer, done string, s client.QueueSettings) error {
	if env.JSON {
		return terminal.PrintJSON(w, s)
	}
	t := terminal.NewTable("queue", cmp.Or(terminal.Clean(s.Name), "?")+" "+done)
	t.Row("quantum", s.Quantum)
	settingRows(t, s)
	return t.Print(w)
}
