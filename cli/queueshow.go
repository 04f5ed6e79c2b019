package cli

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

	"github.com/filaq/fila/client"
)

func newQueueListCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List all queues",
		Example: `  fila queue list
  fila queue list --json`,
		Args: needArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.online(cmd, func(ctx context.Context, s *session) error {
				queues, err := s.QueueList(ctx)
				if err != nil {
					return err
				}
				if a.json {
					return printJSON(cmd.OutOrStdout(), client.QueueList{Total: len(queues), Queues: queues})
				}
				if len(queues) == 0 {
					_, err := fmt.Fprintln(cmd.OutOrStdout(), "no queues; make one with `fila queue create NAME`")
					return err
				}
				t := newTable("QUEUE", "PENDING", "PARKED", "DELAYED", "IN FLIGHT", "CONSUMERS", "SIZE", "OLDEST")
				for _, q := range queues {
					t.row(q.Name, q.Pending, q.Parked, q.Delayed, q.InFlight, q.Consumers, size(q.Bytes), age(q.OldestAgeMs))
				}
				return t.print(cmd.OutOrStdout())
			})
		},
	}
}

func newQueueInspectCommand(a *app) *cobra.Command {
	var flows int
	cmd := &cobra.Command{
		Use:     "inspect QUEUE",
		Aliases: []string{"info"},
		Short:   "Show a queue with its consumers, flows and hooks",
		Example: `  fila queue inspect orders
  fila queue inspect orders --flows 100 --json`,
		Args:              needArgs("QUEUE"),
		ValidArgsFunction: a.complete(queueNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.online(cmd, func(ctx context.Context, s *session) error {
				info, err := s.QueueInspect(ctx, args[0], flows)
				if err != nil {
					return err
				}
				if a.json {
					return printJSON(cmd.OutOrStdout(), info)
				}
				return printQueue(cmd.OutOrStdout(), info)
			})
		},
	}
	cmd.Flags().IntVar(&flows, "flows", 20, "how many flows to show, those with the most pending messages, up to 1000")
	return cmd
}

func printQueue(w io.Writer, info client.QueueInfo) error {
	facts := newTable("queue", info.Name)
	facts.row("pending", info.Pending)
	if info.Parked > 0 {
		facts.row("of them parked", fmt.Sprintf("%d, wait for a gate (`fila explain queue %s`)", info.Parked, info.Name))
	}
	facts.row("delayed", info.Delayed)
	facts.row("in flight", info.InFlight)
	facts.row("oldest", age(info.OldestAgeMs))
	facts.row("size", size(info.Bytes))
	facts.row("quantum", info.Quantum)
	facts.row("flows", info.Flows)
	facts.row("consumers", info.Consumers)
	if info.DLQ != "" {
		facts.row("dead letters", info.DLQ)
	}
	settingRows(facts, info.Settings)
	if err := facts.print(w); err != nil {
		return err
	}

	consumers := newTable("CONSUMER", "IN FLIGHT", "CREDIT", "MAX", "EXPIRES")
	for _, c := range info.ConsumerList {
		name := c.Name
		if c.Fetch {
			name = strings.TrimSpace(name + " (fetch)")
		}
		consumers.row(name, c.InFlight, c.Credit, c.MaxInFlight, orDash(c.ExpiresAt))
	}
	flows := newTable("FLOW", "WEIGHT", "DEFICIT", "PENDING", "SHARE")
	for _, f := range info.TopFlows {
		flows.row(f.Key, number(f.Weight), number(f.Deficit), f.Pending, fmt.Sprintf("%.1f%%", f.Share*100))
	}
	hooks := newTable("HOOK", "CIRCUIT", "RUNS", "FAILURES", "IN A ROW", "BYPASSED", "WARNINGS", "LAST ERROR")
	for _, h := range info.Hooks {
		hooks.row(h.Hook, h.State, h.Runs, h.Failures, h.ConsecutiveFailures, h.Bypassed, h.Warnings, orDash(h.LastError))
	}
	counters := newTable("COUNTER", "SINCE START")
	for _, name := range slices.Sorted(maps.Keys(info.Counters)) {
		counters.row(name, info.Counters[name])
	}
	for _, t := range []*table{consumers, flows, hooks, counters} {
		if len(t.rows) == 1 {
			continue
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
		if err := t.print(w); err != nil {
			return err
		}
	}
	return nil
}

// settingRows shows the settings that are not said elsewhere.
func settingRows(t *table, s client.QueueSettings) {
	t.row("visibility timeout", formatMs(s.VisibilityTimeoutMs))
	t.row("max deliveries", maxDeliveries(s))
	t.row("dedupe window", formatMs(s.DedupeWindowMs))
	limit := func(name string, n int64, text string) {
		if n != 0 {
			t.row(name, text)
		}
	}
	limit("max depth", s.MaxDepth, strconv.FormatInt(s.MaxDepth, 10))
	limit("max size", s.MaxBytes, size(s.MaxBytes))
	limit("hook timeout", s.LuaTimeoutMs, formatMs(s.LuaTimeoutMs))
	limit("hook memory", s.LuaMemoryLimitBytes, size(s.LuaMemoryLimitBytes))
	limit("hook circuit threshold", s.LuaCircuitBreakerThreshold, strconv.FormatInt(s.LuaCircuitBreakerThreshold, 10))
	limit("hook circuit cooldown", s.LuaCircuitBreakerCooldownMs, formatMs(s.LuaCircuitBreakerCooldownMs))
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
			t.row(header.name, header.value)
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
		return perSecond(string(rate))
	}
	return fmt.Sprintf("%s, burst %d", perSecond(string(rate)), burst)
}

func failureLimit(s client.QueueSettings) string {
	hold := "until resumed"
	if s.FailureHoldMs != 0 {
		hold = "for " + formatMs(s.FailureHoldMs)
	}
	return fmt.Sprintf("%d in %s, then held %s", s.MaxFailuresPerKey, formatMs(cmp.Or(s.FailureWindowMs, 60_000)), hold)
}

func lines(script string) string {
	if script == "" {
		return ""
	}
	return plural(int64(strings.Count(strings.TrimRight(script, "\n"), "\n")+1), "line") + " of Lua"
}

func (a *app) printSettings(w io.Writer, done string, s client.QueueSettings) error {
	if a.json {
		return printJSON(w, s)
	}
	t := newTable("queue", cmp.Or(clean(s.Name), "?")+" "+done)
	t.row("quantum", s.Quantum)
	settingRows(t, s)
	return t.print(w)
}
