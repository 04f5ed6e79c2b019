package drr

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// chooser makes the choices of a history: rapid, or the bytes of a fuzz input.
type chooser interface {
	// choose returns a number from 0 to n-1.
	choose(what string, n int) int
	more() bool
}

// rig runs one history through the scheduler, the model and the bound checker.
type rig struct {
	t      require.TestingT
	c      chooser
	s      *items
	m      *model
	bound  *boundChecker
	flows  int // numbers in use
	dear   int64
	value  uint64
	queued []queuedItem
	taken  []Item
	held   []Item // removed, and may be put back
}

type queuedItem struct {
	h     Handle
	value uint64
	flow  Flow
}

// rounds at which the carries of the wheel happen.
var startRounds = []uint64{0, 1<<12 - 7, 1<<18 - 100, 1<<32 - 50, 1<<36 - 20, math.MaxUint64 - 30}

func newRig(t require.TestingT, c chooser) *rig {
	quantum := []int64{1, 1, 2, 7}[c.choose("quantum", 4)]
	r := &rig{
		t: t, c: c, s: newItems(quantum), m: &model{quantum: quantum},
		bound: newBoundChecker(t, quantum),
		flows: 1 + c.choose("flows", 8),
		dear:  []int64{1000, 3000, 30_000, 2_000_000}[c.choose("dear", 4)],
	}
	r.s.round = startRounds[c.choose("round", len(startRounds))]
	return r
}

func (r *rig) run() {
	for r.c.more() {
		r.step()
		r.compare()
	}
	for r.s.Len() > 0 {
		r.next()
		r.compare()
	}
	r.next()
}

func (r *rig) step() {
	switch op := r.c.choose("op", 26); op {
	case 0, 1, 2, 3, 4:
		r.push()
	case 5, 6, 7, 8, 9, 10:
		r.next()
	case 11, 12:
		r.giveBack()
	case 13:
		r.remove()
	case 14:
		r.setWeight()
	case 15:
		if r.c.choose("really", 4) == 0 {
			r.setQuantum()
		}
	case 16:
		r.peek()
	case 17, 18, 19:
		r.holdBack()
	case 20, 21:
		r.pushFront()
	case 22:
		r.behind()
	case 23:
		r.endTurn()
	case 24, 25:
		r.correct()
	}
}

// correct says that what a flow has sent cost more or less than was said.
func (r *rig) correct() {
	f, delta := r.flow(), r.cost()
	if r.c.choose("less", 2) == 0 {
		delta = -delta
	}
	r.s.Correct(f, delta)
	r.m.correct(f, delta)
	r.bound.correct(f, delta)
}

func (r *rig) flow() Flow { return Flow(r.c.choose("flow", r.flows) * 97) } // over several chunks

// weight keeps its value most of the time, so that intervals get long.
func (r *rig) weight(f Flow) int64 {
	if mf := r.m.flow(f); mf != nil && r.c.choose("keep", 4) > 0 {
		return mf.weight
	}
	return []int64{1000, 1000, 2000, 3000, 500, 1500, 333, 10_000}[r.c.choose("weight", 8)]
}

func (r *rig) cost() int64 {
	switch r.c.choose("cost", 4) {
	case 0, 1:
		return 1000
	case 2:
		return 1 + int64(r.c.choose("small", 2000))
	default:
		return max(1, r.dear*int64(1+r.c.choose("large", 256))/256)
	}
}

func (r *rig) push() {
	f := r.flow()
	w, cost := r.weight(f), r.cost()
	r.value++
	h := r.s.Push(f, w, r.value, cost)
	require.NotZero(r.t, h)
	r.queued = append(r.queued, queuedItem{h, r.value, f})
	r.m.push(f, w, modelItem{r.value, cost})
	r.bound.put(f, w, cost)
}

func (r *rig) next() {
	f, want, wantOK := r.m.next()
	got, ok := r.s.Next()
	require.Equal(r.t, wantOK, ok)
	if !ok {
		return
	}
	require.Equal(r.t, Item{Flow: f, Value: want.value, Cost: want.cost}, got)
	r.taken = append(r.taken, got)
	i := slices.IndexFunc(r.queued, func(q queuedItem) bool { return q.value == got.Value })
	r.queued = slices.Delete(r.queued, i, i+1)
	r.bound.serve(f, got.Cost)
	if r.m.flow(f) == nil {
		r.bound.left(f)
	}
}

// giveBack returns the item taken last, mostly.
func (r *rig) giveBack() {
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
	h := r.s.Return(it.Flow, weight, it.Value, it.Cost)
	r.queued = append(r.queued, queuedItem{h, it.Value, it.Flow})
	r.m.giveBack(it.Flow, weight, modelItem{it.Value, it.Cost})
	r.bound.giveBack(it.Flow, weight, it.Cost)
}

func (r *rig) remove() {
	if len(r.queued) == 0 {
		return
	}
	i := r.c.choose("queued", len(r.queued))
	q := r.queued[i]
	r.queued = slices.Delete(r.queued, i, i+1)
	require.Equal(r.t, q.value, r.s.Remove(q.h))
	r.m.remove(q.value)
	r.dropped(q.flow)
}

func (r *rig) setWeight() {
	f := r.flow()
	w := r.weight(f)
	r.s.SetWeight(f, w)
	if mf := r.m.flow(f); mf != nil {
		mf.weight = w
		r.bound.setWeight(f, w)
	}
}

func (r *rig) setQuantum() {
	q := int64(1 + r.c.choose("new quantum", 5))
	r.s.SetQuantum(q)
	r.m.quantum = q
	r.bound.setQuantum(q)
}

func (r *rig) compare() {
	r.s.check(r.t)
	require.Equal(r.t, r.m.len(), r.s.Len())
	require.Equal(r.t, len(r.m.ring), r.s.Active())
	i := 0
	for f, info := range r.s.All() {
		want := r.m.ring[i]
		require.Equal(r.t, want.id, f, "order of the ring")
		require.Equal(r.t, r.m.info(want), info, "flow %d", f)
		single, ok := r.s.Flow(f)
		require.True(r.t, ok)
		require.Equal(r.t, info, single)
		require.Equal(r.t, len(want.items), r.s.pending(f))
		i++
	}
	require.Equal(r.t, i, r.s.Active())
	for n := range r.flows {
		if f := Flow(n * 97); r.m.flow(f) == nil {
			_, ok := r.s.Flow(f)
			require.False(r.t, ok)
		}
	}
}

type rapidChooser struct {
	t    *rapid.T
	left int
}

func (c *rapidChooser) choose(what string, n int) int { return rapid.IntRange(0, n-1).Draw(c.t, what) }

func (c *rapidChooser) more() bool { c.left--; return c.left >= 0 }

type byteChooser struct{ in []byte }

func (c *byteChooser) choose(_ string, n int) int {
	v := 0
	for most := 1; most < n && len(c.in) > 0; most <<= 8 {
		v = v<<8 | int(c.in[0])
		c.in = c.in[1:]
	}
	return v % n
}

func (c *byteChooser) more() bool { return len(c.in) > 0 }

// history runs one, of whatever the chooser chooses.
type history func(require.TestingT, chooser)

func (run history) check(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { run(t, &rapidChooser{t, rapid.IntRange(1, 300).Draw(t, "steps")}) })
}

func (run history) fuzz(f *testing.F, seeds ...string) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 2048 {
			t.Skip("long histories find nothing more and are slow")
		}
		run(t, &byteChooser{in})
	})
}

func runScheduler(t require.TestingT, c chooser) { newRig(t, c).run() }

func TestSchedulerAgainstModelAndBound(t *testing.T) { history(runScheduler).check(t) }

func FuzzScheduler(f *testing.F) {
	history(runScheduler).fuzz(
		f, "\x00\x03\x02\x00"+"\x00\x00\x00\x03\xff\x00\x01\x00\x00\x05\x05\x0b\x00\x05\x05",
		"\x03\x07\x03\x05 every flow sends what it can, and waits for the rest of it",
	)
}
