package ownership

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// Times of membership.
const (
	// AnnounceEvery is how often a node announces itself.
	AnnounceEvery = int64(time.Second)
	// MemberAfter is how long a node must have been heard before shards move to it, and how long
	// it must be silent before it is gone.
	MemberAfter = int64(10 * time.Second)
	// freshFor is how long an announcement counts as current.
	freshFor = int64(3 * time.Second)
)

// News is the announcement of a node.
type News struct {
	Node        string      `json:"node"`
	Incarnation string      `json:"incarnation"` // of the process
	Version     string      `json:"version"`
	Format      int         `json:"format,omitempty"` // newest format of records that it reads; left out: 1
	SinceMs     int64       `json:"since_ms"`         // Unix time of its start
	UpMs        int64       `json:"up_ms"`            // time since then, by a monotonic clock
	Draining    bool        `json:"draining,omitempty"`
	Leaving     bool        `json:"leaving,omitempty"` // it is stopping
	Left        bool        `json:"left,omitempty"`    // its last announcement
	Moving      *Move       `json:"moving,omitempty"`
	Shards      []ShardNews `json:"shards,omitempty"`
	Pins        map[int]Pin `json:"pins,omitempty"`
	Servers     []Sighting  `json:"servers,omitempty"` // NATS servers that it has seen
}

// Commit is a commit in the log of a shard.
type Commit struct {
	Epoch uint64 `json:"epoch"`
	N     uint64 `json:"n"`               // of its last record, within the epoch
	Seq   uint64 `json:"seq"`             // of that record in the stream
	Chain uint64 `json:"chain,omitempty"` // hash over that record and all before; 0: not known
}

// After reports whether a log that ends with record n of an epoch lacks the commit.
func (c Commit) After(epoch, n uint64) bool { return c.Epoch > epoch || c.Epoch == epoch && c.N > n }

// Known is a commit that a node has in its file or, as an owner, was acked.
type Known struct {
	Commit
	Node string `json:"node"`
}

// ShardNews is the state of a shard at a node.
type ShardNews struct {
	Shard      int    `json:"shard"`
	State      string `json:"state"`
	Owns       bool   `json:"owns,omitempty"`
	Fenced     bool   `json:"fenced,omitempty"`
	Epoch      uint64 `json:"epoch"`
	Seq        uint64 `json:"seq"`             // newest known record
	Lag        uint64 `json:"lag,omitempty"`   // known records that are not applied
	BehindMs   int64  `json:"behind_ms"`       // how far behind the copy is
	Error      string `json:"error,omitempty"` // why the log cannot be followed
	LogBytes   int64  `json:"log_bytes,omitempty"`
	SnapshotMs int64  `json:"snapshot_ms,omitempty"` // Unix time of the newest snapshot

	Commit *Commit `json:"commit,omitempty"`  // the newest that the node has; left out: not known
	LogEnd uint64  `json:"log_end,omitempty"` // where the log ends, if the copy has more than the log
	Lost   bool    `json:"lost,omitempty"`    // the log lacks commits that a node has
	Torn   bool    `json:"torn,omitempty"`    // its file cannot be used
	Unread uint64  `json:"unread,omitempty"`  // record from which only a snapshot leads on; left out: none
}

// Pin is an operator's order: the shard belongs to Node as long as that is a member. The pin with
// the higher N is the later one.
type Pin struct {
	Node string `json:"node"`
	N    uint64 `json:"n"`
}

func (p Pin) laterThan(o Pin) bool { return p.N > o.N || p.N == o.N && p.Node > o.Node }

// Member is a node that has been heard.
type Member struct {
	News
	First, Last int64 // announcement heard
}

// Change is a member that has come or gone. Tell is set at the one node that publishes the event.
type Change struct {
	Member Member
	Joined bool
	Tell   bool
}

// Members are the nodes of the cluster as this node hears them over NATS, itself included. While
// it does not hear itself, or not for long enough, it draws no conclusions about others: neither
// a lost connection nor a frozen process makes others go.
type Members struct {
	self    string // incarnation
	node    string
	hearing int64 // this node has heard itself without a gap since then
	heard   int64 // when it last heard itself
	all     map[string]*Member
	gone    map[string]bool // incarnations that went without a last announcement
	pins    map[int]Pin
	newest  map[int]Known // newest commits, of members and of nodes that were members
	sighted map[sighter]sighted
}

// NewMembers returns the members that a node knows at the start: none.
func NewMembers(node, incarnation string) *Members {
	return &Members{self: incarnation, node: node, all: map[string]*Member{}, gone: map[string]bool{}, pins: map[int]Pin{}, newest: map[int]Known{}, sighted: map[sighter]sighted{}}
}

// Hear handles an announcement. older reports that an older process runs under the name of this
// node, so that this one has to stop.
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
	m.sight(now, &n)
	for _, s := range n.Shards {
		if s.Commit != nil {
			m.Know(s.Shard, Known{*s.Commit, n.Node})
		}
	}
	return changes, false
}

// Know notes a commit of a shard that a node has.
func (m *Members) Know(shard int, k Known) {
	if have, ok := m.newest[shard]; !ok || k.After(have.Epoch, have.N) {
		m.newest[shard] = k
	}
}

// Newest returns the newest commit that any node is known to have, also one that is gone, and
// false if there is none.
func (m *Members) Newest(shard int) (Known, bool) {
	k, ok := m.newest[shard]
	return k, ok
}

// Best returns the newest commit of a shard in a usable file of a node that can be asked.
func (m *Members) Best(now int64, shard int) (best Known, ok bool) {
	for _, o := range m.List() {
		s, has := o.of(shard)
		if has && s.Commit != nil && !s.Torn && m.fresh(now, o) && (!ok || s.Commit.After(best.Epoch, best.N)) {
			best, ok = Known{*s.Commit, o.Node}, true
		}
	}
	return best, ok
}

// Tick removes members that have been silent for too long.
func (m *Members) Tick(now int64) (changes []Change) {
	if now-m.heard > freshFor {
		return nil // nothing is known of others
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

// up returns how long a member's process has run, in milliseconds.
func (o *Member) up(now int64) int64 { return o.UpMs + (now-o.Last)/int64(time.Millisecond) }

// tells reports whether this node publishes the event about a member: it is the first by name of
// those that were there.
func (m *Members) tells(now int64, about *Member, there func(*Member) bool) bool {
	for _, o := range m.List() {
		if o.Node != about.Node && m.fresh(now, o) && there(o) {
			return o.Node == m.node
		}
	}
	return false
}

// Pin applies an order, unless a later one about the shard is known.
func (m *Members) Pin(shard int, p Pin) {
	if old, ok := m.pins[shard]; m.all[p.Node] != nil && (!ok || p.laterThan(old)) {
		m.pins[shard] = p
	}
}

// NextPin returns an order that is later than all known ones.
func (m *Members) NextPin(shard int, node string) Pin {
	return Pin{Node: node, N: m.pins[shard].N + 1}
}

// Pins returns the orders in force.
func (m *Members) Pins() map[int]Pin { return maps.Clone(m.pins) }

// List returns the members by name.
func (m *Members) List() []*Member {
	return slices.SortedFunc(maps.Values(m.all), func(a, b *Member) int { return strings.Compare(a.Node, b.Node) })
}

// Of returns the member of a name, or nil.
func (m *Members) Of(node string) *Member { return m.all[node] }

// Format returns the newest format of records that all members read, where own is the newest of
// this node. A silent member counts until it is gone.
func (m *Members) Format(own int) int {
	for _, o := range m.all {
		own = min(own, max(o.Format, 1))
	}
	return own
}

// Fresh reports whether the last announcement of a node is current.
func (m *Members) Fresh(now int64, node string) bool {
	o := m.all[node]
	return o != nil && m.fresh(now, o)
}

func (m *Members) fresh(now int64, o *Member) bool { return now-o.Last <= freshFor }

// Alone reports whether there is no other node that stays.
func (m *Members) Alone(now int64) bool {
	for _, o := range m.all {
		if o.Node != m.node && m.fresh(now, o) && !o.Leaving {
			return false
		}
	}
	return true
}

// of returns the news of a member about a shard.
func (n *News) of(shard int) (ShardNews, bool) {
	for _, s := range n.Shards {
		if s.Shard == shard {
			return s, true
		}
	}
	return ShardNews{}, false
}

// Owner returns the node that claims a shard with the highest epoch, "" if there is none.
func (m *Members) Owner(now int64, shard int) (node string, news ShardNews) {
	for _, o := range m.List() {
		if s, ok := o.of(shard); ok && s.Owns && m.fresh(now, o) && (node == "" || s.Epoch > news.Epoch) {
			node, news = o.Node, s
		}
	}
	return node, news
}

// closeMs is how far behind a standby may be to take over a shard.
const closeMs = 1000

// farLag is how many unapplied records a candidate may have to campaign among the first.
const farLag = 1000

// Ready reports whether a node can take over a shard now: it is there, stays, and its copy is close.
func (m *Members) Ready(now int64, shard int, node string) bool {
	o := m.all[node]
	if o == nil || o.Leaving || o.Draining || !m.fresh(now, o) {
		return false
	}
	s, ok := o.of(shard)
	return ok && !s.Owns && s.Error == "" && s.BehindMs < closeMs
}

// Eligible returns the names of the nodes that shards may belong to.
func (m *Members) Eligible(now int64) (nodes []string) {
	for _, o := range m.List() {
		itself := o.Node == m.node
		if !o.Leaving && !o.Draining && (itself || now-o.First >= MemberAfter) {
			nodes = append(nodes, o.Node)
		}
	}
	return nodes
}

// Rank returns how many nodes campaign for a shard before this one when owner is silent. Nodes
// that stay come first, then those with a close copy; otherwise the score decides, which spreads
// the shards of a dead node.
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

// behind reports whether a copy is not close. While an owner is silent no copy gets newer, so only
// unapplied records count.
func (n *News) behind(shard int) bool {
	s, ok := n.of(shard)
	return !ok || s.Error != "" || s.Lag > farLag
}

// First returns the first member by name whose last announcement is current.
func (m *Members) First(now int64) string {
	for _, o := range m.List() {
		if m.fresh(now, o) {
			return o.Node
		}
	}
	return ""
}

// FirstOf reports whether this node, whose copy has a commit that the log lacks, has more than
// every other member of the same history, or as much and comes first by name.
func (m *Members) FirstOf(now int64, shard int, own Known) bool {
	for _, o := range m.List() {
		s, ok := o.of(shard)
		if !ok || s.Commit == nil || o.Node == m.node || !m.fresh(now, o) || s.Commit.Epoch != own.Epoch {
			continue
		}
		if s.Commit.N > own.N || s.Commit.N == own.N && o.Node < m.node {
			return false
		}
	}
	return true
}

// Unread returns the newest record from which only a snapshot leads a node on, 0 if there is none.
func (m *Members) Unread(now int64, shard int) (record uint64) {
	for _, o := range m.all {
		if s, ok := o.of(shard); ok && m.fresh(now, o) {
			record = max(record, s.Unread)
		}
	}
	return record
}

// Lost returns the newest commit of the members that report a loss.
func (m *Members) Lost(shard int) (newest Known) {
	for _, o := range m.List() {
		if s, ok := o.of(shard); ok && s.Lost && s.Commit != nil && s.Commit.After(newest.Epoch, newest.N) {
			newest = Known{*s.Commit, o.Node}
		}
	}
	return newest
}
