package sidecar

import (
	"math"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/throttle"
)

// blockKind is what holds a message back, for metrics and explanations.
type blockKind uint8

const (
	byNothing blockKind = iota
	byRate
	byWindow
	byInFlight
	byReserved
	byTurn
	byCircuit
	byPause
	byOrder
	blockKinds // the number of kinds
)

var blockNames = [blockKinds]string{
	"open", "rate", "window", "concurrency", "reserved", "turn", "circuit", "paused", "order",
}

func (k blockKind) String() string { return blockNames[k] }

func throttleBlock(k throttle.Kind) blockKind {
	switch k {
	case throttle.ByRate:
		return byRate
	case throttle.ByWindow:
		return byWindow
	case throttle.ByInFlight:
		return byInFlight
	case throttle.ByReserved:
		return byReserved
	case throttle.ByTurn:
		return byTurn
	case throttle.ByPause:
		return byPause
	}
	return byNothing
}

// pass is what a delivery holds of the gates that it went through. It is given
// back when the lease ends.
type pass struct {
	ticket  throttle.Ticket
	circuit circuitPass
}

// block is why a message is held back, and where it waits.
type block struct {
	site siteID
	kind blockKind
	at   int64 // when to try again, as far as is known
}

// admit lets the message seq, which is next in the scheduler under handle h, go
// through its gates, or takes it out of the scheduler to wait for them.
func (l *loop) admit(h drr.Handle, seq uint64, s *slot, now int64) (*pass, bool) {
	if l.ordered && !l.inOrder(h, seq, s) {
		return nil, false
	}
	if s.lane == 0 {
		if l.keyPaused(s.flow, now) == 0 && !l.lanes.hasBare(s.flow) {
			return nil, true
		}
		s.lane = l.laneOf(s.flow, nil, "", now)
		ln := l.lanes.at(s.lane)
		ln.ready++
		if s.front {
			ln.returned++
		}
	}
	ln := l.lanes.at(s.lane)
	called := ln.called && ln.calledSeq == seq
	if ln.list.n > 0 && !called && (!s.front || l.frontBefore(ln, seq) != 0) {
		l.hold(h, seq, s, block{}, now) // behind older ones
		return nil, false
	}
	p, b := l.try(ln, s, now)
	if p == nil {
		l.hold(h, seq, s, b, now)
		return nil, false
	}
	return p, true
}

// admitted is told that the message seq has been taken from the scheduler for
// good.
func (l *loop) admitted(seq uint64, s *slot, now int64) {
	if s.lane == 0 {
		s.front = false
		return
	}
	ln := l.lanes.at(s.lane)
	ln.ready--
	ln.since = 0
	if ln.list.n > 0 {
		ln.since = now
	}
	if ln.called && ln.calledSeq == seq {
		l.tried(ln, now)
	} else {
		l.notReturned(ln, s)
	}
	s.front = false
}

// try takes s through the gates of its lane, all or none.
func (l *loop) try(ln *lane, s *slot, now int64) (*pass, block) {
	if until := l.keyPaused(ln.flow, now); until != 0 {
		l.cancelReservation(s.lane) // nothing is kept from others for a pause
		return nil, block{site: l.pauseSite(ln.flow), kind: byPause, at: until}
	}
	// Who was called, or has been through before, is not behind those that wait.
	var owner any
	if !s.front {
		owner = l.q
		if b := l.crowded(ln); b.site != 0 {
			return nil, b
		}
	}
	if ln.circuit != nil {
		if n, at := ln.circuit.admits(now); n <= 0 {
			l.cancelReservation(s.lane) // nor for a circuit
			return nil, block{site: l.circuitSite(ln.circuit), kind: byCircuit, at: at}
		}
	}
	ticket, why, ok := l.acquire(ln, s, now, owner)
	if !ok {
		return nil, block{site: l.throttleSite(why.Gate), kind: throttleBlock(why.Kind), at: why.At}
	}
	p := l.newPass()
	p.ticket = ticket
	if ln.circuit != nil {
		if p.circuit, ok = ln.circuit.allow(now); !ok {
			l.tellWaits(ln.set.Undo(&p.ticket, now, l.wakes[:0]))
			l.freePass(p)
			_, at := ln.circuit.admits(now) // somebody else was faster
			return nil, block{site: l.circuitSite(ln.circuit), kind: byCircuit, at: at}
		}
	}
	return p, block{}
}

// crowded finds a gate of the lane at which other lanes of this queue wait: the
// lane goes behind them.
func (l *loop) crowded(ln *lane) block {
	if ln.circuit != nil && len(l.sites.byCircuit) > 0 {
		if id := l.sites.byCircuit[ln.circuit]; id != 0 && l.sites.at(id).line.Len() > 0 {
			return block{site: id, kind: byCircuit, at: math.MaxInt64}
		}
	}
	if len(l.sites.byGate) == 0 {
		return block{}
	}
	for _, g := range ln.set.Gates() {
		if id := l.sites.byGate[g]; id != 0 && l.sites.at(id).line.Len() > 0 {
			return block{site: id, kind: byTurn, at: math.MaxInt64}
		}
	}
	return block{}
}

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
		l.sites.at(caller).line.Add(ln.flow, weight, uint32(lane), cost)
		ln.site = caller
	case caller != 0 && !ln.free && (ln.site == caller || ln.site == 0):
		l.sites.at(caller).line.PutBack(ln.flow, weight, uint32(lane), cost) // it has not gone after all
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

// newPass returns a pass with nothing in it.
func (l *loop) newPass() *pass {
	if n := len(l.passes); n > 0 {
		p := l.passes[n-1]
		l.passes = l.passes[:n-1]
		return p
	}
	return new(pass)
}

func (l *loop) freePass(p *pass) {
	*p = pass{}
	l.passes = append(l.passes, p)
}

// returnPass gives back what the delivery under le held of its gates. undo says
// that nobody received it.
func (l *loop) returnPass(le *lease, s *slot, now int64, o breaker.Outcome, undo bool) {
	p := le.pass
	if p == nil {
		return
	}
	le.pass = nil
	ln := l.lanes.at(s.lane)
	if undo {
		l.tellWaits(ln.set.Undo(&p.ticket, now, l.wakes[:0]))
	} else {
		l.tellWaits(ln.set.Release(&p.ticket, now, l.wakes[:0]))
	}
	if ln.circuit != nil {
		ln.circuit.done(&p.circuit, now, o)
	}
	l.freePass(p)
}
