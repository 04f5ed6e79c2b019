package drr

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// peek compares what is due, and returns its handle.
func (r *rig) peek() (Item, Handle, bool) {
	f, want, wantOK := r.m.peek()
	got, h, ok := r.s.Peek()
	require.Equal(r.t, wantOK, ok)
	if !ok {
		require.Zero(r.t, h)
		return Item{}, 0, false
	}
	require.Equal(r.t, Item{Flow: f, Value: want.value, Cost: want.cost}, got)
	i := slices.IndexFunc(r.queued, func(q queuedItem) bool { return q.value == got.Value })
	require.Equal(r.t, r.queued[i].h, h)
	return got, h, true
}

// holdBack drops what is due, uncharged, several times, as a caller does whose
// gates are shut, and may let the others go on then.
func (r *rig) holdBack() {
	for range 1 + r.c.choose("hold back", 4) {
		it, h, ok := r.peek()
		if !ok {
			return
		}
		before, _ := r.s.Flow(it.Flow)
		require.Equal(r.t, it.Value, r.s.Remove(h))
		if after, ok := r.s.Flow(it.Flow); ok {
			require.Equal(r.t, before.Deficit, after.Deficit)
			require.Zero(r.t, after.Turns, "still in its turn")
		}
		r.queued = slices.DeleteFunc(r.queued, func(q queuedItem) bool { return q.h == h })
		r.held = append(r.held, it)
		r.m.remove(it.Value)
		r.dropped(it.Flow)
	}
	if r.c.choose("yield", 2) == 0 {
		r.endTurn()
	}
}

// dropped tells the bound checker that an item has been removed.
func (r *rig) dropped(f Flow) {
	r.bound.removed(f)
	if r.m.flow(f) == nil {
		r.bound.left(f)
	}
}

// pushFront puts one of the items back that were held back.
func (r *rig) pushFront() {
	if len(r.held) == 0 {
		return
	}
	i := r.c.choose("held", len(r.held))
	it := r.held[i]
	r.held = slices.Delete(r.held, i, i+1)
	const weight = 777
	h := r.s.PushFront(it.Flow, weight, it.Value, it.Cost)
	r.queued = append(r.queued, queuedItem{h, it.Value, it.Flow})
	r.m.pushFront(it.Flow, weight, modelItem{it.Value, it.Cost})
	w := r.m.flow(it.Flow).weight
	r.bound.put(it.Flow, w, it.Cost)
}

// behind returns an item to a place behind another one.
func (r *rig) behind() {
	if len(r.queued) == 0 {
		return
	}
	q := r.queued[r.c.choose("after", len(r.queued))]
	r.value++
	it := modelItem{r.value, r.cost()}
	h := r.s.ReturnBehind(q.h, it.value, it.cost)
	r.bound.giveBack(q.flow, 0, it.cost)
	r.m.insertBehind(q.value, it, it.cost)
	r.queued = append(r.queued, queuedItem{h, it.value, q.flow})
}

func (r *rig) endTurn() {
	r.s.EndTurn()
	if f, yielded := r.m.endTurn(); yielded {
		r.bound.yielded(f)
	}
}

func TestPeekIsWhatNextTakes(t *testing.T) {
	s := newItems(1)
	_, h, ok := s.Peek()
	require.False(t, ok)
	require.Zero(t, h)
	s.EndTurn()
	fill(s, 1, one, one, 2)
	fill(s, 2, one, 5*one, 2)
	for s.Len() > 0 {
		it, _, _ := s.Peek()
		again, h, ok := s.Peek()
		require.True(t, ok)
		require.NotZero(t, h)
		require.Equal(t, it, again)
		require.Equal(t, it, take(t, s))
	}
	s.check(t)
}

// A flow whose heads are held back, thousands of them, loses none of its turn,
// and goes on with the first item that is not.
func TestRemovingWhatPeekShowsIsNotCharged(t *testing.T) {
	s := newItems(1)
	fill(s, 0, 3*one, one, 5000)
	fill(s, 1, one, one, 10)
	require.Equal(t, uint64(0), take(t, s).Value)
	for v := range uint64(4000) {
		it, h, _ := s.Peek()
		require.Equal(t, Item{Flow: 0, Value: v + 1, Cost: one}, it)
		s.Remove(h)
	}
	in, _ := s.Flow(0)
	require.Equal(t, Info{Weight: 3 * one, Deficit: 2 * one}, in)
	require.Equal(t, 999, s.pending(0))
	for _, want := range []Flow{0, 0, 1, 0} {
		require.Equal(t, want, take(t, s).Flow)
	}
	s.check(t)
}

func TestEndTurnLetsTheOthersGo(t *testing.T) {
	s := newItems(1)
	fill(s, 0, 3*one, one, 20)
	fill(s, 1, one, one, 20)
	fill(s, 2, one, one, 20)
	var got []Flow
	for range 8 {
		it := take(t, s)
		if got = append(got, it.Flow); it.Flow == 0 {
			s.EndTurn()
		}
	}
	require.Equal(t, []Flow{0, 1, 2, 0, 1, 2, 0, 1}, got)
	in, _ := s.Flow(0)
	require.Zero(t, in.Deficit, "nothing of the turns was saved up")
	s.EndTurn() // the turn of flow 1, whose next item does not fit any more
	s.EndTurn() // no turn
	require.Equal(t, Flow(2), take(t, s).Flow)
	for range 3 {
		require.Equal(t, Flow(0), take(t, s).Flow)
	}
	require.Equal(t, Flow(1), take(t, s).Flow)
	s.check(t)
}

// What a flow keeps when it yields.
func TestEndTurnKeepsWhatWasSavedBefore(t *testing.T) {
	// Flow 0 has saved up 4.5 when its turn begins, and a turn adds 1.5.
	begin := func(t *testing.T) *items {
		s := newItems(1)
		s.Push(0, 1500, 1, 6*one)
		fill(s, 0, 1500, one, 9)
		fill(s, 1, one, one, 9)
		for {
			if it, _, _ := s.Peek(); it.Flow == 0 {
				break
			}
			take(t, s)
		}
		in, _ := s.Flow(0)
		require.Equal(t, int64(6000), in.Deficit)
		return s
	}
	keeps := func(t *testing.T, s *items, want int64) {
		s.EndTurn()
		in, ok := s.Flow(0)
		require.True(t, ok)
		require.Equal(t, want, in.Deficit)
		require.Equal(t, Flow(1), take(t, s).Flow)
		s.check(t)
	}
	t.Run("unused", func(t *testing.T) { keeps(t, begin(t), 4500) })
	t.Run("its head was removed", func(t *testing.T) {
		s := begin(t)
		_, h, _ := s.Peek()
		s.Remove(h)
		keeps(t, s, 4500)
		for range 6 { // 4.5 and the turn
			require.Equal(t, Flow(0), take(t, s).Flow)
		}
		require.Equal(t, Flow(1), take(t, s).Flow)
	})
	t.Run("used up in part", func(t *testing.T) {
		s := begin(t)
		_, h, _ := s.Peek()
		s.Remove(h)
		take(t, s)
		keeps(t, s, 3500)
	})
	t.Run("used up", func(t *testing.T) {
		s := begin(t)
		take(t, s)
		keeps(t, s, 0)
	})
	t.Run("the head does not fit", func(t *testing.T) {
		s := begin(t)
		s.PushFront(0, 1, 0, 10*one)
		keeps(t, s, 6000)
	})
	t.Run("returned meanwhile", func(t *testing.T) {
		s := begin(t)
		s.Return(0, 1, 0, 2*one)
		keeps(t, s, 6500)
	})
	t.Run("a turn cut short", func(t *testing.T) {
		s := begin(t)
		take(t, s)
		s.SetWeight(0, 1)
		keeps(t, s, 0)
	})
}

// A flow that yields whenever it can, for ever, does not get behind what it needs
// to go at last, and saves nothing up that it could send at once later.
func TestYieldingIsNoWayToSaveUp(t *testing.T) {
	s := newItems(1)
	fill(s, 0, one, one, 100)
	fill(s, 1, one, one, 100)
	for range 50 {
		it, _, _ := s.Peek()
		if it.Flow == 0 {
			s.EndTurn()
		}
		require.Equal(t, Flow(1), take(t, s).Flow)
	}
	for range 10 {
		require.Equal(t, Flow(0), take(t, s).Flow)
		require.Equal(t, Flow(1), take(t, s).Flow)
	}
}

func TestPushFront(t *testing.T) {
	s := newItems(1)
	fill(s, 0, one, one, 3)
	fill(s, 1, one, one, 3)
	_, h, _ := s.Peek()
	v := s.Remove(h)
	require.Equal(t, Flow(0), take(t, s).Flow)
	require.Equal(t, Flow(1), take(t, s).Flow)
	before, _ := s.Flow(0)
	s.PushFront(0, 9*one, v, one)
	after, _ := s.Flow(0)
	require.Equal(t, before.Deficit, after.Deficit, "nothing is given back")
	require.Equal(t, int64(one), after.Weight)
	var values []uint64
	for s.Len() > 0 {
		if it := take(t, s); it.Flow == 0 {
			values = append(values, it.Value)
		}
	}
	require.Equal(t, []uint64{0, 2}, values)

	// Into an idle flow, as Push.
	fill(s, 1, one, one, 3)
	s.PushFront(0, 2*one, 5, one)
	in, _ := s.Flow(0)
	require.Equal(t, Info{Weight: 2 * one, Turns: 1}, in)
	require.Equal(t, Flow(1), take(t, s).Flow)
	require.Equal(t, Flow(0), take(t, s).Flow)
	s.check(t)
}
