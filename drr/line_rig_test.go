package drr

import (
	"math"
	"math/big"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// lineRig runs one history through a Line, the model and the bound checker.
type lineRig struct {
	t     require.TestingT
	c     chooser
	l     Line
	base  uint64 // where the virtual time began
	m     *lineModel
	bound *boundChecker // nil where numbers are too large for it
	flows int
	lanes int
	taken []takenLane
}

type takenLane struct {
	flow Flow
	lane uint32
	cost int64
}

func newLineRig(t require.TestingT, c chooser) *lineRig {
	r := &lineRig{t: t, c: c, m: newLineModel(), flows: 1 + c.choose("flows", 12)}
	r.lanes = r.flows * (1 + c.choose("lanes", 5))
	r.base = []uint64{0, math.MaxUint64 - 1<<40, math.MaxUint64 - 1<<62, 1<<63 - 1<<33}[c.choose("base", 4)]
	r.l.now, r.l.moves = r.base, []uint32{0, math.MaxUint32 - 20, math.MaxInt32 - 20}[c.choose("moves", 3)]
	r.m.moves = int64(r.l.moves)
	if c.choose("range", 3) > 0 {
		r.bound = newBoundChecker(t, 0)
	}
	return r
}

func (r *lineRig) weight() int64 {
	if r.bound == nil {
		return []int64{1, 1000, 7, MaxWeight, MaxWeight - 1, 3000, 1_000_003}[r.c.choose("weight", 7)]
	}
	return []int64{1000, 1000, 2000, 3000, 500, 1500, 333, 10_000}[r.c.choose("weight", 8)]
}

func (r *lineRig) cost() int64 {
	if r.bound == nil {
		return []int64{1, 1000, 3, MaxCost, MaxCost - 1, 2500, 999_983}[r.c.choose("cost", 7)]
	}
	return []int64{1000, 1000, 1000, 1, 2500, 40_000, 1_000_000, 333}[r.c.choose("cost", 8)]
}

// lane belongs to one flow always.
func (r *lineRig) lane() (Flow, uint32) {
	n := r.c.choose("lane", r.lanes)
	return Flow(n % r.flows * 97), uint32(n)
}

// keep is the weight of a flow, mostly as it was.
func (r *lineRig) keep(f Flow) int64 {
	if mf := r.m.flow(f); mf != nil && r.c.choose("keep", 4) > 0 {
		return mf.weight
	}
	return r.weight()
}

func (r *lineRig) run() {
	for r.c.more() {
		r.step()
		r.compare()
	}
	for r.l.Len() > 0 {
		r.take(false)
		r.compare()
	}
	_, _, ok := r.l.Peek()
	require.False(r.t, ok)
}

func (r *lineRig) step() {
	switch op := r.c.choose("op", 18); op {
	case 0, 1, 2, 3:
		r.add()
	case 4, 5, 6, 7, 8:
		r.take(true)
	case 9, 10:
		r.take(false)
	case 11, 12:
		r.putBack()
	case 13:
		r.remove()
	case 14:
		f, _ := r.lane()
		w := r.keep(f)
		r.l.SetWeight(f, w)
		if mf := r.m.flow(f); mf != nil {
			r.m.reweigh(mf, w)
			r.bounded(func(b *boundChecker) { b.setWeight(f, w) })
		}
	case 15:
		f, lane := r.lane()
		cost := r.cost()
		r.l.SetCost(lane, cost)
		if mf, i := r.m.owner(lane); mf != nil {
			mf.lanes[i].cost = cost
			r.bounded(func(b *boundChecker) { b.put(f, mf.weight, cost) })
		}
	case 16, 17:
		r.correct()
	}
}

func (r *lineRig) correct() {
	f, _ := r.lane()
	delta := r.cost()
	if r.c.choose("less", 2) == 0 {
		delta = -delta
	}
	mf := r.m.flow(f)
	require.Equal(r.t, mf != nil, r.l.Correct(f, delta))
	if mf != nil {
		r.m.correct(mf, delta)
		r.bounded(func(b *boundChecker) { b.correct(f, delta) })
	}
}

func (r *lineRig) bounded(fn func(*boundChecker)) {
	if r.bound != nil {
		fn(r.bound)
	}
}

func (r *lineRig) add() {
	f, lane := r.lane()
	if r.l.Has(lane) {
		require.Panics(r.t, func() { r.l.Add(f, 1, lane, 1) })
		return
	}
	w, cost := r.keep(f), r.cost()
	r.l.Add(f, w, lane, cost)
	r.m.add(f, w, lane, cost)
	r.bounded(func(b *boundChecker) { b.put(f, w, cost) })
}

func (r *lineRig) take(more bool) {
	want := r.m.peek()
	lane, f, ok := r.l.Peek()
	require.Equal(r.t, want != nil, ok)
	if !ok {
		require.Panics(r.t, func() { r.l.Take(1, more) })
		return
	}
	require.Equal(r.t, want.id, f)
	require.Equal(r.t, want.lanes[0].lane, lane)
	cost, next := want.lanes[0].cost, r.cost()
	r.taken = append(r.taken, takenLane{f, lane, cost})
	r.l.Take(next, more)
	r.m.take(next, more)
	r.bounded(func(b *boundChecker) { b.serve(f, cost) })
	if more {
		r.bounded(func(b *boundChecker) { b.put(f, want.weight, next) })
	}
	r.left(f)
}

// putBack undoes the last take, mostly.
func (r *lineRig) putBack() {
	if len(r.taken) == 0 {
		return
	}
	i := len(r.taken) - 1
	if r.c.choose("which", 2) == 1 {
		i = r.c.choose("taken", len(r.taken))
	}
	it := r.taken[i]
	r.taken = slices.Delete(r.taken, i, i+1)
	const weight = 1234
	r.l.PutBack(it.flow, weight, it.lane, it.cost)
	r.m.putBack(it.flow, weight, it.lane, it.cost)
	r.bounded(func(b *boundChecker) { b.giveBack(it.flow, weight, it.cost) })
}

func (r *lineRig) remove() {
	f, lane := r.lane()
	waits := r.l.Has(lane)
	require.False(r.t, r.l.Remove(f+1, lane), "another flow")
	require.Equal(r.t, waits, r.l.Remove(f, lane))
	if !waits {
		return
	}
	r.m.remove(lane)
	r.bounded(func(b *boundChecker) { b.removed(f) })
	r.left(f)
}

func (r *lineRig) left(f Flow) {
	if r.m.flow(f) == nil {
		r.bounded(func(b *boundChecker) { b.left(f) })
	}
}

func (r *lineRig) compare() {
	checkLine(r.t, &r.l)
	require.Equal(r.t, r.m.len(), r.l.Len())
	require.Len(r.t, r.l.flows, len(r.m.flows))
	now := new(big.Int).Mod(r.m.now, new(big.Int).Lsh(big.NewInt(1), 64))
	require.Equal(r.t, now.Uint64(), r.l.now-r.base)
	byFlow := map[Flow][]uint32{}
	for lane, f := range r.l.All() {
		byFlow[f] = append(byFlow[f], lane)
	}
	for _, mf := range r.m.flows {
		var lanes []uint32
		for _, ml := range mf.lanes {
			lanes = append(lanes, ml.lane)
			require.True(r.t, r.l.Has(ml.lane))
		}
		require.Equal(r.t, lanes, byFlow[mf.id], "lanes of flow %d in order", mf.id)
	}
	want := r.m.peek()
	lane, f, ok := r.l.Peek()
	if require.Equal(r.t, want != nil, ok); ok {
		require.Equal(r.t, want.id, f)
		require.Equal(r.t, want.lanes[0].lane, lane)
	}
}

// checkLine walks everything in a Line.
func checkLine(t require.TestingT, l *Line) {
	seen := map[uint32]bool{}
	for i := range l.flows {
		fl := &l.flows[i]
		at, ok := l.find(fl.id)
		require.True(t, ok)
		require.Equal(t, uint32(i), at)
		at, first, ok := l.locate(fl.lane)
		require.True(t, ok && first)
		require.Equal(t, uint32(i), at)
		require.False(t, seen[fl.lane])
		seen[fl.lane] = true
		require.Less(t, fl.frac, fl.weight)
		require.LessOrEqual(t, int64(l.now-fl.start), int64(maxLag+2))
		require.GreaterOrEqual(t, int64(l.now-fl.start), int64(-maxLead), "start tags are not after the virtual time by more")
		require.LessOrEqual(t, fl.finish-fl.start, uint64(maxLag+1))
		if fl.rest == 0 {
			continue
		}
		for at := fl.rest - 1; ; {
			ln := l.lanes[at]
			require.Equal(t, fl.id, ln.flow)
			require.Equal(t, at, l.lanes[ln.next].prev)
			where, first, ok := l.locate(ln.lane)
			require.True(t, ok && !first)
			require.Equal(t, at, where)
			require.False(t, seen[ln.lane])
			seen[ln.lane] = true
			if at = ln.next; at == fl.rest-1 {
				break
			}
		}
	}
	require.Len(t, seen, l.Len(), "every lane is in a ring")
	require.LessOrEqual(t, cap(l.flows), max(4, 4*len(l.flows)))
	require.LessOrEqual(t, cap(l.lanes), max(4, 4*len(l.lanes)))
	x := l.index
	if x == nil {
		require.LessOrEqual(t, l.Len(), indexAbove)
		return
	}
	require.GreaterOrEqual(t, l.Len(), indexBelow)
	require.Len(t, x.flows, len(l.flows))
	require.Len(t, x.lanes, l.Len())
	require.Len(t, x.heap, len(l.flows))
	for pos, k := range x.heap {
		require.Equal(t, uint32(pos), l.flows[k.flow].pos)
		require.Equal(t, l.key(k.flow), k)
		if pos > 0 {
			require.True(t, x.heap[(pos-1)/4].before(k))
		}
	}
}

func runLine(t require.TestingT, c chooser) { newLineRig(t, c).run() }

func TestLineAgainstModelAndBound(t *testing.T) { history(runLine).check(t) }

func FuzzLine(f *testing.F) {
	history(runLine).fuzz(
		f, "\x03\x01\x00\x00\x01"+"\x00\x00\x00\x00\x01\x01\x00\x04\x00\x04\x01\x0b\x00\x05\x00",
		"\x0b\x04\x02\x01\x00 flows that wait for one gate share what it admits by weight",
	)
}
