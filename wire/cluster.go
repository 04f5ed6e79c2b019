package wire

import "fmt"

// Admin verbs of a cluster.
const (
	VerbClusterStatus = "cluster-status"
	VerbClusterDrain  = "cluster-drain"
	VerbClusterMove   = "cluster-move"
)

// ClusterStatus answers cluster-status: what the nodes tell of themselves once a second,
// as the one knows it that answers.
type ClusterStatus struct {
	Name   string         `json:"name"`
	Node   string         `json:"node"` // who answers
	Nodes  []ClusterNode  `json:"nodes"`
	Shards []ClusterShard `json:"shards"`
}

// ClusterNode is a node that was heard in the last ten seconds.
type ClusterNode struct {
	Node       string `json:"node"`
	Version    string `json:"version"`
	Since      string `json:"since"` // RFC 3339: when it was started
	HeardMsAgo int64  `json:"heard_ms_ago"`
	Draining   bool   `json:"draining,omitempty"` // it gives its shards away, and takes none
	Leaving    bool   `json:"leaving,omitempty"`  // it is being stopped
	Shards     []int  `json:"shards"`             // that it owns
}

// ClusterShard is a shard of the cluster.
type ClusterShard struct {
	Shard      int              `json:"shard"`
	Owner      string           `json:"owner"` // empty: nobody serves it now
	Epoch      uint64           `json:"epoch"`
	Seq        uint64           `json:"seq"` // of the newest record of its log
	Fenced     bool             `json:"fenced,omitempty"`
	MovingTo   string           `json:"moving_to,omitempty"`
	PinnedTo   string           `json:"pinned_to,omitempty"` // by cluster-move
	LogBytes   int64            `json:"log_bytes"`
	SnapshotAt string           `json:"snapshot_at,omitempty"` // RFC 3339: the newest one
	Standbys   []ClusterStandby `json:"standbys"`
}

// ClusterStandby is the copy of a shard at a node that does not own it.
type ClusterStandby struct {
	Node     string `json:"node"`
	State    string `json:"state"` // following, or on its way to owning
	Seq      uint64 `json:"seq"`
	Lag      uint64 `json:"lag"`       // records that it has not applied
	BehindMs int64  `json:"behind_ms"` // how old what it has applied is
	Error    string `json:"error,omitempty"`
}

// ClusterDrainRequest has a node give its shards away and take none, until it is
// started anew or Cancel is asked for.
type ClusterDrainRequest struct {
	Node   string `json:"node"`
	Cancel bool   `json:"cancel,omitempty"`
}

// ParseClusterDrain decodes and checks a [ClusterDrainRequest].
func ParseClusterDrain(body []byte) (ClusterDrainRequest, *Error) {
	return parse(body, ClusterDrainRequest{}, func(r *ClusterDrainRequest) *Error { return checkNode(r.Node) })
}

// ClusterDrainReply answers a [ClusterDrainRequest].
type ClusterDrainReply struct {
	Node     string `json:"node"`
	Draining bool   `json:"draining"`
	Shards   int    `json:"shards"` // that the node owns now
}

// ClusterMoveRequest has a shard handed over to a node.
type ClusterMoveRequest struct {
	Shard *int   `json:"shard"`
	Node  string `json:"node"`
}

// ParseClusterMove decodes and checks a [ClusterMoveRequest].
func ParseClusterMove(body []byte) (ClusterMoveRequest, *Error) {
	return parse(body, ClusterMoveRequest{}, func(r *ClusterMoveRequest) *Error {
		switch {
		case r.Shard == nil:
			return BadField("shard", "", "the number of a shard")
		case *r.Shard < 0:
			return BadField("shard", fmt.Sprint(*r.Shard), "the number of a shard")
		}
		return checkNode(r.Node)
	})
}

// ClusterMoveReply answers a [ClusterMoveRequest]. The shard is there when the status
// says so.
type ClusterMoveReply struct {
	Shard int    `json:"shard"`
	From  string `json:"from"` // empty: nobody owns it now
	To    string `json:"to"`
}

func checkNode(node string) *Error {
	switch {
	case node == "":
		return BadField("node", "", "the name of a node of the cluster")
	case len(node) > MaxConsumerName:
		return BadField("node", quote(node), "the name of a node of the cluster")
	}
	return nil
}

// NoCluster refuses a verb of a cluster at a fila that is alone.
func NoCluster() *Error {
	return newError(CodeNoCluster, "this fila is not in a cluster: its configuration has no [cluster] that is enabled")
}

// NodeNotFound answers for a node that is not a member of the cluster.
func NodeNotFound(node string) *Error {
	return newError(CodeNodeNotFound, "the cluster has no node %s: none of that name was heard in the last ten seconds", quote(node))
}

// NodeSilent answers for a node that does not answer.
func NodeSilent(node string) *Error {
	return newError(CodeNodeSilent, "node %s does not answer", quote(node))
}

// NoSuchShard refuses a shard that the cluster does not have.
func NoSuchShard(shard, shards int) *Error {
	return BadField("shard", fmt.Sprint(shard), fmt.Sprintf("allowed is 0 to %d", shards-1))
}

// StandbyNotReady refuses to move a shard to a node that cannot take it over now.
func StandbyNotReady(shard int, node string) *Error {
	return newError(CodeStandbyNotReady, "node %s cannot take shard %d over now: its copy has to be less than a second behind, and the node neither drained nor stopping", quote(node), shard)
}
