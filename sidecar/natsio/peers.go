package natsio

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// PeersOptions are what [Peers] need.
type PeersOptions struct {
	Log *slog.Logger
	// Conn is a connection of [ConnectFleet].
	Conn    *nats.Conn
	Cluster string // name
}

// PeerVerb carries out a request of another node. shards are the shards of this node that the
// reply covers.
type PeerVerb func(by api.Sender, verb, tail string, body []byte) (reply []byte, shards []int, err *wire.Error)

// Peers carries admin requests between the nodes of a cluster. A node subscribes once per shard
// that it owns, so NATS routes requests to owners. Only nodes may have permissions for these
// subjects, because requests are trusted to name the right client.
type Peers struct {
	PeersOptions
	prefix string

	mu struct {
		sync.Mutex
		owned map[int]*nats.Subscription
	}
}

// NewPeers returns the peers of a node that owns no shard yet.
func NewPeers(o PeersOptions) *Peers {
	p := &Peers{PeersOptions: o, prefix: "fila_node." + o.Cluster + ".admin."}
	p.mu.owned = make(map[int]*nats.Subscription)
	return p
}

// headerShards is the header of a reply with the shards that it covers, JSON.
const headerShards = "Fila-Shards"

func (p *Peers) subject(shard int) string { return p.prefix + strconv.Itoa(shard) + "." }

func (p *Peers) subjectOf(node string) string { return p.prefix + "node." + node + "." }

// Join carries out requests to the node itself by do. It is called once.
func (p *Peers) Join(node string, do PeerVerb) error {
	_, err := p.listen(p.subjectOf(node), do)
	return err
}

// listen carries out requests under a subject prefix by do.
func (p *Peers) listen(prefix string, do PeerVerb) (*nats.Subscription, error) {
	sub, err := p.Conn.Subscribe(prefix+">", func(m *nats.Msg) {
		verb, tail, _ := strings.Cut(strings.TrimPrefix(m.Subject, prefix), ".")
		go p.answer(do, verb, tail, m) // it may wait for the disk or another verb
	})
	if err != nil {
		return nil, fmt.Errorf("subscribe to %s>: %w", prefix, err)
	}
	return sub, nil
}

// Own carries out requests to the owner of a shard by do, until Leave.
func (p *Peers) Own(shard int, do PeerVerb) error {
	sub, err := p.listen(p.subject(shard), do)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.owned[shard] = sub
	return nil
}

// Leave ends Own. Requests that have arrived are answered; otherwise their senders would not know
// whether they were carried out.
func (p *Peers) Leave(shard int) {
	p.mu.Lock()
	sub := p.mu.owned[shard]
	delete(p.mu.owned, shard)
	p.mu.Unlock()
	if sub == nil {
		return
	}
	if err := sub.Drain(); err != nil {
		p.Log.Debug("drain", "subject", sub.Subject, "error", err)
	}
}

func (p *Peers) answer(do PeerVerb, verb, tail string, m *nats.Msg) {
	by, refused := api.ParseSender(m.Header.Get)
	var reply []byte
	var shards []int
	if refused == nil {
		reply, shards, refused = do(by, verb, tail, m.Data)
	}
	answer := &nats.Msg{Subject: m.Reply, Header: nats.Header{}, Data: reply}
	if refused != nil {
		answer.Header, answer.Data = refused.Headers(), refused.Body()
	}
	text, err := json.Marshal(shards)
	if err == nil {
		answer.Header[headerShards] = []string{string(text)}
		err = p.Conn.PublishMsg(answer)
	}
	if err != nil {
		p.Log.Warn("another node gets no reply", "verb", verb, "error", err)
	}
}

// Ask sends a request to the owner of a shard and returns its reply and the shards that it
// covers. A refusal is a *wire.Error.
func (p *Peers) Ask(ctx context.Context, by api.Sender, shard int, verb, tail string, body []byte) ([]byte, []int, error) {
	return p.ask(ctx, by, p.subject(shard), verb, tail, body)
}

// AskNode is Ask for a node instead of the owner of a shard.
func (p *Peers) AskNode(ctx context.Context, by api.Sender, node, verb, tail string, body []byte) ([]byte, error) {
	reply, _, err := p.ask(ctx, by, p.subjectOf(node), verb, tail, body)
	return reply, err
}

func (p *Peers) ask(ctx context.Context, by api.Sender, prefix, verb, tail string, body []byte) ([]byte, []int, error) {
	m := &nats.Msg{Subject: prefix + verb, Header: by.Headers(), Data: body}
	if tail != "" {
		m.Subject += "." + tail
	}
	answer, err := p.Conn.RequestMsgWithContext(ctx, m)
	if err != nil {
		return nil, nil, err
	}
	var shards []int
	if err := json.Unmarshal([]byte(answer.Header.Get(headerShards)), &shards); err != nil {
		return nil, nil, fmt.Errorf("the answer to %s cannot be read: %w", m.Subject, err)
	}
	if refused := wire.ParseError(answer.Header, answer.Data); refused != nil {
		return nil, shards, refused
	}
	return answer.Data, shards, nil
}
