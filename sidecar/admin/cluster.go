package admin

import (
	"context"
	"strconv"

	"github.com/filaq/fila/sidecar/control"
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

func (a *Admin) clusterDrain(by control.Actor, r wire.ClusterDrainRequest) (wire.ClusterDrainReply, *wire.Error) {
	if a.cluster == nil {
		return wire.ClusterDrainReply{}, wire.NoCluster()
	}
	object := "node:" + r.Node
	defer a.objects.lock(object)()
	reply, err := a.cluster.Drain(context.Background(), r)
	if err == nil {
		a.audit(by, object, reply)
	}
	return reply, err
}

func (a *Admin) clusterMove(by control.Actor, r wire.ClusterMoveRequest) (wire.ClusterMoveReply, *wire.Error) {
	if a.cluster == nil {
		return wire.ClusterMoveReply{}, wire.NoCluster()
	}
	object := "shard:" + strconv.Itoa(*r.Shard)
	defer a.objects.lock(object)()
	reply, err := a.cluster.Move(context.Background(), r)
	if err == nil {
		a.audit(by, object, reply)
	}
	return reply, err
}
