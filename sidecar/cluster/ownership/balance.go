package ownership

import (
	"cmp"
	"hash/fnv"
	"slices"
	"time"
)

// score is the weight of a node for a shard (rendezvous hashing, Thaler and
// Ravishankar 1998): the order of nodes is another one for each shard, and the coming
// and going of one node changes nothing about the order of the others.
func score(node string, shard int) uint64 {
	h := fnv.New64a()
	h.Write([]byte(node))
	x := h.Sum64() ^ uint64(shard)*0x9e3779b97f4a7c15
	// The finalizer of splitmix64: FNV alone leaves names that differ in their last
	// letter close together.
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// higher orders nodes for a shard.
func higher(a, b string, shard int) bool {
	if x, y := score(a, shard), score(b, shard); x != y {
		return x > y
	}
	return a < b
}

// Plan says where each shard belongs: every node has as many as any other one, or one
// more. What is pinned is where its pin says. Who has a shard keeps it if it may, so no
// more shards move than have to; the others go by the hash. owners has who has what;
// "" is nobody, or somebody that shards may not belong to.
func Plan(nodes, owners []string, pins map[int]Pin) []string {
	plan := make([]string, len(owners))
	if len(nodes) == 0 {
		return plan
	}
	least, more := len(owners)/len(nodes), len(owners)%len(nodes) // more: nodes may have one more
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
		if best == "" { // pins have taken the room
			best = slices.MinFunc(nodes, func(a, b string) int { return cmp.Or(cmp.Compare(count[a], count[b]), cmp.Compare(a, b)) })
		}
		take(shard, best)
	}
	return plan
}

// byLoad are the nodes, those that have most first: they keep the one more.
func byLoad(nodes, owners []string) []string {
	load := make(map[string]int)
	for _, o := range owners {
		load[o]++
	}
	return slices.SortedFunc(slices.Values(nodes), func(a, b string) int {
		return cmp.Or(cmp.Compare(load[b], load[a]), cmp.Compare(a, b))
	})
}

// dearest are the shards of a node, those first that it keeps longest.
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
	// settled is how long owners and members must have been the same before shards are
	// moved for balance alone.
	settled = int64(3 * time.Second)
	// hearFor lies between telling of a move and beginning it: who tells of another one
	// is heard in that time.
	hearFor = int64(300 * time.Millisecond)
	// leaveFor is how long a node that ends waits for a standby that is close.
	leaveFor = int64(3 * time.Second)
	// arriveFor is how long after a handover its shard may be without an owner before
	// other moves go on.
	arriveFor = int64(5 * time.Second)
)

// Move is a handover that a node is about to make, or makes.
type Move struct {
	Shard int    `json:"shard"`
	To    string `json:"to"` // "": whoever is first
	Begun bool   `json:"begun,omitempty"`
}

// Mover decides which of a node's shards is handed over next. It is a rule and no lock:
// all see the same members and owners, the lowest shard out of place moves first, and
// who is about to move one tells of it before it begins. If two move at once, because
// one did not hear the other, nothing breaks.
type Mover struct {
	node    string
	view    []string // owners and members when they were last different
	since   int64    // they are the same
	leaving int64    // since when this node ends
	intent  *Move
	told    int64 // since when the intent is told, or the handover has begun
}

// NewMover returns the mover of a node.
func NewMover(node string) *Mover { return &Mover{node: node} }

// Telling is the move to tell others of.
func (v *Mover) Telling() *Move {
	if v.intent == nil {
		return nil
	}
	told := *v.intent
	return &told
}

// Here is what a Mover has to know about its own node, which what others have heard of
// it may lag behind.
type Here struct {
	Owned    []bool // by shard: it serves it
	Busy     bool   // a handover is under way
	Draining bool   // it gives all shards away, and takes none
	Leaving  bool   // the same, and then it ends
}

// Next returns the handover to begin now.
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
		return want, true // nobody else is there who could mind
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

// underWay reports whether a handover of this node has begun and not yet arrived.
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

// want is the move that this node has to make next.
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

// away is the next move of a node that gives all of its shards away.
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

// nearest is the first by the hash of those that are ready, "" if nobody is.
func (v *Mover) nearest(now int64, m *Members, shard int) (best string) {
	for _, o := range m.List() {
		if o.Node != v.node && m.Ready(now, shard, o.Node) && (best == "" || higher(o.Node, best, shard)) {
			best = o.Node
		}
	}
	return best
}
