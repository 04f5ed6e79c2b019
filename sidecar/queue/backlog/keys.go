package backlog

import (
	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/sidecar/queue/gates"
)

// Keys gives the fairness keys of live messages small dense numbers, which are the
// flows of the schedule. A key without messages is forgotten and its number reused.
type Keys struct {
	IDs       map[string]drr.Flow
	Entries   []Key
	Overrides map[string]uint32 // weights set at run time, by key, in thousandths
	free      []drr.Flow
}

// Key is a fairness key with live messages.
type Key struct {
	Name   string
	weight uint32 // of the latest enqueue, in thousandths
	known  uint32 // the weight that the schedule and the wait lists have; 0: none yet
	Refs   int32  // live messages
	Flow   gates.Flow
	Active bool // in the schedule

	Unserved uint8  // belongs to inspect.Monitor
	WorkRow  uint16 // row of the key in inspect.work
}

func newKeys() Keys {
	return Keys{IDs: make(map[string]drr.Flow), Overrides: make(map[string]uint32)}
}

// acquire counts one more live message of key, whose weight is now weight.
func (k *Keys) acquire(key string, weight uint32) drr.Flow {
	f, ok := k.IDs[key]
	if !ok {
		if n := len(k.free); n > 0 {
			f, k.free = k.free[n-1], k.free[:n-1]
		} else {
			f = drr.Flow(len(k.Entries))
			k.Entries = append(k.Entries, Key{})
		}
		k.Entries[f].Name = key
		k.IDs[key] = f
	}
	e := &k.Entries[f]
	e.Refs++
	e.weight = weight
	return f
}

// Release counts one live message of f less.
func (k *Keys) Release(f drr.Flow) {
	e := &k.Entries[f]
	if e.Refs--; e.Refs > 0 {
		return
	}
	delete(k.IDs, e.Name)
	*e = Key{}
	k.free = append(k.free, f)
}

// Weight is the weight in force: the override, or the weight of the latest enqueue.
func (k *Keys) Weight(f drr.Flow) int64 {
	e := &k.Entries[f]
	if len(k.Overrides) > 0 {
		if w, ok := k.Overrides[e.Name]; ok {
			return int64(w)
		}
	}
	return int64(e.weight)
}

// Reweigh reports whether the weight of f has changed since the last call.
func (k *Keys) Reweigh(f drr.Flow) (weight int64, changed bool) {
	e, weight := &k.Entries[f], k.Weight(f)
	if e.known == uint32(weight) {
		return weight, false
	}
	e.known = uint32(weight)
	return weight, true
}

// Override sets the weight of a key, or with 0 returns it to the producers. It returns
// the flow of the key if that has messages.
func (k *Keys) Override(key string, weight uint32) (drr.Flow, bool) {
	if weight > 0 {
		k.Overrides[key] = weight
	} else {
		delete(k.Overrides, key)
	}
	f, ok := k.IDs[key]
	return f, ok
}
