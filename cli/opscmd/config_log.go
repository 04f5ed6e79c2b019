package opscmd

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
)

func newConfigLogCommand(env *command.Env) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "log [KEY-PREFIX]",
		Short: "Show who changed what, newest first",
		Long: `Show the changes of the runtime configuration, of throttles and of pauses,
newest first, with the old and the new value. fila keeps the newest 10,000.`,
		Example: `  fila config log
  fila config log throttle:stripe --limit 0`,
		Args:              command.Args("[KEY-PREFIX]"),
		ValidArgsFunction: env.Complete(configKeys),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 0 {
				return command.UsageError("--limit %d: allowed is 0 (all) and more", limit)
			}
			return env.Online(cmd, func(ctx context.Context, s *command.Session) error {
				entries, err := s.ConfigLog(ctx, strings.Join(args, ""), limit)
				if err != nil {
					return err
				}
				if env.JSON {
					return terminal.PrintJSON(cmd.OutOrStdout(), client.ConfigLog{Total: len(entries), Entries: entries})
				}
				if len(entries) == 0 {
					_, err := fmt.Fprintln(cmd.OutOrStdout(), "no changes")
					return err
				}
				t := terminal.NewTable("SEQ", "TIME", "KEY", "OLD", "NEW", "BY")
				for _, e := range entries {
					t.Row(e.Seq, env.When(e.Time), e.Key, change(e.Old), change(e.New), e.By)
				}
				return t.Print(cmd.OutOrStdout())
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 20, "show at most so many; 0 is all")
	return cmd
}

// change prints a value of the audit log; what does not exist is a dash, so
// that the empty value must be something else.
func change(value *string) string {
	switch {
	case value == nil:
		return "-"
	case *value == "" || *value == "-":
		return strconv.Quote(*value)
	}
	return *value
}
