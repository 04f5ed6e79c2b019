package cluster

import (
	"context"
	"strconv"
	"time"

	"github.com/filaq/fila/store/replog"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// verifyTimeout bounds the reading of all logs for an operator.
const verifyTimeout = 10 * time.Minute

// The scrubber reads each log of this node once a day, so slowly that nobody notices.
const (
	scrubEvery = 24 * time.Hour
	scrubRate  = 2 << 20 // bytes per second
)

var proofs = map[replog.Proof]string{
	replog.Equal: api.CopyEqual, replog.Different: api.CopyDifferent, replog.Cut: api.CopyCut, replog.Unproven: api.CopyUnproven,
}

// Verify reads the log of a shard, or all logs, and compares them with the copies of the nodes.
func (c *Cluster) Verify(ctx context.Context, r api.ClusterVerifyRequest) (api.ClusterVerifyReply, *wire.Error) {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	reply := api.ClusterVerifyReply{Node: c.Node, Shards: []api.ClusterVerifyShard{}}
	for shard := range c.Shards {
		if r.Shard != nil && *r.Shard != shard {
			continue
		}
		s, err := c.verify(ctx, shard, 0)
		if err != nil {
			return reply, wire.Internal(err.Error())
		}
		reply.Shards = append(reply.Shards, s)
	}
	if len(reply.Shards) == 0 {
		return reply, wire.NoSuchShard(*r.Shard, c.Shards)
	}
	return reply, nil
}

// verify reads the log of a shard.
func (c *Cluster) verify(ctx context.Context, shard, rate int) (api.ClusterVerifyShard, error) {
	c.mu.Lock()
	s := api.ClusterVerifyShard{Shard: shard, Copies: []api.ClusterVerifyCopy{}}
	var copies []replog.Mark
	for _, o := range c.mu.members.List() {
		for _, n := range o.Shards {
			if n.Shard == shard && n.Commit != nil {
				copies = append(copies, replog.Mark(*n.Commit))
				s.Copies = append(s.Copies, api.ClusterVerifyCopy{Node: o.Node, Seq: n.Commit.Seq})
			}
		}
	}
	replica := c.mu.local[shard].replica
	c.mu.Unlock()
	rep, err := replica.Verify(ctx, copies, rate)
	if err != nil {
		return s, err
	}
	s.First, s.Last, s.Bytes = rep.First, rep.Last, rep.Bytes
	if rep.Problem != nil {
		s.Problem = rep.Problem.Error()
	}
	for i, p := range rep.Copies {
		if s.Copies[i].State = proofs[p]; p == replog.Different && s.Copies[i].Seq > rep.Last && rep.Problem == nil {
			s.Copies[i].State = api.CopyUnproven // it is newer than what was read
		}
	}
	return s, nil
}

// scrub reads all logs slowly, again and again.
func (c *Cluster) scrub() {
	for {
		for shard := range c.Shards {
			select {
			case <-time.After(scrubEvery / time.Duration(c.Shards)):
			case <-c.ctx.Done():
				return
			case <-c.stop:
				return
			}
			s, err := c.verify(c.ctx, shard, scrubRate)
			switch {
			case c.ctx.Err() != nil:
				return
			case err != nil:
				c.Log.Warn("the log of a shard could not be read completely", "shard", shard, "error", err)
			case s.Problem != "":
				c.Log.Error("a replica of the log of a shard is damaged", "shard", shard, "problem", s.Problem)
				c.Event(wire.EventLogDamaged, strconv.Itoa(shard), wire.Event{Data: map[string]any{"shard": shard, "node": c.Node, "problem": s.Problem}})
			default:
				c.Log.Debug("the log of a shard was read", "shard", shard, "bytes", s.Bytes)
			}
		}
	}
}
