package admin

import (
	"context"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Cluster is the cluster that this fila is a node of. Its methods may be called from any
// goroutine, and may ask other nodes.
type Cluster interface {
	Status() api.ClusterStatus
	Drain(ctx context.Context, r api.ClusterDrainRequest) (api.ClusterDrainReply, *wire.Error)
	Move(ctx context.Context, r api.ClusterMoveRequest) (api.ClusterMoveReply, *wire.Error)
}

func (a *Admin) clusterStatus(api.Empty) (api.ClusterStatus, *wire.Error) {
	if a.cluster == nil {
		return api.ClusterStatus{}, wire.NoCluster()
	}
	return a.cluster.Status(), nil
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
