package ownership

import (
	"cmp"
	"hash/fnv"
	"slices"
	"time"
)

// score is the weight of a node for a shard (rendezvous hashing, Thaler and Ravishankar 1998).
// Each shard has its own order of nodes, and adding or removing a node does not change the order
// of the others.
func score(node string, shard int) uint64 {
	h := fnv.New64a()
	h.Write([]byte(node))
	x := h.Sum64() ^ uint64(shard)*0x9e3779b97f4a7c15
	// The finalizer of splitmix64: FNV alone gives similar values for names that differ in their
	// last character.
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// higher orders nodes by their scores for a shard.
func higher(a, b string, shard int) bool {
	if x, y := score(a, shard), score(b, shard); x != y {
		return x > y
	}
	return a < b
}

// Plan returns the node of each shard. All nodes get the same number of shards, or one more; a pin
// decides where its shard is. A shard stays with its owner if possible, so that as few as possible
// move; the others follow the scores. An empty owner is none, or a node that is not eligible.
func Plan(nodes, owners []string, pins map[int]Pin) []string {
	plan := make([]string, len(owners))
	if len(nodes) == 0 {
		return plan
	}
	least, more := len(owners)/len(nodes), len(owners)%len(nodes) // more nodes have one more than least
	count := make(map[string]int, len(nodes))
	take := func(shard int, node string) {
		plan[shard] = node
		if count[node]++; count[node] == least+1 {
			more--
		}
	}
	room := func(node string) bool { return count[node] < least || count[node] == least && more > 0 }
	for shard := range owners {
		if p, ok := pins[shard]; ok && slices.Contains(nodes, p.Node) {
			take(shard, p.Node)
		}
	}
	for _, node := range byLoad(nodes, owners) {
		for _, shard := range dearest(node, owners) {
			if plan[shard] == "" && room(node) {
				take(shard, node)
			}
		}
	}
	for shard := range owners {
		if plan[shard] != "" {
			continue
		}
		best := ""
		for _, node := range nodes {
			if room(node) && (best == "" || higher(node, best, shard)) {
				best = node
			}
		}
		if best == "" { // pinned shards fill the nodes
			best = slices.MinFunc(nodes, func(a, b string) int { return cmp.Or(cmp.Compare(count[a], count[b]), cmp.Compare(a, b)) })
		}
		take(shard, best)
	}
	return plan
}

// byLoad sorts nodes by the number of their shards, the most first: these keep one more.
func byLoad(nodes, owners []string) []string {
	load := make(map[string]int)
	for _, o := range owners {
		load[o]++
	}
	return slices.SortedFunc(slices.Values(nodes), func(a, b string) int {
		return cmp.Or(cmp.Compare(load[b], load[a]), cmp.Compare(a, b))
	})
}

// dearest sorts the shards of a node in the order in which it keeps them.
func dearest(node string, owners []string) (shards []int) {
	for shard, o := range owners {
		if o == node {
			shards = append(shards, shard)
		}
	}
	slices.SortFunc(shards, func(a, b int) int {
		return cmp.Or(cmp.Compare(score(node, b), score(node, a)), cmp.Compare(a, b))
	})
	return shards
}

// Times of moves.
const (
	// settled is how long owners and members must have been unchanged before shards move for
	// balance.
	settled = int64(3 * time.Second)
	// hearFor is the time between announcing a move and starting it, in which announcements of
	// other nodes arrive.
	hearFor = int64(300 * time.Millisecond)
	// leaveFor is how long a node that leaves waits for a standby that is close.
	leaveFor = int64(3 * time.Second)
	// arriveFor is how long a shard may be without an owner after a handover before other moves
	// go on.
	arriveFor = int64(5 * time.Second)
)

// Move is a planned or running handover.
type Move struct {
	Shard int    `json:"shard"`
	To    string `json:"to"` // "": any node
	Begun bool   `json:"begun,omitempty"`
}

// Mover decides which of a node's shards to hand over next. Nodes agree without a lock: all see
// the same members and owners, the lowest misplaced shard moves first, and a node announces a move
// before it starts it. If two nodes still move shards at once, nothing breaks.
type Mover struct {
	node    string
	view    []string // owners and members at the last change
	since   int64    // time of that change
	leaving int64    // when this node began to leave
	intent  *Move
	told    int64 // when the intent was announced or its handover started
}

// NewMover returns the mover of a node.
func NewMover(node string) *Mover { return &Mover{node: node} }

// Telling returns the move to announce.
func (v *Mover) Telling() *Move {
	if v.intent == nil {
		return nil
	}
	told := *v.intent
	return &told
}

// Here is the state of the Mover's own node, since the members' view of it may be out of date.
type Here struct {
	Owned    []bool // by shard: this node serves it
	Busy     bool   // a handover is running
	Draining bool   // it hands over all shards and takes none
	Leaving  bool   // like Draining, and then it stops
}

// Next returns a handover to start now.
func (v *Mover) Next(now int64, m *Members, here Here) (Move, bool) {
	owners := v.owners(now, m, here)
	eligible := m.Eligible(now)
	if here.Draining || here.Leaving {
		eligible = slices.DeleteFunc(eligible, func(node string) bool { return node == v.node })
	}
	if view := append(slices.Clone(owners), eligible...); !slices.Equal(view, v.view) {
		v.view, v.since = view, now
	}
	if v.underWay(now, owners, here.Busy) {
		return Move{}, false
	}
	want, ok := v.want(now, m, owners, eligible, here)
	switch {
	case !ok:
		v.intent = nil
		return Move{}, false
	case want.To == "":
		return want, true // no other node has to hear of it
	case v.intent == nil || *v.intent != want:
		v.intent, v.told = &want, now
		return Move{}, false
	case now-v.told < hearFor || v.others(now, m, want.Shard):
		return Move{}, false
	}
	v.intent, v.told = &Move{Shard: want.Shard, To: want.To, Begun: true}, now
	return want, true
}

func (v *Mover) owners(now int64, m *Members, here Here) []string {
	owners := make([]string, len(here.Owned))
	for shard, mine := range here.Owned {
		owner, _ := m.Owner(now, shard)
		switch {
		case mine:
			owner = v.node
		case owner == v.node:
			owner = ""
		}
		owners[shard] = owner
	}
	return owners
}

// underWay reports whether a handover of this node has started and the shard has no new owner.
func (v *Mover) underWay(now int64, owners []string, busy bool) bool {
	if v.intent == nil || !v.intent.Begun {
		return busy
	}
	owner := owners[v.intent.Shard]
	if busy || (owner == "" || owner == v.node) && now-v.told < arriveFor {
		return true
	}
	v.intent = nil
	return false
}

// others reports whether another node moves a shard, or is about to move a lower one.
func (v *Mover) others(now int64, m *Members, shard int) bool {
	for _, o := range m.List() {
		if o.Node != v.node && o.Moving != nil && m.fresh(now, o) && (o.Moving.Begun || o.Moving.Shard < shard) {
			return true
		}
	}
	return false
}

// want returns the next move of this node.
func (v *Mover) want(now int64, m *Members, owners, eligible []string, here Here) (Move, bool) {
	if here.Leaving || here.Draining {
		return v.away(now, m, owners, eligible, here.Leaving)
	}
	plan := Plan(eligible, owners, m.pins)
	for shard, to := range plan {
		if owners[shard] == "" || owners[shard] == to || !m.Ready(now, shard, to) {
			continue
		}
		_, pinned := m.pins[shard]
		if !pinned && now-v.since < settled {
			continue
		}
		return Move{Shard: shard, To: to}, owners[shard] == v.node
	}
	return Move{}, false
}

// away returns the next move of a node that hands over all shards.
func (v *Mover) away(now int64, m *Members, owners, eligible []string, leaving bool) (Move, bool) {
	if leaving && v.leaving == 0 {
		v.leaving = now
	}
	plan := Plan(eligible, owners, m.pins)
	for shard, owner := range owners {
		if owner != v.node {
			continue
		}
		to := plan[shard]
		if to == "" || !m.Ready(now, shard, to) {
			to = v.nearest(now, m, shard)
		}
		if to != "" || leaving && (m.Alone(now) || now-v.leaving >= leaveFor) {
			return Move{Shard: shard, To: to}, true
		}
	}
	return Move{}, false
}

// nearest returns the node with the highest score among those that are ready, or "".
func (v *Mover) nearest(now int64, m *Members, shard int) (best string) {
	for _, o := range m.List() {
		if o.Node != v.node && m.Ready(now, shard, o.Node) && (best == "" || higher(o.Node, best, shard)) {
			best = o.Node
		}
	}
	return best
}
