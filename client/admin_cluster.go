package client

import (
	"context"

	"github.com/filaq/fila/wire"
)

// ClusterStatus returns the nodes and shards of the cluster, as the node knows them that
// answers. A fila that is alone refuses it.
func (c *Client) ClusterStatus(ctx context.Context) (ClusterStatus, error) {
	return admin[ClusterStatus](ctx, c, wire.VerbClusterStatus, "", nil)
}

// ClusterDrain has a node hand all its shards to others and take none until it is
// started anew; with cancel it takes shards again. It returns as soon as the node knows.
func (c *Client) ClusterDrain(ctx context.Context, node string, cancel bool) (ClusterDrainReply, error) {
	return admin[ClusterDrainReply](ctx, c, wire.VerbClusterDrain, "", wire.ClusterDrainRequest{Node: node, Cancel: cancel})
}

// ClusterMove has a shard handed over to a node, where it stays for as long as that is a
// member of the cluster. It returns as soon as the order is given. If the node's copy is
// not close, it is a conflict (409).
func (c *Client) ClusterMove(ctx context.Context, shard int, node string) (ClusterMoveReply, error) {
	return admin[ClusterMoveReply](ctx, c, wire.VerbClusterMove, "", wire.ClusterMoveRequest{Shard: &shard, Node: node})
}
