package queue

import "github.com/filaq/fila/drr"

// keyTable gives the fairness keys of a queue's live messages small dense
// numbers, which are the flows of its scheduler. A key without messages is
// forgotten and its number used again.
type keyTable struct {
	ids       map[string]drr.Flow
	entries   []keyEntry
	free      []drr.Flow
	overrides map[string]uint32 // weights set at run time, by key, in thousandths

	heaps     [][]subID // of eligible subqueues, by keyEntry.ready; heaps[0] is not used
	freeHeaps []uint32
}

type keyEntry struct {
	name   string
	weight uint32 // of the latest enqueue, in thousandths
	known  uint32 // the weight that the schedule and wait lists know; 0: none yet
	refs   int32  // live messages
	plain  list   // messages without gates that wait
	sub    subID  // the subqueue of the latest message, to find it without a look-up; 0: none
	bare   subID  // the subqueue that plain has become while the key was paused; 0: none
	ready  uint32 // the heap of eligible subqueues; 0: there are none
	active bool   // in the schedule
}

func newKeyTable() keyTable {
	return keyTable{ids: make(map[string]drr.Flow), overrides: make(map[string]uint32), heaps: make([][]subID, 1)}
}

// acquire counts one more live message of key, whose weight is now weight.
func (t *keyTable) acquire(key string, weight uint32) drr.Flow {
	f, ok := t.ids[key]
	if !ok {
		if n := len(t.free); n > 0 {
			f, t.free = t.free[n-1], t.free[:n-1]
		} else {
			f = drr.Flow(len(t.entries))
			t.entries = append(t.entries, keyEntry{})
		}
		t.entries[f].name = key
		t.ids[key] = f
	}
	e := &t.entries[f]
	e.refs++
	e.weight = weight
	return f
}

// release counts one live message of f less.
func (t *keyTable) release(f drr.Flow) {
	e := &t.entries[f]
	if e.refs--; e.refs > 0 {
		return
	}
	delete(t.ids, e.name)
	*e = keyEntry{}
	t.free = append(t.free, f)
}

func (t *keyTable) name(f drr.Flow) string { return t.entries[f].name }

// weight is the weight in force: the run-time override or the latest enqueue's.
func (t *keyTable) weight(f drr.Flow) int64 {
	e := &t.entries[f]
	if len(t.overrides) > 0 {
		if w, ok := t.overrides[e.name]; ok {
			return int64(w)
		}
	}
	return int64(e.weight)
}

// override sets (weight > 0) or lifts (0) a run-time weight and returns the
// flow that it concerns, if the key has messages.
func (t *keyTable) override(key string, weight uint32) (drr.Flow, bool) {
	if weight > 0 {
		t.overrides[key] = weight
	} else {
		delete(t.overrides, key)
	}
	f, ok := t.ids[key]
	return f, ok
}

// heap returns the heap of a flow, which is made if need be.
func (t *keyTable) heap(f drr.Flow) *[]subID {
	e := &t.entries[f]
	if e.ready == 0 {
		if n := len(t.freeHeaps); n > 0 {
			e.ready, t.freeHeaps = t.freeHeaps[n-1], t.freeHeaps[:n-1]
		} else {
			e.ready = uint32(len(t.heaps))
			t.heaps = append(t.heaps, nil)
		}
	}
	return &t.heaps[e.ready]
}

// dropHeap gives the heap of a flow back, which is empty.
func (t *keyTable) dropHeap(f drr.Flow) {
	const keep = 64
	e := &t.entries[f]
	if cap(t.heaps[e.ready]) > keep {
		t.heaps[e.ready] = nil
	}
	t.freeHeaps = append(t.freeHeaps, e.ready)
	e.ready = 0
}
