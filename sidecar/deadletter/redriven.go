package deadletter

import (
	"cmp"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// keyPrefix begins the keys of redrive counts in the configuration of a store:
//
//	\x00redriven/<queue>/<group>  redriven, JSON
//
// A count is written in the commit that moves the dead letters.
const keyPrefix = "\x00redriven/"

const (
	// KeptFor is how long the count of a group is kept after its last redrive. The next
	// count that is written, or the deletion of the queue, deletes older ones.
	KeptFor = 7 * 24 * time.Hour
	// maxRedriven is how many groups of a queue have a count: those redriven last.
	maxRedriven = 256
)

// redriven is how many dead letters of a group jobs have sent back to their queue. A dead letter that
// comes back to the group and is redriven again counts once.
type redriven struct {
	Source string `json:"source"`
	Code   string `json:"code,omitempty"`
	Error  string `json:"error"`
	Count  int64  `json:"count"`
	Last   int64  `json:"last"` // Unix ns of the last redrive
}

// Redrives are the redrive counts of a dead letter queue, as they are on disk. From Count
// to Commit the caller holds the admin lock of the queue.
type Redrives struct {
	mu   sync.Mutex
	byID map[string]redriven // by id of the group
}

// Change is a change of redrive counts.
type Change struct {
	put  map[string]redriven
	drop []string
}

// Count returns the change that redriving one dead letter of each of these groups makes.
// nil stands for a dead letter whose group is unknown.
func (r *Redrives) Count(groups []*Group, now int64) Change {
	r.mu.Lock()
	defer r.mu.Unlock()
	all, c := r.since(now-int64(KeptFor)), Change{put: make(map[string]redriven)}
	for _, g := range groups {
		if g != nil {
			count := all[g.id].Count
			if !g.again || count == 0 {
				count++
			}
			all[g.id] = redriven{g.source, g.code, g.text, count, now}
			c.put[g.id] = all[g.id]
		}
	}
	if len(all) > maxRedriven {
		oldest := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
			return cmp.Or(cmp.Compare(all[a].Last, all[b].Last), cmp.Compare(all[a].Count, all[b].Count), cmp.Compare(a, b))
		})
		for _, id := range oldest[:len(all)-maxRedriven] {
			delete(all, id)
			delete(c.put, id)
		}
	}
	for id := range r.byID {
		if _, ok := all[id]; !ok {
			c.drop = append(c.drop, id)
		}
	}
	slices.Sort(c.drop)
	return c
}

// since returns the counts whose last redrive is not before a time.
func (r *Redrives) since(oldest int64) map[string]redriven {
	all := make(map[string]redriven, len(r.byID))
	for id, c := range r.byID {
		if c.Last >= oldest {
			all[id] = c
		}
	}
	return all
}

func (r *Redrives) recent(now int64) map[string]redriven {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.since(now - int64(KeptFor))
}

// Commit makes a change that is on disk.
func (r *Redrives) Commit(c Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byID == nil {
		r.byID = make(map[string]redriven)
	}
	maps.Copy(r.byID, c.put)
	for _, id := range c.drop {
		delete(r.byID, id)
	}
}

// Keys returns the store keys of all counts of a queue.
func (r *Redrives) Keys(queue string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Change{drop: slices.Sorted(maps.Keys(r.byID))}.Deleted(queue)
}

// Put returns the entries that a change writes to the store.
func (c Change) Put(queue string) (list []store.Entry) {
	for _, id := range slices.Sorted(maps.Keys(c.put)) {
		value, err := json.Marshal(c.put[id])
		if err != nil {
			panic("deadletter: a redrive count: " + err.Error()) // the type can be encoded
		}
		list = append(list, store.Entry{Key: countKey(queue, id), Value: string(value)})
	}
	return list
}

// Deleted returns the keys that a change deletes from the store.
func (c Change) Deleted(queue string) (keys []string) {
	for _, id := range c.drop {
		keys = append(keys, countKey(queue, id))
	}
	return keys
}

// countKey is the key of a count; queue may also be the dead letter queue.
func countKey(queue, group string) string { return keyPrefix + wire.Source(queue) + "/" + group }

// Recover reads the counts that a store has kept. find returns the counts of a dead letter
// queue, nil if there is none of that name.
func Recover(kept []store.Entry, find func(dlq string) *Redrives, log *slog.Logger) {
	for _, e := range kept {
		path, ok := strings.CutPrefix(e.Key, keyPrefix)
		if !ok {
			continue
		}
		name, group, _ := strings.Cut(path, "/")
		r := find(wire.DLQ(name))
		if r == nil {
			continue
		}
		var c redriven
		if err := json.Unmarshal([]byte(e.Value), &c); err != nil {
			log.Error("the counts of redrives cannot be read; they start from 0", "queue", name, "group", group, "error", err)
			continue
		}
		r.Commit(Change{put: map[string]redriven{group: c}})
	}
}
