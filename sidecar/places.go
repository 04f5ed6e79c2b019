package sidecar

import (
	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// pend lets message seq wait for its delivery, at the end of its flow or, with
// strict order, at its place.
func (l *loop) pend(seq uint64, s *slot) {
	if l.ordered && !s.holds {
		l.queueUp(seq, s)
		return
	}
	l.pendNow(seq, s)
}

// pendNow makes message seq pending at the end of its flow, or parks it if its
// lane is held back and nothing of the lane is in the scheduler behind that.
func (l *loop) pendNow(seq uint64, s *slot) {
	s.front = false
	l.reweighLanes(s.flow)
	if s.lane != 0 {
		ln := l.lanes.at(s.lane)
		if ln.list.n > 0 && (ln.ready == 0 || ln.ready == 1 && ln.called) {
			l.park(seq, s, ln)
			return
		}
		ln.ready++
	}
	s.state = slotPending
	s.ref = uint32(l.sched.Push(s.flow, l.keys.weight(s.flow), seq, int64(s.cost)))
}

// wait makes message seq pending, at once or when s.readyAt has come.
func (l *loop) wait(seq uint64, s *slot, now int64) {
	if s.readyAt > now {
		s.state = slotDelayed
		l.delays.push(s.readyAt, seq)
		l.orderDelayed(s)
		return
	}
	l.pend(seq, s)
}

// forget removes what the loop knows of message seq, wherever it is.
func (l *loop) forget(seq uint64, s *slot, e ending, now int64) {
	state, flow, lane, ttl := s.state, s.flow, s.lane, s.ttl
	switch state {
	case slotLeased:
		l.unlease(s, e, now)
	case slotFailing:
		l.failing--
	}
	l.yield(s)
	if l.perKey != nil {
		l.perKey.give(l.keys.name(flow))
	}
	l.q.depth.Add(-1)
	l.q.bytes.Add(-int64(s.size))
	l.slots.remove(seq)
	l.fresh.drop(seq)
	l.releaseLane(lane, now)
	l.keys.release(flow)
	if ttl {
		l.ttls.dropped(l.ttlCounts)
	}
	if state == slotDelayed {
		l.delays.dropped(l.delayCounts)
	}
}

func (l *loop) ttlCounts(it dueItem) bool {
	s := l.slots.get(it.seq)
	return s != nil && s.ttl && l.slots.expiresAt(it.seq, s) == it.at
}

func (l *loop) delayCounts(it dueItem) bool {
	s := l.slots.get(it.seq)
	return s != nil && s.state == slotDelayed && s.readyAt == it.at
}

func (l *loop) onDelayOver(it dueItem, _ int64) {
	if l.delayCounts(it) {
		l.pend(it.seq, l.slots.get(it.seq))
	} else if l.delays.stale > 0 {
		l.delays.stale--
	}
}

// onTTL dead-letters a message whose time is over. A lease that runs then runs
// on, and a hook that decides about a failure is waited for.
func (l *loop) onTTL(it dueItem, now int64) {
	if !l.ttlCounts(it) {
		if l.ttls.stale > 0 {
			l.ttls.stale--
		}
		return
	}
	s := l.slots.get(it.seq)
	switch s.state {
	case slotPending:
		l.sched.Remove(drr.Handle(s.ref))
		l.unready(it.seq, s)
	case slotParked:
		l.unpark(s)
	case slotOrdered:
		l.leaveOrder(s, l.orders[s.flow])
	case slotDelayed:
	default:
		return
	}
	l.deadLetter(it.seq, s, deadLetterCause{reason: wire.ReasonExpired}, now)
}

func (l *loop) ref(seq uint64) store.Ref { return store.Ref{Queue: l.q.id, Seq: seq} }

// unpend takes the pending message seq out of the scheduler.
func (l *loop) unpend(s *slot) {
	l.sched.Remove(drr.Handle(s.ref))
	s.state = slotMoving
}
