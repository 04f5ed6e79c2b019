package queue

import (
	"math"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/throttle"
)

// permit is what a delivery holds of the gates that it went through. It is given
// back when the lease ends.
type permit struct {
	ticket  throttle.Grant
	circuit breaker.Pass // 0: none
}

// obstacle is why a message is blocked, and where it waits.
type obstacle struct {
	wait waitID
	kind BlockKind
	at   int64 // when to try again, as far as is known
}

// admit lets message seq, which is next in the schedule, go through its gates, or has
// its subqueue wait for them.
func (q *side) admit(id subID, seq uint64, s *slot, now int64) (*permit, bool) {
	if q.order.on && !q.inOrder(seq, s) {
		return nil, false
	}
	if id == 0 {
		if q.keyPaused(s.flow, now) == 0 {
			return nil, true
		}
		id = q.bareSub(s.flow)
	}
	p, why := q.try(id, s, now)
	if why.wait != 0 {
		q.block(id, why, now)
		return nil, false
	}
	return p, true
}

// try takes s, the first message of a subqueue, through its gates, all or none. One
// without gates gets no permit.
func (q *side) try(id subID, s *slot, now int64) (*permit, obstacle) {
	sub := q.gating.subs.at(id)
	if until := q.keyPaused(sub.flow, now); until != 0 {
		q.cancelReservation(id) // nothing is kept from others for a pause
		return nil, obstacle{wait: q.atPause(sub.flow), kind: ByPause, at: until}
	}
	if sub.bare() {
		return nil, obstacle{}
	}
	// A probe, or what was redelivered, is not behind those that wait.
	first := sub.probe.at != 0 || q.links.Stamp(s.ref) < 0
	var owner any
	if !first {
		owner = q.m.owner
		if b := q.crowded(sub); b.wait != 0 {
			return nil, b
		}
	}
	if sub.circuit != nil {
		if n, at := sub.circuit.Admits(now); n <= 0 {
			q.cancelReservation(id) // nor for a circuit
			return nil, obstacle{wait: q.atCircuit(sub.circuit), kind: ByCircuit, at: at}
		}
	}
	ticket, why, ok := q.acquire(id, s, first, now, owner)
	if !ok {
		return nil, obstacle{wait: q.atThrottle(why.Gate), kind: BlockOf(why.Kind), at: why.At}
	}
	p := q.gating.newPermit()
	p.ticket = ticket
	if sub.circuit != nil {
		var pending bool
		p.circuit, pending = sub.circuit.Allow(now)
		q.m.announce(sub.circuit, pending)
		if p.circuit == 0 {
			q.tellWaits(sub.set.Undo(&p.ticket, now, q.gating.wakes[:0]))
			q.gating.freePermit(p)
			_, at := sub.circuit.Admits(now) // somebody else was faster
			return nil, obstacle{wait: q.atCircuit(sub.circuit), kind: ByCircuit, at: at}
		}
	}
	return p, obstacle{}
}

// crowded finds a gate at which other subqueues of this side wait: the subqueue goes
// behind them.
func (q *side) crowded(sub *subqueue) obstacle {
	if sub.circuit != nil && len(q.gating.waits.byCircuit) > 0 {
		if id := q.gating.waits.byCircuit[sub.circuit]; id != 0 && q.gating.waits.at(id).line.Len() > 0 {
			return obstacle{wait: id, kind: ByCircuit, at: math.MaxInt64}
		}
	}
	if len(q.gating.waits.byGate) == 0 {
		return obstacle{}
	}
	for _, g := range sub.set.Gates() {
		if id := q.gating.waits.byGate[g]; id != 0 && q.gating.waits.at(id).line.Len() > 0 {
			return obstacle{wait: id, kind: ByTurn, at: math.MaxInt64}
		}
	}
	return obstacle{}
}

// newPermit returns a permit with nothing in it.
func (g *gating) newPermit() *permit {
	if n := len(g.permits); n > 0 {
		p := g.permits[n-1]
		g.permits = g.permits[:n-1]
		return p
	}
	return new(permit)
}

func (g *gating) freePermit(p *permit) {
	*p = permit{}
	g.permits = append(g.permits, p)
}

// returnPermit gives back what the delivery under le held of its gates. The pass of
// its circuit is returned if that is to hear the outcome later.
func (q *side) returnPermit(le *lease, s *slot, e ending, now int64) (later breaker.Pass) {
	p := le.permit
	if p == nil {
		return 0
	}
	le.permit = nil
	sub := q.gating.subs.at(s.sub)
	if e.undo {
		q.tellWaits(sub.set.Undo(&p.ticket, now, q.gating.wakes[:0]))
	} else {
		q.tellWaits(sub.set.ReleaseCorrected(&p.ticket, e.delta, now, q.gating.wakes[:0]))
	}
	if e.later {
		if later = p.circuit; later != 0 {
			sub.circuit.Undecided(later, now)
		}
	} else {
		q.returnPass(s, p.circuit, e.outcome, now)
	}
	q.gating.freePermit(p)
	return later
}

// returnPass tells the circuit of a message how its delivery ended; 0 is no pass.
func (q *side) returnPass(s *slot, pass breaker.Pass, o breaker.Outcome, now int64) {
	if pass != 0 {
		c := q.gating.subs.at(s.sub).circuit
		q.m.announce(c, c.Done(pass, now, o))
	}
}

// returnJudged is returnPass for a failure that was judged later.
func (q *side) returnJudged(s *slot, pass breaker.Pass, o breaker.Outcome, now int64) {
	if pass != 0 {
		c := q.gating.subs.at(s.sub).circuit
		q.m.announce(c, c.Decided(pass, now, o))
	}
}

// retryAfter shuts the circuit of a message for everybody, as its destination has
// asked for.
func (q *side) retryAfter(s *slot, d, now int64) {
	if d <= 0 || s.sub == 0 {
		return
	}
	if c := q.gating.subs.at(s.sub).circuit; c != nil {
		q.m.announce(c, c.RetryAfter(now, now+d))
	}
}

// reserveAfter is how long (ns) a subqueue with several throttle keys waits before it
// may collect its gates one by one, so that those with fewer do not starve it.
const reserveAfter = int64(1e9)

// acquire takes s through the throttle keys of its subqueue.
func (q *side) acquire(id subID, s *slot, first bool, now int64, owner any) (throttle.Grant, throttle.Block, bool) {
	sub := q.gating.subs.at(id)
	if sub.reserve.held == nil {
		ticket, why, ok := sub.set.Acquire(now, int64(s.cost), owner)
		starving := first && len(sub.set.Gates()) > 1 && sub.since != 0 && now-sub.since > reserveAfter
		if ok || !starving || q.gating.reserving != 0 || why.Kind == throttle.ByPause {
			return ticket, why, ok
		}
		r, got := q.m.gates.Reserve(sub.set, int64(s.cost))
		if !got {
			return ticket, why, false
		}
		sub.reserve.held, sub.reserve.cost, q.gating.reserving = r, s.cost, id
	}
	ticket, why, wakes := sub.reserve.held.Acquire(now, nil, q.gating.wakes[:0])
	q.tellWaits(wakes)
	switch {
	case ticket.Active():
		sub.reserve.held, q.gating.reserving = nil, 0
	case why.Kind == throttle.ByPause:
		q.cancelReservation(id)
	}
	return ticket, why, ticket.Active()
}

// watchReservation gives back what is collected for a message that could not be
// delivered: because fila delivers nothing now, or nobody has had credit for a
// while. Consumers that are busy have none most of the time.
func (q *side) watchReservation(now int64) {
	switch {
	case q.gating.reserving == 0 || q.consumers.ring != nil:
		q.gating.noCredit = 0
	case q.gating.noCredit == 0:
		q.gating.noCredit = now
	}
	if q.gating.reserving != 0 && (!q.m.dispatching || q.gating.noCredit != 0 && now-q.gating.noCredit >= reserveAfter) {
		q.gating.noCredit = 0
		q.cancelReservation(q.gating.reserving)
	}
}

// cancelReservation gives back what the subqueue has collected.
func (q *side) cancelReservation(id subID) {
	if id == 0 || q.gating.reserving != id {
		return
	}
	sub := q.gating.subs.at(id)
	q.gating.reserving = 0
	r := sub.reserve.held
	sub.reserve.held = nil
	q.tellWaits(r.Cancel(q.m.now, q.gating.wakes[:0]))
}
