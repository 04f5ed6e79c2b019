package clustercmd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

var program = clitest.Program(Commands)

func TestStatus(t *testing.T) {
	f := clitest.StartFake(t)
	st := api.ClusterStatus{
		Name: "prod", Node: "a",
		Nodes: []api.ClusterNode{
			{Node: "a", Version: "v1.2.0", Since: "2026-01-02T11:00:00Z", Shards: []int{0, 2}},
			{Node: "b", Version: "v1.2.0", Since: "2026-01-02T11:30:00Z", Shards: []int{1}, Draining: true},
			{Node: "c", Version: "v1.3.0", Since: "2026-01-02T11:59:00Z", Shards: []int{}, HeardMsAgo: 5000, Draining: true},
			{Node: "d", Version: "v1.3.0", Since: "2026-01-02T11:59:00Z", Shards: []int{}, Leaving: true},
		},
		Shards: []api.ClusterShard{
			{
				Shard: 0, Owner: "a", Epoch: 3, Seq: 12_345, LogBytes: 5 << 20, SnapshotAt: "2026-01-02T11:50:00Z", PinnedTo: "a",
				Standbys: []api.ClusterStandby{{Node: "b", State: "following"}, {Node: "c", State: "following", Lag: 1200, BehindMs: 1500}},
			},
			{Shard: 1, Owner: "b", Epoch: 1, Seq: 9, Fenced: true, MovingTo: "a", Standbys: []api.ClusterStandby{{Node: "a", Error: "a gap"}}},
			{Shard: 2, Standbys: []api.ClusterStandby{{Node: "a", State: "promoting"}}},
			{Shard: 3, PinnedTo: "b", Standbys: []api.ClusterStandby{}},
		},
		Servers: []api.ClusterServer{
			{Server: "n1", Version: "2.15.2", Sync: "always", SeenBy: []string{"a", "b"}},
			{Server: "n2", SeenBy: []string{}, Missing: []string{"version not seen", "sync not seen"}},
		},
	}
	clitest.Shows(f, program, "cluster status", "fila.admin.cluster-status", st,
		"NODE  VERSION  SINCE                           OWNS  STATE",
		"a     v1.2.0   2026-01-02T11:00:00Z (1h ago)   0 2   ok",
		"b     v1.2.0   2026-01-02T11:30:00Z (30m ago)  1     drained",
		"c     v1.3.0   2026-01-02T11:59:00Z (1m ago)   -     not heard for 5s",
		"d     v1.3.0   2026-01-02T11:59:00Z (1m ago)   -     stopping",
		"",
		"SHARD  OWNER                 EPOCH  LAST   LOG      SNAPSHOT  STANDBYS",
		"0      a (moved there)       3      12345  5.0 MiB  10m ago   b, c 1.5s behind (1200 records)",
		"1      b, cannot write -> a  1      9      0 B      -         a: a gap",
		"2      nobody                0      0      0 B      -         a promoting",
		"3      nobody                0      0      0 B      -         -",
		"",
		"NATS SERVER  VERSION   SYNC      SEEN BY  STATE",
		"n1           2.15.2    always    a b      ok",
		"n2           not seen  not seen  -        degraded: version not seen, sync not seen",
	)
	f.Answer("fila.admin.cluster-status", wire.NoCluster())
	clitest.Complains(t, program.RunAt(t, "cluster", "status"), command.ExitUsage, "this fila is not in a cluster")
}

func TestDrain(t *testing.T) {
	f := clitest.StartFake(t)
	clitest.Shows(f, program, "cluster drain b", "fila.admin.cluster-drain", api.ClusterDrainReply{Node: "b", Draining: true, Shards: 3},
		"node b hands over 3 shards; `fila cluster status` shows when it is done")
	require.JSONEq(t, `{"node":"b"}`, string(f.Next().Data))
	clitest.Shows(f, program, "cluster drain b --cancel", "fila.admin.cluster-drain", api.ClusterDrainReply{Node: "b"},
		"node b takes shards again")
	f.Next() // the one with --json
	require.JSONEq(t, `{"node":"b","cancel":true}`, string(f.Next().Data))
	f.Answer("fila.admin.cluster-drain", wire.NodeNotFound("x"))
	clitest.Complains(t, program.RunAt(t, "cluster", "drain", "x"), command.ExitNotFound, `no such node "x"`)
	clitest.Complains(t, program.RunAt(t, "cluster", "drain"), command.ExitUsage, "NODE is missing")
}

func TestMove(t *testing.T) {
	f := clitest.StartFake(t)
	clitest.Shows(f, program, "cluster move 0 b", "fila.admin.cluster-move", api.ClusterMoveReply{Shard: 0, From: "a", To: "b"},
		"shard 0 goes from a to b; `fila cluster status` shows when it is there")
	require.JSONEq(t, `{"shard":0,"node":"b"}`, string(f.Next().Data))
	clitest.Shows(f, program, "cluster move 2 b", "fila.admin.cluster-move", api.ClusterMoveReply{Shard: 2, From: "b", To: "b"},
		"shard 2 is at b already, and stays there")
	clitest.Shows(f, program, "cluster move 2 b", "fila.admin.cluster-move", api.ClusterMoveReply{Shard: 2, To: "b"},
		"shard 2 goes from nobody to b; `fila cluster status` shows when it is there")
	f.Answer("fila.admin.cluster-move", wire.StandbyNotReady(2, "b"))
	clitest.Complains(t, program.RunAt(t, "cluster", "move", "2", "b"), command.ExitConflict, `node "b" cannot take over shard 2 now`)
	for _, shard := range []string{"x", "1.5"} {
		clitest.Complains(t, program.RunAt(t, "cluster", "move", shard, "b"), command.ExitUsage, `SHARD "`+shard+`"`)
	}
}
