package admin

import (
	"context"
	"strconv"

	"github.com/filaq/fila/sidecar/control"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Cluster is the cluster that this fila is a node of. Its methods may be called from any
// goroutine, and may ask other nodes.
type Cluster interface {
	Status() api.ClusterStatus
	Drain(ctx context.Context, r api.ClusterDrainRequest) (api.ClusterDrainReply, *wire.Error)
	Move(ctx context.Context, r api.ClusterMoveRequest) (api.ClusterMoveReply, *wire.Error)
	Verify(ctx context.Context, r api.ClusterVerifyRequest) (api.ClusterVerifyReply, *wire.Error)
	Repair(ctx context.Context, r api.ClusterLossRequest) (api.ClusterLoss, *wire.Error)
	Accept(ctx context.Context, r api.ClusterLossRequest) (api.ClusterLoss, *wire.Error)
	// LogLost reports whether the log of a shard lacks confirmed messages.
	LogLost(shard int) bool
}

func (a *Admin) clusterStatus(api.Empty) (api.ClusterStatus, *wire.Error) {
	if a.cluster == nil {
		return api.ClusterStatus{}, wire.NoCluster()
	}
	return a.cluster.Status(), nil
}

func (a *Admin) clusterVerify(r api.ClusterVerifyRequest) (api.ClusterVerifyReply, *wire.Error) {
	if a.cluster == nil {
		return api.ClusterVerifyReply{}, wire.NoCluster()
	}
	return a.cluster.Verify(context.Background(), r)
}

func (a *Admin) clusterRepair(by control.Actor, r api.ClusterLossRequest) (api.ClusterLoss, *wire.Error) {
	return a.endLoss(by, r, Cluster.Repair)
}

func (a *Admin) clusterAccept(by control.Actor, r api.ClusterLossRequest) (api.ClusterLoss, *wire.Error) {
	return a.endLoss(by, r, Cluster.Accept)
}

// shardObject names a shard in the audit log.
func shardObject(shard *int) string { return "shard:" + strconv.Itoa(*shard) }

// endLoss repairs the log of a shard, or accepts its loss.
func (a *Admin) endLoss(by control.Actor, r api.ClusterLossRequest,
	end func(Cluster, context.Context, api.ClusterLossRequest) (api.ClusterLoss, *wire.Error),
) (api.ClusterLoss, *wire.Error) {
	if a.cluster == nil {
		return api.ClusterLoss{}, wire.NoCluster()
	}
	reply, err := end(a.cluster, context.Background(), r)
	if err == nil && !r.DryRun {
		a.audit(by, shardObject(r.Shard), reply)
	}
	return reply, err
}

func (a *Admin) clusterDrain(r api.ClusterDrainRequest) (api.ClusterDrainReply, *wire.Error) {
	if a.cluster == nil {
		return api.ClusterDrainReply{}, wire.NoCluster()
	}
	return a.cluster.Drain(context.Background(), r)
}

func (a *Admin) clusterMove(r api.ClusterMoveRequest) (api.ClusterMoveReply, *wire.Error) {
	if a.cluster == nil {
		return api.ClusterMoveReply{}, wire.NoCluster()
	}
	return a.cluster.Move(context.Background(), r)
}
