package clustercmd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

func TestVerify(t *testing.T) {
	f := clitest.StartFake(t)
	whole := api.ClusterVerifyShard{Shard: 0, First: 3, Last: 900, Bytes: 5 << 20, Copies: []api.ClusterVerifyCopy{
		{Node: "a", Seq: 899, State: api.CopyEqual}, {Node: "b", Seq: 1, State: api.CopyCut}, {Node: "c", Seq: 901, State: api.CopyUnproven},
	}}
	clitest.Shows(f, program, "cluster verify", "fila.admin.cluster-verify", api.ClusterVerifyReply{Node: "a", Shards: []api.ClusterVerifyShard{whole}},
		"SHARD  FIRST  LAST  READ     LOG    COPIES",
		"0      3      900   5.0 MiB  whole  a equal, b cut, c unproven")
	require.JSONEq(t, `{}`, string(f.Next().Data))
	for name, bad := range map[string]api.ClusterVerifyShard{
		"a gap":        {Shard: 3, Problem: "record 7: a gap", Copies: []api.ClusterVerifyCopy{}},
		"another copy": {Shard: 3, Copies: []api.ClusterVerifyCopy{{Node: "a", State: api.CopyDifferent}}},
	} {
		f.Answer("fila.admin.cluster-verify", api.ClusterVerifyReply{Node: "a", Shards: []api.ClusterVerifyShard{whole, bad}})
		got := program.RunAt(t, "cluster", "verify", "--shard", "3")
		clitest.Complains(t, got, command.ExitConflict, "shard 3: log and copies do not agree")
		require.Contains(t, got.Out, "a equal", "%s: the table is shown", name)
	}
}

func TestRepairAndAccept(t *testing.T) {
	f := clitest.StartFake(t)
	reachable := api.ClusterLoss{Shard: 3, LogEnd: 500, Node: "a", Seq: 1000, Records: 500, Reachable: "b", ReachableSeq: 900, Unreachable: 100, Copies: []string{"b"}}
	gone := api.ClusterLoss{Shard: 3, LogEnd: 500, Node: "a", Seq: 1000, Records: 500, Reachable: "b", ReachableSeq: 500, Unreachable: 500}
	branch := api.ClusterLoss{Shard: 3, Owner: "b", Copies: []string{"a", "c"}}
	for verb, did := range map[string]string{"repair": "repaired", "accept": "accepted"} {
		subject := "fila.admin.cluster-" + verb
		clitest.Shows(f, program, "cluster "+verb+" 3 --dry-run", subject, reachable,
			"log lost: the log of shard 3 ends at record 500, and node a has confirmed record 1000; no node serves the shard",
			"  fila cluster repair 3 --loss 100: goes on from node b, which has record 900")
		require.JSONEq(t, `{"shard":3,"dry_run":true}`, string(f.Next().Data))
		f.Next()
		clitest.Shows(f, program, "cluster "+verb+" 3 --dry-run", subject, gone,
			"log lost: the log of shard 3 ends at record 500, and node a has confirmed record 1000; no node serves the shard",
			"  start node a, or give up what only it has: fila cluster accept 3 --loss 500")
		f.Next()
		f.Next()
		clitest.Shows(f, program, "cluster "+verb+" 3 --dry-run", subject, branch,
			"log lost: the copy of shard 3 at a, c has confirmed messages that the log lacks; the log goes on without them at b (fila cluster accept 3 puts the copy aside)")
		f.Next()
		f.Next()
		clitest.Shows(f, program, "cluster "+verb+" 3 --loss 100 --yes", subject, reachable,
			"shard 3 is "+did+"; `fila cluster status` shows when a node serves it")
		require.JSONEq(t, `{"shard":3,"loss":100}`, string(f.Next().Data))
		f.Next()
		f.Answer(subject, wire.NotRepaired(3, "its log lacks no records"))
		clitest.Complains(t, program.RunAt(t, "cluster", verb, "3", "--yes"), command.ExitConflict, "shard 3: its log lacks no records")
		f.Next()
		clitest.Complains(t, program.RunAt(t, "cluster", verb, "x"), command.ExitUsage, `SHARD "x"`)
	}
	require.Contains(t, lossesText(api.ClusterStatus{Shards: []api.ClusterShard{{}, {Lost: &gone}}}), "log lost: the log of shard 3")
}
