package deadletter

import (
	"cmp"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

const (
	maxGroups = 1000   // groups of an index; dead letters beyond them are counted as other
	maxKeys   = 10_000 // fairness keys that an index counts
	pageSize  = 4096   // dead letters that are listed at a time
	topKeys   = 5      // fairness keys that are listed for a group
)

// Index groups the dead letters of one queue by their error. The zero value is empty: the
// first List reads everything, and from then on the index takes 40 bytes a dead letter.
//
// Nobody notifies the index of changes. Each List compares the sequences that it knows with
// those in the queue, and reads only new dead letters from the store.
type Index struct {
	mu     sync.Mutex
	dead   []deadLetter     // by sequence
	groups slots[key]       // number of each group in use
	stats  []group          // by number
	back   slots[key]       // number of each group from which dead letters were redriven and came back
	backs  []int64          // how many came back, by number
	keys   slots[string]    // number of each fairness key in use
	uses   []int64          // dead letters by the number of their fairness key
	seqs   []uint64         // buffer: the sequences of a page
	listed []inspect.Listed // buffer: the new ones of these
}

// deadLetter is one dead letter. It has no pointers, so the garbage collector does not scan
// dead.
type deadLetter struct {
	seq      uint64
	died     int64
	redriven int64  // Unix ns of its last redrive; 0: it has not been redriven
	group    uint32 // 0: other
	key      uint32 // 0: not counted
	from     uint32 // number in back; 0: none
}

// group counts the dead letters of a group.
type group struct {
	id          string
	count       int64
	first, last int64
	sample      uint64           // sequence of the newest
	keys        map[uint32]int64 // dead letters by the number of their fairness key
}

// slots gives values small numbers, from 1 on, while they are in use. 0 stands for all
// values beyond the limit.
type slots[T comparable] struct {
	limit  int
	number map[T]uint32
	values []T // by number
	free   []uint32
}

func newSlots[T comparable](limit int) slots[T] {
	return slots[T]{limit: limit, number: make(map[T]uint32), values: make([]T, 1)}
}

// take returns the number of v, and whether v has just got it.
func (s *slots[T]) take(v T) (n uint32, isNew bool) {
	n, known := s.number[v]
	switch {
	case known:
		return n, false
	case len(s.free) > 0:
		n, s.free = s.free[len(s.free)-1], s.free[:len(s.free)-1]
	case len(s.values) <= s.limit:
		n = uint32(len(s.values))
		s.values = append(s.values, v)
	default:
		return 0, false
	}
	s.number[v], s.values[n] = n, v
	return n, true
}

// release makes number n available to another value.
func (s *slots[T]) release(n uint32) {
	delete(s.number, s.values[n])
	s.free = append(s.free, n)
}

// List returns the largest groups of the dead letter queue q, up to limit, among them
// groups whose dead letters have all been redriven. It logs dead letters that cannot be
// read.
func (x *Index) List(q Queue, redrives *Redrives, limit int, now int64, log *slog.Logger) (api.DeadGroups, *wire.Error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if werr := x.refresh(q, log); werr != nil {
		return api.DeadGroups{}, werr
	}
	return x.reply(q, redrives.recent(now), limit), nil
}

// CameBack is how many of the messages that were redriven between two times (Unix ns) are dead letters
// again.
func (x *Index) CameBack(q Queue, since, until int64, log *slog.Logger) (n int64, werr *wire.Error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if werr := x.refresh(q, log); werr != nil {
		return 0, werr
	}
	for i := range x.dead {
		if at := x.dead[i].redriven; at >= since && at <= until {
			n++
		}
	}
	return n, nil
}

func (x *Index) reset() {
	x.dead = nil
	x.groups, x.stats = newSlots[key](maxGroups), []group{{keys: make(map[uint32]int64)}}
	x.back, x.backs = newSlots[key](maxGroups), []int64{0}
	x.keys, x.uses = newSlots[string](maxKeys), []int64{0}
}

// refresh brings the index up to date with q.
func (x *Index) refresh(q Queue, log *slog.Logger) (werr *wire.Error) {
	if x.stats == nil {
		x.reset()
	}
	defer func() {
		if werr != nil {
			x.reset() // it is half compared
		}
	}()
	kept, before := x.dead[:0], x.dead
	var added []deadLetter
	texts := [2]normaliser{{}, {}}
	for from, more := uint64(0), true; more; more = from != 0 {
		ok := q.View(func(m *queue.Queue, role queue.Role, _ int64) {
			x.seqs, from = m.Inspect(role).Sequences(from, pageSize, x.seqs[:0])
		})
		unknown := x.seqs[:0]
		for _, seq := range x.seqs {
			for len(before) > 0 && before[0].seq < seq {
				x.remove(before[0])
				before = before[1:]
			}
			if len(before) > 0 && before[0].seq == seq {
				kept, before = append(kept, before[0]), before[1:]
				continue
			}
			unknown = append(unknown, seq)
		}
		ok = ok && (len(unknown) == 0 || q.View(func(m *queue.Queue, role queue.Role, _ int64) {
			x.listed = m.Inspect(role).List(unknown, x.listed[:0])
		}))
		switch {
		case !ok:
			return q.Gone()
		case len(unknown) == 0:
			continue
		}
		if added, werr = x.read(q, x.listed, added, &texts, log); werr != nil {
			return werr
		}
	}
	if len(added) == 0 && len(kept) == len(x.dead) {
		return nil
	}
	for _, l := range before {
		x.remove(l)
	}
	x.dead = append(kept, added...)
	bySeq := func(a, b deadLetter) int { return cmp.Compare(a.seq, b.seq) }
	if len(kept) > 0 && len(added) > 0 && !slices.IsSortedFunc(x.dead, bySeq) {
		slices.SortFunc(x.dead, bySeq)
	}
	x.findSpans()
	return nil
}

// read reads new dead letters, counts them and appends them to added. It reads two halves
// at the same time, since normalising their errors takes long.
func (x *Index) read(q Queue, unknown []inspect.Listed, added []deadLetter, texts *[2]normaliser, log *slog.Logger) ([]deadLetter, *wire.Error) {
	half := len(unknown) / 2
	parts := [2][]inspect.Listed{unknown[:half], unknown[half:]}
	var found [2][]stored
	var errs [2]error
	var both sync.WaitGroup
	for i := range parts {
		both.Go(func() { found[i], errs[i] = readStored(q, parts[i], texts[i]) })
	}
	both.Wait()
	for i := range found {
		switch err := errs[i]; {
		case err == nil, errors.Is(err, store.ErrNotFound): // gone meanwhile
		case errors.Is(err, store.ErrCorrupt):
			log.Error("a dead letter cannot be read; it is in no group", "queue", q.Name(), "error", err)
		default:
			return nil, wire.Internal(err.Error())
		}
		for j := range found[i] {
			s := &found[i][j]
			l := deadLetter{seq: s.Seq, died: s.died, group: x.groupNumber(s.key), key: x.keyNumber(s.Key), redriven: s.redriven}
			if s.redriven != 0 {
				l.from = x.backNumber(s.from)
			}
			x.add(l)
			added = append(added, l)
		}
	}
	return added, nil
}

// stored is a dead letter with what the store has of it.
type stored struct {
	inspect.Listed
	key
	died     int64
	redriven int64 // Unix ns of the last redrive; 0: none
	from     key   // the group of that redrive
}

// readStored reads why messages died, and from their histories whether they came back.
// Those that are not on disk are left out.
func readStored(q Queue, list []inspect.Listed, texts normaliser) ([]stored, error) {
	refs := make([]store.Ref, len(list))
	for i := range list {
		refs[i] = store.Ref{Queue: q.ID(), Seq: list[i].Seq}
	}
	found := make([]stored, 0, len(list))
	err := q.Store().Dead(refs, func(i int, d *store.Dead) {
		if d != nil {
			found = append(found, stored{list[i], texts.keyOf(d), d.At, 0, key{}})
		}
	})
	if store.Fatal(err) != nil {
		return nil, err
	}
	refs = refs[:0]
	for i := range found {
		refs = append(refs, store.Ref{Queue: q.ID(), Seq: found[i].Seq})
	}
	n := 0
	herr := q.Store().History(refs, func(i int, records [][]byte) {
		found[n] = found[i]
		found[n].redriven, found[n].from = texts.lastRedrive(records, found[n].key)
		n++
	})
	return found[:n], cmp.Or(herr, err)
}

func (x *Index) groupNumber(k key) uint32 {
	n, isNew := x.groups.take(k)
	if isNew {
		if int(n) == len(x.stats) {
			x.stats = append(x.stats, group{})
		}
		x.stats[n] = group{id: k.id(), keys: make(map[uint32]int64)}
	}
	return n
}

func (x *Index) backNumber(k key) uint32 {
	n, isNew := x.back.take(k)
	if isNew && int(n) == len(x.backs) {
		x.backs = append(x.backs, 0)
	}
	return n
}

func (x *Index) keyNumber(key string) uint32 {
	n, _ := x.keys.take(key)
	if int(n) == len(x.uses) {
		x.uses = append(x.uses, 0)
	}
	return n
}

// add counts a new dead letter.
func (x *Index) add(l deadLetter) {
	g := &x.stats[l.group]
	g.count++
	x.backs[l.from]++
	g.keys[l.key]++
	x.uses[l.key]++
}

// remove counts a dead letter that is gone.
func (x *Index) remove(l deadLetter) {
	g := &x.stats[l.group]
	if x.backs[l.from]--; x.backs[l.from] == 0 && l.from != 0 {
		x.back.release(l.from)
	}
	if g.count--; g.count == 0 && l.group != 0 {
		x.groups.release(l.group)
	}
	if g.keys[l.key]--; g.keys[l.key] == 0 {
		delete(g.keys, l.key)
	}
	if x.uses[l.key]--; x.uses[l.key] == 0 && l.key != 0 {
		x.keys.release(l.key)
	}
}

// findSpans finds the first and the last time of each group, and its sample.
func (x *Index) findSpans() {
	for i := range x.stats {
		x.stats[i].first, x.stats[i].last = 0, 0
	}
	for i := range x.dead {
		l := &x.dead[i]
		g := &x.stats[l.group]
		if g.first == 0 || l.died < g.first {
			g.first = l.died
		}
		if l.died >= g.last {
			g.last, g.sample = l.died, l.seq
		}
	}
}

// listedGroup is a group to list; stats is nil if all its dead letters have been redriven.
type listedGroup struct {
	key
	id    string
	stats *group
}

func (g *listedGroup) count() int64 {
	if g.stats == nil {
		return 0
	}
	return g.stats.count
}

func (x *Index) reply(q Queue, left map[string]redriven, limit int) api.DeadGroups {
	found := x.largest(left)
	r := api.DeadGroups{
		Queue: q.Name(), Messages: int64(len(x.dead)), Groups: []api.DeadGroup{}, Other: x.stats[0].count, Total: len(found),
	}
	found = found[:min(len(found), limit)]
	for i := range found {
		r.Groups = append(r.Groups, x.describe(&found[i], left))
	}
	q.View(func(m *queue.Queue, role queue.Role, _ int64) {
		for i := range found {
			if found[i].stats == nil {
				continue
			}
			if l := m.Inspect(role).List([]uint64{found[i].stats.sample}, nil); len(l) > 0 {
				r.Groups[i].Sample = uuid.UUID(l[0].ID).String()
			}
		}
	})
	return r
}

// largest returns all groups, the largest first.
func (x *Index) largest(left map[string]redriven) []listedGroup {
	redrivenAll := maps.Clone(left)
	var found []listedGroup
	for k, n := range x.groups.number {
		g := &x.stats[n]
		found = append(found, listedGroup{k, g.id, g})
		delete(redrivenAll, g.id)
	}
	for id, r := range redrivenAll {
		found = append(found, listedGroup{key: key{r.Source, r.Code, r.Error}, id: id})
	}
	slices.SortFunc(found, func(a, b listedGroup) int {
		return cmp.Or(cmp.Compare(b.count(), a.count()), cmp.Compare(left[b.id].Count, left[a.id].Count), cmp.Compare(a.id, b.id))
	})
	return found
}

func (x *Index) describe(g *listedGroup, left map[string]redriven) api.DeadGroup {
	d := api.DeadGroup{
		Group: g.id, SourceQueue: g.source, ErrorCode: g.code, Error: g.text,
		Messages: g.count(), Left: left[g.id].Count, Keys: []api.KeyCount{},
	}
	if n := x.back.number[g.key]; n != 0 {
		d.CameBack = x.backs[n]
	}
	if g.stats == nil {
		return d
	}
	d.First, d.Last = wire.Timestamp(g.stats.first), wire.Timestamp(g.stats.last)
	for n, count := range g.stats.keys {
		if n != 0 {
			d.Keys = append(d.Keys, api.KeyCount{Key: x.keys.values[n], Messages: count})
		}
	}
	slices.SortFunc(d.Keys, func(a, b api.KeyCount) int {
		return cmp.Or(cmp.Compare(b.Messages, a.Messages), cmp.Compare(a.Key, b.Key))
	})
	d.Keys = slices.Clone(d.Keys[:min(len(d.Keys), topKeys)])
	for i := range d.Keys {
		d.Keys[i].Key = wire.ShowKey(d.Keys[i].Key)
	}
	return d
}
