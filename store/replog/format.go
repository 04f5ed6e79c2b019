package replog

import "github.com/filaq/fila/store"

// Format is the newest format that this program writes and reads. A follower stops at an
// unknown record, so an owner writes the lowest format of all present nodes; see
// [Replica.SetFormat].
//
//	1  sections 1 to 11, bodies not packed
//	2  histories (12), details of leases (13), priorities of messages, packed bodies
//	3  chains of records and positions
//	4  routes of messages
//
// With format 1 the owner leaves out the data of format 2, also in its own file, so that
// all copies are equal. A node of format 1 had no such data, so an upgrade loses none.
const Format = 4

// plain removes the data of a batch that format 1 does not have.
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

// withRoutes is the first format with routes of messages.
const withRoutes = 4

// firstRoutes lets messages go by the first of their routes: with a lower format than
// withRoutes a message of a node that takes over has no other.
func firstRoutes(b *store.Batch) {
	for i := range b.Add {
		b.Add[i].KeepFirstRoute()
	}
	for i := range b.Move {
		b.Move[i].To.KeepFirstRoute()
	}
}

// chains is the first format with chains.
const chains = 3

// SetFormat sets the format to write, at most [Format]. It does not affect submitted
// batches.
func (r *Replica) SetFormat(format int) { r.format.Store(int32(format)) }

// Format returns the format that the store writes.
func (s *Store) Format() int { return int(s.r.format.Load()) }

// Submit implements store.Store.
func (s *Store) Submit(b *store.Batch) {
	format := s.Format()
	if format < 2 {
		plain(b)
	}
	if format < withRoutes {
		firstRoutes(b)
	}
	s.Bolt.Submit(b)
}
