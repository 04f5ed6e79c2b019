package drr

// The ring: the order in which active flows are visited.
//
// It is a list of all active flows, waiting in whatever structure, and each has
// a label, increasing along the list. Labels answer in O(1) which of two flows
// comes first, which is all that is needed to bring a filed flow back to its
// place between those that were visited meanwhile. (Its place matters: served
// before or behind it, it would be up to one quantum outside the bound.)
//
// New flows enter at one place only, behind ring.seen, with a label from the
// gap there. When the gap is used up, the labels around are spread evenly: over
// the smallest aligned range of 2^i labels that holds at most 1.5^i flows, which
// is amortised O(log n) per insertion (Bender, Cole, Demaine, Farach-Colton and
// Zito, "Two Simplified Algorithms for Maintaining Order in a List", ESA 2002).

const (
	labelBits = 62
	maxLabel  = 1<<labelBits - 1

	// labelStep is the largest distance given to a flow at the end of the
	// ring, so that many can follow before labels must be spread.
	labelStep = 1 << 32
)

// ring is the list of active flows through flow.before and flow.after.
type ring struct {
	first, last flowID
	seen        flowID // the last flow visited in this round; none: none yet
}

func (r *ring) init() { r.first, r.last, r.seen = none, none, none }

// insertAfterSeen gives an idle flow its place and label.
func (s *Scheduler) insertAfterSeen(id flowID, fl *flow) {
	low, high := s.gapAfterSeen()
	if high-low < 2 {
		s.spreadLabels()
		low, high = s.gapAfterSeen()
	}
	fl.label = low + min((high-low)/2, labelStep)

	fl.before = s.ring.seen
	if fl.before == none {
		fl.after = s.ring.first
		s.ring.first = id
	} else {
		b := s.flows.at(fl.before)
		fl.after = b.after
		b.after = id
	}
	if fl.after == none {
		s.ring.last = id
	} else {
		s.flows.at(fl.after).before = id
	}
}

// removeFromRing closes the gap. If the flow was the last one visited, the one
// before it is.
func (s *Scheduler) removeFromRing(id flowID, fl *flow) {
	if fl.before == none {
		s.ring.first = fl.after
	} else {
		s.flows.at(fl.before).after = fl.after
	}
	if fl.after == none {
		s.ring.last = fl.before
	} else {
		s.flows.at(fl.after).before = fl.before
	}
	if s.ring.seen == id {
		s.ring.seen = fl.before
	}
}

// gapAfterSeen returns the labels on both sides of the place where flows enter;
// those strictly between are free.
func (s *Scheduler) gapAfterSeen() (low, high uint64) {
	after := s.ring.first
	if s.ring.seen != none {
		fl := s.flows.at(s.ring.seen)
		low, after = fl.label, fl.after
	}
	if after == none {
		return low, maxLabel
	}
	return low, s.flows.at(after).label
}

// spreadLabels makes room behind ring.seen.
func (s *Scheduler) spreadLabels() {
	center, from := uint64(0), s.ring.first
	if s.ring.seen != none {
		from = s.ring.seen
		center = s.flows.at(from).label
	}
	// The flows in range are from.. and the n-1 that follow; to is behind them.
	to, n := from, uint64(0)
	low, size, limit := uint64(0), uint64(0), 1.0
	for i := 1; i <= labelBits; i++ {
		size, limit = 1<<i, limit*1.5
		low = center &^ (size - 1)
		for to != none && s.flows.at(to).label-low < size {
			to = s.flows.at(to).after
			n++
		}
		for {
			before := s.flows.at(from).before
			if before == none || s.flows.at(before).label < low {
				break
			}
			from = before
			n++
		}
		// A quarter of the range at most, so that gaps are wide enough.
		if n > 0 && n <= size/4 && float64(n) <= limit {
			break
		}
	}
	step := size / n
	label := low + step/2
	for id := from; id != to; {
		fl := s.flows.at(id)
		fl.label = label
		label += step
		id = fl.after
	}
}
