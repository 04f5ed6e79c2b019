package shard

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/filaq/fila/fingerprint"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// What the store of a shard keeps of redrives, among its configuration:
//
//	\x00redriven/<queue>/<group>  how many dead letters of a group were redriven: redriven, JSON
//
// It is written in the commit in which they go. It counts for as long as a job is shown
// that has ended: an older one goes with the next that is written, or with the queue.
const keyRedriven = "\x00redriven/"

// maxRedriven is of how many groups of a dead letter queue that is known: of those from
// which messages went last.
const maxRedriven = 256

// redriven is how many dead letters of a group jobs have sent back to their queue.
type redriven struct {
	Source string `json:"source"`
	Code   string `json:"code,omitempty"`
	Error  string `json:"error"`
	Count  int64  `json:"count"`
	Last   int64  `json:"last"` // Unix ns: when one went
}

// redrives are those of a dead letter queue, by the names of groups. Who writes holds the
// admin lock of the queue from what they ask to what they tell.
type redrives struct {
	sync.Mutex
	byGroup map[string]redriven // on disk
}

// redrivesMore is a change of redrives: what is put, and which do not go on being known.
type redrivesMore struct {
	put  map[string]redriven
	drop []string
}

// letterGroup is the group of a dead letter.
type letterGroup struct {
	groupName
	name string
}

// letterGroups reads the groups of dead letters of q, by their sequences. That of one that
// is gone or broken is not known.
func (q *Queue) letterGroups(seqs []uint64, names groupNames) (map[uint64]*letterGroup, *wire.Error) {
	refs, found := make([]store.Ref, len(seqs)), make(map[uint64]*letterGroup, len(seqs))
	for i, seq := range seqs {
		refs[i] = store.Ref{Queue: q.id, Seq: seq}
	}
	err := broken(q.Store().Dead(refs, func(i int, d *store.Dead) {
		if d != nil {
			found[seqs[i]] = names.of(d)
		}
	}))
	if err != nil {
		return nil, wire.Internal(err.Error())
	}
	return found, nil
}

// groupNames remembers what groups are called, as far as there are not too many.
type groupNames struct {
	texts texts
	known map[groupName]*letterGroup
}

func newGroupNames() groupNames { return groupNames{texts{}, make(map[groupName]*letterGroup)} }

func (n groupNames) of(d *store.Dead) *letterGroup {
	called := groupName{d.SourceQueue, d.ErrorCode, n.texts.of(d)}
	g := n.known[called]
	if g == nil {
		g = &letterGroup{called, fingerprint.Of(called.source, called.code, called.text)}
		if len(n.known) < maxRedriven {
			n.known[called] = g
		}
	}
	return g
}

// more says what is known when dead letters of these groups, nil for one that is not
// known, have gone as well.
func (r *redrives) more(gone []*letterGroup, now int64) redrivesMore {
	r.Lock()
	defer r.Unlock()
	all, m := r.since(now), redrivesMore{put: make(map[string]redriven)}
	for _, g := range gone {
		if g != nil {
			all[g.name] = redriven{g.source, g.code, g.text, all[g.name].Count + 1, now}
			m.put[g.name] = all[g.name]
		}
	}
	if len(all) > maxRedriven {
		oldest := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
			return cmp.Or(cmp.Compare(all[a].Last, all[b].Last), cmp.Compare(all[a].Count, all[b].Count), cmp.Compare(a, b))
		})
		for _, name := range oldest[:len(all)-maxRedriven] {
			delete(all, name)
			delete(m.put, name)
		}
	}
	for name := range r.byGroup {
		if _, ok := all[name]; !ok {
			m.drop = append(m.drop, name)
		}
	}
	slices.Sort(m.drop)
	return m
}

// since are those that are not of long ago. Its caller holds the lock.
func (r *redrives) since(now int64) map[string]redriven {
	all := make(map[string]redriven, len(r.byGroup))
	for name, is := range r.byGroup {
		if is.Last >= now-int64(jobsKeptFor) {
			all[name] = is
		}
	}
	return all
}

// known are those that are told.
func (r *redrives) known(now int64) map[string]redriven {
	r.Lock()
	defer r.Unlock()
	return r.since(now)
}

// are tells what is on disk now.
func (r *redrives) are(m redrivesMore) {
	r.Lock()
	defer r.Unlock()
	if r.byGroup == nil {
		r.byGroup = make(map[string]redriven)
	}
	maps.Copy(r.byGroup, m.put)
	for _, name := range m.drop {
		delete(r.byGroup, name)
	}
}

// keys are under which those of a queue are kept.
func (r *redrives) keys(queue string) []string {
	r.Lock()
	defer r.Unlock()
	return redrivesMore{drop: slices.Sorted(maps.Keys(r.byGroup))}.keys(queue)
}

// entries are what is put for a change in the store.
func (m redrivesMore) entries(queue string) (list []store.Entry) {
	for _, name := range slices.Sorted(maps.Keys(m.put)) {
		list = append(list, store.Entry{Key: redrivenKey(queue, name), Value: encodeJob(m.put[name])})
	}
	return list
}

// keys are what goes for it.
func (m redrivesMore) keys(queue string) (keys []string) {
	for _, name := range m.drop {
		keys = append(keys, redrivenKey(queue, name))
	}
	return keys
}

// redrivenKey is the key for a group of a dead letter queue.
func redrivenKey(queue, group string) string { return keyRedriven + wire.Source(queue) + "/" + group }

// recoverRedriven takes in what the store has kept of redrives.
func (s *Shard) recoverRedriven(kept []store.Entry, byName map[string]recovering) {
	for _, e := range kept {
		of, ok := strings.CutPrefix(e.Key, keyRedriven)
		if !ok {
			continue
		}
		name, group, _ := strings.Cut(of, "/")
		r, ok := byName[wire.DLQ(name)]
		if !ok {
			continue
		}
		is, err := decodeJob[redriven](e.Value)
		if err != nil {
			s.Log.Error("what is kept of redrives cannot be read; they are counted anew", "queue", name, "group", group, "error", err)
			continue
		}
		r.redrives.are(redrivesMore{put: map[string]redriven{group: is}})
	}
}
