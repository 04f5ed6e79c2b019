package drr

import "github.com/stretchr/testify/require"

// items is a caller of the scheduler as it is meant to be used: it keeps a list of
// items for each flow, first in, first out. Tests and benchmarks use it where what the
// flows send matters.
type items struct {
	*Scheduler
	slots []itemSlot // slots[0] is not used
	free  Handle     // first slot that was used and is free again
	lists []itemList // by flow
	n     int
}

// Item is what Next hands out.
type Item struct {
	Flow  Flow
	Value uint64
	Cost  int64 // thousandths
}

// Handle names a pending item; 0 is none.
type Handle uint32

type itemSlot struct {
	Item
	prev, next Handle
}

type itemList struct {
	head, tail Handle
	n          int
}

func newItems(quantum int64) *items {
	return &items{Scheduler: New(quantum), slots: make([]itemSlot, 1)}
}

func (s *items) Len() int { return s.n }

// pending returns the number of items of a flow.
func (s *items) pending(f Flow) int {
	if int(f) >= len(s.lists) {
		return 0
	}
	return s.lists[f].n
}

// Push adds an item to the end of a flow and sets the weight of the flow.
func (s *items) Push(f Flow, weight int64, value uint64, cost int64) Handle {
	l := s.list(f)
	h := s.insert(l, l.tail, Item{f, value, clamp(cost, MaxCost)})
	if l.n == 1 {
		s.Join(f, weight, cost)
	} else {
		s.SetWeight(f, weight)
	}
	return h
}

// PushFront adds an item to the front of a flow; the weight counts if that was idle.
func (s *items) PushFront(f Flow, weight int64, value uint64, cost int64) Handle {
	l := s.list(f)
	h := s.insert(l, 0, Item{f, value, clamp(cost, MaxCost)})
	if l.n == 1 {
		s.Join(f, weight, cost)
	} else {
		s.SetHead(f, cost)
	}
	return h
}

// Return puts an item that Next has handed out back to the front of its flow and gives
// its cost back.
func (s *items) Return(f Flow, weight int64, value uint64, cost int64) Handle {
	h := s.PushFront(f, weight, value, cost)
	s.Refund(f, cost)
	return h
}

// ReturnBehind is Return to the place behind a pending item.
func (s *items) ReturnBehind(after Handle, value uint64, cost int64) Handle {
	f := s.slots[after].Flow
	h := s.insert(s.list(f), after, Item{f, value, clamp(cost, MaxCost)})
	s.Refund(f, cost)
	return h
}

// Peek returns the item that Next would take.
func (s *items) Peek() (Item, Handle, bool) {
	f, ok := s.Scheduler.Peek()
	if !ok {
		return Item{}, 0, false
	}
	h := s.lists[f].head
	return s.slots[h].Item, h, true
}

// Next takes the next item.
func (s *items) Next() (Item, bool) {
	it, h, ok := s.Peek()
	if ok {
		l := s.list(it.Flow)
		s.unlink(l, h)
		s.Take(s.slots[l.head].Cost)
	}
	return it, ok
}

// Remove drops a pending item, uncharged, and returns its value.
func (s *items) Remove(h Handle) (value uint64) {
	it := s.slots[h].Item
	l := s.list(it.Flow)
	first := l.head == h
	s.unlink(l, h)
	switch {
	case l.n == 0:
		s.Leave(it.Flow)
	case first:
		s.SetHead(it.Flow, s.slots[l.head].Cost)
	}
	return it.Value
}

func (s *items) list(f Flow) *itemList {
	for int(f) >= len(s.lists) {
		s.lists = append(s.lists, itemList{})
	}
	return &s.lists[f]
}

// insert puts an item behind another one of its list; 0: to the front.
func (s *items) insert(l *itemList, after Handle, it Item) Handle {
	h := s.free
	if h != 0 {
		s.free = s.slots[h].next
	} else {
		h = Handle(len(s.slots))
		s.slots = append(s.slots, itemSlot{})
	}
	slot := itemSlot{Item: it, prev: after, next: l.head}
	if after != 0 {
		slot.next = s.slots[after].next
		s.slots[after].next = h
	} else {
		l.head = h
	}
	if slot.next != 0 {
		s.slots[slot.next].prev = h
	} else {
		l.tail = h
	}
	s.slots[h] = slot
	l.n++
	s.n++
	return h
}

func (s *items) unlink(l *itemList, h Handle) {
	slot := s.slots[h]
	if slot.prev != 0 {
		s.slots[slot.prev].next = slot.next
	} else {
		l.head = slot.next
	}
	if slot.next != 0 {
		s.slots[slot.next].prev = slot.prev
	} else {
		l.tail = slot.prev
	}
	s.slots[h] = itemSlot{next: s.free}
	s.free = h
	l.n--
	s.n--
}

// check holds the scheduler against its invariants and against the items: a flow is
// active if it has some, and its head is the first of them.
func (s *items) check(t require.TestingT) {
	checkInvariants(t, s.Scheduler)
	active := 0
	for f := range s.lists {
		l := &s.lists[f]
		if l.n == 0 {
			continue
		}
		active++
		require.Equal(t, s.slots[l.head].Cost, s.flows.find(flowID(f)).head, "the head of flow %d", f)
	}
	require.Equal(t, s.active, active)
}
