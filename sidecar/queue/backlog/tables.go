package backlog

import (
	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/sidecar/queue/container"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
)

// Tables are the tables of one role of a queue. Make them with Init.
type Tables struct {
	Slots    container.Table[Slot] // by sequence
	Keys     Keys
	Links    container.Lists  // messages that wait: in keys and subqueues by stamp, and ordered ones
	Costly   int64            // messages whose cost is not 1
	Sched    *drr.Scheduler   // the flows that can send something
	Deficits Deficits         // carried deficits of the other flows
	Delays   container.Timers // delayed messages, by ReadyAt
	TTLs     container.Timers // messages with a TTL, by the end of it

	Leases    Leases
	Consumers Consumers
	Order     Order
	Pauses    Pauses
	Moving    map[uint64]drr.Flow // messages that a job has claimed, or that are parked until another queue has them, by sequence
	Arriving  map[uint64]*Arrival // dead letters whose move to this role is not on disk yet, by sequence

	ends map[uint64]int64 // of TTLs, by sequence: most messages have none
}

// Init makes empty tables.
func (t *Tables) Init(quantum, graceEnds int64) {
	*t = Tables{
		Keys: newKeys(), ends: make(map[uint64]int64), Sched: drr.New(quantum),
		Consumers: newConsumers(graceEnds), Order: Order{Keys: make(map[drr.Flow]*KeyOrder)},
	}
	t.Delays = container.NewTimers(func(it container.Timer) bool {
		s := t.Slots.Get(it.ID)
		return s != nil && s.State == Delayed && s.ReadyAt == it.At
	})
	t.TTLs = container.NewTimers(func(it container.Timer) bool {
		s := t.Slots.Get(it.ID)
		return s != nil && s.ttl && t.ends[it.ID] == it.At
	})
	t.Consumers.Expiring = container.NewTimers(func(it container.Timer) bool { return t.Consumers.byReg[it.ID] != nil })
}

// Arrival is a message that a move brings to another role or queue.
type Arrival struct {
	From    uint64 // sequence where it leaves
	Message store.Message
	Size    uint32
}

// State says where a message is.
//
//	new     -> ready | delayed
//	delayed -> ready                       its time has come
//	ready: waiting | ordered               or another message owns its key
//	ordered -> waiting                     its predecessors are done
//	waiting -> leased                      delivered
//	leased  -> waiting                     taken back: nobody received it
//	leased  -> failing | ready | delayed   nack or expiry, to be judged or not
//	failing -> ready | delayed             the verdict has come
//	any     -> moving                      claimed by a job, moved to the DLQ, or removed
//	waiting -> moving -> waiting           a redrive that had to stop
//
// A waiting message is blocked or not as its subqueue is.
type State uint8

// The states.
const (
	Moving State = iota // in no place: about to be put into one, or claimed
	Delayed
	Waiting
	Ordered
	Leased
	Failing
)

// Slot is what memory holds of a message. It has no pointers, so the garbage
// collector never walks a backlog.
type Slot struct {
	ID         store.ID
	EnqueuedAt int64
	ReadyAt    int64 // when it became, or becomes, ready
	Size       uint32
	Attempts   uint32 // that have ended
	Cost       uint32 // thousandths
	Flow       drr.Flow
	Sub        gates.ID // its subqueue; 0: it has no gates
	Ref        uint32   // waiting, ordered: its link; leased: index of the lease
	State      State
	Priority   uint8
	Stored     bool // the store has a State of it that differs from the State of a new message
	Open       bool // its Add is in the open commit
	Owns       bool // it owns its fairness key, see KeyOrder
	ttl        bool // it has a TTL, see Tables.ends
	Watched    bool // Effects.Ended reports its attempts; not known of messages from the store
	Claimed    bool // it was ready when a job claimed it
}

// Add makes the slot of message m, which is in no place yet.
func (t *Tables) Add(m *store.Message, size int64) *Slot {
	s := t.Slots.Add(m.Seq)
	s.ID, s.EnqueuedAt, s.Size, s.Cost = m.ID, m.EnqueuedAt, uint32(size), m.Cost
	if s.Cost != throttle.One {
		t.Costly++
	}
	s.Flow = t.Keys.acquire(m.Key, m.Weight)
	if m.ExpiresAt != 0 {
		s.ttl = true
		t.ends[m.Seq] = m.ExpiresAt
		t.TTLs.Add(m.ExpiresAt, m.Seq)
	}
	return s
}

// Remove removes the slot of message seq, which is in no place but Delays.
func (t *Tables) Remove(seq uint64, s *Slot) {
	ttl, delayed := s.ttl, s.State == Delayed
	if s.Cost != throttle.One {
		t.Costly--
	}
	t.Slots.Remove(seq)
	if ttl {
		delete(t.ends, seq)
		if len(t.ends) == 0 {
			t.ends = make(map[uint64]int64) // a map never shrinks
		}
		t.TTLs.Dropped()
	}
	if delayed {
		t.Delays.Dropped()
	}
}

// ExpiresAt is when message seq expires; 0: never.
func (t *Tables) ExpiresAt(seq uint64, s *Slot) int64 {
	if !s.ttl {
		return 0
	}
	return t.ends[seq]
}

// Expired reports whether the TTL of message seq is over.
func (t *Tables) Expired(seq uint64, s *Slot, now int64) bool {
	return s.ttl && t.ends[seq] <= now
}

// Flow is what gates keep of a flow. Flow, Weight, Name, Cost and KeyPaused are part
// of gates.Backlog.
func (t *Tables) Flow(f drr.Flow) *gates.Flow { return &t.Keys.Entries[f].Flow }

// Weight is the weight of a flow in thousandths.
func (t *Tables) Weight(f drr.Flow) int64 { return t.Keys.Weight(f) }

// Name is the fairness key of a flow.
func (t *Tables) Name(f drr.Flow) string { return t.Keys.Entries[f].Name }

// Cost is the cost (thousandths) of the message of a link.
func (t *Tables) Cost(link uint32) int64 {
	if t.Costly == 0 {
		return throttle.One
	}
	return int64(t.Slots.Get(t.Links.Seq(link)).Cost)
}

// Class is what memory knows of the class of a message: all but its gates and priority.
func (t *Tables) Class(s *Slot) store.Class {
	return store.Class{Key: t.Name(s.Flow), Weight: uint32(t.Weight(s.Flow)), Cost: s.Cost}
}

// Subqueue returns the subqueue in whose list message s is or would be; 0: the plain
// list of its key.
func (t *Tables) Subqueue(s *Slot) gates.ID {
	if s.Sub != 0 {
		return s.Sub
	}
	return t.Keys.Entries[s.Flow].Flow.Bare
}

// InFlight reports whether message seq is with a consumer, or being judged.
func (t *Tables) InFlight(seq uint64) bool {
	s := t.Slots.Get(seq)
	return s != nil && (s.State == Leased || s.State == Failing)
}
