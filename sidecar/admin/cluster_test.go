package admin

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

// oneNode is a cluster with one node.
type oneNode struct{}

func (oneNode) Status() wire.ClusterStatus { return wire.ClusterStatus{Name: "prod", Node: "a"} }

func (oneNode) Drain(_ context.Context, r wire.ClusterDrainRequest) (wire.ClusterDrainReply, *wire.Error) {
	if r.Node != "a" {
		return wire.ClusterDrainReply{}, wire.NodeNotFound(r.Node)
	}
	return wire.ClusterDrainReply{Node: r.Node, Draining: !r.Cancel, Shards: 8}, nil
}

func (oneNode) Move(_ context.Context, r wire.ClusterMoveRequest) (wire.ClusterMoveReply, *wire.Error) {
	return wire.ClusterMoveReply{Shard: *r.Shard, From: "b", To: r.Node}, nil
}

// The cluster carries out its verbs, and the audit log has the drains and moves.
func TestClusterVerbs(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		for verb, body := range map[wire.AnyVerb]string{
			wire.VerbClusterStatus: ``, wire.VerbClusterDrain: `{"node":"a"}`, wire.VerbClusterMove: `{"shard":1,"node":"a"}`,
		} {
			require.Equal(t, wire.CodeNoCluster, h.ask(verb, "", body, nil).ErrCode, verb)
		}
		h.cluster = oneNode{}
		var st wire.ClusterStatus
		h.must(wire.VerbClusterStatus, "", ``, &st)
		require.Equal(t, "prod", st.Name)
		var drained wire.ClusterDrainReply
		h.must(wire.VerbClusterDrain, "", `{"node":"a","cancel":true}`, &drained)
		require.Equal(t, wire.ClusterDrainReply{Node: "a", Shards: 8}, drained)
		require.Equal(t, wire.CodeNodeNotFound, h.ask(wire.VerbClusterDrain, "", `{"node":"x"}`, nil).ErrCode)
		require.Equal(t, wire.CodeBadField, h.ask(wire.VerbClusterMove, "", `{"node":"a"}`, nil).ErrCode)
		var moved wire.ClusterMoveReply
		h.must(wire.VerbClusterMove, "", `{"shard":3,"node":"a"}`, &moved)
		require.Equal(t, wire.ClusterMoveReply{Shard: 3, From: "b", To: "a"}, moved)

		var log wire.ConfigLog
		h.must(wire.VerbConfigLog, "", ``, &log)
		require.Len(t, log.Entries, 2)
		require.Equal(t, []string{"shard:3", wire.VerbClusterMove.Name}, []string{log.Entries[0].Key, log.Entries[0].By})
		require.Equal(t, []string{"node:a", wire.VerbClusterDrain.Name}, []string{log.Entries[1].Key, log.Entries[1].By})
	})
}
