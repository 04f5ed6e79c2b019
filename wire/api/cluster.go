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
	// Servers are the NATS servers that have replicas of the logs.
	Servers []ClusterServer `json:"servers,omitempty"`
}

// ClusterServer is a NATS server, as the nodes have seen it in the last hour.
type ClusterServer struct {
	Server  string   `json:"server"`
	Version string   `json:"version,omitempty"` // left out: not seen
	Sync    string   `json:"sync,omitempty"`    // "always", or the interval, such as "2m0s"; left out: not seen
	SeenBy  []string `json:"seen_by"`           // nodes
	Missing []string `json:"missing,omitempty"` // what cluster.require of the answering node asks for
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
	Lost       *ClusterLoss     `json:"log_lost,omitempty"`    // the log lacks confirmed messages
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
	if err := checkShard(r.Shard); err != nil {
		return err
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

// ClusterLoss is what the log of a shard lacks. No node serves the shard until its log is
// repaired or the loss is accepted.
type ClusterLoss struct {
	Shard   int    `json:"shard"`
	LogEnd  uint64 `json:"log_end"` // the newest record of the log
	Node    string `json:"node"`    // that has, or had, the newest commit
	Seq     uint64 `json:"seq"`     // of that commit
	Records uint64 `json:"records"` // that the log lacks up to that commit

	Owner  string   `json:"owner,omitempty"`  // the log goes on at this node without what copies have
	Copies []string `json:"copies,omitempty"` // nodes that have, or know of, what the log lacks

	// Of the nodes that can be asked, Reachable has the newest commit.
	Reachable    string `json:"reachable,omitempty"`
	ReachableSeq uint64 `json:"reachable_seq,omitempty"`
	Unreachable  uint64 `json:"unreachable"` // records that no node which can be asked has
}

// ClusterLossRequest repairs the log of a shard from the most advanced copy that can be
// asked, or accepts that its log lacks records. Loss is how many records it gives up, which
// must be what [ClusterLoss] says is unreachable.
type ClusterLossRequest struct {
	Shard  *int   `json:"shard"`
	Loss   uint64 `json:"loss,omitempty"`
	DryRun bool   `json:"dry_run,omitempty"` // only say what it would do
}

func (r *ClusterLossRequest) check() *wire.Error { return checkShard(r.Shard) }

// ClusterVerifyRequest compares the log of a shard, or of all, with the copies of the nodes.
type ClusterVerifyRequest struct {
	Shard *int `json:"shard,omitempty"` // left out: all
}

func (r *ClusterVerifyRequest) check() *wire.Error {
	if r.Shard == nil {
		return nil
	}
	return checkShard(r.Shard)
}

// ClusterVerifyReply answers a [ClusterVerifyRequest].
type ClusterVerifyReply struct {
	Node   string               `json:"node"` // that has read the logs
	Shards []ClusterVerifyShard `json:"shards"`
}

// ClusterVerifyShard is the log of a shard, as it was read.
type ClusterVerifyShard struct {
	Shard   int                 `json:"shard"`
	First   uint64              `json:"first"` // the oldest record
	Last    uint64              `json:"last"`  // the newest that was read
	Bytes   int64               `json:"bytes"`
	Problem string              `json:"problem,omitempty"` // why a record does not continue the one before
	Copies  []ClusterVerifyCopy `json:"copies"`
}

// ClusterVerifyCopy is the copy of a node.
type ClusterVerifyCopy struct {
	Node  string `json:"node"`
	Seq   uint64 `json:"seq"` // its newest commit
	State string `json:"state"`
}

// States of a [ClusterVerifyCopy].
const (
	CopyEqual     = "equal"     // the log has its newest commit, with the same history
	CopyDifferent = "different" // the log has another record there, or none
	CopyCut       = "cut"       // its newest commit is before the oldest record of the log
	CopyUnproven  = "unproven"  // the log has its newest commit, without a chain: an older fila has written it
)

func checkShard(shard *int) *wire.Error {
	switch {
	case shard == nil:
		return wire.BadField("shard", "", "the number of a shard")
	case *shard < 0:
		return wire.BadField("shard", fmt.Sprint(*shard), "the number of a shard")
	}
	return nil
}

func checkNode(node string) *wire.Error {
	if node == "" || len(node) > wire.MaxConsumerName {
		return wire.BadField("node", quoted(node), "the name of a node of the cluster")
	}
	return nil
}
