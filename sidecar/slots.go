package sidecar

import (
	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/store"
)

// slotState says where a message of a queue is.
//
//	writing -> ready | delayed            its first commit is done
//	delayed -> ready                      its time has come
//	ready: pending | parked | ordered     its lane is held back; its key is taken
//	ordered -> pending | parked           its predecessors are done
//	pending -> parked -> pending          a gate is shut; it calls
//	pending -> leased                     delivered
//	leased  -> pending                    taken back: nobody received it
//	leased  -> failing | ready | delayed  nack or expiry, on_failure asked or not
//	failing -> ready | delayed            on_failure has decided
//	any but writing -> moving             on its way to another queue, or gone
//	pending -> moving -> pending          a redrive that had to stop
type slotState uint8

const (
	slotFree slotState = iota
	slotWriting
	slotDelayed
	slotPending
	slotParked
	slotOrdered
	slotLeased
	slotFailing
	slotMoving
)

// slot is what the loop keeps in memory of one message. It has no pointers, so
// that the garbage collector never walks a backlog.
type slot struct {
	id         store.ID
	enqueuedAt int64
	readyAt    int64 // when it became, or becomes, pending
	size       uint32
	attempts   uint32 // ended ones
	cost       uint32 // thousandths
	flow       drr.Flow
	lane       laneID
	ref        uint32 // pending: the drr.Handle; parked, ordered: its link; leased: index of the lease
	state      slotState
	stored     bool // the store has a State of it that differs from "fresh"
	unsent     bool // its Add is in the changes that have not been handed to the store
	front      bool // pending or parked: in front of what its lane has parked
	holds      bool // it holds its fairness key, see keyOrder
	ttl        bool // it has a TTL, see slotTable.expiresAt
}

const (
	chunkBits = 9
	chunkSize = 1 << chunkBits
)

type slotChunk struct {
	slots [chunkSize]slot
	live  int
}

// slotTable finds a slot by sequence: sequences are dense, so a chunk is an
// index away, and a chunk whose last message is gone is freed.
type slotTable struct {
	chunks []*slotChunk // chunks[i] holds sequences of chunk base+i; nil: none live
	base   uint64
	live   int64
	spare  *slotChunk
	ends   map[uint64]int64 // of messages with a TTL; most have none
}

// add makes room for seq and returns its slot, zeroed.
func (t *slotTable) add(seq uint64) *slot {
	n := seq >> chunkBits
	switch {
	case len(t.chunks) == 0:
		t.base = n
	case n < t.base:
		// A move into this queue reserved its sequence before later arrivals.
		t.chunks = append(make([]*slotChunk, t.base-n), t.chunks...)
		t.base = n
	}
	for n >= t.base+uint64(len(t.chunks)) {
		t.chunks = append(t.chunks, nil)
	}
	c := t.chunks[n-t.base]
	if c == nil {
		if c = t.spare; c == nil {
			c = new(slotChunk)
		}
		t.spare = nil
		t.chunks[n-t.base] = c
	}
	c.live++
	t.live++
	s := &c.slots[seq&(chunkSize-1)]
	*s = slot{state: slotWriting}
	return s
}

// get returns the slot of seq, or nil when the queue has no such message.
func (t *slotTable) get(seq uint64) *slot {
	n := seq >> chunkBits
	if n < t.base || n-t.base >= uint64(len(t.chunks)) {
		return nil
	}
	c := t.chunks[n-t.base]
	if c == nil {
		return nil
	}
	if s := &c.slots[seq&(chunkSize-1)]; s.state != slotFree {
		return s
	}
	return nil
}

// expire notes when message seq, which has a TTL, expires.
func (t *slotTable) expire(seq uint64, s *slot, at int64) {
	if t.ends == nil {
		t.ends = make(map[uint64]int64)
	}
	s.ttl = true
	t.ends[seq] = at
}

// expiresAt is when message seq expires; 0: never.
func (t *slotTable) expiresAt(seq uint64, s *slot) int64 {
	if !s.ttl {
		return 0
	}
	return t.ends[seq]
}

// expired reports whether the TTL of message seq is over.
func (t *slotTable) expired(seq uint64, s *slot, now int64) bool {
	return s.ttl && t.ends[seq] <= now
}

// remove forgets seq, which must be there.
func (t *slotTable) remove(seq uint64) {
	i := seq>>chunkBits - t.base
	c := t.chunks[i]
	s := &c.slots[seq&(chunkSize-1)]
	if s.ttl {
		delete(t.ends, seq)
		if len(t.ends) == 0 {
			t.ends = nil // a map keeps the size that it once had
		}
	}
	*s = slot{}
	t.live--
	if c.live--; c.live > 0 {
		return
	}
	t.chunks[i] = nil
	t.spare = c
	drop := 0
	for drop < len(t.chunks) && t.chunks[drop] == nil {
		drop++
	}
	t.chunks = t.chunks[drop:]
	t.base += uint64(drop)
}

// from calls fn for every message with a sequence of at least seq, in order,
// until fn returns false. fn must not add or remove.
func (t *slotTable) from(seq uint64, fn func(seq uint64, s *slot) bool) {
	first := seq >> chunkBits
	for i, c := range t.chunks {
		n := t.base + uint64(i)
		if c == nil || n < first {
			continue
		}
		for j := range c.slots {
			at := n<<chunkBits | uint64(j)
			if c.slots[j].state != slotFree && at >= seq && !fn(at, &c.slots[j]) {
				return
			}
		}
	}
}

// oldest is the enqueue time of the message with the lowest sequence; 0 when
// there is none.
func (t *slotTable) oldest() int64 {
	var at int64
	t.from(0, func(_ uint64, s *slot) bool {
		at = s.enqueuedAt
		return false
	})
	return at
}
