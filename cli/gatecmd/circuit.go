package gatecmd

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

func newCircuitCommand(env *command.Env) *cobra.Command {
	return env.KeyGroup(&cobra.Command{
		Use:     "circuit",
		Aliases: []string{"circuits"},
		Short:   "Show, open and close the circuits of destinations",
		Long: `A message gets its circuit key, the destination that its consumer calls, from
on_enqueue or the circuit header. Failures in a row, or a "retry after" of the
destination, open the circuit: its messages wait without losing attempts until the
cooldown is over. Then fila delivers a few as probes, and their success closes the
circuit.`,
	}, circuitKeys, newCircuitListCommand(env),
		circuitCommand(env, &cobra.Command{
			Use: "show KEY", Aliases: []string{"get"}, Short: "Show a circuit",
			Example: `  fila circuit show stripe`,
		}, (*client.Client).CircuitShow),
		newCircuitOpenCommand(env),
		circuitCommand(env, &cobra.Command{
			Use: "close KEY", Short: "Close a circuit now",
			Long: `Close a circuit now: it admits messages, and failures in a row count from 0. Failures
for max_failures still count.`,
			Example: `  fila circuit close stripe`,
		}, (*client.Client).CircuitClose),
		circuitCommand(env, &cobra.Command{
			Use: "reset KEY", Short: "Close a circuit and forget all its failures",
			Long:    `Close a circuit now and forget all its failures, including those for max_failures.`,
			Example: `  fila circuit reset stripe`,
		}, (*client.Client).CircuitReset))
}

func newCircuitListCommand(env *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:     "list [KEY-PREFIX]",
		Aliases: []string{"ls"},
		Short:   "List circuits",
		Example: `  fila circuit list
  fila circuit list vendor: --json`,
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (api.CircuitList, error) {
			infos, err := s.CircuitList(ctx, strings.Join(args, ""))
			return api.CircuitList{Total: len(infos), Circuits: infos}, err
		}, func(list api.CircuitList, _ []string) string {
			t := terminal.NewTable("CIRCUIT", "STATE", "UNTIL", "CAUSE", "FAILURES IN A ROW", "MAX FAILURES", "PROBES", "WAITING QUEUES", "SHARED", "OPENED BY", "CHANGED")
			for _, c := range list.Circuits {
				until := env.Soon(c.OpenUntil)
				if c.OpenUntil == "closed" {
					until = "until closed by hand"
				}
				probes := fmt.Sprint(c.Probes)
				if len(c.ProbesBy) > 0 {
					probes = probesBy(&c)
				}
				t.Row(c.Key, c.State, until, terminal.OrDash(c.Cause),
					fmt.Sprintf("%d of %d", c.ConsecutiveFailures, c.Threshold), maxFailures(&c), probes, c.Waiting, sharedState(&c), terminal.OrDash(openedBy(&c)), terminal.OrDash(changedText(&c, env.Soon)))
			}
			return t.Or("no circuits; messages get one by circuit_key of on_enqueue or the circuit header of their queue")
		}),
	}
}

func newCircuitOpenCommand(env *command.Env) *cobra.Command {
	var forMs terminal.Millis
	cmd := circuitCommand(env, &cobra.Command{
		Use: "open KEY", Short: "Open a circuit by hand",
		Long: `Open a circuit by hand: fila delivers none of its messages. Messages in flight
continue.`,
		Example: `  fila circuit open stripe --for 5m
  fila circuit open stripe`,
	}, func(c *client.Client, ctx context.Context, key string) (api.CircuitInfo, error) {
		return c.CircuitOpen(ctx, key, int64(forMs))
	})
	cmd.Flags().Var(&forMs, "for", "how long; 0 is until an operator closes it")
	return cmd
}

// circuitCommand makes a command that shows a circuit after a call.
func circuitCommand(env *command.Env, cmd *cobra.Command, call func(c *client.Client, ctx context.Context, key string) (api.CircuitInfo, error)) *cobra.Command {
	return command.One(env, cmd, call, func(c api.CircuitInfo) string { return showCircuit(env, c) })
}

func showCircuit(env *command.Env, c api.CircuitInfo) string {
	t := terminal.NewTable("circuit", terminal.Clean(c.Key))
	t.Row("state", circuitState(c.State))
	switch {
	case c.OpenUntil == "closed":
		t.Row("until", "`fila circuit close "+c.Key+"`")
	case c.OpenUntil != "":
		t.Row("until", env.When(c.OpenUntil))
	}
	t.Fact("cause", c.Cause)
	t.Fact("opened by", openedBy(&c))
	if f := c.LastFailure; f != nil {
		t.Row("last failure", lastFailure(f, env.When))
	}
	t.Row("failures in a row", fmt.Sprintf("%d of %d", c.ConsecutiveFailures, c.Threshold))
	t.Row("max failures", maxFailures(&c))
	t.Fact("limits set by", terminal.Clean(c.Source))
	t.Row("cooldown", wire.FormatMs(c.CooldownMs))
	t.Row("probes", fmt.Sprintf("%d of %d in flight, %s to close", c.Probes, c.HalfOpenMaxCalls, plural2(c.HalfOpenSuccesses, "success", "successes")))
	t.Row("waiting queues", waitingText(c.Waiting, c.WaitingMessages))
	t.Row("shared", sharedState(&c))
	if len(c.ProbesBy) > 0 {
		t.Row("probes by", probesBy(&c))
	}
	if own := c.Own; own != nil {
		when := ""
		if c.LimitsChangedAt != "" {
			when = " " + env.When(c.LimitsChangedAt)
		}
		t.Row("set here", fmt.Sprintf("open for %s after %s in a row, %s at once, %s to close; fila %s set others later%s",
			wire.FormatMs(own.CooldownMs), terminal.Plural(int64(own.Threshold), "failure"), terminal.Plural(int64(own.HalfOpenMaxCalls), "probe"),
			plural2(own.HalfOpenSuccesses, "success", "successes"), terminal.Clean(c.LimitsBy), when))
	}
	t.Fact("changed", changedText(&c, env.When))
	return terminal.Sections(t.String(), env.Sources(c.Sources))
}

// lastFailure says when what failed with which error: "2026-01-02T11:59:58Z (2s ago), message 0190...:
// [429] too many requests".
func lastFailure(f *api.CircuitFailure, when func(string) string) string {
	of := "message " + f.ID
	switch {
	case f.ID == "" && f.Caller == "":
		of = "a call of the guard"
	case f.ID == "":
		of = "a call of " + terminal.Clean(f.Caller)
	}
	text := when(f.At) + ", " + of + ":"
	if f.ErrorCode != "" {
		text += " [" + terminal.Clean(f.ErrorCode) + "]"
	}
	return text + " " + cmp.Or(terminal.Clean(f.Error), "no text")
}

// probesBy returns the probes of each fila.
func probesBy(c *api.CircuitInfo) string {
	var by []string
	for _, instance := range slices.Sorted(maps.Keys(c.ProbesBy)) {
		by = append(by, fmt.Sprintf("%s %d", terminal.Clean(instance), c.ProbesBy[instance]))
	}
	return strings.Join(by, ", ")
}

// openedBy returns the operator who opened a circuit, if any, and the fila. A local circuit has
// no name of a fila.
func openedBy(c *api.CircuitInfo) string {
	var by []string
	for _, name := range []string{c.OpenedByClient, c.OpenedBy} {
		if name != "" {
			by = append(by, terminal.Clean(name))
		}
	}
	return strings.Join(by, " at ")
}

// changedText describes the last change of a shared circuit: fila, time and version.
func changedText(c *api.CircuitInfo, when func(string) string) string {
	if c.ChangedAt == "" {
		return ""
	}
	return fmt.Sprintf("%s by %s, version %d", when(c.ChangedAt), terminal.Clean(c.By), c.Version)
}

// sharedState describes whether other filas know the state of this circuit.
func sharedState(c *api.CircuitInfo) string {
	switch {
	case c.Degraded:
		return "degraded: this fila decides alone"
	case c.Shared:
		return "shared"
	}
	return "local"
}

// maxFailures describes how many failures open a circuit, in a row or in a time, and for how
// long.
func maxFailures(c *api.CircuitInfo) string {
	if c.MaxFailures == 0 {
		return "not limited"
	}
	hold := "until closed by hand"
	if c.FailureHoldMs > 0 {
		hold = "for " + wire.FormatMs(c.FailureHoldMs)
	}
	return fmt.Sprintf("%d in %s, then open %s", c.MaxFailures, wire.FormatMs(c.FailureWindowMs), hold)
}

// circuitState describes a state, because readers who do not know circuit breakers take "open"
// for passable.
func circuitState(state string) string {
	switch state {
	case "closed":
		return "closed: it admits messages"
	case "open":
		return "open: it blocks messages"
	case "half-open":
		return "half-open: it admits probes only"
	}
	return terminal.OrDash(state)
}

func plural2(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

var circuitKeys = command.NamesOf((*client.Client).CircuitList, func(one api.CircuitInfo) string { return one.Key })
