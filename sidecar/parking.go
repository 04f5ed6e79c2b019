package sidecar

import "github.com/filaq/fila/drr"

// hold takes the message seq out of the scheduler and parks it with its lane: at
// the site of b or, without one, where its lane is parked already.
func (l *loop) hold(h drr.Handle, seq uint64, s *slot, b block, now int64) {
	lane := s.lane
	ln := l.lanes.at(lane)
	l.sched.Remove(h)
	ln.ready--
	s.state = slotParked
	caller := siteID(0)
	if ln.called && ln.calledSeq == seq {
		caller = ln.calledBy
	} else {
		l.notReturned(ln, s)
	}
	if ln.since == 0 {
		ln.since = now
	}
	if b.site == 0 {
		b.site, b.kind = ln.site, ln.kind
	}
	first := caller != 0 || ln.list.n == 0
	switch {
	case caller != 0:
		s.ref = l.links.insert(&ln.list, 0, seq)
		if ln.fronts++; ln.fronts == 1 {
			ln.frontEnd = s.ref
		}
	case s.front:
		after := l.frontBefore(ln, seq)
		s.ref = l.links.insert(&ln.list, after, seq)
		if ln.fronts++; after == ln.frontEnd {
			ln.frontEnd = s.ref
		}
		first = after == 0
	default:
		s.ref = l.links.insert(&ln.list, ln.list.tail, seq)
	}
	if first {
		l.stand(lane, ln, caller, b)
	}
	l.countParked(ln, 1)
	if l.ordered {
		l.orderParked(s)
	}
	if caller != 0 {
		if st := l.sites.at(caller); caller == b.site {
			st.budget, st.notBefore = 0, b.at
		} else {
			l.follow(caller, b.site)
		}
		l.tried(ln, now)
	}
}

// frontBefore returns the link of the last front of a lane that comes before the
// message seq, which nobody received; 0: none. There are no more fronts than
// messages that were in flight, and one that was called.
func (l *loop) frontBefore(ln *lane, seq uint64) uint32 {
	if ln.fronts == 0 {
		return 0
	}
	at := ln.frontEnd
	for at != 0 && l.links.seq(at) > seq {
		at = l.links.items[at].prev
	}
	return at
}

// stand puts a lane, which has a new first message in its list, into the line at
// the site of b. caller is the site that had called that message.
func (l *loop) stand(lane laneID, ln *lane, caller siteID, b block) {
	weight, cost := l.keys.weight(ln.flow), int64(l.slots.get(l.links.seq(ln.list.head)).cost)
	counted := int64(ln.list.n) - 1
	switch {
	case caller != 0 && ln.free && ln.site == 0:
		st := l.sites.at(caller)
		st.line.Add(ln.flow, weight, uint32(lane), cost)
		st.stood(ln)
		ln.site = caller
	case caller != 0 && !ln.free && (ln.site == caller || ln.site == 0):
		st := l.sites.at(caller)
		st.line.PutBack(ln.flow, weight, uint32(lane), cost) // it has not gone after all
		st.stood(ln)
		ln.site = caller
	case ln.site != 0:
		l.sites.at(ln.site).line.SetCost(uint32(lane), cost)
	}
	if ln.site != b.site {
		if ln.site != 0 {
			old := l.sites.at(ln.site)
			old.line.Remove(ln.flow, uint32(lane))
			old.messages -= counted
			l.lookLater(ln.site)
		}
		st := l.sites.at(b.site)
		st.line.Add(ln.flow, weight, uint32(lane), cost)
		st.stood(ln)
		st.messages += counted
		ln.site = b.site
		l.lookLater(b.site)
	}
	if l.reserving == lane {
		l.sites.at(ln.site).follows = 0 // what it has collected is waited for there
	}
	if ln.kind != b.kind {
		l.parkedBy[ln.kind] -= counted
		l.parkedBy[b.kind] += counted
		ln.kind = b.kind
	}
}

// park appends a message that becomes pending to the list of its lane, which is
// held back.
func (l *loop) park(seq uint64, s *slot, ln *lane) {
	s.state = slotParked
	s.ref = l.links.insert(&ln.list, ln.list.tail, seq)
	l.countParked(ln, 1)
	if l.ordered {
		l.orderParked(s)
	}
}

// unpark takes a parked message out of its lane.
func (l *loop) unpark(s *slot) {
	ln := l.lanes.at(s.lane)
	i := s.ref
	first := i == ln.list.head
	if s.front {
		ln.fronts--
		if i == ln.frontEnd {
			ln.frontEnd = l.links.items[i].prev
		}
		s.front = false
	}
	l.links.remove(&ln.list, i)
	l.countParked(ln, -1)
	s.state = slotMoving
	if !first {
		return
	}
	l.cancelReservation(s.lane)
	st := l.sites.at(ln.site)
	st.notBefore = 0
	l.lookLater(ln.site)
	if ln.list.n > 0 {
		st.line.SetCost(uint32(s.lane), int64(l.slots.get(l.links.seq(ln.list.head)).cost))
		return
	}
	st.line.Remove(ln.flow, uint32(s.lane))
	l.lookLater(ln.site)
	ln.site = 0
}

// unready takes a pending message of a lane out of the accounts of the lane; the
// scheduler has let it go.
func (l *loop) unready(seq uint64, s *slot) {
	if s.lane == 0 {
		return
	}
	ln := l.lanes.at(s.lane)
	ln.ready--
	if ln.called && ln.calledSeq == seq {
		l.cancelReservation(s.lane)
		l.uncall(ln)
	}
	l.notReturned(ln, s)
	s.front = false
}

// countParked keeps the figures of what is parked.
func (l *loop) countParked(ln *lane, n int64) {
	l.parked += n
	l.parkedBy[ln.kind] += n
	l.sites.at(ln.site).messages += n
}
