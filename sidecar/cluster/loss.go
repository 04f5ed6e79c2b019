package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/sidecar/cluster/ownership"
	"github.com/filaq/fila/store/replog"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// A log that has lost commits must not get an owner that lacks them: they would be gone, though
// another node has them in its file. So a node does not campaign while it knows of a commit that
// the log lacks. It knows what members announce, and what owners have written into the memory of
// the cluster. A node that starts waits for the other nodes first.

// Memory is small data that the nodes of a cluster keep together.
type Memory interface {
	// Keep stores the value of a key.
	Keep(ctx context.Context, key string, value []byte) error
	// Kept returns the values of the keys with a prefix. It does not block.
	Kept(prefix string) map[string][]byte
}

// Keys of the memory: what a node, as an owner, has of each shard; and the verdict of a shard.
const (
	nodeKey    = "node."
	verdictKey = "verdict."
)

const (
	// keepEvery is how often an owner stores its newest commits.
	keepEvery = int64(5 * time.Second)
	keepFor   = 10 * time.Second // the timeout of that
	// waitForNodes is how long a node that starts waits for nodes that it knows.
	waitForNodes = int64(10 * time.Second)
	// goneFor is how long a node must have been away before nobody waits for it.
	goneFor = 24 * time.Hour
	// lostAfter is how long a log must have lacked commits before that is reported: a leader of
	// NATS that has just been elected may not have applied all of its log.
	lostAfter = int64(2 * time.Second)
	// quietFor is how long nothing must have come from the log before a copy without commits of
	// other nodes counts as complete.
	quietFor = int64(3 * time.Second)
	// repairTimeout bounds a repair, which uploads a copy of the shard.
	repairTimeout = 30 * time.Minute
)

// loss is what this node knows of a log that lacks commits.
type loss struct {
	since int64 // it has lacked them since then, and that is not reported yet; 0: no
	told  bool  // as it was reported last
}

// CheckLog returns an error if owners have stored that they had commits which a log lacks as far
// as it was read, and no operator has given them up.
func CheckLog(m Memory, shard int, seen Seen) error {
	for key, value := range m.Kept(nodeKey) {
		var of nodeMemory
		if json.Unmarshal(value, &of) != nil {
			continue
		}
		commit := of.Commits[shard]
		v, ok := VerdictOf(m, shard)
		if commit.After(seen.Epoch, seen.N) && !(ok && v.GivenUp && v.Covers(replog.Mark(commit))) {
			return fmt.Errorf("%w: node %s had record %d, the log ends at %d; start the nodes and repair it (fila cluster repair)",
				replog.ErrShorter, strings.TrimPrefix(key, nodeKey), commit.Seq, seen.Seq)
		}
	}
	return nil
}

// lacks reports whether a node is known to have a commit that is not in the log as far as this
// node has read it, and that no operator has given up. Its caller holds mu.
func (c *Cluster) lacks(p *localShard, seen Seen) bool {
	newest, ok := c.mu.members.Newest(p.number)
	if !ok || !newest.After(seen.Epoch, seen.N) {
		return false
	}
	v, ok := VerdictOf(c.Memory, p.number)
	return !ok || !v.GivenUp || !v.Covers(replog.Mark(newest.Commit))
}

// finding is a log that lacks commits, or does no longer.
type finding struct {
	shard  int
	lost   bool
	newest ownership.Known
	end    uint64 // of the log
	tells  bool   // this node publishes the event
}

// checkLoss notes whether the log of a shard lacks commits, and returns what has to be reported.
// Its caller holds mu.
func (c *Cluster) checkLoss(now int64, p *localShard) (f finding, report bool) {
	var seen Seen
	lost := false
	if p.store == nil {
		seen = p.replica.Seen()
		switch err := seen.Err; {
		case err == nil:
			lost = seen.Lag == 0 && now-int64(seen.At.Sub(c.began)) >= quietFor && c.lacks(p, seen)
		case errors.Is(err, replog.ErrShorter), errors.Is(err, replog.ErrGone):
			lost = true
		default: // it says nothing about what the log lacks, for example that the log cannot be read
			lost = p.lost.told
		}
	}
	if lost == p.lost.told {
		p.lost.since = 0
		return f, false
	}
	if lost && p.lost.since == 0 {
		p.lost.since = now
	}
	if lost && now-p.lost.since < lostAfter {
		return f, false
	}
	p.lost, c.mu.news = loss{told: lost}, true
	f = finding{shard: p.number, lost: lost, end: max(seen.End, seen.Seq)}
	if seen.Err != nil {
		f.newest = ownership.Known{Commit: ownership.Commit(seen.Data), Node: c.Node}
		f.tells = c.mu.members.FirstOf(now, p.number, f.newest)
	} else {
		f.newest, _ = c.mu.members.Newest(p.number)
		f.tells = !c.mu.members.Fresh(now, f.newest.Node) && c.mu.members.First(now) == c.Node
	}
	return f, true
}

// reportLoss reports a log that lacks commits, or does no longer.
func (c *Cluster) reportLoss(f finding) {
	log := c.Log.With("shard", f.shard)
	if !f.lost {
		log.Info("the log of the shard is complete again")
		return
	}
	log.Error("the log of the shard lacks confirmed commits; no node takes over the shard until it is repaired (fila cluster repair)",
		"newest_commit_at", f.newest.Node, "epoch", f.newest.Epoch, "n", f.newest.N, "seq", f.newest.Seq, "log_end", f.end)
	if f.tells {
		c.event(wire.EventLogLost, f.shard, map[string]any{
			"has": f.newest.Node, "epoch": f.newest.Epoch, "seq": f.newest.Seq, "log_end": f.end,
		})
	}
}

// nodeMemory is what the memory has of a node.
type nodeMemory struct {
	At      int64                    `json:"at"` // Unix time in ms: when the node was last there
	Commits map[int]ownership.Commit `json:"commits,omitempty"`
}

// remember learns from the memory, and stores the newest commits of owned shards there. Its
// caller holds mu.
func (c *Cluster) remember(now int64) {
	if c.Memory == nil {
		c.mu.complete = true
		return
	}
	all := c.Memory.Kept(nodeKey)
	heard := true
	for key, value := range all {
		var of nodeMemory
		node := strings.TrimPrefix(key, nodeKey)
		if json.Unmarshal(value, &of) != nil {
			continue
		}
		if node == c.Node && c.mu.kept == nil {
			c.mu.kept = of.Commits // of an earlier process
		}
		for shard, commit := range of.Commits {
			c.mu.members.Know(shard, ownership.Known{Commit: commit, Node: node})
		}
		gone := time.Since(time.UnixMilli(of.At)) > goneFor
		heard = heard && (gone || node == c.Node || c.mu.members.Of(node) != nil)
	}
	if !c.mu.complete && (heard || now >= waitForNodes) {
		c.mu.complete = true
	}
	if c.mu.keeping || now-c.mu.keptAt < keepEvery && c.mu.keptAt != 0 {
		return
	}
	commits := maps.Clone(c.mu.kept)
	if commits == nil {
		commits = make(map[int]ownership.Commit)
	}
	for _, p := range c.mu.local {
		if p.store == nil {
			continue
		}
		if commit := ownership.Commit(p.replica.Seen().Data); commit != (ownership.Commit{}) {
			commits[p.number] = commit
		}
	}
	c.mu.keptAt = now
	if c.mu.wrote != 0 && maps.Equal(commits, c.mu.kept) && now-c.mu.wrote < int64(goneFor)/4 {
		return
	}
	c.mu.keeping = true
	c.actions.Go(func() {
		ctx, cancel := context.WithTimeout(c.ctx, keepFor)
		defer cancel()
		err := c.Memory.Keep(ctx, nodeKey+c.Node, encode(nodeMemory{time.Now().UnixMilli(), commits}))
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.mu.keeping = false; err == nil {
			c.mu.kept, c.mu.wrote = commits, now
		}
	})
}

// VerdictOf returns the verdict about copies of a shard that have more than its log.
func VerdictOf(m Memory, shard int) (v replog.Verdict, ok bool) {
	if m == nil {
		return v, false
	}
	key := verdictKey + strconv.Itoa(shard)
	value, ok := m.Kept(key)[key]
	return v, ok && json.Unmarshal(value, &v) == nil
}

// decide stores a verdict.
func (c *Cluster) decide(ctx context.Context, shard int, v replog.Verdict) error {
	if c.Memory == nil {
		return errors.New("this node has no memory of its cluster")
	}
	return c.Memory.Keep(ctx, verdictKey+strconv.Itoa(shard), encode(v))
}

// Loss returns what the log of a shard lacks, as this node knows it.
func (c *Cluster) Loss(shard int) (api.ClusterLoss, *wire.Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if shard < 0 || shard >= c.Shards {
		return api.ClusterLoss{}, wire.NoSuchShard(shard, c.Shards)
	}
	l, ok := c.lossOf(c.now(), shard)
	if !ok {
		return l, wire.NotRepaired(shard, "its log lacks no records that a node has")
	}
	return l, nil
}

// LogLost implements admin.Cluster.
func (c *Cluster) LogLost(shard int) bool {
	l, refused := c.Loss(shard)
	return refused == nil && l.Owner == ""
}

// lossOf returns what the log of a shard lacks, and false if no node has reported that it lacks
// anything. Its caller holds mu.
func (c *Cluster) lossOf(now int64, shard int) (l api.ClusterLoss, lost bool) {
	m := c.mu.members
	newest, _ := m.Newest(shard)
	best, _ := m.Best(now, shard)
	l = api.ClusterLoss{Shard: shard, Node: newest.Node, Seq: newest.Seq, Reachable: best.Node, ReachableSeq: best.Seq}
	followed, short := uint64(0), false // where nodes that follow the log have read it up to; a copy has more
	for _, o := range m.List() {
		for _, s := range o.Shards {
			if s.Shard != shard || !m.Fresh(now, o.Node) {
				continue
			}
			if s.Lost {
				lost = true
				l.Copies = append(l.Copies, o.Node)
			}
			switch {
			case s.Owns && s.Fenced: // the log may lack what it has, too
			case s.Owns:
				l.Owner = o.Node
			case s.Error == "":
				followed = max(followed, s.Seq)
			case s.Lost && s.Commit != nil:
				short = true
				l.LogEnd = max(l.LogEnd, min(s.LogEnd, s.Commit.Seq-1)) // an older branch may be longer
			}
		}
	}
	if !short { // else they may not have noticed yet
		l.LogEnd = followed
	}
	if l.Owner == "" {
		l.Records = l.Seq - min(l.Seq, l.LogEnd)
		l.Unreachable = l.Seq - min(l.Seq, max(l.ReachableSeq, l.LogEnd))
	}
	return l, lost
}

// Repair lets the log of a shard go on from the most advanced copy that can be reached. r.Loss is
// how many records the operator gives up, those that no reachable copy has.
func (c *Cluster) Repair(ctx context.Context, r api.ClusterLossRequest) (api.ClusterLoss, *wire.Error) {
	l, newest, refused := c.agree(r, func(l api.ClusterLoss) string {
		switch {
		case l.Owner != "":
			return fmt.Sprintf("node %s continues the log without records that the copy of %s has; accept the loss to put the copy aside", l.Owner, strings.Join(l.Copies, ", "))
		case l.ReachableSeq <= l.LogEnd:
			return fmt.Sprintf("no reachable node has more than the log; start node %s, or accept the loss", l.Node)
		}
		return ""
	})
	if refused != nil || r.DryRun {
		return l, refused
	}
	ctx, cancel := context.WithTimeout(ctx, repairTimeout)
	defer cancel()
	var reply repairReply
	m, err := c.Conn.RequestWithContext(ctx, c.subjects.repair(l.Reachable), encode(repairOrder{*r.Shard, newest}))
	if err == nil {
		err = json.Unmarshal(m.Data, &reply)
	}
	switch {
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, context.DeadlineExceeded):
		return l, wire.NodeSilent(l.Reachable)
	case err != nil:
		return l, wire.Internal(err.Error())
	case reply.Error != "":
		return l, wire.NotRepaired(*r.Shard, fmt.Sprintf("node %s: %s", l.Reachable, reply.Error))
	}
	return l, nil
}

// Accept gives up the records that the log of a shard lacks and that no reachable copy has.
func (c *Cluster) Accept(ctx context.Context, r api.ClusterLossRequest) (api.ClusterLoss, *wire.Error) {
	l, newest, refused := c.agree(r, func(l api.ClusterLoss) string {
		if l.Owner == "" && (l.ReachableSeq > l.LogEnd || l.Unreachable == 0) {
			return fmt.Sprintf("node %s has records that the log lacks: repair the log first", l.Reachable)
		}
		return ""
	})
	if refused != nil || r.DryRun {
		return l, refused
	}
	if err := c.decide(ctx, *r.Shard, replog.Verdict{Copy: replog.Mark(newest), GivenUp: true}); err != nil {
		return l, wire.Internal(err.Error())
	}
	c.nudge()
	return l, nil
}

// agree returns what the log of a shard lacks, and the newest commit that it lacks. It refuses a
// request that names another loss, or for the reason that refuse returns. A node that has just
// started does not know yet what the others have, which the log would go on without.
func (c *Cluster) agree(r api.ClusterLossRequest, refuse func(api.ClusterLoss) string) (l api.ClusterLoss, newest ownership.Commit, refused *wire.Error) {
	if l, refused = c.Loss(*r.Shard); refused != nil {
		return l, newest, refused
	}
	c.mu.Lock()
	complete := c.mu.complete
	c.mu.Unlock()
	why := refuse(l)
	if why == "" && !complete {
		why = fmt.Sprintf("node %s has just started and waits for the other nodes; try again in %v", c.Node, time.Duration(waitForNodes))
	}
	if why == "" && !r.DryRun && r.Loss != l.Unreachable {
		why = fmt.Sprintf("no reachable node has %s, but the request gives up %d", wire.Plural(int64(l.Unreachable), "record"), r.Loss)
	}
	if why != "" {
		return l, newest, wire.NotRepaired(*r.Shard, why)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	known, _ := c.mu.members.Newest(*r.Shard)
	if l.Owner != "" {
		known = c.mu.members.Lost(*r.Shard)
	}
	return l, known.Commit, nil
}

// repairOrder asks a node to repair the log of a shard from its copy. Newest is the newest commit
// that is known; what its own copy lacks of it is given up.
type repairOrder struct {
	Shard  int              `json:"shard"`
	Newest ownership.Commit `json:"newest"`
}

type repairReply struct {
	Error string `json:"error,omitempty"`
}

func (c *Cluster) onRepair(m *nats.Msg) {
	var o repairOrder
	if json.Unmarshal(m.Data, &o) != nil || o.Shard < 0 || o.Shard >= c.Shards {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.leaving { // nobody waits for an action that begins now
		return
	}
	replica := c.mu.local[o.Shard].replica
	c.actions.Go(func() {
		var reply repairReply
		if err := c.repair(replica, o); err != nil {
			reply.Error = err.Error()
		}
		c.respond(m, reply)
	})
}

// repair repairs a log from the copy of this node.
func (c *Cluster) repair(replica Replica, o repairOrder) error {
	ctx, cancel := context.WithTimeout(c.ctx, repairTimeout)
	defer cancel()
	defer c.nudge()
	_, err := replica.Repair(ctx, replog.Mark(o.Newest), func(v replog.Verdict) error { return c.decide(ctx, o.Shard, v) })
	return err
}
