package clustercmd

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Commands are the commands of this group.
func Commands(env *command.Env) []*cobra.Command {
	return []*cobra.Command{command.Group(&cobra.Command{
		Use:   "cluster",
		Short: "Show a cluster, move its shards, and convert to and from a single fila",
		Long: `One node, the owner, serves each shard of a cluster; all others follow it, and one
takes over when it dies. These commands ask any node. Only import, export, rebuild
and nats need a cluster whose nodes do not run, and read the configuration of one
node.`,
	}, newStatusCommand(env), newDrainCommand(env), newMoveCommand(env), newVerifyCommand(env), newRepairCommand(env), newAcceptCommand(env),
		newImportCommand(env), newExportCommand(env), newRebuildCommand(env), newNATSCommand(env))}
}

func newStatusCommand(env *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show nodes and shards, who owns what, and how far behind the copies are",
		Example: `  fila cluster status
  fila cluster status --json`,
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, _ []string) (api.ClusterStatus, error) {
			return s.ClusterStatus(ctx)
		}, func(st api.ClusterStatus, _ []string) string {
			return terminal.Sections(nodesTable(env, st), shardsTable(env, st), serversTable(st), lossesText(st))
		}),
	}
}

func nodesTable(env *command.Env, st api.ClusterStatus) string {
	t := terminal.NewTable("NODE", "VERSION", "SINCE", "OWNS", "STATE")
	for _, n := range st.Nodes {
		state := "ok"
		switch {
		case n.HeardMsAgo >= silentMs:
			state = "not heard for " + wire.FormatMs(n.HeardMsAgo)
		case n.Leaving:
			state = "stopping"
		case n.Draining:
			state = "drained"
		}
		t.Row(n.Node, n.Version, env.When(n.Since), terminal.OrDash(numbers(n.Shards)), state)
	}
	return t.String()
}

// silentMs is how long a node may be silent before the list says so: nodes send a beat every
// second.
const silentMs = 3000

func shardsTable(env *command.Env, st api.ClusterStatus) string {
	t := terminal.NewTable("SHARD", "OWNER", "EPOCH", "LAST", "LOG", "SNAPSHOT", "STANDBYS")
	for _, s := range st.Shards {
		t.Row(s.Shard, owner(s), s.Epoch, s.Seq, terminal.Size(s.LogBytes), terminal.OrDash(env.Soon(s.SnapshotAt)), standbys(s.Standbys))
	}
	return t.String()
}

func serversTable(st api.ClusterStatus) string {
	if len(st.Servers) == 0 {
		return ""
	}
	t := terminal.NewTable("NATS SERVER", "VERSION", "SYNC", "SEEN BY", "STATE")
	for _, s := range st.Servers {
		state := "ok"
		if len(s.Missing) > 0 {
			state = "degraded: " + strings.Join(s.Missing, ", ")
		}
		t.Row(s.Server, cmp.Or(s.Version, "not seen"), cmp.Or(s.Sync, "not seen"), terminal.OrDash(strings.Join(s.SeenBy, " ")), state)
	}
	return t.String()
}

func owner(s api.ClusterShard) string {
	text := cmp.Or(s.Owner, "nobody")
	if s.Fenced {
		text += ", cannot write"
	}
	if s.MovingTo != "" {
		text += " -> " + s.MovingTo
	}
	if s.PinnedTo != "" && s.PinnedTo == s.Owner {
		text += " (moved there)"
	}
	return text
}

func standbys(all []api.ClusterStandby) string {
	var texts []string
	for _, b := range all {
		text := b.Node
		switch {
		case b.Error != "":
			text += ": " + b.Error
		case b.Lag > 0:
			text += fmt.Sprintf(" %s behind (%s)", wire.FormatMs(b.BehindMs), terminal.Plural(int64(b.Lag), "record"))
		case b.State != "following":
			text += " " + b.State
		}
		texts = append(texts, text)
	}
	return terminal.OrDash(strings.Join(texts, ", "))
}

func numbers(all []int) string {
	texts := make([]string, len(all))
	for i, n := range all {
		texts[i] = strconv.Itoa(n)
	}
	return strings.Join(texts, " ")
}

func newDrainCommand(env *command.Env) *cobra.Command {
	var cancel bool
	cmd := &cobra.Command{
		Use:   "drain NODE",
		Short: "Move all shards of a node to other nodes",
		Long: `Make a node hand over its shards, one after the other, to nodes whose copies are
less than a second behind. It gets no shards until it is restarted, or until
--cancel. A stopping node hands over its shards by itself.`,
		Example: `  fila cluster drain fila-2
  fila cluster drain fila-2 --cancel`,
		ValidArgsFunction: env.Complete(nodeNames),
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (api.ClusterDrainReply, error) {
			return s.ClusterDrain(ctx, args[0], cancel)
		}, func(r api.ClusterDrainReply, _ []string) string {
			if !r.Draining {
				return fmt.Sprintf("node %s takes shards again\n", terminal.Clean(r.Node))
			}
			return fmt.Sprintf("node %s hands over %s; `fila cluster status` shows when it is done\n", terminal.Clean(r.Node), terminal.Plural(int64(r.Shards), "shard"))
		}),
	}
	cmd.Flags().BoolVar(&cancel, "cancel", false, "let the node take shards again")
	return cmd
}

func newMoveCommand(env *command.Env) *cobra.Command {
	shard := 0
	cmd := &cobra.Command{
		Use:   "move SHARD NODE",
		Short: "Hand a shard to a node",
		Long: `Hand a shard to a node whose copy is less than a second behind. It stays there until
the node leaves the cluster or the shard is moved again; the other shards are spread
around it.`,
		Example:           `  fila cluster move 3 fila-2`,
		ValidArgsFunction: env.Complete(shardNumbers, nodeNames),
		PreRunE:           func(_ *cobra.Command, args []string) error { return parseShard(args[0], &shard) },
	}
	cmd.RunE = command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (api.ClusterMoveReply, error) {
		return s.ClusterMove(ctx, shard, args[1])
	}, func(r api.ClusterMoveReply, _ []string) string {
		if r.From == r.To {
			return fmt.Sprintf("shard %d is at %s already, and stays there\n", r.Shard, terminal.Clean(r.To))
		}
		return fmt.Sprintf("shard %d goes from %s to %s; `fila cluster status` shows when it is there\n", r.Shard, terminal.Clean(cmp.Or(r.From, "nobody")), terminal.Clean(r.To))
	})
	return cmd
}

func parseShard(arg string, shard *int) (err error) {
	if *shard, err = strconv.Atoi(arg); err != nil || *shard < 0 {
		return command.UsageError("SHARD %q: allowed is the number of a shard, as `fila cluster status` shows it", arg)
	}
	return nil
}

func nodeNames(ctx context.Context, s *command.Session, _ []string, _ string) (names []string, err error) {
	st, err := s.ClusterStatus(ctx)
	for _, n := range st.Nodes {
		names = append(names, n.Node)
	}
	return names, err
}

func shardNumbers(ctx context.Context, s *command.Session, _ []string, _ string) (all []string, err error) {
	st, err := s.ClusterStatus(ctx)
	for _, sh := range st.Shards {
		all = append(all, strconv.Itoa(sh.Shard))
	}
	return all, err
}
