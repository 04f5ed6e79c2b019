package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/sidecar/cluster/ownership"
	"github.com/filaq/fila/store/replog"
)

// subjects are the subjects between the nodes of one cluster.
type subjects struct{ prefix string }

// MaxNameLen is how long names of clusters and nodes may be.
const MaxNameLen = 32

// CheckName returns an error unless s may be the name of a cluster or node. Names are used in
// subjects and in names of streams.
func CheckName(what, s string) error {
	bad := strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
	})
	if s == "" || len(s) > MaxNameLen || bad {
		return fmt.Errorf("%s is %q: allowed are 1 to %d letters, digits, '-' and '_'", what, s, MaxNameLen)
	}
	return nil
}

func newSubjects(cluster, node string) (subjects, error) {
	err := errors.Join(CheckName("the name of the cluster", cluster), CheckName("the name of the node", node))
	return subjects{"fila_node." + cluster}, err
}

func (s subjects) members() string           { return s.prefix + ".member" }
func (s subjects) ping(node string) string   { return s.prefix + ".ping." + node }
func (s subjects) order(node string) string  { return s.prefix + ".order." + node }
func (s subjects) repair(node string) string { return s.prefix + ".repair." + node }

// ping is the question to an owner about a shard.
type ping struct {
	Shard int `json:"shard"`
}

type pong struct {
	Answer string `json:"answer"`
}

// answers are the answers on the wire.
var answers = map[ownership.Answer]string{ownership.Free: "free", ownership.Well: "well", ownership.Stuck: "stuck"}

// ask asks a node about its state of a shard.
func (c *Cluster) ask(node string, shard int) ownership.Answer {
	ctx, cancel := context.WithTimeout(c.ctx, pingTimeout)
	defer cancel()
	m, err := c.Conn.RequestWithContext(ctx, c.subjects.ping(node), encode(ping{shard}))
	if err != nil {
		return ownership.Silent
	}
	var p pong
	if json.Unmarshal(m.Data, &p) == nil {
		for answer, text := range answers {
			if p.Answer == text {
				return answer
			}
		}
	}
	return ownership.Stuck // an answer of a later version: the node is there
}

// encode encodes types that cannot fail.
func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

// respond answers m. If NATS is away, the other node asks again.
func (c *Cluster) respond(m *nats.Msg, v any) {
	if err := m.Respond(encode(v)); err != nil {
		c.Log.Debug("no answer to another node", "subject", m.Subject, "error", err)
	}
}

func (c *Cluster) onPing(m *nats.Msg) {
	var p ping
	if json.Unmarshal(m.Data, &p) != nil || p.Shard < 0 || p.Shard >= c.Shards {
		return
	}
	c.mu.Lock()
	l := c.mu.local[p.Shard]
	answer := l.machine.Answer(l.store != nil && l.store.Owns(c.FenceAfter()))
	c.mu.Unlock()
	c.respond(m, pong{answers[answer]})
}

// onNews handles an announcement of a node, also of this one.
func (c *Cluster) onNews(m *nats.Msg) {
	var n ownership.News
	if err := json.Unmarshal(m.Data, &n); err != nil || CheckName("node", n.Node) != nil {
		return
	}
	c.mu.Lock()
	changes, older := c.mu.members.Hear(c.now(), n)
	for _, ch := range changes {
		c.mu.news = c.mu.news || ch.Joined // so that the new node need not wait for the next one
	}
	news := c.mu.news
	c.mu.Unlock()
	if older {
		select {
		case c.conflict <- fmt.Errorf("%w: node %q of cluster %q runs since %s (give each node its own cluster.node)",
			ErrSameName, c.Node, c.Name, time.UnixMilli(n.SinceMs).UTC().Format(time.RFC3339)):
		default: // it has been reported
		}
	}
	c.report(changes)
	if news {
		c.nudge()
	}
}

// announce announces this node.
func (c *Cluster) announce(left bool) {
	c.mu.Lock()
	news := ownership.News{
		Node: c.Node, Incarnation: c.self, Version: c.Version, Format: replog.Format, SinceMs: c.began.UnixMilli(), UpMs: time.Since(c.began).Milliseconds(),
		Draining: c.mu.draining, Leaving: c.mu.leaving, Left: left, Moving: c.mu.moving, Pins: c.mu.members.Pins(),
		Servers: c.sighted(),
	}
	for _, p := range c.mu.local {
		news.Shards = append(news.Shards, c.shardNews(p))
	}
	c.mu.Unlock()
	if err := c.Conn.Publish(c.subjects.members(), encode(news)); err != nil {
		c.Log.Debug("other nodes hear nothing of this one", "error", err) // the next announcement may go through
	}
}

// shardNews returns the state of a shard at this node. Its caller holds mu.
func (c *Cluster) shardNews(p *localShard) ownership.ShardNews {
	state := p.machine.State()
	n := ownership.ShardNews{Shard: p.number, State: state.String(), Fenced: p.machine.Fenced()}
	seen := p.replica.Seen()
	n.Seq, n.Lost = seen.Seq+seen.Lag, p.lost.told
	if seen.Data != (replog.Mark{}) {
		n.Commit = (*ownership.Commit)(&seen.Data)
	}
	if p.store != nil {
		n.Epoch, n.Owns = p.store.Epoch(), state == ownership.Owning || state == ownership.Draining
		if c.Detail != nil {
			d := c.Detail(p.number)
			n.LogBytes = d.LogBytes
			if !d.SnapshotAt.IsZero() {
				n.SnapshotMs = d.SnapshotAt.UnixMilli()
			}
		}
		return n
	}
	n.Epoch, n.Lag, n.BehindMs = seen.Epoch, seen.Lag, p.late/int64(time.Millisecond)
	if seen.Err != nil {
		n.Error, n.Torn, n.Unread = seen.Err.Error(), seen.Torn, seen.Unread
		if errors.Is(seen.Err, replog.ErrShorter) {
			n.LogEnd = seen.End
		}
	}
	return n
}

// order is an order of an operator to a node.
type order struct {
	Drain bool `json:"drain"`
}

type orderReply struct {
	Shards int `json:"shards"` // owned by the node
}

func (c *Cluster) onOrder(m *nats.Msg) {
	var o order
	if json.Unmarshal(m.Data, &o) != nil {
		return
	}
	c.respond(m, orderReply{c.drain(o.Drain)})
}

// drain lets this node hand over its shards, or take its share again.
func (c *Cluster) drain(on bool) (owned int) {
	c.mu.Lock()
	if c.mu.draining != on {
		c.Log.Info("an operator drained this node, or canceled its drain", "draining", on)
	}
	c.mu.draining, c.mu.news = on, true
	for _, p := range c.mu.local {
		if p.machine.HasStore() {
			owned++
		}
	}
	c.mu.Unlock()
	c.nudge()
	return owned
}
