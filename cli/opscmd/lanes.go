package opscmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/wire/api"
)

func newLanesCommand(env *command.Env) *cobra.Command {
	req := api.LanesRequest{Limit: api.DefaultLanes, Next: api.DefaultLaneForecast}
	cmd := &cobra.Command{
		Use:   "lanes QUEUE",
		Short: "Show a queue by fairness key, and its next deliveries in their order",
		Long: `Show the fairness keys of a queue with the largest backlogs, and the deliveries that
follow, in the order in which they go.

SHARE is the weight of a key among all keys with a backlog. DEFICIT is the cost that
its turn has left; the next turns pay back a negative deficit.

The order assumes that consumers take everything and that nothing else happens: no
message comes, ends or becomes due. A delivery behind a gate has the time at which the
gate admits it, or "after another" if a message in flight must end first.`,
		Example: `  fila lanes orders
  fila lanes orders --next 5 --json | jq -r '.next[].key'`,
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (api.LanesReply, error) {
			return s.Lanes(ctx, args[0], req)
		}, showLanes),
	}
	cmd.Flags().IntVar(&req.Limit, "limit", req.Limit, "show this many fairness keys")
	command.Bound(cmd, "limit", 0, api.MaxLanes, "")
	cmd.Flags().IntVar(&req.Next, "next", req.Next, "show this many deliveries")
	command.Bound(cmd, "next", 0, api.MaxLaneForecast, "")
	return cmd
}

// laneBar is how many cells the largest backlog fills.
const laneBar = 20

func showLanes(reply api.LanesReply, _ []string) string {
	var most int64 = 1
	for i := range reply.Lanes {
		most = max(most, reply.Lanes[i].Ready+reply.Lanes[i].Blocked)
	}
	t := terminal.NewTable("KEY", "WEIGHT", "SHARE", "DEFICIT", "READY", "BLOCKED", "IN FLIGHT", "OLDEST", "BACKLOG", "BLOCKED BY")
	for i := range reply.Lanes {
		l := &reply.Lanes[i]
		by := ""
		if l.BlockedBy != nil {
			by = terminal.Clean(l.BlockedBy.Gate) + " (" + l.BlockedBy.Kind + ")"
		}
		t.Row(terminal.Clean(l.Key), fmt.Sprintf("%g", l.Weight), fmt.Sprintf("%.0f%%", 100*l.Share), fmt.Sprintf("%g", l.Deficit),
			l.Ready, l.Blocked, l.InFlight, terminal.Age(l.OldestMs), laneCells(l, most), by)
	}
	next := terminal.NewTable("NEXT", "KEY", "COST", "WHEN")
	for i := range reply.Next {
		d := &reply.Next[i]
		next.Row(i+1, terminal.Clean(d.Key), fmt.Sprintf("%g", d.Cost), whenNext(d))
	}
	head := fmt.Sprintf("%s ready, %d blocked, %d in flight, room for %d at %s\n",
		terminal.Plural(reply.Ready, "message"), reply.Blocked, reply.InFlight, reply.Credit, terminal.Plural(int64(reply.Consumers), "consumer"))
	if reply.Paused != "" {
		head = "the queue is paused: " + reply.Paused + "\n" + head
	}
	left := ""
	if reply.LeftOut > 0 {
		left = fmt.Sprintf("the order leaves out %s whose turns come later\n", terminal.Plural(int64(reply.LeftOut), "key"))
	}
	return terminal.Sections(head, t.Or(""), next.Or(""), left)
}

// laneCells draws a backlog: ready messages, and blocked ones lighter.
func laneCells(l *api.Lane, most int64) string {
	cells := func(n int64) int { return int((n*laneBar + most - 1) / most) }
	ready := cells(l.Ready)
	return strings.Repeat("█", ready) + strings.Repeat("░", cells(l.Ready+l.Blocked)-ready)
}

func whenNext(d *api.NextDelivery) string {
	switch {
	case d.Gate == "":
		return "with credit"
	case d.AdmitsAt == "":
		return "after another, " + terminal.Clean(d.Gate)
	default:
		return d.AdmitsAt + ", " + terminal.Clean(d.Gate)
	}
}
