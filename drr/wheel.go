package drr

import "math/bits"

// The wheel: flows that are due in later rounds, by round.
//
// A hierarchical timing wheel (Varghese and Lauck, 1987) over round numbers.
// Level l has a slot for each value of the l-th group of six bits of a round. A
// flow is kept on the level of the highest group in which its round differs
// from the current one; so all of a level comes before all of the next, a slot
// of level 0 is one round, and the first slot in use is found by bit counting.
// When the current round enters a slot of a higher level, its flows move down:
// at most six times on the way, whatever the distance. Rounds that differ above
// the levels (only next to a multiple of 2^36, since no flow waits for more than
// 2^30 rounds) are in one more slot.

const (
	slotBits    = 6
	slotsPer    = 1 << slotBits
	wheelLevels = 6
	beyond      = wheelLevels * slotsPer // the slot above the levels
)

type wheel struct {
	used  [wheelLevels]uint64 // a bit per slot
	slots [beyond + 1]flowID  // heads of circular lists
}

func newWheel() *wheel {
	w := &wheel{}
	for i := range w.slots {
		w.slots[i] = none
	}
	return w
}

// group returns the highest group of six bits in which two rounds differ.
func group(a, b uint64) int { return (bits.Len64(a^b|1) - 1) / slotBits }

func slotOf(level int, round uint64) int {
	if level >= wheelLevels {
		return beyond
	}
	return level*slotsPer + int(round>>(level*slotBits))&(slotsPer-1)
}

// earliest returns a round after the current one that is not later than the round of the first flow
// in the wheel. The wheel is not empty.
func (w *wheel) earliest(round uint64) uint64 {
	for level, used := range w.used {
		if used != 0 {
			shift := level * slotBits
			slot := uint64(bits.TrailingZeros64(used))
			return round>>(shift+slotBits)<<(shift+slotBits) | slot<<shift
		}
	}
	return (round>>(wheelLevels*slotBits) + 1) << (wheelLevels * slotBits)
}

func (s *Scheduler) wheelInsert(id flowID, fl *flow, due uint64) {
	level := min(group(s.round, due), wheelLevels)
	slot := slotOf(level, due)
	fl.place, fl.level = filed, uint8(level)
	head := s.wheel.slots[slot]
	if head == none {
		fl.prev, fl.next = id, id
		if level < wheelLevels {
			s.wheel.used[level] |= 1 << (slot % slotsPer)
		}
	} else {
		h := s.flows.at(head)
		fl.prev, fl.next = h.prev, head
		s.flows.at(h.prev).next = id
		h.prev = id
	}
	s.wheel.slots[slot] = id
}

func (s *Scheduler) wheelRemove(id flowID, fl *flow) {
	level := int(fl.level)
	slot := slotOf(level, s.dueRound(fl))
	if fl.next == id {
		s.emptySlot(level, slot)
		return
	}
	s.flows.at(fl.prev).next = fl.next
	s.flows.at(fl.next).prev = fl.prev
	if s.wheel.slots[slot] == id {
		s.wheel.slots[slot] = fl.next
	}
}

// emptySlot clears a slot and returns the head of the list that was in it.
func (s *Scheduler) emptySlot(level, slot int) flowID {
	head := s.wheel.slots[slot]
	s.wheel.slots[slot] = none
	if level < wheelLevels {
		s.wheel.used[level] &^= 1 << (slot % slotsPer)
	}
	return head
}

// advance makes target the current round. No flow is due between the two; the flows
// due in it go to the heap.
func (s *Scheduler) advance(target uint64) {
	top := min(group(s.round, target), wheelLevels)
	s.round = target
	if s.wheel == nil {
		return
	}
	for level := top; level > 0; level-- {
		s.moveDown(s.emptySlot(level, slotOf(level, target)))
	}
	head := s.emptySlot(0, slotOf(0, target))
	for id := head; id != none; {
		fl := s.flows.at(id)
		next := fl.next
		s.heapPush(id, fl)
		if id = next; id == head {
			break
		}
	}
}

// moveDown files the flows of a slot again, from last to first, which keeps
// their order.
func (s *Scheduler) moveDown(head flowID) {
	if head == none {
		return
	}
	for id := s.flows.at(head).prev; ; {
		fl := s.flows.at(id)
		prev := fl.prev
		s.wheelInsert(id, fl, s.dueRound(fl))
		if id == head {
			return
		}
		id = prev
	}
}
