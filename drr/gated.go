package drr

// What a caller needs whose items may be held back by something else than their
// turn: look at the item that is due, take it out uncharged if it cannot go, put
// it back when it can, and let the other flows go on meanwhile.

// Peek returns the item that Next would hand out, and its handle, without taking
// it; it reports false if nothing is pending. Like Next it may end a turn and
// begin others. If nothing else is called in between, Next returns the same
// item. Remove with that handle drops it uncharged: the flow keeps what is left
// of its deficit and stays in its turn, as long as it has something pending.
func (s *Scheduler) Peek() (Item, Handle, bool) {
	if s.pending == 0 {
		return Item{}, 0, false
	}
	id, fl := s.reach()
	head := s.items.at(fl.items.head)
	return Item{Flow: Flow(id), Value: head.value, Cost: int64(head.cost)}, Handle(fl.items.head), true
}

// PushFront adds an item to the front of flow f. It is Return for an item that
// was dropped uncharged by Remove: no cost is given back. A flow that had
// nothing pending joins the ring behind all that wait, as with Push.
//
// The weight is used only if the flow has nothing else pending.
func (s *Scheduler) PushFront(f Flow, weight int64, value uint64, cost int64) Handle {
	return s.putFront(f, weight, value, clamp(cost, MaxCost), 0)
}

// EndTurn ends the turn in progress, which is that of the flow whose item Peek or
// Next returned last, so that the other flows go before it is looked at again.
// Nothing happens between turns: when no item was looked at since the last turn
// ended, or when the flow has nothing pending any more.
//
// A flow that yields like this loses the turn. It keeps what it had saved up
// before the turn began, and what Return has given back since, less everything
// that it has sent in the turn, and never less than 0. So yielding is no way to
// save up: the flow gets no more than if it had used every turn, and the bound
// of the package comment holds against every flow that does not yield. If the
// head does not fit into the turn any more, the turn is over anyway, and what is
// left is kept as always.
func (s *Scheduler) EndTurn() {
	if s.current == none {
		return
	}
	id := s.current
	fl := s.flows.at(id)
	left := fl.deficit
	if most := left + s.turn(fl); most < int64(s.items.at(fl.items.head).cost) {
		left = most
	}
	s.endTurn(id, fl, left)
}
