package queue

import (
	"math"

	"github.com/filaq/fila/sidecar/queue/backlog"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/sidecar/queue/history"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// serveRounds is how many times a step rechecks gates after deliveries.
const serveRounds = 8

// serve rechecks gates that may have opened, and delivers. It reports whether it
// stopped early.
func (q *side) serve(now int64) (more bool) {
	for range serveRounds {
		more = q.gates.Begin(now)
		more = q.deliver(now) || more
		q.gates.End(now)
		if !q.gates.Busy() || more {
			break
		}
	}
	q.gates.WatchReservation(q.Consumers.HasCredit(), q.m.dispatching, now)
	return more || q.gates.Busy()
}

// blockedInARow is how many subqueues of one flow may be found blocked before other
// flows are served.
const blockedInARow = 64

// deliver leases ready messages to consumers with credit. It reports whether it stopped
// early.
func (q *side) deliver(now int64) (more bool) {
	if q.Pauses.End(now) || !q.m.dispatching {
		return false
	}
	blocked := 0
	for range deliverPerStep {
		if !q.Consumers.HasCredit() || q.m.journal.behind() {
			return false
		}
		f, ok := q.Sched.Peek()
		if !ok {
			return false
		}
		id, link := q.gates.First(f)
		seq := q.Links.Seq(link)
		s := q.Slots.Get(seq)
		if q.Expired(seq, s, now) {
			q.remove(s)
			q.deadLetterExpired(seq, s, now)
			continue
		}
		var p *gates.Permits
		if id != 0 || q.Order.On || len(q.Pauses.Keys) > 0 {
			var empty *throttle.Gate
			if p, ok, empty = q.admit(id, seq, s, now); empty != nil {
				q.remove(s)
				q.deadLetter(seq, s, store.Dead{Reason: wire.ReasonBudgetEmpty, Error: "the budget of throttle key " + wire.Quote(wire.ShowKey(empty.Key())) + " is empty"}, nil, Confirmation{}, now)
				continue
			}
			if !ok {
				if blocked++; blocked == blockedInARow {
					blocked = 0
					q.Sched.EndTurn()
				}
				continue
			}
			blocked = 0
		}
		intervals := q.gates.Blocked(id, q.Pauses.Intervals, s.ReadyAt, now)
		q.take(id, s, now)
		q.lease(seq, s, p, intervals, q.Consumers.Next(), now)
	}
	return true
}

// admit takes message seq, which the schedule serves next, through its gates, or makes
// its subqueue wait for them, as [gates.Gates.Admit] does.
func (q *side) admit(id gates.ID, seq uint64, s *backlog.Slot, now int64) (p *gates.Permits, ok bool, empty *throttle.Gate) {
	if q.Order.On && !q.inOrder(seq, s) {
		return nil, false, nil
	}
	if id == 0 {
		if q.KeyPaused(s.Flow, now) == 0 {
			return nil, true, nil
		}
		id = q.gates.MakeBare(s.Flow)
	}
	return q.gates.Admit(id, s.Ref, s.Cost, now)
}

// lease gives message seq to c.
func (q *side) lease(seq uint64, s *backlog.Slot, p *gates.Permits, blocked []history.BlockedInterval, c *backlog.Consumer, now int64) {
	le := backlog.Lease{
		ID: q.m.nextLease(), Seq: seq, Permits: p, Deadline: now + q.visibility(),
		Consumer: c, Reg: c.Reg, At: now, Blocked: blocked,
	}
	i := q.Leases.Add(le)
	q.Leases.ToStore(i, now)
	s.State, s.Ref = backlog.Leased, i
	if s.Open {
		q.m.journal.working++
	}
	c.InFlight++
	if c.Fetch {
		q.Consumers.Wanted--
		if c.Limit--; c.Limit == 0 {
			q.endFetch(c)
		}
	}
	q.Consumers.Update(c)
	q.count().Delivered++
	q.m.out.Publish = append(q.m.out.Publish, Delivery{
		Role:       q.role,
		Subject:    c.Subject,
		Fresh:      q.uncommitted(seq),
		Token:      wire.Token{Seq: seq, Attempt: s.Attempts + 1, Lease: le.ID},
		Form:       c.Form,
		ID:         s.ID,
		Key:        q.Name(s.Flow),
		Route:      q.routeName(s.Sub, p),
		Deadline:   le.Deadline,
		EnqueuedAt: s.EnqueuedAt,
		ReadyAt:    s.ReadyAt,
		At:         now,
		Blocked:    blocked,
	})
}

// routeName is the name of the route by which a message of a subqueue went; empty: it had
// no choice.
func (q *side) routeName(id gates.ID, p *gates.Permits) string {
	if id == 0 {
		return ""
	}
	return q.gates.Subs.At(id).RouteName(p.Route())
}

// unlease ends the lease of s and gives back its credit and its permits. If the failure is
// still to be judged, it returns the permission of the circuit, for ReturnJudged.
func (q *side) unlease(s *backlog.Slot, e gates.Ending, now int64) (le backlog.Lease, later gates.Permission) {
	le = q.Leases.Items[s.Ref]
	if s.Open {
		q.m.journal.working--
	}
	later = q.gates.Return(le.Permits, s.Sub, e, now)
	q.Leases.Remove(s.Ref)
	if !e.Undo && le.At != 0 {
		q.monitor.Worked(&q.Keys.Entries[s.Flow], now-le.At, le.At-s.ReadyAt, now)
	}
	le.Consumer.InFlight--
	q.Consumers.Update(le.Consumer)
	return le, later
}

// takeBack puts a delivery that nobody received back to its place. The attempt does not
// count.
func (q *side) takeBack(seq uint64, s *backlog.Slot, now int64) backlog.Lease {
	le, _ := q.unlease(s, undelivered, now)
	q.count().TakenBack++
	// Messages that come back wait in front of their flow, in the order in which they were
	// delivered.
	if q.Order.On && !q.MayOwn(seq, s) {
		q.orderYounger(q.Subqueue(s), seq)
		q.enqueueInOrder(seq, s)
	} else {
		q.insert(seq, s, math.MinInt64+le.Order)
	}
	q.Sched.Refund(s.Flow, int64(s.Cost))
	if q.Expired(seq, s, now) {
		q.TTLs.Add(q.ExpiresAt(seq, s), seq) // its timer may have fired while it was leased
	}
	if s.Stored {
		q.storeState(seq, s, "")
	}
	return le
}
