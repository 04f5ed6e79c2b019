package sidecar

import (
	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/wire"
)

// takeBack puts a delivery that nobody received back to where it was: the
// attempt does not count.
func (l *loop) takeBack(seq uint64, s *slot, now int64) lease {
	le := l.unlease(s, unheard, now)
	l.q.metrics.takenBack.Inc()
	l.putBack(seq, s, le.id)
	if l.slots.expired(seq, s, now) {
		// Its turn in ttls may have passed while the lease ran.
		l.ttls.push(l.slots.expiresAt(seq, s), seq)
	}
	if s.stored {
		l.storeState(seq, s, "")
	}
	return le
}

// putBack makes message seq, whose delivery under lease nobody received, pending
// at its place: in front of its flow, but behind those that were delivered before
// it and have come back before it.
func (l *loop) putBack(seq uint64, s *slot, lease uint64) {
	s.state, s.front = slotPending, true
	if s.lane != 0 {
		ln := l.lanes.at(s.lane)
		l.uncall(ln)
		ln.ready++
		ln.returned++
	}
	before, ok := l.back[s.flow]
	if p := l.slots.get(before.seq); ok && before.lease < lease && p != nil && p.state == slotPending && p.ref == before.ref {
		s.ref = uint32(l.sched.ReturnBehind(drr.Handle(p.ref), seq, int64(s.cost)))
	} else {
		s.ref = uint32(l.sched.Return(s.flow, l.keys.weight(s.flow), seq, int64(s.cost)))
	}
	l.back[s.flow] = takenBack{seq: seq, lease: lease, ref: s.ref}
}

// takenBack is the last message of a flow that was put back, and the handle that
// it has in the scheduler.
type takenBack struct {
	seq, lease uint64
	ref        uint32
}

// onUndelivered takes back a delivery that could not be published.
func (l *loop) onUndelivered(t wire.Token, now int64) {
	if s := l.leased(t); s != nil {
		l.takeBack(t.Seq, s, now)
	}
}
