package admin

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// oneNode is a cluster with one node.
type oneNode struct{ Cluster }

func (oneNode) Status() api.ClusterStatus {
	return api.ClusterStatus{Name: "prod", Node: "a", Nodes: []api.ClusterNode{}, Shards: []api.ClusterShard{}}
}

func (oneNode) Drain(_ context.Context, r api.ClusterDrainRequest) (api.ClusterDrainReply, *wire.Error) {
	if r.Node != "a" {
		return api.ClusterDrainReply{}, wire.NodeNotFound(r.Node)
	}
	return api.ClusterDrainReply{Node: r.Node, Draining: !r.Cancel, Shards: 8}, nil
}

func (oneNode) Move(_ context.Context, r api.ClusterMoveRequest) (api.ClusterMoveReply, *wire.Error) {
	return api.ClusterMoveReply{Shard: *r.Shard, From: "b", To: r.Node}, nil
}

func (oneNode) Verify(context.Context, api.ClusterVerifyRequest) (api.ClusterVerifyReply, *wire.Error) {
	return api.ClusterVerifyReply{Node: "a", Shards: []api.ClusterVerifyShard{}}, nil
}

func (oneNode) Repair(_ context.Context, r api.ClusterLossRequest) (api.ClusterLoss, *wire.Error) {
	return api.ClusterLoss{Shard: *r.Shard, Node: "b"}, nil
}

func (oneNode) Accept(_ context.Context, r api.ClusterLossRequest) (api.ClusterLoss, *wire.Error) {
	return api.ClusterLoss{Shard: *r.Shard, Records: r.Loss}, nil
}

// The cluster carries out its verbs, and the audit log has the drains and moves.
func TestClusterVerbs(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		for verb, body := range map[api.AnyVerb]string{
			api.VerbClusterStatus: ``, api.VerbClusterDrain: `{"node":"a"}`, api.VerbClusterMove: `{"shard":1,"node":"a"}`,
			api.VerbClusterVerify: ``, api.VerbClusterRepair: `{"shard":1}`, api.VerbClusterAccept: `{"shard":1}`,
		} {
			require.Equal(t, wire.CodeNoCluster, h.ask(verb, "", body, nil).ErrCode, verb)
		}
		h.cluster = oneNode{}
		var st api.ClusterStatus
		h.must(api.VerbClusterStatus, "", ``, &st)
		require.Equal(t, "prod", st.Name)
		var drained api.ClusterDrainReply
		h.must(api.VerbClusterDrain, "", `{"node":"a","cancel":true}`, &drained)
		require.Equal(t, api.ClusterDrainReply{Node: "a", Shards: 8}, drained)
		require.Equal(t, wire.CodeNodeNotFound, h.ask(api.VerbClusterDrain, "", `{"node":"x"}`, nil).ErrCode)
		require.Equal(t, wire.CodeBadField, h.ask(api.VerbClusterMove, "", `{"node":"a"}`, nil).ErrCode)
		var moved api.ClusterMoveReply
		h.must(api.VerbClusterMove, "", `{"shard":3,"node":"a"}`, &moved)
		require.Equal(t, api.ClusterMoveReply{Shard: 3, From: "b", To: "a"}, moved)

		var verified api.ClusterVerifyReply
		h.must(api.VerbClusterVerify, "", ``, &verified)
		require.Equal(t, "a", verified.Node)
		require.Equal(t, wire.CodeBadField, h.ask(api.VerbClusterRepair, "", ``, nil).ErrCode)
		var loss api.ClusterLoss
		h.must(api.VerbClusterRepair, "", `{"shard":3,"dry_run":true}`, &loss)
		require.Equal(t, api.ClusterLoss{Shard: 3, Node: "b"}, loss)

		var log api.ConfigLog
		h.must(api.VerbConfigLog, "", ``, &log)
		require.Len(t, log.Entries, 2, "a dry run changes nothing")
		h.must(api.VerbClusterAccept, "", `{"shard":3,"loss":7}`, &loss)
		require.Equal(t, uint64(7), loss.Records)
		var later api.ConfigLog
		h.must(api.VerbConfigLog, "", ``, &later)
		require.Len(t, later.Entries, 3)
		require.Equal(t, []string{"shard:3", api.VerbClusterAccept.Name}, []string{later.Entries[0].Key, later.Entries[0].By})
		require.Equal(t, []string{"shard:3", api.VerbClusterMove.Name}, []string{log.Entries[0].Key, log.Entries[0].By})
		require.Equal(t, []string{"node:a", api.VerbClusterDrain.Name}, []string{log.Entries[1].Key, log.Entries[1].By})
	})
}
