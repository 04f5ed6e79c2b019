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
