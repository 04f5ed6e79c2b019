package shard

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// registry finds queues by name. Reads take no lock: each change makes a new map.
type registry struct {
	change sync.Mutex
	byName atomic.Pointer[map[string]*Queue] // never nil
	sorted atomic.Pointer[[]*Queue]          // the same, by name; nil: not sorted since the last change
}

func (r *registry) get(name string) *Queue { return (*r.byName.Load())[name] }

// all returns the queues by name.
func (r *registry) all() []*Queue { return slices.Clone(r.inOrder()) }

// inOrder is all for callers that do not change the slice.
func (r *registry) inOrder() []*Queue {
	if sorted := r.sorted.Load(); sorted != nil {
		return *sorted
	}
	r.change.Lock()
	defer r.change.Unlock()
	sorted := slices.SortedFunc(maps.Values(*r.byName.Load()), func(a, b *Queue) int { return cmp.Compare(a.name, b.name) })
	r.sorted.Store(&sorted)
	return sorted
}

// main returns the queues by name, without dead letter queues.
func (r *registry) main() []*Queue { return slices.DeleteFunc(r.all(), (*Queue).IsDLQ) }

// of returns the queues of one shard, without dead letter queues.
func (r *registry) of(s *Shard) []*Queue {
	return slices.DeleteFunc(r.main(), func(q *Queue) bool { return q.shard != s })
}

func (r *registry) update(fn func(m map[string]*Queue)) {
	r.change.Lock()
	defer r.change.Unlock()
	m := maps.Clone(*r.byName.Load())
	fn(m)
	r.byName.Store(&m)
	r.sorted.Store(nil)
}
