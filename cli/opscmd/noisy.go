package opscmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/wire/api"
)

func newNoisyCommand(env *command.Env) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "noisy QUEUE",
		Short: "Show which flows of a queue keep its consumers busy, and which flows wait",
		Long: `Show which flows of a queue keep its consumers busy, and which other flows have waited
longest.

A flow is noisy if another flow has a ready message, and its part of the consumers is
more than a tenth and more than its fair share (FAIR: its weight among all flows with
messages). The part is of the messages in flight, or of the consumers' time in the last
one to two minutes (BUSY); it counts from 30 messages of the flow on.

WAIT is the time since a flow's first message became ready; flows whose messages are
all blocked are left out. A flow STARVES if it has a ready message, and fila delivered
none of its messages but others for the queue's starve_after_ms.`,
		Example: `  fila noisy orders
  fila noisy orders --json | jq -r '.noisy[].key'`,
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (api.NoisyReply, error) {
			return s.Noisy(ctx, args[0], limit)
		}, showNoisy),
	}
	cmd.Flags().IntVar(&limit, "limit", api.DefaultNoisyLimit, "show this many flows that have waited longest")
	command.Bound(cmd, "limit", 0, api.MaxNoisyLimit, "")
	return cmd
}

func showNoisy(reply api.NoisyReply, _ []string) string {
	head := "no flow of queue " + reply.Queue + " is noisy\n"
	if len(reply.Noisy) > 0 {
		t := terminal.NewTable("NOISY", "FAIR", "IN FLIGHT", "BUSY", "ENDED", "READY")
		for i := range reply.Noisy {
			n := &reply.Noisy[i]
			t.Row(terminal.Clean(n.Key), fmt.Sprintf("%.0f%%", 100*n.FairShare), withShare(fmt.Sprint(n.InFlight), n.InFlightShare), withShare(terminal.Age(n.BusyMs), n.BusyShare), n.Ended, n.Ready)
		}
		head = t.String()
	}
	quiet := fmt.Sprintf("%s of other flows ready", terminal.Plural(reply.QuietReady, "message"))
	if reply.QuietReady > 0 {
		quiet += ", the longest wait " + terminal.Age(reply.QuietOldestAgeMs)
	}
	return terminal.Sections(head, quiet+"\n", waits("STARVES", reply.Starved), waits("WAITS", reply.Waiting))
}

func waits(title string, flows []api.WaitingFlow) string {
	t := terminal.NewTable(title, "READY", "WAIT")
	for i := range flows {
		t.Row(terminal.Clean(flows[i].Key), flows[i].Ready, terminal.Age(flows[i].WaitMs))
	}
	return t.Or("")
}

func withShare(n string, share float64) string { return fmt.Sprintf("%s (%.0f%%)", n, 100*share) }
