package sidecar

// call puts the first parked message of up to st.budget lanes into the scheduler,
// in the order of the line. A lane whose called message has not tried yet is
// waited for.
func (l *loop) call(id siteID, now int64) {
	st := l.sites.at(id)
	for st.budget > 0 {
		lane, reserved := l.reserving, true
		if lane == 0 || l.lanes.at(lane).site != id {
			n, _, ok := st.line.Peek()
			if !ok {
				return
			}
			lane, reserved = laneID(n), false
		}
		ln := l.lanes.at(lane)
		if ln.called || ln.returned > 0 {
			return
		}
		seq := l.popParked(ln)
		s := l.slots.get(seq)
		cost, more := int64(0), ln.list.n > 0
		if more {
			cost = int64(l.slots.get(l.links.seq(ln.list.head)).cost)
		} else {
			ln.site = 0
		}
		switch {
		case !reserved:
			st.line.Take(cost, more)
		case more:
			st.line.SetCost(uint32(lane), cost)
		default:
			st.line.Remove(ln.flow, uint32(lane))
		}
		ln.called, ln.calledSeq, ln.calledBy, ln.free = true, seq, id, reserved
		ln.ready++
		st.called++
		st.budget--
		s.state, s.front = slotPending, true
		s.ref = uint32(l.sched.PushFront(s.flow, l.keys.weight(s.flow), seq, int64(s.cost)))
	}
}

// popParked takes the first parked message of a lane out of its list.
func (l *loop) popParked(ln *lane) uint64 {
	i := ln.list.head
	seq := l.links.seq(i)
	l.links.remove(&ln.list, i)
	if ln.fronts > 0 {
		if ln.fronts--; ln.fronts == 0 {
			ln.frontEnd = 0
		}
	}
	l.countParked(ln, -1)
	return seq
}

// notReturned notes that message s, which stands in front of what its lane has parked,
// leaves the scheduler.
func (l *loop) notReturned(ln *lane, s *slot) {
	if !s.front {
		return
	}
	if ln.returned--; ln.returned == 0 && ln.site != 0 {
		l.lookLater(ln.site)
	}
}

// uncall lets the called message of a lane stand where it is as one that nobody
// received, since older ones have come back.
func (l *loop) uncall(ln *lane) {
	if !ln.called {
		return
	}
	ln.called = false
	ln.returned++
	l.sites.at(ln.calledBy).called--
	l.lookLater(ln.calledBy)
}

// tried notes that the called message of a lane has gone, or is held back again.
func (l *loop) tried(ln *lane, now int64) {
	id := ln.calledBy
	ln.called = false
	st := l.sites.at(id)
	st.called--
	if st.budget > 0 && st.line.Len() > 0 {
		l.call(id, now)
	}
	if st.called == 0 && !st.touched {
		l.lookLater(id)
	}
}

// endTurns ends this queue's turn at the sites that have called.
func (l *loop) endTurns(now int64) {
	for _, id := range l.touched {
		st := l.sites.at(id)
		st.touched = false
		if st.kind == siteFree {
			continue
		}
		st.budget = 0
		switch {
		case st.called > 0:
			l.leaveRound(st)
			continue
		case st.kind == siteThrottle && st.joined && st.notBefore <= now:
			l.tellWaits(st.wait.Pass(l.wakes[:0]))
		}
		l.lookLater(id)
	}
	l.touched = l.touched[:0]
}
