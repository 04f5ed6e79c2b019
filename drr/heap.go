package drr

// The heap of filed flows that are due in this round, by their place in the
// ring: a pairing heap (Fredman, Sedgewick, Sleator and Tarjan, 1986) through
// flow.child, flow.next (the next sibling) and flow.prev (the sibling before,
// or the parent of a first child). Flows that arrive from last to first, as
// they do from a wheel slot filled in one round, form a chain: then every
// operation is O(1).

func (s *Scheduler) heapPush(id flowID, fl *flow) {
	fl.place = heaped
	fl.prev, fl.next, fl.child = none, none, none
	s.due = s.meld(s.due, id)
}

func (s *Scheduler) heapRemove(id flowID, fl *flow) {
	rest := s.meldAll(fl.child)
	if id == s.due {
		s.due = rest
		return
	}
	if before := s.flows.at(fl.prev); before.child == id {
		before.child = fl.next
	} else {
		before.next = fl.next
	}
	if fl.next != none {
		s.flows.at(fl.next).prev = fl.prev
	}
	s.due = s.meld(s.due, rest)
}

// meld joins two heaps, either of which may be empty.
func (s *Scheduler) meld(a, b flowID) flowID {
	if a == none {
		return b
	}
	if b == none {
		return a
	}
	fa, fb := s.flows.at(a), s.flows.at(b)
	if fb.label < fa.label {
		a, b, fa, fb = b, a, fb, fa
	}
	fb.prev, fb.next = a, fa.child
	if fa.child != none {
		s.flows.at(fa.child).prev = b
	}
	fa.child = b
	return a
}

// meldAll joins a list of siblings into one heap: first in pairs from the
// front, then all pairs from the back.
func (s *Scheduler) meldAll(first flowID) flowID {
	pairs := none // a stack through prev
	for first != none {
		a := first
		b := s.flows.at(a).next
		first = none
		if b != none {
			first = s.flows.at(b).next
			s.cut(b)
		}
		s.cut(a)
		a = s.meld(a, b)
		s.flows.at(a).prev = pairs
		pairs = a
	}
	root := none
	for pairs != none {
		a := pairs
		pairs = s.flows.at(a).prev
		s.cut(a)
		root = s.meld(root, a)
	}
	return root
}

func (s *Scheduler) cut(id flowID) {
	fl := s.flows.at(id)
	fl.prev, fl.next = none, none
}
