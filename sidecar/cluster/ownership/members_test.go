package ownership

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const second = int64(time.Second)

// crowd is nodes that hear each other, and the changes that each has seen.
type crowd struct {
	now   int64
	nodes map[string]*Members
	began map[string]int64
	quiet map[string]bool // not heard
	told  []string
	seen  []string
}

func newCrowd() *crowd {
	return &crowd{now: second, nodes: map[string]*Members{}, began: map[string]int64{}, quiet: map[string]bool{}}
}

func (c *crowd) add(name string) {
	c.nodes[name], c.began[name] = NewMembers(name, fmt.Sprint(name, c.now)), c.now
}

func (c *crowd) note(at string, changes []Change) {
	for _, ch := range changes {
		what := "-" + ch.Member.Node
		if ch.Joined {
			what = "+" + ch.Member.Node
		}
		c.seen = append(c.seen, at+what)
		if ch.Tell {
			c.told = append(c.told, what)
		}
	}
}

func (c *crowd) pass(d time.Duration) {
	for end := c.now + int64(d); c.now < end; c.now += second {
		for _, from := range []string{"a", "b", "c"} {
			if c.nodes[from] == nil || c.quiet[from] {
				continue
			}
			for _, at := range []string{"a", "b", "c"} {
				if c.nodes[at] != nil && !c.quiet[at] {
					changes, _ := c.nodes[at].Hear(c.now, News{Node: from, Incarnation: fmt.Sprint(from, c.began[from]), UpMs: (c.now - c.began[from]) / 1e6})
					c.note(at, changes)
				}
			}
		}
		for _, at := range []string{"a", "b", "c"} {
			if c.nodes[at] != nil {
				c.note(at, c.nodes[at].Tick(c.now))
			}
		}
	}
}

// Each change is reported once, by one of the nodes that were there.
func TestComingAndGoingIsToldOnce(t *testing.T) {
	c := newCrowd()
	c.add("b")
	c.pass(5 * time.Second)
	require.Empty(t, c.told, "nobody was there before the first")
	c.add("a")
	c.pass(5 * time.Second)
	require.Equal(t, []string{"+a"}, c.told)
	c.add("c")
	c.pass(15 * time.Second)
	require.Equal(t, []string{"+a", "+c"}, c.told)

	delete(c.nodes, "c")
	c.pass(9 * time.Second)
	require.Len(t, c.told, 2)
	c.pass(5 * time.Second)
	require.Equal(t, []string{"+a", "+c", "-c"}, c.told)

	c.add("c")
	c.pass(15 * time.Second)
	delete(c.nodes, "a") // the first by name
	c.pass(15 * time.Second)
	require.Equal(t, []string{"+a", "+c", "-c", "+c", "-a"}, c.told)
}

// A node that does not hear itself draws no conclusions about others, neither then nor when it
// hears again.
func TestANodeThatIsCutOffKnowsNothing(t *testing.T) {
	c := newCrowd()
	for _, n := range []string{"a", "b", "c"} {
		c.add(n)
	}
	c.pass(15 * time.Second)
	c.seen = nil
	c.quiet["c"] = true
	c.pass(8 * time.Second)
	c.quiet["c"] = false
	c.pass(3 * time.Second)
	require.Empty(t, c.seen)

	c.quiet["c"] = true
	c.pass(20 * time.Second)
	require.ElementsMatch(t, []string{"a-c", "b-c"}, c.seen)
	c.seen = nil
	c.quiet["c"] = false
	c.pass(20 * time.Second)
	require.ElementsMatch(t, []string{"a+c", "b+c"}, c.seen, "c never took the others for gone")
	require.Equal(t, []string{"-c", "+c"}, c.told[len(c.told)-2:])
}

// A last announcement counts at once, and removes the pins of the node.
func TestAFarewellIsBelieved(t *testing.T) {
	m := NewMembers("a", "1")
	hear := func(n News) []Change {
		changes, older := m.Hear(second, n)
		require.False(t, older)
		return changes
	}
	hear(News{Node: "a", Incarnation: "1"})
	require.Len(t, hear(News{Node: "b", Incarnation: "2"}), 1)
	m.Pin(3, m.NextPin(3, "b"))
	m.Pin(4, Pin{Node: "nobody", N: 9})
	require.Equal(t, map[int]Pin{3: {Node: "b", N: 1}}, m.Pins())
	left := hear(News{Node: "b", Incarnation: "2", Left: true})
	require.Equal(t, []bool{false, true}, []bool{left[0].Joined, left[0].Tell})
	require.Empty(t, m.Pins())
	require.Empty(t, hear(News{Node: "b", Incarnation: "2", Left: true}))
	require.Nil(t, m.Of("b"))
}

// Of two processes with one name the younger one stops; the older one ignores it, and a process
// that is leaving does not count.
func TestTheYoungerOfOneNameEnds(t *testing.T) {
	m := NewMembers("a", "5")
	_, _ = m.Hear(second, News{Node: "a", Incarnation: "5", SinceMs: 100})
	for want, n := range map[bool][]News{
		true:  {{Incarnation: "6", SinceMs: 99}, {Incarnation: "4", SinceMs: 100}},
		false: {{Incarnation: "4", SinceMs: 101}, {Incarnation: "6", SinceMs: 100}, {Incarnation: "6", SinceMs: 99, Leaving: true}},
	} {
		for _, other := range n {
			other.Node = "a"
			changes, older := m.Hear(second, other)
			require.Empty(t, changes)
			require.Equal(t, want, older, "%+v", other)
		}
	}
}

// Nodes that stay and are close campaign first; the silent owner and unheard nodes do not count.
func TestRank(t *testing.T) {
	rank := func(node string, all ...News) int {
		m := NewMembers(node, node)
		for _, n := range all {
			n.Incarnation = n.Node
			_, _ = m.Hear(second, n)
		}
		_, _ = m.Hear(second, News{Node: "old", Incarnation: "old", Shards: []ShardNews{{Shard: 1}}})
		for _, n := range all {
			n.Incarnation = n.Node
			_, _ = m.Hear(10*second, n)
		}
		return m.Rank(10*second, 1, "owner")
	}
	close1 := []ShardNews{{Shard: 1}}
	all := []News{
		{Node: "owner", Shards: close1},
		{Node: "drained", Shards: close1, Draining: true},
		{Node: "far", Shards: []ShardNews{{Shard: 1, Lag: farLag + 1}}},
		{Node: "x", Shards: close1},
		{Node: "y", Shards: close1},
		{Node: "ends", Shards: close1, Leaving: true},
	}
	first, second := "x", "y"
	if higher("y", "x", 1) {
		first, second = second, first
	}
	for node, want := range map[string]int{first: 0, second: 1, "far": 2, "drained": 3} {
		require.Equal(t, want, rank(node, all...), node)
	}
	require.Equal(t, 0, NewMembers("a", "a").Rank(0, 1, ""))
}

// The owner is the heard node that claims the highest epoch.
func TestOwner(t *testing.T) {
	m := NewMembers("a", "a")
	_, _ = m.Hear(second, News{Node: "b", Incarnation: "b", Shards: []ShardNews{{Shard: 2, Owns: true, Epoch: 3}}})
	_, _ = m.Hear(second, News{Node: "c", Incarnation: "c", Shards: []ShardNews{{Shard: 2, Owns: true, Epoch: 4}, {Shard: 1}}})
	owner, news := m.Owner(second, 2)
	require.Equal(t, "c", owner)
	require.Equal(t, uint64(4), news.Epoch)
	owner, _ = m.Owner(second, 1)
	require.Empty(t, owner)
	owner, _ = m.Owner(second+freshFor+1, 2)
	require.Empty(t, owner)
}
