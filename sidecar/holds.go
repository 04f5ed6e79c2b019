package sidecar

import (
	"math"

	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/throttle"
)

// pauseUntil holds the whole queue until a time, math.MaxInt64 until it is
// resumed; 0 resumes it.
func (l *loop) pauseUntil(until int64) {
	l.pausedTo = until
	if until != 0 {
		l.cancelReservation(l.reserving) // nothing is kept from others for a pause
	}
}

// paused reports whether the queue is paused, and ends a pause whose time is
// over.
func (l *loop) paused(now int64) bool {
	if l.pausedTo == 0 {
		return false
	}
	if l.pausedTo <= now {
		l.pausedTo = 0
		return false
	}
	return true
}

// pauseKey holds a fairness key as pauseUntil does the queue. It acts on the
// backlog of the key at once.
func (l *loop) pauseKey(key string, until int64) {
	if until == 0 {
		delete(l.pausedKeys, key)
	} else {
		if l.pausedKeys == nil {
			l.pausedKeys = make(map[string]int64)
		}
		l.pausedKeys[key] = until
	}
	if f, ok := l.keys.ids[key]; ok {
		if r := l.reserving; r != 0 && until != 0 && l.lanes.at(r).flow == f {
			l.cancelReservation(r)
		}
		if id, ok := l.sites.byFlow[f]; ok {
			l.sites.at(id).notBefore = 0
			l.lookLater(id)
		}
	}
}

// keyPaused returns until when a flow is held, or 0.
func (l *loop) keyPaused(f drr.Flow, now int64) int64 {
	if len(l.pausedKeys) == 0 {
		return 0
	}
	until := l.pausedKeys[l.keys.name(f)]
	if until == 0 || until > now {
		return until
	}
	delete(l.pausedKeys, l.keys.name(f))
	return 0
}

// applyPauses gives a loop that has not started the pauses in force.
func (s *Server) applyPauses(l *loop) {
	until, keys := s.pausesOf(l.q)
	l.pauseUntil(until)
	for key, until := range keys {
		l.pauseKey(key, until)
	}
}

// applyOrdering makes the ordering of the queue's settings count.
func (l *loop) applyOrdering() {
	s := &l.q.policy.Load().settings
	l.setOrdering(s.Ordering == orderingKey && !l.q.isDLQ(), s.OnBlocked == onBlockedSkip)
}

// Values of the settings ordering and on_blocked.
const (
	orderingKey   = "key"
	onBlockedSkip = "skip"
)

// reweighLanes makes the flow's present weight count where its lanes wait, after
// a change that may have brought another one. Lanes that join a line later bring
// the present weight with them.
func (l *loop) reweighLanes(f drr.Flow) {
	e, weight := &l.keys.entries[f], l.keys.weight(f)
	if e.lined == uint32(weight) {
		return
	}
	e.lined = uint32(weight)
	if len(l.sites.byGate)+len(l.sites.byCircuit) > 0 {
		l.reweigh(f, weight)
	}
}

// leaveGates gives back everything that the queue holds of gates, when its loop
// ends for good.
func (l *loop) leaveGates(now int64) {
	l.cancelReservation(l.reserving)
	for i := l.leases.head; i != 0; i = l.leases.items[i-1].next {
		le := &l.leases.items[i-1]
		l.returnPass(le, l.slots.get(le.seq), now, neutral.outcome, false)
	}
	for id := 1; id < len(l.sites.items); id++ {
		if st := l.sites.items[id]; st.kind != siteFree {
			l.closeSite(siteID(id))
		}
	}
	for id := range l.lanes.items {
		ln := &l.lanes.items[id]
		if ln.set != nil {
			l.q.core.gates.Close(ln.set, now)
		}
		if ln.circuit != nil {
			l.q.core.circuits.drop(ln.circuit)
		}
	}
}

// wake tells queues that it is their turn at a gate.
func (c *core) wake(waits []*throttle.Wait) {
	for _, w := range waits {
		c.wakeOne(w)
	}
}

func (c *core) wakeOne(w *throttle.Wait) {
	w.Owner.(*queue).mail.post(event{kind: evGate, gate: w.Gate()})
}

// wakeCircuit tells a queue that a circuit may admit more.
func (c *core) wakeCircuit(q *queue, ci *circuit) {
	q.mail.post(event{kind: evCircuit, circuit: ci})
}

// byHand is the end of a pause that only an operator ends.
const byHand = math.MaxInt64
