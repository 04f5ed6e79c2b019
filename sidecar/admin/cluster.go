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

// clusterVerb makes a verb about the cluster.
func clusterVerb[Req, Reply any](a *Admin, name string, parse func([]byte) (Req, *wire.Error), do func(Cluster, Req) (Reply, *wire.Error)) Verb {
	return bareVerb(name, parse, func(r Req) (reply Reply, err *wire.Error) {
		if a.cluster == nil {
			return reply, wire.NoCluster()
		}
		return do(a.cluster, r)
	})
}

func clusterStatus(c Cluster, _ struct{}) (wire.ClusterStatus, *wire.Error) { return c.Status(), nil }

func clusterDrain(c Cluster, r wire.ClusterDrainRequest) (wire.ClusterDrainReply, *wire.Error) {
	return c.Drain(context.Background(), r)
}

func clusterMove(c Cluster, r wire.ClusterMoveRequest) (wire.ClusterMoveReply, *wire.Error) {
	return c.Move(context.Background(), r)
}
