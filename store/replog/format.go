package replog

import "github.com/filaq/fila/store"

// Format is what this program writes and reads. A follower stops at a record that it
// does not know, so an owner writes the lowest format of all nodes that are there; see
// [Store.SetFormat].
//
//	1  sections 1 to 11, bodies as they are
//	2  histories (12), when and after what leases were given (13), priorities of
//	   messages, bodies that are packed
//
// What a node of format 1 does not know is left out, of the owner's own file too: all
// copies are equal. No node that knows less had it before, so nothing is taken away that
// was there when the upgrade began.
const Format = 2

// plain takes out of a batch what format 1 does not have.
func plain(b *store.Batch) {
	b.History = nil
	for i := range b.Add {
		b.Add[i].Priority = 0
	}
	for i := range b.Move {
		b.Move[i].To.Priority = 0
	}
	for i := range b.State {
		b.State[i].Lease.DeliveredAt, b.State[i].Lease.Held = 0, ""
	}
}

// SetFormat has the store write a format of [Format] and below. Batches that wait to be
// logged stay as they are.
func (s *Store) SetFormat(format int) { s.w.format.Store(int32(format)) }

// Format is which one it writes.
func (s *Store) Format() int { return int(s.w.format.Load()) }

// Submit implements store.Store.
func (s *Store) Submit(b *store.Batch) {
	if s.w.format.Load() < 2 {
		plain(b)
	}
	s.Bolt.Submit(b)
}
