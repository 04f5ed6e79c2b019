package queue

import (
	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/wire"
)

// serveRounds bounds how often gates that deliveries have brought back are looked
// at in one step.
const serveRounds = 8

// serve looks at gates that may have opened and delivers. It reports whether it
// stopped before it had to.
func (q *side) serve(now int64) (more bool) {
	for range serveRounds {
		more = q.lookAround(now)
		q.gating.trying = true
		more = q.deliver(now) || more
		q.gating.trying = false
		q.endTurns(now)
		if len(q.gating.looks) == 0 || more {
			break
		}
	}
	q.watchReservation(now)
	return more || len(q.gating.looks) > 0
}

// heldInARow is how many messages of one flow may be found to be held back before
// the other flows have a turn.
const heldInARow = 64

// deliver leases pending messages to consumers with credit. It reports whether
// it stopped before it had to.
func (q *side) deliver(now int64) (more bool) {
	if q.paused(now) || !q.m.dispatching {
		return false
	}
	held := 0
	for range deliverPerStep {
		if q.sched.Len() == 0 || q.consumers.ring == nil {
			return false
		}
		item, _, _ := q.sched.Peek()
		s := q.slots.get(item.Value)
		if q.slots.expired(item.Value, s, now) {
			q.unschedule(item.Value, s)
			q.deadLetter(item.Value, s, cause{reason: wire.ReasonExpired}, now)
			continue
		}
		var p *permit
		if s.sub != 0 || q.order.on || len(q.pauses.keys) > 0 || q.gating.subs.bare > 0 {
			var ok bool
			if p, ok = q.admit(item.Value, s, now); !ok {
				if held++; held == heldInARow {
					held = 0
					q.sched.EndTurn()
				}
				continue
			}
			held = 0
		}
		q.sched.Next()
		q.admitted(item.Value, s, now)
		q.lease(item.Value, s, p, q.consumers.next(), now)
	}
	return true
}

// lease gives message seq to c.
func (q *side) lease(seq uint64, s *slot, p *permit, c *consumer, now int64) {
	le := lease{
		id:       q.m.nextLease(),
		seq:      seq,
		permit:   p,
		deadline: now + q.visibility(),
		consumer: c,
		reg:      c.reg,
	}
	if len(q.back) > 0 {
		clear(q.back)
	}
	i := q.leases.add(le)
	q.leases.toStore(i, now)
	s.state, s.ref = slotLeased, i
	if s.open {
		q.m.journal.working++
	}
	c.inFlight++
	if c.fetch {
		if c.limit--; c.limit == 0 {
			q.endFetch(c)
		}
	}
	q.consumers.update(c)
	q.tally().Delivered++
	q.m.out.Publish = append(q.m.out.Publish, Delivery{
		Side:       q.which,
		Subject:    c.subject,
		Fresh:      q.uncommitted(seq),
		Token:      wire.Token{Seq: seq, Attempt: s.attempts + 1, Lease: le.id},
		ID:         s.id,
		Key:        q.keys.name(s.flow),
		Deadline:   le.deadline,
		EnqueuedAt: s.enqueuedAt,
		ReadyAt:    s.readyAt,
	})
}

// ending is how the lease of a message ends, for its gates.
type ending struct {
	outcome breaker.Outcome
	undo    bool // nobody received the delivery
	later   bool // the circuit hears the outcome later
}

// unlease ends the lease of s and gives back its credit and what it holds of gates,
// but for the pass of its circuit if that is to hear the outcome later.
func (q *side) unlease(s *slot, e ending, now int64) (le lease, pass breaker.Pass) {
	le = q.leases.items[s.ref]
	if s.open {
		q.m.journal.working--
	}
	pass = q.returnPermit(&le, s, e, now)
	q.leases.remove(s.ref)
	le.consumer.inFlight--
	q.consumers.update(le.consumer)
	return le, pass
}

// takeBack puts a delivery that nobody received back to where it was: the
// attempt does not count.
func (q *side) takeBack(seq uint64, s *slot, now int64) lease {
	le, _ := q.unlease(s, unheard, now)
	q.tally().TakenBack++
	q.putBack(seq, s, le.id)
	if q.slots.expired(seq, s, now) {
		// Its turn in ttls may have passed while the lease ran.
		q.ttls.push(q.slots.expiresAt(seq, s), seq)
	}
	if s.stored {
		q.storeState(seq, s, "")
	}
	return le
}

// putBack makes message seq, whose delivery under lease nobody received, pending
// at its place: in front of its flow, but behind those that were delivered before
// it and have come back before it.
func (q *side) putBack(seq uint64, s *slot, lease uint64) {
	q.atHead(s)
	before, ok := q.back[s.flow]
	if p := q.slots.get(before.seq); ok && before.lease < lease && p != nil && p.state == slotPending && p.ref == before.ref {
		s.ref = uint32(q.sched.ReturnBehind(drr.Handle(p.ref), seq, int64(s.cost)))
	} else {
		s.ref = uint32(q.sched.Return(s.flow, q.keys.weight(s.flow), seq, int64(s.cost)))
	}
	q.back[s.flow] = takenBack{seq: seq, lease: lease, ref: s.ref}
}

// atHead has message s, which is about to join the schedule, stand in front of what
// its subqueue has blocked.
func (q *side) atHead(s *slot) {
	s.state, s.head = slotPending, true
	if s.sub != 0 {
		sub := q.gating.subs.at(s.sub)
		q.dropProbe(sub)
		sub.ready++
		sub.redelivered++
	}
}

// takenBack is the last message of a flow that was put back, and the handle that
// it has in the scheduler.
type takenBack struct {
	seq, lease uint64
	ref        uint32
}

// onUndelivered takes back a delivery that could not be published.
func (q *side) onUndelivered(t wire.Token, now int64) {
	if s := q.leased(t); s != nil {
		q.takeBack(t.Seq, s, now)
	}
}
