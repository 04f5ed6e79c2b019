package drr

import (
	"slices"

	"github.com/stretchr/testify/require"
)

// peek compares the due item, and returns its handle.
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
