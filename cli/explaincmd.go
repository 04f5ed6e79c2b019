package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/client"
	"github.com/filaq/fila/wire"
)

func newExplainCommand(a *app) *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "explain",
		Short: "Say why a message, a fairness key or a queue waits",
		Long: `Say where a message is and what it waits for, how a fairness key of a queue
stands, or what a queue waits for: first in one sentence, then gate by gate,
with who set each limit and when it opens. Asking changes nothing.`,
	})
	cmd.AddCommand(newExplainMessageCommand(a), newExplainKeyCommand(a), newExplainQueueCommand(a))
	return cmd
}

func newExplainMessageCommand(a *app) *cobra.Command {
	var queue string
	cmd := &cobra.Command{
		Use:     "message ID",
		Aliases: []string{"msg"},
		Short:   "Say where a message is and what it waits for",
		Long: `Say where a message is and what it waits for. A message that is not found was
acked and deleted, or never was here; the exit code is 4 then.`,
		Example: `  fila explain message 01981c2e-7b1c-7d3a-9b1e-2f4c5d6e7f80
  fila explain message 01981c2e-7b1c-7d3a-9b1e-2f4c5d6e7f80 --queue orders --json`,
		Args: needArgs("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.online(cmd, func(ctx context.Context, s *session) error {
				m, err := s.ExplainMessage(ctx, queue, args[0])
				if err != nil {
					return hintQueue(err)
				}
				if a.json {
					err = printJSON(cmd.OutOrStdout(), m)
				} else if m.State != wire.StateUnknown {
					err = a.printExplainedMessage(cmd.OutOrStdout(), m)
				}
				if err == nil && m.State == wire.StateUnknown {
					return &exitError{exitNotFound, errors.New(clean(m.Reason))}
				}
				return err
			})
		},
	}
	cmd.Flags().StringVar(&queue, "queue", "", "look only in this `queue`")
	return cmd
}

func newExplainKeyCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "key QUEUE KEY",
		Short:             "Say how a fairness key of a queue stands",
		Example:           `  fila explain key orders acme`,
		Args:              needArgs("QUEUE", "KEY"),
		ValidArgsFunction: a.complete(queueNames, fairnessKeys),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.online(cmd, func(ctx context.Context, s *session) error {
				k, err := s.ExplainKey(ctx, args[0], args[1])
				if err != nil {
					return hintQueue(err)
				}
				if a.json {
					return printJSON(cmd.OutOrStdout(), k)
				}
				return a.printExplainedKey(cmd.OutOrStdout(), k)
			})
		},
	}
}

func newExplainQueueCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "queue QUEUE",
		Short:             "Say what a queue waits for",
		Example:           `  fila explain queue orders`,
		Args:              needArgs("QUEUE"),
		ValidArgsFunction: a.complete(queueNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.online(cmd, func(ctx context.Context, s *session) error {
				q, err := s.ExplainQueue(ctx, args[0])
				if err != nil {
					return hintQueue(err)
				}
				if a.json {
					return printJSON(cmd.OutOrStdout(), q)
				}
				return a.printExplainedQueue(cmd.OutOrStdout(), q)
			})
		},
	}
}

func (a *app) printExplainedMessage(w io.Writer, m client.ExplainedMessage) error {
	t := newTable("message", clean(m.ID))
	t.row("queue", orDash(m.Queue))
	if m.Key != "" {
		t.row("fairness key", m.Key)
	}
	t.row("state", m.State)
	if m.Attempt != 0 {
		t.row("attempt", m.Attempt)
	}
	times := func(name, stamp string) {
		if stamp != "" {
			t.row(name, a.when(stamp))
		}
	}
	times("enqueued", m.EnqueuedAt)
	times("delayed until", m.ReadyAt)
	if m.Consumer != "" {
		t.row("consumer", m.Consumer)
	}
	times("leased until", m.LeaseUntil)
	if m.BlockedBy != nil {
		t.row("blocked by", gateName(*m.BlockedBy))
	}
	times("blocked since", m.BlockedSince)
	if m.State == wire.StatePending || m.State == wire.StateParked {
		t.row("before it", plural(m.Ahead, "message"))
	}
	if m.Estimate != "" {
		t.row("may go", a.when(m.Estimate)+", if nothing changes")
	}
	gates := newTable("GATE", "NOW", "OPENS", "LIMITS", "IN USE", "SET BY")
	for _, g := range m.Gates {
		gates.row(g.Gate, gateVerdict(g), a.soon(g.OpensAt), orDash(g.Limits), orDash(g.InUse), orDash(a.stamps(g.SetBy)))
	}
	return explanation(w, a.stamps(m.Reason), t, gates)
}

func (a *app) printExplainedKey(w io.Writer, k client.ExplainedKey) error {
	t := newTable("key", clean(k.Key))
	t.row("queue", k.Queue)
	t.row("ready", k.Pending)
	t.row("parked", k.Parked)
	t.row("delayed", k.Delayed)
	t.row("in flight", k.InFlight)
	weight := number(k.Weight)
	if k.WeightBy != "" {
		weight += " (set by " + k.WeightBy + ")"
	}
	t.row("weight", weight)
	t.row("share", fmt.Sprintf("%.1f%% of the weights of the active flows", k.Share*100))
	t.row("deficit", number(k.Deficit))
	a.pausedRow(t, k.Paused, "fila resume key "+k.Queue+" "+k.Key)
	return explanation(w, a.stamps(k.Reason), t, a.blockedTable(k.BlockedBy))
}

func (a *app) printExplainedQueue(w io.Writer, q client.ExplainedQueue) error {
	t := newTable("queue", clean(q.Queue))
	t.row("ready", q.Pending)
	t.row("parked", q.Parked)
	t.row("delayed", q.Delayed)
	t.row("in flight", q.InFlight)
	t.row("consumers", fmt.Sprintf("%d, which take %s more now", q.Consumers, plural(int64(q.Credit), "message")))
	a.pausedRow(t, q.Paused, "fila resume queue "+q.Queue)
	return explanation(w, a.stamps(q.Reason), t, a.blockedTable(q.BlockedBy))
}

func (a *app) pausedRow(t *table, paused, resume string) {
	if paused == "" {
		return
	}
	if _, err := time.Parse(time.RFC3339, paused); err != nil {
		t.row("paused", "until `"+resume+"`")
		return
	}
	t.row("paused until", a.when(paused))
}

func (a *app) blockedTable(gates []client.BlockedCount) *table {
	t := newTable("GATE", "HOLDS", "FLOWS", "NOW", "OPENS", "LIMITS", "IN USE", "SET BY")
	for _, g := range gates {
		t.row(g.Gate, g.Messages, g.Flows, gateVerdict(g.GateState), a.soon(g.OpensAt), orDash(g.Limits), orDash(g.InUse), orDash(a.stamps(g.SetBy)))
	}
	return t
}

// gateVerdict says what a gate does. "open" would be misunderstood: an open
// circuit is a shut gate.
func gateVerdict(g client.GateState) string {
	switch {
	case g.Open:
		return "passes"
	case g.Kind == "" || g.Kind == "open":
		return "blocks"
	}
	return "blocks: " + g.Kind
}

func gateName(g client.GateState) string {
	if g.Limits == "" {
		return g.Gate + " (" + g.Kind + ")"
	}
	return g.Gate + " (" + g.Kind + "; " + g.Limits + ")"
}

// explanation prints the sentence first, then facts, then gates.
func explanation(w io.Writer, reason string, facts, gates *table) error {
	if _, err := fmt.Fprintf(w, "%s\n\n", clean(reason)); err != nil {
		return err
	}
	if err := facts.print(w); err != nil {
		return err
	}
	if len(gates.rows) == 1 {
		return nil
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return gates.print(w)
}
