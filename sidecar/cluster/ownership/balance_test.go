package ownership

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func names(n int) (nodes []string) {
	for i := range n {
		nodes = append(nodes, fmt.Sprintf("fila-%d", i))
	}
	return nodes
}

func load(owners []string) map[string]int {
	count := make(map[string]int)
	for _, o := range owners {
		count[o]++
	}
	return count
}

// A plan spreads shards evenly, moves as few as possible, and does not change when it is applied.
func TestPlanIsEvenAndMovesLittle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := names(rapid.IntRange(1, 7).Draw(t, "nodes"))
		owners := rapid.SliceOfN(rapid.SampledFrom(append(names(8), "")), 1, 40).Draw(t, "owners")
		plan := Plan(nodes, owners, nil)
		least, more := len(owners)/len(nodes), len(owners)%len(nodes)
		count, have := load(plan), load(owners)
		keep, extras := 0, more // shards that can stay at best
		for _, n := range byLoad(nodes, owners) {
			require.Contains(t, []int{least, least + 1}, count[n])
			keep += min(have[n], least)
			if have[n] > least && extras > 0 {
				keep, extras = keep+1, extras-1
			}
		}
		kept := 0
		for shard := range plan {
			require.Contains(t, nodes, plan[shard])
			if plan[shard] == owners[shard] {
				kept++
			}
		}
		require.Equal(t, keep, kept)
		require.Equal(t, plan, Plan(nodes, plan, nil))
	})
}

// A pin holds while its node is eligible; the other shards are as even as it allows.
func TestPlanFollowsPins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := names(rapid.IntRange(1, 5).Draw(t, "nodes"))
		owners := rapid.SliceOfN(rapid.SampledFrom(append(names(6), "")), 1, 20).Draw(t, "owners")
		pins := make(map[int]Pin)
		for shard := range owners {
			if rapid.IntRange(0, 3).Draw(t, "pinned") == 0 {
				pins[shard] = Pin{Node: rapid.SampledFrom(names(7)).Draw(t, "pin"), N: 1}
			}
		}
		plan := Plan(nodes, owners, pins)
		require.Equal(t, plan, Plan(nodes, plan, pins))
		for shard, to := range plan {
			require.Contains(t, nodes, to)
			if p, ok := pins[shard]; ok && slices.Contains(nodes, p.Node) {
				require.Equal(t, p.Node, to)
			}
		}
	})
	require.Equal(t, []string{"", ""}, Plan(nil, []string{"a", ""}, nil))
}

// The shards of a dead node go to several nodes, since each shard has its own order.
func TestTheHashSpreads(t *testing.T) {
	first := make(map[string]int)
	for shard := range 300 {
		nodes := names(3)
		slices.SortFunc(nodes, func(a, b string) int {
			if higher(a, b, shard) {
				return -1
			}
			return 1
		})
		first[nodes[0]]++
	}
	for _, n := range names(3) {
		require.InDelta(t, 100, first[n], 30, "%v", first)
	}
}

// yard is a cluster for movers: nodes that announce, own, and hand over.
type yard struct {
	t      *testing.T
	now    int64
	nodes  map[string]*yardNode
	owners []string // actual owner of each shard
	moves  []string
	flying map[int]flight
	most   int // maximum of concurrent handovers
	takes  int64
	air    []spoken
}

// spoken is an announcement on its way.
type spoken struct {
	at   int64
	news News
}

type flight struct {
	to   string
	over int64
}

type yardNode struct {
	name              string
	draining, leaving bool
	far               bool // its copies are far behind
	members           *Members
	mover             *Mover
	spoke             int64
	since             int64
	told              *Move
}

func newYard(t *testing.T, shards int, nodes ...string) *yard {
	y := &yard{t: t, now: int64(time.Hour), nodes: map[string]*yardNode{}, owners: make([]string, shards), flying: map[int]flight{}, takes: int64(100 * time.Millisecond)}
	for _, n := range nodes {
		y.join(n)
	}
	return y
}

func (y *yard) join(name string) *yardNode {
	n := &yardNode{name: name, members: NewMembers(name, name), mover: NewMover(name), since: y.now}
	y.nodes[name] = n
	return n
}

func (y *yard) news(n *yardNode) News {
	news := News{
		Node: n.name, Incarnation: n.name, SinceMs: n.since / int64(time.Millisecond), Draining: n.draining, Leaving: n.leaving,
		Moving: n.mover.Telling(), Pins: n.members.Pins(),
	}
	for shard, owner := range y.owners {
		s := ShardNews{Shard: shard, Owns: owner == n.name, Epoch: 1}
		if n.far {
			s.BehindMs = closeMs
		}
		news.Shards = append(news.Shards, s)
	}
	return news
}

func (y *yard) say(n *yardNode) {
	n.spoke = y.now
	y.air = append(y.air, spoken{y.now + int64(150*time.Millisecond), y.news(n)})
}

func (y *yard) hear() {
	for len(y.air) > 0 && y.air[0].at <= y.now {
		for _, o := range y.nodes {
			o.members.Hear(y.now, y.air[0].news)
		}
		y.air = y.air[1:]
	}
}

// pass lets time pass. Nodes announce changes.
func (y *yard) pass(d time.Duration) {
	for end := y.now + int64(d); y.now < end; y.now += int64(50 * time.Millisecond) {
		y.hear()
		for shard, f := range y.flying {
			if y.now >= f.over {
				if f.to == "" {
					f.to = slices.Sorted(maps.Keys(y.nodes))[0]
				}
				y.owners[shard] = f.to
				delete(y.flying, shard)
				if n := y.nodes[f.to]; n != nil {
					y.say(n)
				}
			}
		}
		for _, name := range slices.Sorted(maps.Keys(y.nodes)) {
			n := y.nodes[name]
			if y.now-n.spoke >= AnnounceEvery {
				y.say(n)
			}
			n.members.Tick(y.now)
			here := Here{Owned: make([]bool, len(y.owners)), Draining: n.draining, Leaving: n.leaving}
			for shard, owner := range y.owners {
				_, flies := y.flying[shard]
				here.Owned[shard] = owner == name && !flies
				here.Busy = here.Busy || owner == name && flies
			}
			move, ok := n.mover.Next(y.now, n.members, here)
			if ok {
				require.Equal(y.t, name, y.owners[move.Shard])
				y.moves = append(y.moves, fmt.Sprintf("%d %s>%s", move.Shard, name, move.To))
				y.flying[move.Shard] = flight{move.To, y.now + y.takes}
				y.most = max(y.most, len(y.flying))
			}
			if told := n.mover.Telling(); (told == nil) != (n.told == nil) || told != nil && *told != *n.told {
				n.told = told
				y.say(n)
			}
		}
	}
}

func (y *yard) give(owners ...string) {
	copy(y.owners, owners)
	for _, n := range y.nodes {
		y.say(n)
	}
}

// A node that joins gets its share after 10 s, by one handover at a time; then nothing moves.
func TestANodeThatJoinsTakesItsShare(t *testing.T) {
	y := newYard(t, 8, "a", "b")
	y.give("a", "b", "a", "b", "a", "b", "a", "b")
	y.pass(30 * time.Second)
	require.Empty(t, y.moves)

	y.join("c")
	y.pass(9 * time.Second)
	require.Empty(t, y.moves, "it has to stay")
	y.pass(30 * time.Second)
	require.Len(t, y.moves, 2)
	require.Equal(t, 1, y.most, "one at a time")
	count := load(y.owners)
	require.Equal(t, []int{3, 3, 2}, []int{count["a"], count["b"], count["c"]})
	y.pass(time.Minute)
	require.Len(t, y.moves, 2)
}

// From any state, nodes reach an even and stable spread by one handover at a time.
func TestBalanceComesToRest(t *testing.T) {
	for seed := range uint64(12) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		nodes := names(2 + rnd.IntN(4))
		y := newYard(t, 1+rnd.IntN(16), nodes...)
		for shard := range y.owners {
			y.owners[shard] = nodes[rnd.IntN(len(nodes))]
		}
		y.takes = rnd.Int64N(int64(2 * time.Second))
		y.pass(2 * time.Minute)
		require.Equal(t, 1, max(1, y.most), "seed %d", seed)
		least := len(y.owners) / len(nodes)
		for _, n := range nodes {
			require.Contains(t, []int{least, least + 1}, load(y.owners)[n], "seed %d", seed)
		}
		moves := len(y.moves)
		y.pass(time.Minute)
		require.Len(t, y.moves, moves, "seed %d", seed)
	}
}

// No shard moves to a node whose copy is far behind, or that has not been heard recently.
func TestNothingMovesToWhoIsNotReady(t *testing.T) {
	y := newYard(t, 4, "a", "b")
	y.nodes["b"].far = true
	y.give("a", "a", "a", "a")
	y.pass(30 * time.Second)
	require.Empty(t, y.moves)
	y.nodes["b"].far = false
	y.pass(10 * time.Second)
	require.Len(t, y.moves, 2)

	delete(y.nodes, "b")
	y.give("a", "a", "a", "a")
	y.moves = nil
	y.pass(30 * time.Second)
	require.Empty(t, y.moves)
}

// A draining node hands over all shards and gets none; afterwards it gets its share again.
func TestDrain(t *testing.T) {
	y := newYard(t, 6, "a", "b", "c")
	y.give("a", "b", "c", "a", "b", "c")
	y.pass(15 * time.Second)
	y.nodes["a"].draining = true
	y.pass(3 * time.Second)
	require.Len(t, y.moves, 2, "%v", y.moves)
	y.pass(30 * time.Second)
	require.Equal(t, map[string]int{"b": 3, "c": 3}, load(y.owners))
	require.Equal(t, 1, y.most)
	y.nodes["a"].draining = false
	y.pass(30 * time.Second)
	require.Equal(t, 2, load(y.owners)["a"])
}

// Nodes that drain at once take turns.
func TestDrainsTakeTurns(t *testing.T) {
	y := newYard(t, 12, "a", "b", "c", "d")
	y.give("a", "b", "c", "d", "a", "b", "c", "d", "a", "b", "c", "d")
	y.pass(15 * time.Second)
	y.takes = int64(time.Second)
	y.nodes["a"].draining, y.nodes["b"].draining = true, true
	y.pass(30 * time.Second)
	require.Equal(t, map[string]int{"c": 6, "d": 6}, load(y.owners))
	require.Equal(t, 1, y.most)
}

// A leaving node hands over to nodes with close copies, after a while to any node, and at once if
// no other node stays.
func TestLeave(t *testing.T) {
	y := newYard(t, 4, "a", "b")
	y.give("a", "a", "b", "b")
	y.pass(15 * time.Second)
	y.nodes["a"].leaving = true
	y.pass(2 * time.Second)
	require.Equal(t, []string{"0 a>b", "1 a>b"}, y.moves)

	y = newYard(t, 2, "a", "b")
	y.nodes["b"].far = true
	y.give("a", "b")
	y.pass(15 * time.Second)
	y.nodes["a"].leaving = true
	y.pass(2 * time.Second)
	require.Empty(t, y.moves)
	y.pass(2 * time.Second)
	require.Equal(t, "0 a>", y.moves[0])

	y = newYard(t, 1, "a")
	y.give("a")
	y.nodes["a"].leaving = true
	y.pass(400 * time.Millisecond)
	require.Equal(t, "0 a>", y.moves[0])
}

// A moved shard stays at its node against the balance, as long as that node is there.
func TestAPinnedShardStays(t *testing.T) {
	y := newYard(t, 4, "a", "b")
	y.give("a", "a", "b", "b")
	y.pass(15 * time.Second)
	b := y.nodes["b"].members
	b.Pin(0, b.NextPin(0, "b"))
	b.Pin(2, b.NextPin(2, "b"))
	b.Pin(3, b.NextPin(3, "b"))
	y.pass(30 * time.Second)
	require.Equal(t, []string{"0 a>b"}, y.moves)
	require.Equal(t, []string{"b", "a", "b", "b"}, y.owners)

	a := y.nodes["a"].members
	a.Pin(0, a.NextPin(0, "a"))
	y.pass(30 * time.Second)
	require.Equal(t, []string{"a", "a", "b", "b"}, y.owners, "the last order counts")

	delete(y.nodes, "b")
	y.give("a", "a", "a", "a")
	y.pass(15 * time.Second)
	require.Equal(t, map[int]Pin{0: {Node: "a", N: 2}}, a.Pins())
}

func TestBehind(t *testing.T) {
	var b Behind
	ms := int64(time.Millisecond)
	require.Zero(t, b.Sample(0, 10, 10, 0))
	require.Equal(t, 500*ms, b.Sample(500*ms, 10, 10, 0), "nothing came for so long")
	// 100 records arrive every 100 ms, and 50 are applied.
	behind := int64(0)
	for i := int64(1); i <= 40; i++ {
		now := 500*ms + i*100*ms
		behind = b.Sample(now, uint64(10+100*i), uint64(10+50*i), now)
	}
	require.InDelta(t, 2000*ms, behind, float64(100*ms), "what is applied is of half of the time")
	require.Zero(t, b.Sample(5*int64(time.Second), 4010, 4010, 5*int64(time.Second)))
}
