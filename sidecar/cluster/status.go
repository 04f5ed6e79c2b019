package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/sidecar/cluster/ownership"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Status returns the state of the cluster as the nodes have announced it.
func (c *Cluster) Status() api.ClusterStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, m := c.now(), c.mu.members
	st := api.ClusterStatus{Name: c.Name, Node: c.Node, Nodes: []api.ClusterNode{}, Shards: make([]api.ClusterShard, c.Shards)}
	pins := m.Pins()
	for shard := range st.Shards {
		owner, news := m.Owner(now, shard)
		st.Shards[shard] = api.ClusterShard{
			Shard: shard, Owner: owner, Epoch: news.Epoch, Seq: news.Seq, Fenced: news.Fenced, PinnedTo: pins[shard].Node,
			LogBytes: news.LogBytes, SnapshotAt: timestamp(news.SnapshotMs), Standbys: []api.ClusterStandby{},
		}
	}
	for _, o := range m.List() {
		node := api.ClusterNode{
			Node: o.Node, Version: o.Version, Since: timestamp(o.SinceMs), HeardMsAgo: (now - o.Last) / int64(time.Millisecond),
			Draining: o.Draining, Leaving: o.Leaving, Shards: []int{},
		}
		for _, s := range o.Shards {
			if s.Shard >= len(st.Shards) {
				continue
			}
			of := &st.Shards[s.Shard]
			if of.Owner == o.Node {
				node.Shards = append(node.Shards, s.Shard)
				if o.Moving != nil && o.Moving.Shard == s.Shard {
					of.MovingTo = o.Moving.To
				}
				continue
			}
			of.Standbys = append(of.Standbys, api.ClusterStandby{
				Node: o.Node, State: s.State, Seq: s.Seq, Lag: s.Lag, BehindMs: s.BehindMs, Error: s.Error,
			})
		}
		st.Nodes = append(st.Nodes, node)
	}
	for shard := range st.Shards {
		if l, lost := c.lossOf(now, shard); lost {
			st.Shards[shard].Lost = &l
		}
	}
	for _, s := range c.judge() {
		st.Servers = append(st.Servers, api.ClusterServer{
			Server: s.Name, Version: s.Version, Sync: s.Sync, SeenBy: append([]string{}, s.Nodes...), Missing: s.Missing,
		})
	}
	return st
}

// Local returns the state of the shards at this node.
func (c *Cluster) Local() []ownership.ShardNews {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]ownership.ShardNews, len(c.mu.local))
	for i, p := range c.mu.local {
		all[i] = c.shardNews(p)
	}
	return all
}

// Counts are counters since the start of this node.
type Counts struct {
	Takeovers, Planned int64 // shards that it took over: after a failure, or by a handover
	Fenced             int64 // times that one of its shards was fenced
	Handovers          int64 // shards that it handed over
	HandoverTime       time.Duration
}

// Counts returns the counters. It does not block.
func (c *Cluster) Counts() Counts {
	n := &c.counts
	return Counts{n.takeovers.Load(), n.planned.Load(), n.fenced.Load(), n.handovers.Load(), time.Duration(n.handoverNs.Load())}
}

func timestamp(ms int64) string {
	if ms == 0 {
		return ""
	}
	return wire.Timestamp(ms * int64(time.Millisecond))
}

// Drain lets a node hand over all its shards and take none, or ends that. It returns when the
// node has confirmed.
func (c *Cluster) Drain(ctx context.Context, r api.ClusterDrainRequest) (api.ClusterDrainReply, *wire.Error) {
	c.mu.Lock()
	known := c.mu.members.Of(r.Node) != nil
	c.mu.Unlock()
	if !known {
		return api.ClusterDrainReply{}, wire.NodeNotFound(r.Node)
	}
	ctx, cancel := context.WithTimeout(ctx, orderTimeout)
	defer cancel()
	var reply orderReply
	m, err := c.Conn.RequestWithContext(ctx, c.subjects.order(r.Node), encode(order{!r.Cancel}))
	if err == nil {
		err = json.Unmarshal(m.Data, &reply)
	}
	switch {
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, context.DeadlineExceeded):
		return api.ClusterDrainReply{}, wire.NodeSilent(r.Node)
	case err != nil:
		return api.ClusterDrainReply{}, wire.Internal(err.Error())
	}
	return api.ClusterDrainReply{Node: r.Node, Draining: !r.Cancel, Shards: reply.Shards}, nil
}

// Move moves a shard to a node and pins it there as long as the node is a member. It returns when
// the owner will learn of it.
func (c *Cluster) Move(_ context.Context, r api.ClusterMoveRequest) (api.ClusterMoveReply, *wire.Error) {
	c.mu.Lock()
	now, m := c.now(), c.mu.members
	if *r.Shard >= c.Shards {
		c.mu.Unlock()
		return api.ClusterMoveReply{}, wire.NoSuchShard(*r.Shard, c.Shards)
	}
	if m.Of(r.Node) == nil {
		c.mu.Unlock()
		return api.ClusterMoveReply{}, wire.NodeNotFound(r.Node)
	}
	owner, _ := m.Owner(now, *r.Shard)
	if owner != r.Node && !m.Ready(now, *r.Shard, r.Node) {
		c.mu.Unlock()
		return api.ClusterMoveReply{}, wire.StandbyNotReady(*r.Shard, r.Node)
	}
	m.Pin(*r.Shard, m.NextPin(*r.Shard, r.Node))
	c.mu.news = true
	c.mu.Unlock()
	c.nudge()
	return api.ClusterMoveReply{Shard: *r.Shard, From: owner, To: r.Node}, nil
}
