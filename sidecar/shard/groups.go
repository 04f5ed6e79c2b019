package shard

import (
	"cmp"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/filaq/fila/fingerprint"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

const (
	maxGroups    = 1000      // that are told apart; what dies beyond them is of no group
	maxGroupKeys = 10_000    // fairness keys that are counted
	groupPiece   = 4096      // dead letters that are listed at a time
	groupTopKeys = 5         // that are shown of a group
	maxGone      = 1_000_000 // that are gone, and are known if they come back
	groupTexts   = 4096      // texts of errors that are remembered while some are read
)

// groups knows the dead letters of one queue by the group of their error. It is made when
// somebody asks for the first time, and costs 32 bytes for each dead letter from then on.
// It is not told of what comes and goes: who asks compares what it knows with a list of
// what is there, and reads from the store what is new.
type groups struct {
	sync.Mutex
	letters []letter // by sequence
	known   []group
	number  map[groupName]uint32 // of those in use, in known
	free    []uint32             // of those that are not
	vacant  int                  // of those in use, groups that have no letters
	keys    groupKeys
	gone    map[uint64]uint32 // the groups of letters that are gone, by the ids of these: maxGone at most
	seqs    []uint64          // of one piece, kept for the next
	listed  []queue.Listed    // those of them that are new
}

// letter is a dead letter. It has no pointers, so that the garbage collector never walks
// them.
type letter struct {
	seq   uint64
	id    uint64 // half of it: that of two is the same once in 2^62
	died  int64
	group uint32 // in known; 0 is that of all that are in no other
	key   uint32 // in keys; 0 is that of all that are not counted
}

// groupName is what dead letters of a group have in common.
type groupName struct{ source, code, text string }

type group struct {
	groupName
	name        string // of the group
	count       int64
	left        int64 // that are gone, since it is known
	back        int64 // that came back of these
	first, last int64
	sample      uint64           // the one that died last, its sequence
	keys        map[uint32]int64 // messages by key
}

// groupKeys gives fairness keys numbers as long as they are in use.
type groupKeys struct {
	number map[string]uint32
	names  []string
	uses   []int64
	free   []uint32
}

// Groups returns the groups of errors of q, a dead letter queue: up to limit, the largest
// first.
func (q *Queue) Groups(limit int) (wire.DeadGroups, *wire.Error) {
	g := &q.groups
	g.Lock()
	defer g.Unlock()
	if werr := g.refresh(q); werr != nil {
		return wire.DeadGroups{}, werr
	}
	return g.reply(q, limit), nil
}

// refresh compares what is known with what is there.
func (g *groups) refresh(q *Queue) *wire.Error {
	if g.number == nil {
		g.forget()
	}
	kept, before := g.letters[:0], g.letters
	var fresh []letter
	texts := [2]texts{{}, {}}
	for from, more := uint64(0), true; more; more = from != 0 {
		ok := q.View(func(m *queue.Queue, side queue.Side, _ int64) {
			g.seqs, from = m.Sequences(side, from, groupPiece, g.seqs[:0])
		})
		unknown := g.seqs[:0]
		for _, seq := range g.seqs {
			for len(before) > 0 && before[0].seq < seq {
				g.leave(before[0])
				before = before[1:]
			}
			if len(before) > 0 && before[0].seq == seq {
				kept, before = append(kept, before[0]), before[1:]
				continue
			}
			unknown = append(unknown, seq)
		}
		ok = ok && (len(unknown) == 0 || q.View(func(m *queue.Queue, side queue.Side, _ int64) {
			g.listed = m.List(side, unknown, g.listed[:0])
		}))
		if !ok {
			g.forget() // letters are half compared
			return q.Gone()
		}
		if len(unknown) == 0 {
			continue
		}
		var werr *wire.Error
		if fresh, werr = g.read(q, g.listed, fresh, &texts); werr != nil {
			g.forget()
			return werr
		}
	}
	if len(fresh) == 0 && len(kept) == len(g.letters) {
		return nil
	}
	for _, l := range before {
		g.leave(l)
	}
	g.letters = append(kept, fresh...)
	bySeq := func(a, b letter) int { return cmp.Compare(a.seq, b.seq) }
	if len(kept) > 0 && len(fresh) > 0 && !slices.IsSortedFunc(g.letters, bySeq) {
		slices.SortFunc(g.letters, bySeq)
	}
	g.span()
	return nil
}

// forget begins anew.
func (g *groups) forget() {
	g.letters, g.free, g.vacant, g.number, g.gone = nil, nil, 0, make(map[groupName]uint32), make(map[uint64]uint32)
	g.known = []group{{keys: make(map[uint32]int64)}}
	g.keys = groupKeys{number: make(map[string]uint32), names: []string{""}, uses: []int64{0}}
}

// read counts dead letters, and appends what the store says of them. Half of them are
// read beside the other half: it is their errors that take the time.
func (g *groups) read(q *Queue, unknown []queue.Listed, fresh []letter, texts *[2]texts) ([]letter, *wire.Error) {
	half := len(unknown) / 2
	parts := [2][]queue.Listed{unknown[:half], unknown[half:]}
	var found [2][]named
	var errs [2]error
	var both sync.WaitGroup
	for i := range parts {
		both.Go(func() { found[i], errs[i] = q.named(parts[i], texts[i]) })
	}
	both.Wait()
	for i := range found {
		switch err := errs[i]; {
		case err == nil, errors.Is(err, store.ErrNotFound): // gone meanwhile
		case errors.Is(err, store.ErrCorrupt):
			q.shard.Log.Error("a dead letter cannot be read, and is in no group", "queue", q.name, "error", err)
		default:
			return nil, wire.Internal(err.Error())
		}
		for j := range found[i] {
			l := &found[i][j]
			is := letter{seq: l.Seq, id: binary.BigEndian.Uint64(l.ID[8:]), died: l.died, group: g.groupOf(l.groupName), key: g.keys.of(l.Key)}
			g.enter(is) // before the next one looks for groups without letters
			fresh = append(fresh, is)
		}
	}
	return fresh, nil
}

// texts remembers what texts of errors have in common with others.
type texts map[string]string

// named is a dead letter with what its group is called by.
type named struct {
	queue.Listed
	groupName
	died int64
}

// named reads dead letters.
func (q *Queue) named(letters []queue.Listed, texts texts) ([]named, error) {
	refs := make([]store.Ref, len(letters))
	for i := range letters {
		refs[i] = store.Ref{Queue: q.id, Seq: letters[i].Seq}
	}
	found := make([]named, 0, len(letters))
	err := q.Store().Dead(refs, func(i int, d *store.Dead) {
		if d == nil {
			return
		}
		text, known := texts[d.Error]
		if !known || d.Error == "" {
			text = groupText(d)
			if len(texts) < groupTexts {
				texts[d.Error] = text
			}
		}
		found = append(found, named{letters[i], groupName{d.SourceQueue, d.ErrorCode, text}, d.At})
	})
	return found, err
}

// groupOf is the number of the group of that name.
func (g *groups) groupOf(name groupName) uint32 {
	n, known := g.number[name]
	if !known && len(g.free) == 0 && len(g.known) > maxGroups && g.vacant > 0 {
		g.evict()
	}
	switch {
	case known:
		return n
	case len(g.free) > 0:
		n, g.free = g.free[len(g.free)-1], g.free[:len(g.free)-1]
	case len(g.known) <= maxGroups:
		n = uint32(len(g.known))
		g.known = append(g.known, group{})
	default:
		return 0
	}
	g.number[name] = n
	g.vacant++
	g.known[n] = group{groupName: name, name: fingerprint.Of(name.source, name.code, name.text), keys: make(map[uint32]int64)}
	return n
}

// evict forgets the groups that have no letters any more.
func (g *groups) evict() {
	g.vacant = 0
	maps.DeleteFunc(g.number, func(_ groupName, n uint32) bool {
		empty := g.known[n].count == 0
		if empty {
			g.free = append(g.free, n)
		}
		return empty
	})
	maps.DeleteFunc(g.gone, func(_ uint64, n uint32) bool { return n != 0 && g.known[n].count == 0 })
}

// of is the number of a key, which is new with the first letter that has it.
func (k *groupKeys) of(key string) uint32 {
	n, known := k.number[key]
	switch {
	case known:
		return n
	case len(k.free) > 0:
		n, k.free = k.free[len(k.free)-1], k.free[:len(k.free)-1]
	case len(k.names) <= maxGroupKeys:
		n = uint32(len(k.names))
		k.names, k.uses = append(k.names, ""), append(k.uses, 0)
	default:
		return 0
	}
	k.number[key], k.names[n] = n, key
	return n
}

// enter counts a letter that is new, or one that came back: a message that was a dead
// letter has been redriven, and died again.
func (g *groups) enter(l letter) {
	if was, ok := g.gone[l.id]; ok {
		g.known[was].back++
		delete(g.gone, l.id)
	}
	of := &g.known[l.group]
	if of.count++; of.count == 1 && l.group != 0 {
		g.vacant--
	}
	of.keys[l.key]++
	g.keys.uses[l.key]++
}

// leave counts a letter that is gone.
func (g *groups) leave(l letter) {
	of := &g.known[l.group]
	if of.count--; of.count == 0 && l.group != 0 {
		g.vacant++
	}
	of.left++
	if len(g.gone) < maxGone {
		g.gone[l.id] = l.group
	}
	if of.keys[l.key]--; of.keys[l.key] == 0 {
		delete(of.keys, l.key)
	}
	if g.keys.uses[l.key]--; g.keys.uses[l.key] == 0 && l.key != 0 {
		delete(g.keys.number, g.keys.names[l.key])
		g.keys.free = append(g.keys.free, l.key)
	}
}

// span finds the first and the last of each group.
func (g *groups) span() {
	for i := range g.known {
		g.known[i].first, g.known[i].last = 0, 0
	}
	for i := range g.letters {
		l := &g.letters[i]
		of := &g.known[l.group]
		if of.first == 0 || l.died < of.first {
			of.first = l.died
		}
		if l.died >= of.last {
			of.last, of.sample = l.died, l.seq
		}
	}
}

// reply tells of the largest groups.
func (g *groups) reply(q *Queue, limit int) wire.DeadGroups {
	r := wire.DeadGroups{Queue: q.name, Messages: int64(len(g.letters)), Groups: []wire.DeadGroup{}, Other: g.known[0].count}
	var found []*group
	for _, n := range g.number {
		found = append(found, &g.known[n])
	}
	r.Total = len(found)
	slices.SortFunc(found, func(a, b *group) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(b.left, a.left), cmp.Compare(a.name, b.name))
	})
	found = found[:min(len(found), limit)]
	samples := make([]store.ID, len(found))
	q.View(func(m *queue.Queue, side queue.Side, _ int64) {
		for i, of := range found {
			if of.count == 0 {
				continue
			}
			if l := m.List(side, []uint64{of.sample}, nil); len(l) > 0 {
				samples[i] = l[0].ID
			}
		}
	})
	for i, of := range found {
		d := wire.DeadGroup{
			Group: of.name, SourceQueue: of.source, ErrorCode: of.code, Error: of.text, Messages: of.count,
			Left: of.left, CameBack: of.back, Keys: g.largestKeys(of),
		}
		if of.count > 0 {
			d.First, d.Last = wire.Timestamp(of.first), wire.Timestamp(of.last)
		}
		if samples[i] != (store.ID{}) {
			d.Sample = uuid.UUID(samples[i]).String()
		}
		r.Groups = append(r.Groups, d)
	}
	return r
}

// largestKeys are those that most messages of a group have.
func (g *groups) largestKeys(of *group) []wire.KeyCount {
	numbers := slices.Collect(maps.Keys(of.keys))
	numbers = slices.DeleteFunc(numbers, func(n uint32) bool { return n == 0 })
	slices.SortFunc(numbers, func(a, b uint32) int {
		return cmp.Or(cmp.Compare(of.keys[b], of.keys[a]), cmp.Compare(g.keys.names[a], g.keys.names[b]))
	})
	list := []wire.KeyCount{}
	for _, n := range numbers[:min(len(numbers), groupTopKeys)] {
		list = append(list, wire.KeyCount{Key: wire.ShowKey(g.keys.names[n]), Messages: of.keys[n]})
	}
	return list
}
