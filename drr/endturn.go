package drr

// EndTurn ends the turn in progress, which is that of the flow that Peek returned
// last, so that the other flows go before it is looked at again.
// Nothing happens between turns: when Peek was not called since the last turn ended, or
// when the flow has become idle.
//
// A flow that yields like this loses the turn. It keeps what it had saved up
// before the turn began, and what Refund has given back since, less everything
// that it was charged in the turn, and never less than 0, but for what it owes and the
// turn does not pay. So yielding is no way to
// save up: the flow gets no more than if it had used every turn, and the bound
// of the package comment holds against every flow that does not yield. If what it
// sends next does not fit into the turn any more, the turn is over anyway, and what
// is left is kept as always.
func (s *Scheduler) EndTurn() {
	if s.current == none {
		return
	}
	id := s.current
	fl := s.flows.at(id)
	left := s.left(fl)
	if left >= fl.head {
		left = min(left, max(0, fl.deficit)) // what it owes is paid by the turn that it gives up
	}
	s.endTurn(id, fl, left)
}
