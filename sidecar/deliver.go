package sidecar

import (
	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/wire"
)

// serveRounds bounds how often gates that deliveries have brought back are looked
// at in one turn.
const serveRounds = 8

// serve looks at gates that may have opened and delivers. It reports whether it
// stopped before it had to.
func (l *loop) serve(now int64) (more bool) {
	for range serveRounds {
		more = l.lookAround(now)
		l.trying = true
		more = l.deliver(now) || more
		l.trying = false
		l.endTurns(now)
		if len(l.looks) == 0 || more {
			break
		}
	}
	l.watchReservation(now)
	return more || len(l.looks) > 0
}

// heldInARow is how many messages of one flow may be found to be held back before
// the other flows have a turn.
const heldInARow = 64

// deliver leases pending messages to consumers with credit. It reports whether
// it stopped before it had to.
func (l *loop) deliver(now int64) (more bool) {
	if l.paused(now) || !l.q.core.dispatching() {
		return false
	}
	held := 0
	for range deliverPerTurn {
		if l.sched.Len() == 0 || l.consumers.ring == nil {
			return false
		}
		item, h, _ := l.sched.Peek()
		s := l.slots.get(item.Value)
		if l.slots.expired(item.Value, s, now) {
			l.sched.Remove(h)
			l.unready(item.Value, s)
			l.deadLetter(item.Value, s, deadLetterCause{reason: wire.ReasonExpired}, now)
			continue
		}
		var p *pass
		if s.lane != 0 || l.ordered || len(l.pausedKeys) > 0 || l.lanes.bare > 0 {
			var ok bool
			if p, ok = l.admit(h, item.Value, s, now); !ok {
				if held++; held == heldInARow {
					held = 0
					l.sched.EndTurn()
				}
				continue
			}
			held = 0
		}
		l.sched.Next()
		l.admitted(item.Value, s, now)
		l.lease(item.Value, s, p, l.consumers.next(), now)
	}
	return true
}

// lease gives message seq to c and hands the delivery to the dispatcher.
func (l *loop) lease(seq uint64, s *slot, p *pass, c *consumer, now int64) {
	le := lease{
		id:       l.q.core.nextLease(),
		seq:      seq,
		pass:     p,
		deadline: now + l.q.visibility(),
		consumer: c,
		reg:      c.reg,
	}
	if len(l.back) > 0 {
		clear(l.back)
	}
	i := l.leases.add(le)
	l.leases.toStore(i, now)
	s.state, s.ref = slotLeased, i
	if s.unsent {
		l.young++
	}
	c.inFlight++
	if c.fetch {
		if c.limit--; c.limit == 0 {
			l.endFetch(c)
		}
	}
	l.consumers.settle(c)
	l.q.metrics.delivered.Inc()
	l.q.metrics.deliveryLatency.Observe(float64(now-s.readyAt) / 1e9)
	l.send(delivery{
		subject:    c.subject,
		seq:        seq,
		lease:      le.id,
		deadline:   le.deadline,
		id:         s.id,
		enqueuedAt: s.enqueuedAt,
		attempt:    s.attempts + 1,
		key:        l.keys.name(s.flow),
		fresh:      l.fresh.get(seq),
	})
}

// ending is how the lease of a message ends, for its gates.
type ending struct {
	outcome breaker.Outcome
	undo    bool // nobody received the delivery
}

// unlease ends the lease of s and gives back its credit and what it holds of
// gates.
func (l *loop) unlease(s *slot, e ending, now int64) lease {
	le := l.leases.items[s.ref]
	if s.unsent {
		l.young--
	}
	l.returnPass(&le, s, now, e.outcome, e.undo)
	l.leases.remove(s.ref)
	le.consumer.inFlight--
	l.consumers.settle(le.consumer)
	return le
}
