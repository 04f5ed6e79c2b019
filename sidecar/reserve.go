package sidecar

import "github.com/filaq/fila/throttle"

// reserveAfter is how long (ns) a lane with several throttle keys waits before it
// may collect its gates one by one, so that lanes with fewer do not starve it.
const reserveAfter = int64(1e9)

// acquire takes s through the throttle keys of its lane.
func (l *loop) acquire(ln *lane, s *slot, now int64, owner any) (throttle.Ticket, throttle.Block, bool) {
	if ln.reserving != nil && ln.reserved != s.cost {
		l.cancelReservation(s.lane) // an older message has come back
	}
	if ln.reserving == nil {
		ticket, why, ok := ln.set.Acquire(now, int64(s.cost), owner)
		starving := s.front && len(ln.set.Gates()) > 1 && ln.since != 0 && now-ln.since > reserveAfter
		if ok || !starving || l.reserving != 0 || why.Kind == throttle.ByPause {
			return ticket, why, ok
		}
		r, got := l.q.core.gates.Reserve(ln.set, int64(s.cost))
		if !got {
			return ticket, why, false
		}
		ln.reserving, ln.reserved, l.reserving = r, s.cost, s.lane
	}
	ticket, why, wakes := ln.reserving.Acquire(now, nil, l.wakes[:0])
	l.tellWaits(wakes)
	switch {
	case ticket.Held():
		ln.reserving, l.reserving = nil, 0
	case why.Kind == throttle.ByPause:
		l.cancelReservation(s.lane)
	}
	return ticket, why, ticket.Held()
}

// watchReservation gives back what is collected for a message that could not be
// delivered: because fila delivers nothing now, or nobody has had credit for a
// while. Consumers that are busy have none most of the time.
func (l *loop) watchReservation(now int64) {
	switch {
	case l.reserving == 0 || l.consumers.ring != nil:
		l.noCredit = 0
	case l.noCredit == 0:
		l.noCredit = now
	}
	if l.reserving != 0 && (!l.q.core.dispatching() || l.noCredit != 0 && now-l.noCredit >= reserveAfter) {
		l.noCredit = 0
		l.cancelReservation(l.reserving)
	}
}

// cancelReservation gives back what the lane has collected.
func (l *loop) cancelReservation(lane laneID) {
	if lane == 0 || l.reserving != lane {
		return
	}
	ln := l.lanes.at(lane)
	l.reserving = 0
	r := ln.reserving
	ln.reserving = nil
	l.tellWaits(r.Cancel(l.q.core.clock.Now(), l.wakes[:0]))
}
