package shard

import (
	"cmp"
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
	maxGroups    = 1000   // that are told apart; what dies beyond them is of no group
	maxGroupKeys = 10_000 // fairness keys that are counted
	groupPiece   = 4096   // dead letters that are listed at a time
	groupTopKeys = 5      // that are shown of a group
	groupTexts   = 1024   // texts of errors that are remembered while some are read
)

// groups knows the dead letters of one queue by the group of their error. It is made when
// somebody asks for the first time, and costs 32 bytes for each dead letter from then on.
// It is not told of what comes and goes: who asks compares what it knows with a list of
// what is there, and reads from the store what is new.
type groups struct {
	sync.Mutex
	letters []letter // by sequence
	known   []group
	number  map[groupName]uint32 // of those that have letters, in known
	free    []uint32             // of the others
	keys    groupKeys
	seqs    []uint64       // of one piece, kept for the next
	listed  []queue.Listed // those of them that are new
}

// letter is a dead letter. It has no pointers, so that the garbage collector never walks
// them.
type letter struct {
	seq   uint64
	died  int64
	group uint32 // in known; 0 is that of all that are in no other
	key   uint32 // in keys; 0 is that of all that are not counted
	again bool   // it was a dead letter before, and was redriven
}

// groupName is what dead letters of a group have in common.
type groupName struct{ source, code, text string }

type group struct {
	groupName
	name        string // of the group
	count       int64
	again       int64 // of these
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
		ok := q.View(func(m *queue.Queue, side queue.Role, _ int64) {
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
		ok = ok && (len(unknown) == 0 || q.View(func(m *queue.Queue, side queue.Role, _ int64) {
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
	g.letters, g.free, g.number = nil, nil, make(map[groupName]uint32)
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
			is := letter{seq: l.Seq, died: l.died, group: g.groupOf(l.groupName), key: g.keys.of(l.Key), again: l.again}
			g.enter(is)
			fresh = append(fresh, is)
		}
	}
	return fresh, nil
}

// texts remembers what texts of errors have in common with others.
type texts map[string]string

// of is the text of the group of d.
func (t texts) of(d *store.Dead) string {
	if d.Error == "" {
		return groupText(d) // which is about more
	}
	text, known := t[d.Error]
	if !known {
		text = groupText(d)
		if len(t) < groupTexts {
			t[d.Error] = text
		}
	}
	return text
}

// named is a dead letter with what its group is called by.
type named struct {
	queue.Listed
	groupName
	died  int64
	again bool
}

// named reads dead letters with their histories, as far as both are on disk.
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
		found = append(found, named{letters[i], groupName{d.SourceQueue, d.ErrorCode, texts.of(d)}, d.At, false})
	})
	if broken(err) != nil {
		return nil, err
	}
	refs = refs[:0]
	for i := range found {
		refs = append(refs, store.Ref{Queue: q.id, Seq: found[i].Seq})
	}
	told := 0
	herr := q.Store().History(refs, func(i int, records [][]byte) {
		found[told] = found[i]
		found[told].again = slices.ContainsFunc(records, queue.IsRedrive)
		told++
	})
	return found[:told], cmp.Or(herr, err)
}

// groupOf is the number of the group of that name.
func (g *groups) groupOf(name groupName) uint32 {
	n, known := g.number[name]
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
	g.known[n] = group{groupName: name, name: fingerprint.Of(name.source, name.code, name.text), keys: make(map[uint32]int64)}
	return n
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

// enter counts a letter that is new.
func (g *groups) enter(l letter) {
	of := &g.known[l.group]
	of.count++
	if l.again {
		of.again++
	}
	of.keys[l.key]++
	g.keys.uses[l.key]++
}

// leave counts a letter that is gone.
func (g *groups) leave(l letter) {
	of := &g.known[l.group]
	if l.again {
		of.again--
	}
	if of.count--; of.count == 0 && l.group != 0 {
		delete(g.number, of.groupName)
		g.free = append(g.free, l.group)
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
	gone := q.redrives.known(q.shard.Now())
	left := maps.Clone(gone)
	for _, n := range g.number {
		of := &g.known[n]
		found = append(found, of)
		delete(left, of.name)
	}
	for name, is := range left { // all have gone
		found = append(found, &group{groupName: groupName{is.Source, is.Code, is.Error}, name: name})
	}
	r.Total = len(found)
	slices.SortFunc(found, func(a, b *group) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(gone[b.name].Count, gone[a.name].Count), cmp.Compare(a.name, b.name))
	})
	found = found[:min(len(found), limit)]
	samples := make([]store.ID, len(found))
	q.View(func(m *queue.Queue, side queue.Role, _ int64) {
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
			Left: gone[of.name].Count, CameBack: of.again, Keys: g.largestKeys(of),
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
