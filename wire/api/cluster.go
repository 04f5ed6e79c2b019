package api

import (
	"fmt"

	"github.com/filaq/fila/wire"
)

// ClusterStatus answers cluster-status: the nodes and shards as the answering node knows
// them. Nodes publish their state once a second.
type ClusterStatus struct {
	Name   string         `json:"name"`
	Node   string         `json:"node"` // the answering node
	Nodes  []ClusterNode  `json:"nodes"`
	Shards []ClusterShard `json:"shards"`
}

// ClusterNode is a node that was heard in the last ten seconds.
type ClusterNode struct {
	Node       string `json:"node"`
	Version    string `json:"version"`
	Since      string `json:"since"` // RFC 3339: when it started
	HeardMsAgo int64  `json:"heard_ms_ago"`
	Draining   bool   `json:"draining,omitempty"` // it hands its shards over and takes none
	Leaving    bool   `json:"leaving,omitempty"`  // it is stopping
	Shards     []int  `json:"shards"`             // that it owns
}

// ClusterShard is a shard of the cluster.
type ClusterShard struct {
	Shard      int              `json:"shard"`
	Owner      string           `json:"owner"` // empty: no node serves it now
	Epoch      uint64           `json:"epoch"`
	Seq        uint64           `json:"seq"` // of the newest record of its log
	Fenced     bool             `json:"fenced,omitempty"`
	MovingTo   string           `json:"moving_to,omitempty"`
	PinnedTo   string           `json:"pinned_to,omitempty"` // by cluster-move
	LogBytes   int64            `json:"log_bytes"`
	SnapshotAt string           `json:"snapshot_at,omitempty"` // RFC 3339: the newest snapshot
	Standbys   []ClusterStandby `json:"standbys"`
}

// ClusterStandby is the copy of a shard at a node that does not own it.
type ClusterStandby struct {
	Node     string `json:"node"`
	State    string `json:"state"` // following, or becoming the owner
	Seq      uint64 `json:"seq"`
	Lag      uint64 `json:"lag"`       // records that it has not applied
	BehindMs int64  `json:"behind_ms"` // age of the newest record that it has applied
	Error    string `json:"error,omitempty"`
}

// ClusterDrainRequest makes a node hand over its shards and take none, until it restarts or
// a request with Cancel.
type ClusterDrainRequest struct {
	Node   string `json:"node"`
	Cancel bool   `json:"cancel,omitempty"`
}

func (r *ClusterDrainRequest) check() *wire.Error { return checkNode(r.Node) }

// ClusterDrainReply answers a [ClusterDrainRequest].
type ClusterDrainReply struct {
	Node     string `json:"node"`
	Draining bool   `json:"draining"`
	Shards   int    `json:"shards"` // that the node owns now
}

// ClusterMoveRequest hands a shard over to a node.
type ClusterMoveRequest struct {
	Shard *int   `json:"shard"`
	Node  string `json:"node"`
}

func (r *ClusterMoveRequest) check() *wire.Error {
	switch {
	case r.Shard == nil:
		return wire.BadField("shard", "", "the number of a shard")
	case *r.Shard < 0:
		return wire.BadField("shard", fmt.Sprint(*r.Shard), "the number of a shard")
	}
	return checkNode(r.Node)
}

// ClusterMoveReply answers a [ClusterMoveRequest]. The move is complete when the status says
// so.
type ClusterMoveReply struct {
	Shard int    `json:"shard"`
	From  string `json:"from"` // empty: no node owns it now
	To    string `json:"to"`
}

func checkNode(node string) *wire.Error {
	if node == "" || len(node) > wire.MaxConsumerName {
		return wire.BadField("node", quoted(node), "the name of a node of the cluster")
	}
	return nil
}
