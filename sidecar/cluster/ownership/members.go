package ownership

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// Times of membership.
const (
	// AnnounceEvery is how often a node tells of itself.
	AnnounceEvery = int64(time.Second)
	// MemberAfter is how long a node must have been heard before shards are moved to
	// it, and for how long it must not have been heard before it is gone.
	MemberAfter = int64(10 * time.Second)
	// freshFor is how long what a node has said counts as how it is now.
	freshFor = int64(3 * time.Second)
)

// News is what a node tells of itself.
type News struct {
	Node        string      `json:"node"`
	Incarnation string      `json:"incarnation"` // of the process
	Version     string      `json:"version"`
	Format      int         `json:"format,omitempty"` // of records that it reads, and of all before; left out: 1
	SinceMs     int64       `json:"since_ms"`         // Unix time of its start
	UpMs        int64       `json:"up_ms"`            // since then, by a clock that is not set
	Draining    bool        `json:"draining,omitempty"`
	Leaving     bool        `json:"leaving,omitempty"` // it ends
	Left        bool        `json:"left,omitempty"`    // the last that is heard of it
	Moving      *Move       `json:"moving,omitempty"`
	Shards      []ShardNews `json:"shards,omitempty"`
	Pins        map[int]Pin `json:"pins,omitempty"`
}

// ShardNews is how a shard stands at a node.
type ShardNews struct {
	Shard      int    `json:"shard"`
	State      string `json:"state"`
	Owns       bool   `json:"owns,omitempty"`
	Fenced     bool   `json:"fenced,omitempty"`
	Epoch      uint64 `json:"epoch"`
	Seq        uint64 `json:"seq"`             // of the newest record it knows
	Lag        uint64 `json:"lag,omitempty"`   // records that it has not applied
	BehindMs   int64  `json:"behind_ms"`       // how old what it has applied is
	Error      string `json:"error,omitempty"` // why it cannot follow
	LogBytes   int64  `json:"log_bytes,omitempty"`
	SnapshotMs int64  `json:"snapshot_ms,omitempty"` // Unix time of the newest one
}

// Pin is an operator's order: the shard belongs at Node for as long as that is a member.
// Of two the one with the higher N is the later one.
type Pin struct {
	Node string `json:"node"`
	N    uint64 `json:"n"`
}

func (p Pin) laterThan(o Pin) bool { return p.N > o.N || p.N == o.N && p.Node > o.Node }

// Member is a node that has been heard.
type Member struct {
	News
	First, Last int64 // heard
}

// Change is that a member came or went. Tell is that this node, and no other one, has
// the event of it published.
type Change struct {
	Member Member
	Joined bool
	Tell   bool
}

// Members are the nodes of the cluster as one of them hears them, itself included. A
// node hears itself as it hears others, by way of NATS. While it does not, or has not
// for long enough, it knows nothing about others: neither a lost connection nor a
// process that stood still makes others go.
type Members struct {
	self    string // incarnation
	node    string
	hearing int64 // since when this node hears itself without a gap
	heard   int64 // when it did last
	all     map[string]*Member
	gone    map[string]bool // incarnations that went without a farewell
	pins    map[int]Pin
}

// NewMembers returns the members that a node knows, which is none.
func NewMembers(node, incarnation string) *Members {
	return &Members{self: incarnation, node: node, all: map[string]*Member{}, gone: map[string]bool{}, pins: map[int]Pin{}}
}

// Hear takes in what a node tells. It reports whether another process runs under the
// name of this node that is older, so that this one has to end.
func (m *Members) Hear(now int64, n News) (changes []Change, older bool) {
	if n.Node == m.node && n.Incarnation != m.self {
		me := m.all[m.node]
		return nil, !n.Leaving && !n.Left && me != nil && (n.SinceMs < me.SinceMs || n.SinceMs == me.SinceMs && n.Incarnation < m.self)
	}
	if n.Node == m.node {
		if now-m.heard > freshFor {
			m.hearing = now
		}
		m.heard = now
	}
	known := m.all[n.Node]
	switch {
	case n.Left && known != nil:
		changes = m.leave(now, known)
	case n.Left:
	case known == nil || known.Incarnation != n.Incarnation:
		joined := &Member{News: n, First: now, Last: now}
		m.all[n.Node] = joined
		back := m.gone[n.Incarnation]
		delete(m.gone, n.Incarnation)
		changes = []Change{{Member: *joined, Joined: true, Tell: m.tells(now, joined, func(o *Member) bool {
			return back || o.up(now) > joined.UpMs
		})}}
	default:
		known.News, known.Last = n, now
	}
	for shard, p := range n.Pins {
		m.Pin(shard, p)
	}
	return changes, false
}

// Tick lets time pass.
func (m *Members) Tick(now int64) (changes []Change) {
	if now-m.heard > freshFor {
		return nil // nothing is known of anybody
	}
	for _, gone := range m.List() {
		if now-max(gone.Last, m.hearing) > MemberAfter {
			m.gone[gone.Incarnation] = true
			changes = append(changes, m.leave(now, gone)...)
		}
	}
	return changes
}

func (m *Members) leave(now int64, gone *Member) []Change {
	delete(m.all, gone.Node)
	maps.DeleteFunc(m.pins, func(_ int, p Pin) bool { return p.Node == gone.Node })
	return []Change{{Member: *gone, Tell: m.tells(now, gone, func(o *Member) bool { return o.First <= gone.Last })}}
}

// up is for how long a member's process runs, in milliseconds.
func (o *Member) up(now int64) int64 { return o.UpMs + (now-o.Last)/int64(time.Millisecond) }

// tells decides who has the event about a member published: the first by name of those
// that were there.
func (m *Members) tells(now int64, about *Member, there func(*Member) bool) bool {
	for _, o := range m.List() {
		if o.Node != about.Node && m.fresh(now, o) && there(o) {
			return o.Node == m.node
		}
	}
	return false
}

// Pin takes an order in. Of two about one shard the later one holds.
func (m *Members) Pin(shard int, p Pin) {
	if old, ok := m.pins[shard]; m.all[p.Node] != nil && (!ok || p.laterThan(old)) {
		m.pins[shard] = p
	}
}

// NextPin is an order after all that are known.
func (m *Members) NextPin(shard int, node string) Pin {
	return Pin{Node: node, N: m.pins[shard].N + 1}
}

// Pins are the orders that hold.
func (m *Members) Pins() map[int]Pin { return maps.Clone(m.pins) }

// List are the members by their names.
func (m *Members) List() []*Member {
	return slices.SortedFunc(maps.Values(m.all), func(a, b *Member) int { return strings.Compare(a.Node, b.Node) })
}

// Of returns a member, nil if there is none of the name.
func (m *Members) Of(node string) *Member { return m.all[node] }

// Format is the newest format of records that all members read, this node included, whose
// newest is own. A member that is silent for a moment counts until it is gone.
func (m *Members) Format(own int) int {
	for _, o := range m.all {
		own = min(own, max(o.Format, 1))
	}
	return own
}

// Fresh reports whether a node has been heard just now.
func (m *Members) Fresh(now int64, node string) bool {
	o := m.all[node]
	return o != nil && m.fresh(now, o)
}

func (m *Members) fresh(now int64, o *Member) bool { return now-o.Last <= freshFor }

// Alone reports whether no other node is there that stays.
func (m *Members) Alone(now int64) bool {
	for _, o := range m.all {
		if o.Node != m.node && m.fresh(now, o) && !o.Leaving {
			return false
		}
	}
	return true
}

// of returns what a member says of a shard.
func (n *News) of(shard int) (ShardNews, bool) {
	for _, s := range n.Shards {
		if s.Shard == shard {
			return s, true
		}
	}
	return ShardNews{}, false
}

// Owner is who says that it owns a shard, with the highest epoch; "" if nobody does.
func (m *Members) Owner(now int64, shard int) (node string, news ShardNews) {
	for _, o := range m.List() {
		if s, ok := o.of(shard); ok && s.Owns && m.fresh(now, o) && (node == "" || s.Epoch > news.Epoch) {
			node, news = o.Node, s
		}
	}
	return node, news
}

// closeMs is how far behind a standby may be to be handed a shard.
const closeMs = 1000

// farLag is how many records a candidate may have to apply to come with the first.
const farLag = 1000

// Ready reports whether a node can take a shard over now: it is there, stays, and its
// copy is close.
func (m *Members) Ready(now int64, shard int, node string) bool {
	o := m.all[node]
	if o == nil || o.Leaving || o.Draining || !m.fresh(now, o) {
		return false
	}
	s, ok := o.of(shard)
	return ok && !s.Owns && s.Error == "" && s.BehindMs < closeMs
}

// Eligible are the names of those that shards may belong to.
func (m *Members) Eligible(now int64) (nodes []string) {
	for _, o := range m.List() {
		itself := o.Node == m.node
		if !o.Leaving && !o.Draining && (itself || now-o.First >= MemberAfter) {
			nodes = append(nodes, o.Node)
		}
	}
	return nodes
}

// Rank is how many nodes campaign for a shard before this one does, when owner is
// silent: those that stay come first, then those that are close, and among equals the
// hash decides, which spreads the shards of a node that has died.
func (m *Members) Rank(now int64, shard int, owner string) (rank int) {
	me := m.all[m.node]
	if me == nil {
		return len(m.all)
	}
	for _, o := range m.all {
		if o.Node == m.node || o.Node == owner || o.Leaving || !m.fresh(now, o) {
			continue
		}
		if m.before(o, me, shard) {
			rank++
		}
	}
	return rank
}

func (m *Members) before(a, b *Member, shard int) bool {
	if a.Draining != b.Draining {
		return b.Draining
	}
	if behind := a.behind(shard); behind != b.behind(shard) {
		return !behind
	}
	return higher(a.Node, b.Node, shard)
}

// behind reports whether a copy is not close. While an owner is silent no copy gets
// newer, so what counts is what it has not applied.
func (n *News) behind(shard int) bool {
	s, ok := n.of(shard)
	return !ok || s.Error != "" || s.Lag > farLag
}
