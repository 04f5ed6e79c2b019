package admin

import (
	"context"

	"github.com/filaq/fila/wire"
)

// Cluster is the cluster that this fila is a node of. Its methods may be called from any
// goroutine, and may ask other nodes.
type Cluster interface {
	Status() wire.ClusterStatus
	Drain(ctx context.Context, r wire.ClusterDrainRequest) (wire.ClusterDrainReply, *wire.Error)
	Move(ctx context.Context, r wire.ClusterMoveRequest) (wire.ClusterMoveReply, *wire.Error)
}

func (a *Admin) clusterStatus(wire.Empty) (wire.ClusterStatus, *wire.Error) {
	if a.cluster == nil {
		return wire.ClusterStatus{}, wire.NoCluster()
	}
	return a.cluster.Status(), nil
}

func (a *Admin) clusterDrain(r wire.ClusterDrainRequest) (wire.ClusterDrainReply, *wire.Error) {
	if a.cluster == nil {
		return wire.ClusterDrainReply{}, wire.NoCluster()
	}
	return a.cluster.Drain(context.Background(), r)
}

func (a *Admin) clusterMove(r wire.ClusterMoveRequest) (wire.ClusterMoveReply, *wire.Error) {
	if a.cluster == nil {
		return wire.ClusterMoveReply{}, wire.NoCluster()
	}
	return a.cluster.Move(context.Background(), r)
}
