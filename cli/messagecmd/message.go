package messagecmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
	"github.com/filaq/fila/wire/api"
)

func newMessageCommand(env *command.Env) *cobra.Command {
	return command.Group(&cobra.Command{
		Use:     "message",
		Aliases: []string{"msg"},
		Short:   "Show, delete or run one message now",
	}, newMessageShowCommand(env), newMessageDeleteCommand(env), newMessageRunNowCommand(env))
}

const exampleID = "01981c2e-7b1c-7d3a-9b1e-2f4c5d6e7f80"

// messageCommand makes a command about one message: it calls fila and shows the reply.
func messageCommand[T any](env *command.Env, cmd *cobra.Command, call func(c *client.Client, ctx context.Context, queue, id string) (T, error), show func(m T) string) *cobra.Command {
	queue := cmd.Flags().String("queue", "", "only in this `queue` and its dead letters")
	return command.One(env, cmd, func(c *client.Client, ctx context.Context, id string) (T, error) { return call(c, ctx, *queue, id) }, show)
}

func newMessageShowCommand(env *command.Env) *cobra.Command {
	var bytes int
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show a message and what it waits for",
		Long: `Show what a message waits for, what happened at each attempt, its headers and
payload. The exit code is 4 if no queue has it: it was acked or removed, or never
enqueued.`,
		Example: "  fila message show " + exampleID + "\n  fila message show " + exampleID + " --queue orders --json",
	}
	messageCommand(env, cmd, func(c *client.Client, ctx context.Context, queue, id string) (api.MessageInfo, error) {
		return c.MessageShow(ctx, queue, id, bytes)
	}, func(m api.MessageInfo) string { return showInfo(env, terminal.StyleFor(cmd.OutOrStdout()), &m) })
	cmd.Flags().IntVar(&bytes, "payload-bytes", api.DefaultPeekPayload, "cut payload and headers to this many bytes each, up to 65536")
	command.Bound(cmd, "payload-bytes", 0, api.MaxPeekPayload, "")
	return cmd
}

func showInfo(env *command.Env, paint terminal.Style, m *api.MessageInfo) string {
	t := terminal.NewTable("message", terminal.Clean(m.ID))
	t.Row("queue", m.Queue)
	t.Fact("fairness key", m.Key)
	t.Row("state", m.State)
	if m.Priority > 0 {
		t.Row("priority", m.Priority)
	}
	t.Row("attempt", m.Attempt)
	t.Row("cost", terminal.Number(m.Cost))
	t.Fact("enqueued", env.WhenSet(m.EnqueuedAt))
	t.Fact("delayed until", env.WhenSet(m.ReadyAt))
	t.Fact("expires", env.WhenSet(m.ExpiresAt))
	t.Fact("consumer", m.Consumer)
	t.Fact("leased until", env.WhenSet(m.LeaseUntil))
	t.Fact("blocked since", env.WhenSet(m.BlockedSince))
	if m.State == api.StateReady || m.State == api.StateBlocked {
		t.Row("ahead of it", terminal.Plural(m.Ahead, "message"))
	}
	if m.Estimate != "" {
		t.Row("may go", env.When(m.Estimate)+", if nothing changes")
	}
	for i := range m.Gates {
		state := "blocks"
		if m.Gates[i].Admits {
			state = "admits"
		}
		t.Row("gate", m.Gates[i].Gate+" "+state)
	}
	t.Fact("route", terminal.Clean(m.Route))
	for i := range m.Routes {
		state := "admits"
		if by := m.Routes[i].BlockedBy; by != nil {
			state = "blocked by " + by.Gate
		}
		t.Row("route "+terminal.Clean(m.Routes[i].Name), state)
	}
	t.Row("payload", terminal.Plural(int64(m.PayloadBytes), "byte"))
	return terminal.Sections(terminal.Line(terminal.Clean(env.Stamps(m.Reason))), t.String(), env.Timeline(m.History), content(paint, &m.PeekedMessage))
}

func newMessageDeleteCommand(env *command.Env) *cobra.Command {
	return messageCommand(env, &cobra.Command{
		Use:     "delete ID",
		Aliases: []string{"rm"},
		Short:   "Remove a pending or delayed message, or a dead letter",
		Long: `Remove a pending or delayed message, or a dead letter, for good. A message in flight,
or whose failure is being judged, is refused (exit code 5).`,
		Example: "  fila message delete " + exampleID,
	}, (*client.Client).MessageDelete, func(m api.MessageReply) string {
		return fmt.Sprintf("message %s removed from %s, where it was %s\n", terminal.Clean(m.ID), m.Queue, m.State)
	})
}

func newMessageRunNowCommand(env *command.Env) *cobra.Command {
	return messageCommand(env, &cobra.Command{
		Use:   "run-now ID",
		Short: "End the delay of a message",
		Long: `End the delay of a message, or its wait for a retry. Pauses, gates and the order of
its key still apply. A message in flight is refused (exit code 5).`,
		Example: "  fila message run-now " + exampleID,
	}, (*client.Client).MessageRunNow, func(m api.MessageReply) string {
		if !m.Done {
			return fmt.Sprintf("message %s of %s has no delay to end; it is %s\n", terminal.Clean(m.ID), m.Queue, m.State)
		}
		return fmt.Sprintf("message %s of %s is ready\n", terminal.Clean(m.ID), m.Queue)
	})
}
