package clustercmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
	"github.com/filaq/fila/wire/api"
)

// lossWait bounds the commands of this file without --timeout: they read whole logs, or upload a
// copy of a shard.
const lossWait = time.Hour

func newVerifyCommand(env *command.Env) *cobra.Command {
	shard := -1
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Read the logs and compare them with the copies of the nodes",
		Long: `Let a node read the log of each shard from its oldest record to the newest, check that
each record continues the one before, and compare the log with the newest commit of
each node. It reads as fast as it can. Each node does the same once a day, slowly. The
exit code is 5 if a log has a gap, or a copy another history than its log.
The default of --timeout is an hour here.

  equal      the log has the newest commit of the copy, with the same history
  different  the log has another record there, or none
  cut        the commit is before the oldest record of the log
  unproven   the commit is newer than what was read, or an older fila has written it`,
		Example: `  fila cluster verify
  fila cluster verify --shard 3 --json`,
	}
	cmd.RunE = command.Ask(env, func(_ context.Context, s *command.Session, _ []string) (api.ClusterVerifyReply, error) {
		ctx, cancel := s.WaitFor(cmd, lossWait)
		defer cancel()
		r, err := s.ClusterVerify(ctx, shard)
		for _, sh := range r.Shards {
			if sh.Problem != "" || slices.ContainsFunc(sh.Copies, func(c api.ClusterVerifyCopy) bool { return c.State == api.CopyDifferent }) {
				err = command.Later(command.Exit(command.ExitConflict, fmt.Errorf("shard %d: log and copies do not agree", sh.Shard)))
			}
		}
		return r, err
	}, func(r api.ClusterVerifyReply, _ []string) string {
		t := terminal.NewTable("SHARD", "FIRST", "LAST", "READ", "LOG", "COPIES")
		for _, sh := range r.Shards {
			log := "whole"
			if sh.Problem != "" {
				log = terminal.Clean(sh.Problem)
			}
			var copies []string
			for _, c := range sh.Copies {
				copies = append(copies, terminal.Clean(c.Node)+" "+c.State)
			}
			t.Row(sh.Shard, sh.First, sh.Last, terminal.Size(sh.Bytes), log, terminal.OrDash(strings.Join(copies, ", ")))
		}
		return t.String()
	})
	cmd.Flags().IntVar(&shard, "shard", -1, "verify one shard; default: all")
	return cmd
}

// endLoss describes a command that ends the loss of a log.
type endLoss struct {
	verb, short, long, question, did string
	do                               func(*client.Client, context.Context, int, uint64, bool) (api.ClusterLoss, error)
}

func newRepairCommand(env *command.Env) *cobra.Command {
	return endLoss{
		verb: "repair", short: "Continue the log of a shard from the most advanced copy",
		long: `Repair a shard whose log in JetStream has lost confirmed records. No node serves such a
shard, so that nobody overwrites these records. The command continues the log from the
copy of the node that has the most records; the other shards are served meanwhile. It
can be repeated after an interruption. Records that only unreachable nodes have are
lost: start these nodes first, or confirm the number of these records with --loss.`,
		question: "continue the log of the shard from this copy", did: "repaired", do: (*client.Client).ClusterRepair,
	}.command(env)
}

func newAcceptCommand(env *command.Env) *cobra.Command {
	return endLoss{
		verb: "accept", short: "Give up confirmed messages that the log of a shard has lost",
		long: `Give up the records that the log of a shard and all reachable nodes lack, so that a
node without them can serve the shard. Copies that come back later are put aside as
files, not deleted. --loss must be the number of records that are given up; without it
the command only shows them.`,
		question: "give these records up for good", did: "accepted", do: (*client.Client).ClusterAccept,
	}.command(env)
}

func (e endLoss) command(env *command.Env) *cobra.Command {
	var shard int
	var loss uint64
	var dry, yes bool
	cmd := &cobra.Command{
		Use:               e.verb + " SHARD",
		Short:             e.short,
		Long:              e.long + "\n\nOn a terminal the command asks for the name of the cluster, unless --yes is given.\nThe default of --timeout is an hour here.",
		Example:           "  fila cluster " + e.verb + " 3 --dry-run\n  fila cluster " + e.verb + " 3 --loss 500",
		ValidArgsFunction: env.Complete(shardNumbers),
		PreRunE:           func(_ *cobra.Command, args []string) error { return parseShard(args[0], &shard) },
	}
	cmd.RunE = command.Ask(env, func(_ context.Context, s *command.Session, _ []string) (api.ClusterLoss, error) {
		ctx, cancel := s.WaitFor(cmd, lossWait)
		defer cancel()
		if dry || yes || !command.CanAsk(cmd) {
			return e.do(s.Client, ctx, shard, loss, dry)
		}
		l, err := e.do(s.Client, ctx, shard, loss, true)
		if err != nil {
			return l, err
		}
		st, err := s.ClusterStatus(ctx)
		if err != nil {
			return l, err
		}
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s\n%s? Type the name of the cluster: ", lossText(l), e.question)
		answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
		if strings.TrimSpace(answer) != st.Name {
			return l, command.Exit(command.ExitConflict, errors.New("nothing was changed"))
		}
		return e.do(s.Client, ctx, shard, loss, false)
	}, func(l api.ClusterLoss, _ []string) string {
		if dry {
			return lossText(l)
		}
		return fmt.Sprintf("shard %d is %s; `fila cluster status` shows when a node serves it\n", l.Shard, e.did)
	})
	cmd.Flags().Uint64Var(&loss, "loss", 0, "how many records are given up")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only show what the log lacks")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// lossesText returns what logs lack.
func lossesText(st api.ClusterStatus) string {
	text := ""
	for _, s := range st.Shards {
		if s.Lost != nil {
			text += lossText(*s.Lost)
		}
	}
	return text
}

func lossText(l api.ClusterLoss) string {
	if l.Owner != "" {
		return fmt.Sprintf("log lost: the copy of shard %d at %s has confirmed messages that the log lacks; the log goes on without them at %s (fila cluster accept %d puts the copy aside)\n",
			l.Shard, terminal.Clean(strings.Join(l.Copies, ", ")), terminal.Clean(l.Owner), l.Shard)
	}
	text := fmt.Sprintf("log lost: the log of shard %d ends at record %d, and node %s has confirmed record %d; no node serves the shard\n", l.Shard, l.LogEnd, terminal.Clean(l.Node), l.Seq)
	if l.ReachableSeq > l.LogEnd {
		text += fmt.Sprintf("  fila cluster repair %d%s: goes on from node %s, which has record %d\n", l.Shard, lossFlag(l), terminal.Clean(l.Reachable), l.ReachableSeq)
	} else {
		text += fmt.Sprintf("  start node %s, or give up what only it has: fila cluster accept %d%s\n", terminal.Clean(l.Node), l.Shard, lossFlag(l))
	}
	return text
}

func lossFlag(l api.ClusterLoss) string {
	if l.Unreachable == 0 {
		return ""
	}
	return " --loss " + strconv.FormatUint(l.Unreachable, 10)
}
