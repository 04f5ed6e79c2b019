package opscmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/wire/api"
)

func newAnnotateCommand(env *command.Env) *cobra.Command {
	var req api.AnnotateRequest
	cmd := &cobra.Command{
		Use:   "annotate TEXT",
		Short: "Mark a time, such as a release, on the charts of the pages",
		Long: `Mark a time, such as a release, on the charts of the pages: of all queues, throttles
and circuits, or of one queue. TEXT has up to 200 bytes. The charts show the marks of
the last hour; the audit log keeps them longer ("fila config log annotation").`,
		Example: `  fila annotate "release 3"
  fila annotate "import begins" --queue orders
  fila annotate "release 3" --at 15m`,
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (api.Mark, error) {
			req.Text = args[0]
			return s.Annotate(ctx, req)
		}, func(m api.Mark, _ []string) string {
			where := "all charts"
			if m.Object != "" {
				where = "the charts of " + terminal.Clean(m.Object)
			}
			return terminal.Clean(m.Text) + ": marked on " + where + " at " + env.When(m.At) + "\n"
		}),
	}
	cmd.Flags().StringVar(&req.Queue, "queue", "", "only on the charts of this `queue`")
	cmd.Flags().StringVar(&req.At, "at", "", "the `time`, within the last hour: RFC 3339, or 15m for 15 minutes ago (default now)")
	return cmd
}

func newMarksCommand(env *command.Env) *cobra.Command {
	var req api.MarksRequest
	cmd := &cobra.Command{
		Use:   "marks",
		Short: "Show what happened in the last hour to a queue, a throttle or a circuit",
		Long: `Show what happened in the last hour, as the charts of the pages mark it, newest first:
annotations, pauses and their ends, changes of limits and overrides, changes of hooks,
and openings of circuits. With --queue these are marks of the queue and of the gates
that have blocked its messages in this hour, and without a flag annotations alone.`,
		Example: `  fila marks --queue orders
  fila marks --throttle stripe --json`,
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, _ []string) (api.Marks, error) {
			return s.Marks(ctx, req)
		}, func(marks api.Marks, _ []string) string {
			t := terminal.NewTable("TIME", "OBJECT", "WHAT", "BY")
			for _, m := range marks.Marks {
				by := m.By
				if m.Client != "" {
					by += " (" + m.Client + ")"
				}
				t.Row(env.When(m.At), terminal.OrDash(m.Object), env.Stamps(m.CountedText()), terminal.OrDash(by))
			}
			rest := ""
			if more := marks.Total - len(marks.Marks); more > 0 {
				rest = terminal.Plural(int64(more), "mark") + " more; see --limit\n"
			}
			return terminal.Sections(t.Or("no marks in the last hour"), rest)
		}),
	}
	cmd.Flags().StringVar(&req.Queue, "queue", "", "of this `queue`")
	cmd.Flags().StringVar(&req.Throttle, "throttle", "", "of this throttle `key`")
	cmd.Flags().StringVar(&req.Circuit, "circuit", "", "of this circuit `key`")
	cmd.Flags().IntVar(&req.Limit, "limit", api.DefaultMarks, "show at most this many")
	command.Bound(cmd, "limit", 1, api.MaxListLimit, "")
	return cmd
}
