package messagecmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

func newDeadCommand(env *command.Env) *cobra.Command {
	groups, rates, list, show := newDeadGroupsCommand(env), newDeadRatesCommand(env), newDeadListCommand(env), newDeadShowCommand(env)
	for _, cmd := range []*cobra.Command{groups, rates, list} {
		cmd.ValidArgsFunction = env.Complete(deadLetterQueues)
	}
	show.ValidArgsFunction = env.Complete(deadLetterQueues, command.ErrorGroups)
	return command.Group(&cobra.Command{
		Use:   "dead",
		Short: "Show dead letters, grouped by their errors",
	}, groups, rates, list, show)
}

func newDeadGroupsCommand(env *command.Env) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "groups QUEUE",
		Short: "Group the dead letters of a queue by their errors",
		Long: `Group the dead letters of a queue by their errors, the largest group first: errors
with the same code and text, apart from numbers, ids, quoted parts and paths.
--error-group takes the name of a group.

REDRIVEN is how many messages of the group were redriven; fila forgets it after a
week. CAME BACK is how many of the present dead letters had been redriven before.`,
		Example: `  fila dead groups orders
  fila dead groups orders --json | jq -r '.groups[0].group'`,
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (api.DeadGroups, error) {
			return s.DeadGroups(ctx, wire.DeadLetters(args[0]), limit)
		}, func(reply api.DeadGroups, _ []string) string { return showGroups(env, reply) }),
	}
	cmd.Flags().IntVar(&limit, "limit", api.DefaultDeadGroups, "show the largest groups, at most this many")
	command.Bound(cmd, "limit", 1, api.MaxDeadGroups, "")
	return cmd
}

func newDeadRatesCommand(env *command.Env) *cobra.Command {
	req := api.DeadRatesRequest{Minutes: api.MaxDeadRateMinutes, Limit: api.DefaultDeadRates}
	cmd := &cobra.Command{
		Use:   "rates [QUEUE]",
		Short: "Count the messages that became dead letters by minute and error",
		Long: `Count the messages that became dead letters in each of the last minutes, by error
group, the group with the most first: of a queue, or of all queues. The counts begin anew
when the fila of the queue restarts.

LAST MINUTE is the present minute so far.`,
		Example: `  fila dead rates orders --minutes 10
  fila dead rates --json | jq -r '.groups[] | [.source_queue, .error, .messages] | @tsv'`,
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (api.DeadRates, error) {
			if len(args) > 0 {
				req.Queue = args[0]
			}
			return s.DeadRates(ctx, req)
		}, func(reply api.DeadRates, _ []string) string { return showRates(&reply) }),
	}
	cmd.Flags().IntVar(&req.Minutes, "minutes", req.Minutes, "count this many minutes")
	command.Bound(cmd, "minutes", 1, api.MaxDeadRateMinutes, "")
	cmd.Flags().IntVar(&req.Limit, "limit", req.Limit, "show the groups with the most, at most this many")
	command.Bound(cmd, "limit", 1, api.MaxDeadRates, "")
	return cmd
}

func showRates(reply *api.DeadRates) string {
	if reply.Messages == 0 {
		return fmt.Sprintf("no message became a dead letter in the last %s\n", terminal.Plural(int64(len(reply.Other)), "minute"))
	}
	t := terminal.NewTable("GROUP", "QUEUE", "MESSAGES", "PER MINUTE", "LAST MINUTE", "CODE", "ERROR")
	row := func(g api.DeadRate) {
		mean := float64(g.Messages) / float64(len(g.Minutes))
		t.Row(terminal.OrDash(g.Group), terminal.OrDash(g.SourceQueue), g.Messages, fmt.Sprintf("%.1f", mean), g.Minutes[len(g.Minutes)-1],
			terminal.OrDash(g.ErrorCode), terminal.Fit(strings.Join(strings.Fields(g.Error), " "), 60))
	}
	others := api.DeadRate{Messages: reply.Messages, Minutes: reply.Other, Error: "all others"}
	for _, g := range reply.Groups {
		row(g)
		others.Messages -= g.Messages
	}
	if others.Messages > 0 {
		row(others)
	}
	return t.String()
}

func showGroups(env *command.Env, reply api.DeadGroups) string {
	if len(reply.Groups) == 0 && reply.Other == 0 {
		return "queue " + reply.Queue + " has no messages\n"
	}
	t := terminal.NewTable("GROUP", "MESSAGES", "FIRST", "LAST", "REDRIVEN", "CAME BACK", "CODE", "ERROR", "KEYS")
	for i := range reply.Groups {
		g := &reply.Groups[i]
		t.Row(g.Group, g.Messages, env.Age(g.First), env.Age(g.Last), g.Left, g.CameBack, terminal.OrDash(g.ErrorCode), terminal.Fit(groupError(g), 60), terminal.Fit(keyCounts(g), 40))
	}
	rest := ""
	if more := reply.Total - len(reply.Groups); more > 0 {
		rest = fmt.Sprintf("%s more; see --limit\n", terminal.Plural(int64(more), "group"))
	}
	if reply.Other > 0 {
		rest += fmt.Sprintf("%s in further groups, which are not counted separately\n", terminal.Plural(reply.Other, "message"))
	}
	return terminal.Sections(t.String(), rest)
}

func groupError(g *api.DeadGroup) string { return strings.Join(strings.Fields(g.Error), " ") }

// keyCounts describes the keys with the most messages of a group.
func keyCounts(g *api.DeadGroup) string {
	var parts []string
	for _, k := range g.Keys {
		parts = append(parts, fmt.Sprintf("%s %d", terminal.Clean(k.Key), k.Messages))
	}
	return strings.Join(parts, ", ")
}

func newDeadListCommand(env *command.Env) *cobra.Command {
	f := new(peekFlags)
	cmd := &cobra.Command{
		Use:   "list QUEUE",
		Short: "Show dead letters of a queue without taking them",
		Long: `Show the dead letters of a queue like peek, oldest first: the reason, the attempts,
and how long ago.`,
		Example: `  fila dead list orders
  fila dead list orders --error-code 402 --died-after 2h --limit 100
  fila dead list orders --header tenant=acme -v`,
	}
	f.addTo(env, cmd, wire.DLQSuffix)
	return cmd
}

func newDeadShowCommand(env *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show QUEUE GROUP",
		Short: "Show a group of dead letters, and the newest of them",
		Long: `Show a group of dead letters and its latest message with error, headers and payload.
Exit code 4: there is no such group.`,
	}
	cmd.RunE = command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (deadGroup, error) {
		return askGroup(ctx, s, wire.DeadLetters(args[0]), args[1])
	}, func(g deadGroup, _ []string) string {
		t := terminal.NewTable("group", g.Group.Group)
		t.Row("messages", g.Group.Messages)
		t.Fact("first", env.WhenSet(g.Group.First))
		t.Fact("last", env.WhenSet(g.Group.Last))
		t.Row("redriven", g.Group.Left)
		t.Row("came back", g.Group.CameBack)
		t.Fact("error code", g.Group.ErrorCode)
		t.Fact("error", groupError(&g.Group))
		t.Fact("fairness keys", keyCounts(&g.Group))
		for i := range g.Group.Before {
			m := &g.Group.Before[i]
			t.Fact("changed", terminal.Clean(m.BeforeText(g.Group.First)))
			if m.Undo != nil {
				t.Fact("back", terminal.Clean(m.Undo.Command))
			}
		}
		sample := ""
		if g.Sample != nil {
			sample = longPeeked(env, terminal.StyleFor(cmd.OutOrStdout()), g.Sample)
		}
		return terminal.Sections(t.String(), sample)
	})
	return cmd
}

// deadGroup is a group and one of its messages.
type deadGroup struct {
	Group  api.DeadGroup      `json:"group"`
	Sample *api.PeekedMessage `json:"sample,omitempty"`
}

func askGroup(ctx context.Context, s *command.Session, queue, name string) (g deadGroup, err error) {
	all, err := s.DeadGroups(ctx, queue, api.MaxDeadGroups)
	if err != nil {
		return g, err
	}
	i := slices.IndexFunc(all.Groups, func(g api.DeadGroup) bool { return g.Group == name })
	if i < 0 {
		return g, command.Exit(command.ExitNotFound, fmt.Errorf("%s has no dead letters of group %q; `fila dead groups` lists the groups", queue, name))
	}
	if g.Group = all.Groups[i]; g.Group.Sample == "" {
		return g, nil
	}
	page, err := s.Peek(ctx, queue, api.PeekRequest{
		Filter: &api.Filter{IDs: []string{g.Group.Sample}}, Limit: 1, PayloadBytes: api.DefaultPeekPayload,
	})
	if len(page.Messages) > 0 {
		g.Sample = &page.Messages[0]
	}
	return g, err
}
