package backlog

import (
	"slices"

	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/sidecar/queue/container"
)

// Order is strict order per key (ordering = "key"): the messages of a fairness key
// wait in the order of their sequences and enter the schedule one at a time. The
// message that has entered owns its key until it is finished, through its delivery,
// its failures and the delays of its retries, so no other message of the key passes
// it.
//
// With on_blocked = "skip" a message gives up its key while it waits for a gate or
// for a retry. When it can go on it takes its place again, in front of what has not
// been delivered by then. Two messages of a key are never in flight together.
type Order struct {
	On, Skip bool
	Keys     map[drr.Flow]*KeyOrder
	Waiting  int64 // messages that wait for their predecessors
}

// KeyOrder is a fairness key with messages to keep in order.
type KeyOrder struct {
	Waiting container.List
	Plain   int64    // messages in Waiting without gates
	Owner   uint64   // the message that owns the key; 0: none
	Also    []uint64 // in flight beside the owner, since before the queue was ordered or after a crash
}

// KeyOrder returns the order of a flow, which it makes if need be.
func (t *Tables) KeyOrder(f drr.Flow) *KeyOrder {
	o := t.Order.Keys[f]
	if o == nil {
		o = &KeyOrder{}
		t.Order.Keys[f] = o
	}
	return o
}

// Give makes message seq the owner of its key.
func (o *KeyOrder) Give(seq uint64, s *Slot) { o.Owner, s.Owns = seq, true }

// NextOwner removes from Also the message that owns the key next: one in flight, or
// the first that waits for its retry and so keeps its place; 0: none.
func (t *Tables) NextOwner(o *KeyOrder) uint64 {
	o.Also = slices.DeleteFunc(o.Also, func(seq uint64) bool {
		s := t.Slots.Get(seq)
		return s == nil || s.State != Delayed && !t.InFlight(seq)
	})
	i := slices.IndexFunc(o.Also, t.InFlight)
	if i < 0 {
		if t.Order.Skip || len(o.Also) == 0 || o.Waiting.Len() > 0 && t.Links.Seq(o.Waiting.Head()) < o.Also[0] {
			return 0
		}
		i = 0
	}
	seq := o.Also[i]
	o.Also = slices.Delete(o.Also, i, i+1)
	return seq
}

// MayOwn reports whether message seq owns its key and may be delivered again: no other
// message of the key is in flight, and no older one waits. Such others are from before
// the queue was ordered.
func (t *Tables) MayOwn(seq uint64, s *Slot) bool {
	if !s.Owns {
		return false
	}
	o := t.Order.Keys[s.Flow]
	return !slices.ContainsFunc(o.Also, t.InFlight) && (o.Waiting.Len() == 0 || t.Links.Seq(o.Waiting.Head()) > seq)
}

// KeyTaken reports whether a message of the flow that is in no list owns the key.
func (t *Tables) KeyTaken(f drr.Flow) bool {
	if !t.Order.On {
		return false
	}
	o := t.Order.Keys[f]
	return o != nil && o.Owner != 0 && t.Slots.Get(o.Owner).State != Waiting
}
