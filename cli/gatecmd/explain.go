package gatecmd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
	"github.com/filaq/fila/wire/api"
)

func newExplainCommand(env *command.Env) *cobra.Command {
	return command.Group(&cobra.Command{
		Use:   "explain",
		Short: "Explain why a message, a fairness key or a queue waits",
		Long: `Explain what a message, a fairness key or a queue waits for: first one sentence,
then each gate, who set its limit and when it admits messages. Nothing changes.`,
	}, newExplainMessageCommand(env), newExplainKeyCommand(env), command.One(env, &cobra.Command{
		Use:     "queue QUEUE",
		Short:   "Explain what a queue waits for",
		Example: `  fila explain queue orders`,
	}, (*client.Client).ExplainQueue, func(q api.ExplainQueue) string { return showQueue(env, q) }))
}

func newExplainMessageCommand(env *command.Env) *cobra.Command {
	var queue string
	cmd := &cobra.Command{
		Use:     "message ID",
		Aliases: []string{"msg"},
		Short:   "Explain where a message is and what it waits for",
		Long: `Explain where a message is and what it waits for. The exit code is 4 if no queue has
it: it was acked or removed, or never enqueued.`,
		Example: `  fila explain message 01981c2e-7b1c-7d3a-9b1e-2f4c5d6e7f80
  fila explain message 01981c2e-7b1c-7d3a-9b1e-2f4c5d6e7f80 --queue orders --json`,
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (api.ExplainMessage, error) {
			m, err := s.ExplainMessage(ctx, queue, args[0])
			if m.State == api.StateUnknown {
				err = command.Later(command.Exit(command.ExitNotFound, errors.New(terminal.Clean(m.Reason))))
			}
			return m, err
		}, func(m api.ExplainMessage, _ []string) string { return showMessage(env, m) }),
	}
	cmd.Flags().StringVar(&queue, "queue", "", "only in this `queue` and its dead letters")
	return cmd
}

func newExplainKeyCommand(env *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:               "key QUEUE KEY",
		Short:             "Explain what a fairness key of a queue gets, and what blocks it",
		Example:           `  fila explain key orders acme`,
		ValidArgsFunction: env.Complete(command.QueueNames, command.FairnessKeys),
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (api.ExplainKey, error) {
			return s.ExplainKey(ctx, args[0], args[1])
		}, func(k api.ExplainKey, _ []string) string { return showKey(env, k) }),
	}
}

func showMessage(env *command.Env, m api.ExplainMessage) string {
	if m.State == api.StateUnknown {
		return "" // the error explains it
	}
	t := terminal.NewTable("message", terminal.Clean(m.ID))
	t.Row("queue", terminal.OrDash(m.Queue))
	t.Fact("fairness key", m.Key)
	t.Row("state", m.State)
	if m.Attempt != 0 && m.State != api.StateDead { // the sentence has the attempts of dead letters
		t.Row("attempt", m.Attempt)
	}
	t.Fact("enqueued", env.WhenSet(m.EnqueuedAt))
	t.Fact("delayed until", env.WhenSet(m.ReadyAt))
	t.Fact("consumer", m.Consumer)
	t.Fact("leased until", env.WhenSet(m.LeaseUntil))
	t.Fact("route", terminal.Clean(m.Route))
	if m.BlockedBy != nil {
		t.Row("blocked by", gateName(*m.BlockedBy))
	}
	t.Fact("blocked since", env.WhenSet(m.BlockedSince))
	if m.State == api.StateReady || m.State == api.StateBlocked {
		t.Row("ahead of it", terminal.Plural(m.Ahead, "message"))
	}
	if m.Estimate != "" {
		t.Row("may go", env.When(m.Estimate)+", if nothing changes")
	}
	gates := terminal.NewTable("GATE", "NOW", "ADMITS", "LIMITS", "IN USE", "SET BY")
	for _, g := range m.Gates {
		gates.Row(g.Gate, gateVerdict(g), env.Soon(g.AdmitsAt), terminal.OrDash(g.Limits), terminal.OrDash(g.InUse), terminal.OrDash(env.Stamps(g.SetBy)))
	}
	return terminal.Sections(explanation(env, m.Reason, t, gates), routesTable(m.Routes).Or(""), env.Timeline(m.History))
}

// routesTable shows the routes of a message.
func routesTable(routes []api.RouteState) *terminal.Table {
	t := terminal.NewTable("ROUTE", "WEIGHT", "NOW", "GATES")
	for _, r := range routes {
		weight, now := terminal.OrDash(""), "admits"
		if r.Weight > 0 {
			weight = strconv.FormatFloat(r.Weight, 'f', -1, 64)
		}
		if r.BlockedBy != nil {
			now = "blocks: " + gateName(*r.BlockedBy)
		}
		t.Row(terminal.Clean(r.Name), weight, now, terminal.OrDash(strings.Join(r.Gates, ", ")))
	}
	return t
}

// backlog returns a table whose first rows count the messages of a key or queue.
func backlog(kind, name, queue string, ready, blocked, delayed, inFlight any) *terminal.Table {
	t := terminal.NewTable(kind, terminal.Clean(name))
	t.Fact("queue", queue)
	t.Row("ready", ready)
	t.Row("blocked", blocked)
	t.Row("delayed", delayed)
	t.Row("in flight", inFlight)
	return t
}

// shareText describes a flow's share of deliveries.
func shareText(k *api.ExplainKey) string {
	share := fmt.Sprintf("%.1f%%", k.Share*100)
	switch {
	case k.Active:
		return share + " of the weights of the active flows"
	case k.Share == 0: // no messages
		return "-"
	case k.Blocked > 0:
		return "none while it is blocked, then " + share
	}
	return "none while no message is ready, then " + share
}

func showKey(env *command.Env, k api.ExplainKey) string {
	t := backlog("key", k.Key, k.Queue, k.Ready, k.Blocked, k.Delayed, k.InFlight)
	weight := terminal.Number(k.Weight)
	if k.WeightBy != "" {
		weight += " (" + api.SetByText(k.WeightBy) + ")"
	}
	t.Row("weight", weight)
	t.Row("share", shareText(&k))
	t.Row("deficit", terminal.Number(k.Deficit))
	pausedRow(env, t, k.Paused, "fila resume key "+k.Queue+" "+k.Key)
	return explanation(env, k.Reason, t, blockedTable(env, k.BlockedBy))
}

func showQueue(env *command.Env, q api.ExplainQueue) string {
	t := backlog("queue", q.Queue, "", q.Ready, q.Blocked, q.Delayed, q.InFlight)
	t.Row("consumers", fmt.Sprintf("%d, with credit for %s", q.Consumers, terminal.Plural(int64(q.Credit), "message")))
	pausedRow(env, t, q.Paused, "fila resume queue "+q.Queue)
	return explanation(env, q.Reason, t, blockedTable(env, q.BlockedBy))
}

func pausedRow(env *command.Env, t *terminal.Table, paused, resume string) {
	if paused == "" {
		return
	}
	if _, err := time.Parse(time.RFC3339, paused); err != nil {
		t.Row("paused", "until `"+resume+"`")
		return
	}
	t.Row("paused until", env.When(paused))
}

func blockedTable(env *command.Env, gates []api.BlockedCount) *terminal.Table {
	t := terminal.NewTable("GATE", "BLOCKED", "FLOWS", "NOW", "ADMITS", "LIMITS", "IN USE", "SET BY")
	for _, g := range gates {
		t.Row(g.Gate, g.Messages, g.Flows, gateVerdict(g.GateState), env.Soon(g.AdmitsAt), terminal.OrDash(g.Limits), terminal.OrDash(g.InUse), terminal.OrDash(env.Stamps(g.SetBy)))
	}
	return t
}

// gateVerdict describes whether a gate admits messages, or what blocks them.
func gateVerdict(g api.GateState) string {
	switch {
	case g.Admits:
		return "admits"
	case g.Kind == "" || g.Kind == "open":
		return "blocks"
	}
	return "blocks: " + g.Kind
}

func gateName(g api.GateState) string {
	if g.Limits == "" {
		return g.Gate + " (" + g.Kind + ")"
	}
	return g.Gate + " (" + g.Kind + "; " + g.Limits + ")"
}

// explanation joins the sentence, the facts and the gates.
func explanation(env *command.Env, reason string, facts, gates *terminal.Table) string {
	return terminal.Sections(terminal.Line(terminal.Clean(env.Stamps(reason))), facts.String(), gates.Or(""))
}
