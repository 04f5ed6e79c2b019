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

// subjects are those between the nodes of one cluster.
type subjects struct{ prefix string }

// MaxNameLen is how long names of clusters and nodes may be.
const MaxNameLen = 32

// CheckName returns an error unless s may be the name of a cluster or of a node, which
// stand in subjects and in names of streams.
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

func (s subjects) members() string          { return s.prefix + ".member" }
func (s subjects) ping(node string) string  { return s.prefix + ".ping." + node }
func (s subjects) order(node string) string { return s.prefix + ".order." + node }

// ping asks an owner about a shard.
type ping struct {
	Shard int `json:"shard"`
}

type pong struct {
	Answer string `json:"answer"`
}

// answers are those on the wire.
var answers = map[ownership.Answer]string{ownership.Free: "free", ownership.Well: "well", ownership.Stuck: "stuck"}

// ask asks a node how it stands with a shard.
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
	return ownership.Stuck // a later version, which is there
}

// encode is for types that can be encoded.
func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

// respond answers m. NATS may be away; who has asked asks again.
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
	place := c.mu.places[p.Shard]
	answer := place.machine.Answer(place.store != nil && place.store.Owns(c.FenceAfter()))
	c.mu.Unlock()
	c.respond(m, pong{answers[answer]})
}

// onNews hears what a node tells, this one included.
func (c *Cluster) onNews(m *nats.Msg) {
	var n ownership.News
	if err := json.Unmarshal(m.Data, &n); err != nil || CheckName("node", n.Node) != nil {
		return
	}
	c.mu.Lock()
	changes, older := c.mu.members.Hear(c.now(), n)
	for _, ch := range changes {
		c.mu.news = c.mu.news || ch.Joined // the new one should not have to wait for this one
	}
	news := c.mu.news
	c.mu.Unlock()
	if older {
		select {
		case c.conflict <- fmt.Errorf("%w: node %q of cluster %q runs since %s (give each node its own cluster.node)",
			ErrSameName, c.Node, c.Name, time.UnixMilli(n.SinceMs).UTC().Format(time.RFC3339)):
		default: // it is known
		}
	}
	c.report(changes)
	if news {
		c.nudge()
	}
}

// tell tells others of this node.
func (c *Cluster) tell(left bool) {
	c.mu.Lock()
	news := ownership.News{
		Node: c.Node, Incarnation: c.self, Version: c.Version, Format: replog.Format, SinceMs: c.began.UnixMilli(), UpMs: time.Since(c.began).Milliseconds(),
		Draining: c.mu.draining, Leaving: c.mu.leaving, Left: left, Moving: c.mu.moving, Pins: c.mu.members.Pins(),
	}
	for _, p := range c.mu.places {
		news.Shards = append(news.Shards, c.shardNews(p))
	}
	c.mu.Unlock()
	if err := c.Conn.Publish(c.subjects.members(), encode(news)); err != nil {
		c.Log.Debug("other nodes hear nothing of this one", "error", err) // NATS is away; it is told again
	}
}

// shardNews is how a shard stands here. mu is held.
func (c *Cluster) shardNews(p *place) ownership.ShardNews {
	state := p.machine.State()
	n := ownership.ShardNews{Shard: p.number, State: state.String(), Fenced: p.machine.Fenced()}
	seen := p.replica.Seen()
	n.Seq = seen.Seq + seen.Lag
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
		n.Error = seen.Err.Error()
	}
	return n
}

// order is what an operator asks of a node.
type order struct {
	Drain bool `json:"drain"`
}

type orderReply struct {
	Shards int `json:"shards"` // that the node owns
}

func (c *Cluster) onOrder(m *nats.Msg) {
	var o order
	if json.Unmarshal(m.Data, &o) != nil {
		return
	}
	c.respond(m, orderReply{c.drain(o.Drain)})
}

// drain has this node give its shards away, or take its share again.
func (c *Cluster) drain(on bool) (owned int) {
	c.mu.Lock()
	if c.mu.draining != on {
		c.Log.Info("an operator has changed whether this node is drained", "draining", on)
	}
	c.mu.draining, c.mu.news = on, true
	for _, p := range c.mu.places {
		if p.machine.HasStore() {
			owned++
		}
	}
	c.mu.Unlock()
	c.nudge()
	return owned
}
