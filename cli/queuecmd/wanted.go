package queuecmd

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/wire/api"
)

func newQueueWantedCommand(env *command.Env) *cobra.Command {
	o := api.DefaultScaleOptions()
	cmd := &cobra.Command{
		Use:   "wanted QUEUE",
		Short: "Show how many messages could be worked on, and by how many workers",
		Long: `Show how many messages of a queue could be worked on within the horizon: messages in
flight, and as many of the others as their gates admit. A million messages behind
concurrency = 5 are 5. /scale/QUEUE on http.addr answers the same.`,
		Example: `  fila queue wanted orders --per-worker 64
  fila queue wanted orders --per-worker 64 --target-wait 10s --horizon 0s --json`,
		PreRunE: func(*cobra.Command, []string) error {
			if err := o.Check(); err != nil {
				return command.UsageError("%v", err)
			}
			return nil
		},
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (scale api.Scale, err error) {
			w, err := s.QueueWanted(ctx, args[0], o.Horizon)
			if err != nil {
				return scale, err
			}
			return o.Scale([]api.QueueWanted{w}), nil
		}, func(s api.Scale, _ []string) string {
			t := terminal.NewTable("wanted", strconv.FormatInt(s.Wanted, 10))
			t.Row("workers", s.Workers)
			t.Row("why", s.Why)
			return t.String()
		}),
	}
	flags := cmd.Flags()
	flags.IntVar(&o.PerWorker, "per-worker", o.PerWorker, "`messages` that a worker works on at a time, up to 1000000")
	flags.Var((*terminal.Duration)(&o.TargetWait), "target-wait", "in which workers should finish what is wanted, 1s to 24h")
	flags.Var((*terminal.Duration)(&o.Horizon), "horizon", "look ahead: 0s, 30s, 1m or 5m")
	return cmd
}
