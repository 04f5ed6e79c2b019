package gatecmd

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/wire/api"
)

// permitFlags select permits.
type permitFlags struct {
	cmd          *cobra.Command
	caller, user string
}

func (f *permitFlags) add(cmd *cobra.Command) {
	f.cmd = cmd
	cmd.Flags().StringVar(&f.caller, "caller", "", "only permits of the caller with this `name`; \"\" is none")
	cmd.Flags().StringVar(&f.user, "user", "", "only permits of this NATS `user`, as ACCOUNT/USER")
}

func (f *permitFlags) filter(args []string) (p api.PermitFilter) {
	if len(args) > 0 {
		p.Key = args[0]
	}
	if f.cmd.Flags().Changed("caller") {
		p.Caller = &f.caller
	}
	p.User = f.user
	return p
}

func newGuardPermitsCommand(env *command.Env) *cobra.Command {
	var flags permitFlags
	var ask api.GuardPermitsRequest
	cmd := &cobra.Command{
		Use:   "permits [KEY]",
		Short: "List the permits of calls under way, and their largest holders",
		Long: `List the permits of calls under way, the oldest first, and the keys and callers with
the most. KEY is the first key of the check. The id is for "fila guard end"; it is not
the permit.`,
		Example: `  fila guard permits
  fila guard permits vendor:stripe --caller billing --json`,
		ValidArgsFunction: env.Complete(circuitKeys),
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (api.GuardPermitList, error) {
			ask.PermitFilter = flags.filter(args)
			return s.GuardPermits(ctx, ask)
		}, func(list api.GuardPermitList, _ []string) string { return showPermits(env, &list) }),
	}
	flags.add(cmd)
	cmd.Flags().IntVar(&ask.Limit, "limit", api.DefaultListLimit, "list at most this many, 1 to 1000")
	cmd.Flags().StringVar(&ask.After, "after", "", "continue after the permit with this `id`")
	return cmd
}

func showPermits(env *command.Env, list *api.GuardPermitList) string {
	t := terminal.NewTable("ID", "KEY", "CALLER", "GIVEN", "ENDS")
	for _, p := range list.Permits {
		t.Row(p.ID, strings.Join(append([]string{p.Key}, p.With...), " "), holderName(p.User, p.Caller), env.When(p.GivenAt), env.When(p.ExpiresAt))
	}
	text := t.Or("no permits")
	if list.Next != "" {
		text += "more: --after " + list.Next + "\n"
	}
	for _, most := range []struct {
		of      string
		holders []api.GuardHolder
	}{{"KEY", list.Keys}, {"CALLER", list.Callers}} {
		if len(most.holders) == 0 {
			continue
		}
		t := terminal.NewTable(most.of, "PERMITS")
		for _, h := range most.holders {
			t.Row(cmp.Or(h.Key, holderName(h.User, h.Caller)), h.Permits)
		}
		text += "\n" + t.String()
	}
	return text + missingNodes(list.Missing)
}

// holderName names the caller for people.
func holderName(user, caller string) string {
	if user == "" || caller == "" {
		return cmp.Or(user, caller, "-")
	}
	return caller + " (" + user + ")"
}

func missingNodes(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "not answered: " + strings.Join(names, ", ") + "\n"
}

func newGuardEndCommand(env *command.Env) *cobra.Command {
	var flags permitFlags
	var ids []string
	cmd := &cobra.Command{
		Use:   "end [KEY]",
		Short: "End permits of calls that are over, or whose callers are gone",
		Long: `End the permits that match all of the arguments: first key, caller, NATS user, ids.
Their limits are given back; their circuits count neither success nor failure. End only
permits of calls that are over, or limits may be exceeded. A later done gets 404.`,
		Example: `  fila guard end vendor:stripe --caller billing
  fila guard end --id 4f1f2f3f4f5f6f70-000000000000002a`,
		ValidArgsFunction: env.Complete(circuitKeys),
		PreRunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && flags.user == "" && len(ids) == 0 && !cmd.Flags().Changed("caller") {
				return command.UsageError("the permits are missing: give KEY, --caller, --user or --id")
			}
			return nil
		},
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (api.GuardEndReply, error) {
			return s.GuardEnd(ctx, api.GuardEndRequest{PermitFilter: flags.filter(args), IDs: ids})
		}, func(reply api.GuardEndReply, _ []string) string {
			return fmt.Sprintf("%s ended\n", terminal.Plural(reply.Ended, "permit")) + missingNodes(reply.Missing)
		}),
	}
	flags.add(cmd)
	cmd.Flags().StringSliceVar(&ids, "id", nil, "`id` of a permit, as `fila guard permits` shows it; may be repeated")
	return cmd
}
