package opscmd

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/wire/api"
)

func newStatusCommand(env *command.Env) *cobra.Command {
	var queue string
	var limit int
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what is wrong now, worst first",
		Long: `Show what is wrong now, the worst first: since when, whom it hurts, why, and the
action that helps. docs/attention.md lists all conditions.

The exit code is 0 if all is well, or if there is only information such as a pause;
10 if the worst finding is a warning, or a node of a cluster did not answer; 11 if it
is critical. If the command fails, it is another code, such as 7 if no fila answers.`,
		Example: `  fila status
  fila status --queue orders
  fila status --json | jq -r '.findings[] | .action.command'`,
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, _ []string) (api.Attention, error) {
			reply, err := s.Attention(ctx, queue, limit)
			if err == nil {
				err = statusError(&reply)
			}
			return reply, err
		}, func(reply api.Attention, _ []string) string { return showStatus(env, &reply) }),
	}
	cmd.Flags().StringVar(&queue, "queue", "", "only what is wrong with this `queue`")
	cmd.Flags().IntVar(&limit, "limit", api.DefaultFindings, "show up to this many findings")
	command.Bound(cmd, "limit", 1, api.MaxListLimit, "")
	return cmd
}

// statusError returns what ends fila status with an exit code other than 0, nil if nothing does.
func statusError(reply *api.Attention) error {
	text := "the worst of " + terminal.Plural(int64(reply.Total), "finding") + " is "
	if reply.Total == 1 {
		text = "the only finding is "
	}
	switch {
	case reply.Severity == api.SeverityCritical:
		return command.Later(command.Exit(command.ExitCritical, fmt.Errorf("%scritical", text)))
	case reply.Severity == api.SeverityWarning:
		return command.Later(command.Exit(command.ExitWarning, fmt.Errorf("%sa warning", text)))
	case len(reply.Unanswered) > 0:
		return command.Later(command.Exit(command.ExitWarning, fmt.Errorf("nodes that did not answer: %s", strings.Join(reply.Unanswered, ", "))))
	}
	return nil
}

func showStatus(env *command.Env, reply *api.Attention) string {
	var b strings.Builder
	if reply.Total+len(reply.Unanswered) == 0 {
		b.WriteString("All is well.\n")
	}
	style := terminal.Style{}
	for i := range reply.Findings {
		f := &reply.Findings[i]
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "%s  since %s\n", findingTitle(style, f), terminal.Clean(env.When(f.Since)))
		fmt.Fprintf(&b, "  %s %s\n  %s\n", terminal.Clean(f.Whom), terminal.Clean(f.Why), terminal.Clean(f.Action.Text))
		if f.Action.Command != "" {
			fmt.Fprintf(&b, "  $ %s\n", terminal.Clean(f.Action.Command))
		}
		for j := range f.Before {
			m := &f.Before[j]
			fmt.Fprintf(&b, "  Changed: %s\n", terminal.Clean(m.BeforeText(f.Since)))
			if m.Undo != nil {
				fmt.Fprintf(&b, "  $ %s\n", terminal.Clean(m.Undo.Command))
			}
		}
	}
	if reply.Truncated > 0 {
		fmt.Fprintf(&b, "\n%s more; --limit shows them\n", terminal.Plural(int64(reply.Truncated), "finding"))
	}
	for _, node := range reply.Unanswered {
		fmt.Fprintf(&b, "node %s did not answer: findings of its shards are missing\n", terminal.Clean(node))
	}
	return b.String()
}

// findingTitle is a finding in a few words: its severity, title and object.
func findingTitle(style terminal.Style, f *api.Finding) string {
	severity := strings.ToUpper(f.Severity)
	switch f.Severity {
	case api.SeverityCritical:
		severity = style.Red(severity)
	case api.SeverityWarning:
		severity = style.Yellow(severity)
	}
	return severity + "  " + terminal.Clean(f.Title+": "+findingObject(f))
}

// findingObject names the object of a finding.
func findingObject(f *api.Finding) string {
	var parts []string
	add := func(kind, name string) {
		if name != "" {
			parts = append(parts, strings.TrimSpace(kind+" "+name))
		}
	}
	add("queue", f.Queue)
	add("key", f.Key)
	add("", f.Gate)
	add("", f.Hook)
	add("schedule", f.Schedule)
	if f.Shard != nil {
		add("shard", strconv.Itoa(*f.Shard))
	}
	add("node", f.Node)
	if len(parts) == 0 {
		return "this fila"
	}
	return strings.Join(parts, ", ")
}
