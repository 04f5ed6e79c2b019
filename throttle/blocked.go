package throttle

import (
	"maps"
	"slices"
	"sync/atomic"
)

// blockedCounts says how often a gate has held something back, by Kind.
type blockedCounts [kindsOfGate]atomic.Int64

// CountBlocked counts that the gate has held something back, if its key has limits of its
// own: a message that begins to wait, or a call that is refused. It takes no lock.
func (g *Gate) CountBlocked(k Kind) {
	if n := g.blocked.Load(); n != nil && k < kindsOfGate {
		n[k].Add(1)
	}
}

// CountBlocked is [Gate.CountBlocked] of the gate of a key, if there is one, for the kind of
// that name.
func (g *Gates) CountBlocked(key, kind string) {
	g.mu.Lock()
	gate := g.mu.own[key]
	g.mu.Unlock()
	for k := Open + 1; k < kindsOfGate && gate != nil; k++ {
		if k.String() == kind {
			gate.CountBlocked(k)
		}
	}
}

// BlockedCount says how often the gate of a key has held something back.
type BlockedCount struct {
	Key  string
	Kind Kind
	N    int64 // above 0, since the key has had limits of its own
}

// BlockedCounts returns those of the keys with limits of their own, of the first most keys
// that have held something, in the order of keys.
func (g *Gates) BlockedCounts(most int) (list []BlockedCount) {
	g.mu.Lock()
	own := maps.Clone(g.mu.own)
	g.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(own)) {
		if most == 0 {
			break
		}
		counts, before := own[key].blocked.Load(), len(list)
		for k := Open + 1; k < kindsOfGate; k++ {
			if n := counts[k].Load(); n > 0 {
				list = append(list, BlockedCount{key, k, n})
			}
		}
		if len(list) > before {
			most--
		}
	}
	return list
}
