package drr

// EndTurn ends the turn of the flow that Peek returned last, so that the other flows are
// served before it is tried again. Nothing happens between turns: when Peek was not
// called since the last turn ended, or when the flow has become idle.
//
// A flow that yields like this loses the turn. It keeps the deficit that it had before
// the turn, plus refunds since, less all charges of the turn, and never less than 0
// except for a carried deficit that the turn does not pay. So yielding does not save
// anything up: the flow gets no more than if it had used every turn, and the bound of the
// package comment holds against every flow that does not yield. If its head does not fit
// into the turn any more, the turn is over anyway, and the rest is kept as always.
func (s *Scheduler) EndTurn() {
	if s.current == none {
		return
	}
	id := s.current
	fl := s.flows.at(id)
	left := s.left(fl)
	if left >= fl.head {
		left = min(left, max(0, fl.deficit)) // the turn that it gives up pays its carried deficit
	}
	s.endTurn(id, fl, left)
}
