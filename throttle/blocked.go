package throttle

import (
	"maps"
	"slices"
	"sync/atomic"
)

// blockedCounts counts by Kind how often a gate has blocked something.
type blockedCounts [kindsOfGate]atomic.Int64

func (c *blockedCounts) sum() (n int64) {
	for k := range c {
		n += c[k].Load()
	}
	return n
}

// CountBlocked counts a message that begins to wait for the gate, or a call that
// the gate refuses. It takes no lock.
func (g *Gate) CountBlocked(k Kind) {
	if k < kindsOfGate {
		g.blocked[k].Add(1)
	}
}

// CountBlocked calls [Gate.CountBlocked] for the gate of a key that is awake, with
// the kind of this name.
func (g *Gates) CountBlocked(key, kind string) {
	g.mu.Lock()
	gate := g.mu.gates.all[key]
	g.mu.Unlock()
	for k := Open + 1; k < kindsOfGate && gate != nil; k++ {
		if k.String() == kind {
			gate.CountBlocked(k)
		}
	}
}

// BlockedCount is how often the gate of a key has blocked something.
type BlockedCount struct {
	Key  string
	Kind Kind
	N    int64 // above 0, since the gate exists
}

// BlockedCounts returns the counts above 0 of keys with limits of their own, in
// the order of the keys, and for at most `most` keys.
func (g *Gates) BlockedCounts(most int) (list []BlockedCount) {
	g.mu.Lock()
	own := maps.Clone(g.mu.own)
	g.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(own)) {
		if most == 0 {
			break
		}
		before := len(list)
		for k := Open + 1; k < kindsOfGate; k++ {
			if n := own[key].blocked[k].Load(); n > 0 {
				list = append(list, BlockedCount{key, k, n})
			}
		}
		if len(list) > before {
			most--
		}
	}
	return list
}
