package natsio

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/wire"
)

// ErrAnotherFila is returned when another fila serves the same subject prefix: both would store
// every enqueue and answer every ack.
var ErrAnotherFila = errors.New("another fila runs under the subject prefix")

const (
	// A running fila answers within this time.
	answerTimeout = 2 * time.Second
	// After the first node of a cluster, the others answer within this time.
	nodesTimeout = 250 * time.Millisecond
	// Ask a fila that is stopping again after this time.
	askAgain = 250 * time.Millisecond
	// A fila that is stopping takes up to this long after its drain to write and close.
	closingTime = 10 * time.Second
	// Two filas that could not reach each other notice within this time after they can.
	announceEvery = 2 * time.Second
)

// PresenceOptions are what a [Presence] needs.
type PresenceOptions struct {
	Log      *slog.Logger
	Conn     *nats.Conn
	Subjects wire.Subjects
	Now      func() int64 // Unix nanoseconds
	Name     string       // of the connection
	Version  string
	Cluster  Membership // zero: not in a cluster
}

// Membership identifies a node of a cluster.
type Membership struct {
	Cluster     string `json:"cluster,omitempty"`
	Incarnation string `json:"cluster_incarnation,omitempty"` // of the cluster
	Node        string `json:"node,omitempty"`                // unique in the cluster
}

// beside reports whether both are nodes of one cluster, which serve a prefix together.
func (m Membership) beside(other Membership) bool {
	return m.Cluster != "" && m.Incarnation != "" && m.Cluster == other.Cluster && m.Incarnation == other.Incarnation && m.Node != other.Node
}

// node is what a fila publishes about itself. An incarnation is one run of a fila.
type node struct {
	Incarnation string    `json:"incarnation"`
	Since       time.Time `json:"since"`
	Name        string    `json:"name"`
	Server      string    `json:"server"` // name of the NATS server
	Host        string    `json:"host"`
	PID         int       `json:"pid"`
	Version     string    `json:"version"`
	Draining    bool      `json:"draining,omitempty"`
	EndsInMs    int64     `json:"ends_in_ms,omitempty"` // if draining: until the end of the drain
	Membership
}

// youngerThan orders all nodes, so that two that meet agree which one ends.
func (n *node) youngerThan(other *node) bool {
	if !n.Since.Equal(other.Since) {
		return n.Since.After(other.Since)
	}
	return n.Incarnation > other.Incarnation
}

// Presence keeps a second fila away from a subject prefix. The nodes of one cluster serve a
// prefix together; there it keeps a second node of the same name away. A fila that starts asks
// which others are there, and does not begin if one answers. Two that have missed each other,
// because they started at once or NATS was partitioned, notice by their announcements: the
// younger one ends.
type Presence struct {
	PresenceOptions
	self node
	met  string // the last younger incarnation; used by hear only

	conflict chan error
	stop     chan struct{}
	ended    sync.WaitGroup

	mu struct {
		sync.Mutex
		draining bool
		drained  time.Time // end of the drain
	}
}

// NewPresence returns the presence of a fila, which Begin announces.
func NewPresence(o PresenceOptions) *Presence {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return &Presence{
		PresenceOptions: o,
		self: node{
			Incarnation: rand.Text(), Since: time.Unix(0, o.Now()).UTC(),
			Name: o.Name, Host: host, PID: os.Getpid(), Version: o.Version, Membership: o.Cluster,
		},
		conflict: make(chan error, 1),
		stop:     make(chan struct{}),
	}
}

// Begin waits until no other fila serves the prefix, and announces this one from then on. It
// returns [ErrAnotherFila] if another one answers, unless that is stopping: then Begin waits for
// as long as that one needs.
func (p *Presence) Begin(ctx context.Context) error {
	if err := p.waitAlone(ctx); err != nil {
		return err
	}
	return p.join(ctx)
}

// join subscribes to other filas and announces this one.
func (p *Presence) join(ctx context.Context) error {
	if _, err := p.Conn.Subscribe(p.Subjects.NodeWildcard(), p.hear); err != nil {
		return fmt.Errorf("subscribe to %s: %w", p.Subjects.NodeWildcard(), err)
	}
	// Of two that start at once, at least one is subscribed when the other one announces itself.
	if err := flush(ctx, p.Conn); err != nil {
		return err
	}
	p.announce()
	p.ended.Go(p.keepAnnouncing)
	return nil
}

// Conflict receives [ErrAnotherFila] when an older fila has been found and this one has to end.
func (p *Presence) Conflict() <-chan error { return p.conflict }

// Drain announces that this fila ends within a time, plus what closing takes. It is called once.
func (p *Presence) Drain(within time.Duration) {
	p.mu.Lock()
	p.mu.draining, p.mu.drained = true, time.Now().Add(within)
	p.mu.Unlock()
	close(p.stop)
	p.ended.Wait()
}

// waitAlone asks until no fila answers except ones that are stopping for too long.
func (p *Presence) waitAlone(ctx context.Context) error {
	answers := make(chan *nats.Msg, 64)
	sub, err := p.Conn.ChanSubscribe(p.Subjects.NodeAnswer(p.self.Incarnation), answers)
	if err != nil {
		return fmt.Errorf("subscribe to answers of other filas: %w", err)
	}
	defer func() {
		if err := sub.Unsubscribe(); err != nil {
			p.Log.Debug("unsubscribe", "subject", sub.Subject, "error", err)
		}
	}()
	var patience time.Time
	for {
		other, err := p.ask(ctx, answers)
		switch {
		case err != nil || other == nil:
			return err
		case !other.Draining:
			return p.refusal(other)
		case patience.IsZero():
			wait := time.Duration(other.EndsInMs)*time.Millisecond + closingTime
			patience = time.Now().Add(wait)
			p.Log.Info("another fila under this subject prefix is stopping; waiting for its end",
				"host", other.Host, "pid", other.PID, "at_most_ms", wait.Milliseconds())
		case time.Now().After(patience):
			return p.refusal(other)
		}
		select {
		case <-time.After(askAgain):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ask returns the first fila that answers, without nodes of the same cluster; nil if there is none.
func (p *Presence) ask(ctx context.Context, answers <-chan *nats.Msg) (*node, error) {
	for p.Conn.PublishRequest(p.Subjects.NodeAsk(), p.Subjects.NodeAnswer(p.self.Incarnation), p.encode()) != nil {
		if err := WaitConnected(ctx, p.Conn); err != nil { // the connection is lost
			return nil, err
		}
	}
	late := time.NewTimer(answerTimeout)
	defer late.Stop()
	for {
		select {
		case m := <-answers:
			if len(m.Data) == 0 && m.Header.Get("Status") == noResponders {
				return nil, nil
			}
			var other node
			switch err := json.Unmarshal(m.Data, &other); {
			case err != nil:
			case p.Cluster.beside(other.Membership):
				late.Reset(nodesTimeout) // it would not run beside a stranger
			default:
				return &other, nil
			}
		case <-late.C: // the subscriber is no fila, or has died without NATS knowing
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// noResponders is the status with which the NATS server answers when there is no subscriber.
const noResponders = "503"

// hear handles announcements and questions of other filas.
func (p *Presence) hear(m *nats.Msg) {
	var other node
	if err := json.Unmarshal(m.Data, &other); err != nil || other.Incarnation == p.self.Incarnation {
		return
	}
	switch m.Subject {
	case p.Subjects.NodeAsk():
		if m.Reply == p.Subjects.NodeAnswer(other.Incarnation) { // never to another subject
			p.publish(m.Reply)
		}
	case p.Subjects.NodeAnnounce():
		p.meet(&other)
	}
}

// meet decides whether this fila or another one that serves the prefix ends. If one is stopping,
// nothing is to be decided.
func (p *Presence) meet(other *node) {
	p.mu.Lock()
	draining := p.mu.draining
	p.mu.Unlock()
	switch {
	case other.Draining || draining || p.Cluster.beside(other.Membership):
	case p.self.youngerThan(other):
		select {
		case p.conflict <- p.refusal(other):
		default: // it has been reported
		}
	default:
		if p.met != other.Incarnation {
			p.met = other.Incarnation
			p.Log.Warn("another fila has started under this subject prefix; it is newer and has to end",
				"host", other.Host, "pid", other.PID, "since", other.Since, "server", other.Server)
		}
		p.announce()
	}
}

func (p *Presence) keepAnnouncing() {
	tick := time.NewTicker(announceEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.announce()
		case <-p.stop:
			return
		}
	}
}

func (p *Presence) announce() { p.publish(p.Subjects.NodeAnnounce()) }

func (p *Presence) publish(subject string) {
	if err := p.Conn.Publish(subject, p.encode()); err != nil {
		p.Log.Debug("presence", "subject", subject, "error", err) // the next announcement may go through
	}
}

// encode encodes what this fila publishes about itself.
func (p *Presence) encode() []byte {
	n := p.self
	n.Server = p.Conn.ConnectedServerName()
	p.mu.Lock()
	if n.Draining = p.mu.draining; n.Draining {
		n.EndsInMs = max(0, time.Until(p.mu.drained).Milliseconds())
	}
	p.mu.Unlock()
	data, err := json.Marshal(n)
	if err != nil {
		p.Log.Error("the presence cannot be encoded", "error", err)
	}
	return data
}

// refusal returns the error that names the other fila and the remedy.
func (p *Presence) refusal(other *node) error {
	if p.Cluster.Node != "" && p.Cluster == other.Membership {
		return fmt.Errorf("%w %q: node %q of cluster %q, on host %s, pid %d, since %s, connected to NATS server %s (each node needs a name of its own: cluster.node)",
			ErrAnotherFila, p.Subjects.Prefix(), other.Node, other.Cluster, other.Host, other.PID, other.Since.Format(time.RFC3339), other.Server)
	}
	return fmt.Errorf("%w %q: %s %s on host %s, pid %d, since %s, connected to NATS server %s "+
		"(stop one of the two, or give one a prefix of its own by nats.subject_prefix)",
		ErrAnotherFila, p.Subjects.Prefix(), other.Name, other.Version, other.Host, other.PID, other.Since.Format(time.RFC3339), other.Server)
}
