package queue

import (
	"math"

	"github.com/filaq/fila/breaker"
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

// heldInARow is how many subqueues of one flow may be found to be blocked before the
// other flows have a turn.
const heldInARow = 64

// deliver leases pending messages to consumers with credit. It reports whether
// it stopped before it had to.
func (q *side) deliver(now int64) (more bool) {
	if q.paused(now) || !q.m.dispatching {
		return false
	}
	held := 0
	for range deliverPerStep {
		if q.consumers.ring == nil || q.m.journal.behind() {
			return false
		}
		f, ok := q.sched.Peek()
		if !ok {
			return false
		}
		id, link := q.firstOf(f)
		seq := q.links.Seq(link)
		s := q.slots.Get(seq)
		if q.expired(seq, s, now) {
			q.unlist(s)
			q.deadLetter(seq, s, cause{reason: wire.ReasonExpired}, now)
			continue
		}
		var p *permit
		if id != 0 || q.order.on || len(q.pauses.keys) > 0 {
			if p, ok = q.admit(id, seq, s, now); !ok {
				if held++; held == heldInARow {
					held = 0
					q.sched.EndTurn()
				}
				continue
			}
			held = 0
		}
		held := q.heldUntil(id, s, now)
		q.take(f, id, s, now)
		q.lease(seq, s, p, held, q.consumers.next(), now)
	}
	return true
}

// lease gives message seq to c.
func (q *side) lease(seq uint64, s *slot, p *permit, held []BlockedInterval, c *consumer, now int64) {
	le := lease{
		id:       q.m.nextLease(),
		seq:      seq,
		permit:   p,
		deadline: now + q.visibility(),
		consumer: c,
		reg:      c.reg,
		at:       now,
		held:     held,
	}
	i := q.leases.add(le)
	q.leases.toStore(i, now)
	s.state, s.ref = slotLeased, i
	if s.open {
		q.m.journal.working++
	}
	c.inFlight++
	if c.fetch {
		q.consumers.wanted--
		if c.limit--; c.limit == 0 {
			q.endFetch(c)
		}
	}
	q.consumers.update(c)
	q.tally().Delivered++
	q.m.out.Publish = append(q.m.out.Publish, Delivery{
		Role:       q.which,
		Subject:    c.subject,
		Fresh:      q.uncommitted(seq),
		Token:      wire.Token{Seq: seq, Attempt: s.attempts + 1, Lease: le.id},
		ID:         s.id,
		Key:        q.keys.name(s.flow),
		Deadline:   le.deadline,
		EnqueuedAt: s.enqueuedAt,
		ReadyAt:    s.readyAt,
		At:         now,
		Blocked:    held,
	})
}

// ending is how the lease of a message ends, for its gates.
type ending struct {
	outcome breaker.Outcome
	undo    bool  // nobody received the delivery
	later   bool  // the circuit hears the outcome later
	delta   int64 // how much more (thousandths) it has cost than was estimated
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
	if !e.undo && le.at != 0 {
		q.work.add(&q.keys.entries[s.flow], now-le.at, now)
	}
	le.consumer.inFlight--
	q.consumers.update(le.consumer)
	return le, pass
}

// takeBack puts a delivery that nobody received back to where it was: the
// attempt does not count.
func (q *side) takeBack(seq uint64, s *slot, now int64) lease {
	le, _ := q.unlease(s, unheard, now)
	q.tally().TakenBack++
	q.putBack(seq, s, le.order)
	if q.expired(seq, s, now) {
		// Its turn in ttls may have passed while the lease ran.
		q.ttls.Add(q.expiresAt(seq, s), seq)
	}
	if s.stored {
		q.storeState(seq, s, "")
	}
	return le
}

// putBack lets message seq, whose delivery of that order nobody received, wait again
// at its place: in front of its flow, among those that have come back in the order in
// which they were delivered.
func (q *side) putBack(seq uint64, s *slot, order int64) {
	if q.order.on && !q.mayOwn(seq, s) {
		q.followSub(q.subOf(s), seq)
		q.queueUp(seq, s)
	} else {
		q.enter(seq, s, math.MinInt64+order)
	}
	q.sched.Refund(s.flow, int64(s.cost))
}

// onUndelivered takes back a delivery that could not be published.
func (q *side) onUndelivered(t wire.Token, now int64) {
	if s := q.leased(t); s != nil {
		q.takeBack(t.Seq, s, now)
	}
}
