package sidecar

import (
	"math"
	"time"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// Invariants of a queue's loop:
//
//  1. Every live message of the queue has exactly one slot, and its state says
//     where else it is: a pending one is in drr, a parked one in the list of its
//     lane, a leased one in leases, a delayed one in delays. depth and bytes count the slots and what the
//     intake has accepted for them.
//  2. A message is in at most one of these places. Whatever takes it out of one
//     puts it into another, or removes the slot, in the same turn.
//  3. What a turn changes goes to the store as batches in the order of the
//     changes, so the store's order is the loop's order.
//  4. An answer to a producer or consumer leaves only from Done, when what it
//     answers is on disk, or when nothing of it has to be.
//
// # The way to the disk
//
// Delivery does not wait for the commit. Apart from what slotState says, a message
// is in one of three conditions:
//
//	unsent      its Add is in main, which the store does not have yet
//	committing  the store has it, and has not said that it is on disk
//	durable     it is on disk
//
// Until it is durable it is delivered from memory (fresh). What ends it:
//
//	unsent      it is taken out of main: nothing of it is ever written, and
//	            producer and consumer are answered at once. Only a dedupe id is
//	            still written, and then the answers wait for that
//	committing  a Finish in a later batch; the store writes neither if both come
//	            to be in one commit
//	durable     a Finish
//
// Attempts, delays and leases are a State in a later batch than the Add, or in the
// same. A move to the dead letter queue hands main in first. A commit that fails is
// final: who waits is told that the outcome is not known, nothing more is delivered
// or confirmed, and the next start reads what is true.
//
// main is handed in when an earlier batch of the queue is done, at once if there is
// none and somebody waits for it, or after a moment (pacing) if consumers are
// working on messages of it.
type loop struct {
	q *queue

	slots     slotTable
	keys      keyTable
	sched     *drr.Scheduler
	leases    leaseTable
	delays    dueHeap // delayed messages, by readyAt
	ttls      dueHeap // messages with a TTL, by expiresAt
	consumers consumerSet
	expiring  dueHeap              // consumers with an end, by reg
	byReg     map[uint64]*consumer // those in expiring
	noWait    []*consumer          // fetches to be ended this turn
	failing   int
	absent    []absence              // restored consumers that nobody has heard of, in the order of until
	graceEnds int64                  // when a restored consumer is one like any other
	back      map[drr.Flow]takenBack // since the last delivery
	dead      map[uint64]*store.Dead // of a dead letter queue's messages

	lanes      laneTable
	links      links
	sites      siteTable
	siteTimers dueHeap                  // sites to look at, by time
	looks      []siteID                 // sites to look at in this turn
	touched    []siteID                 // sites that have called in this turn
	wakes      []*throttle.Wait         // scratch
	passes     []*pass                  // to be used again
	reserving  laneID                   // the lane that has the Reservation of the process
	noCredit   int64                    // since when nobody has credit, while there is a Reservation; 0: somebody has
	parked     int64                    // messages
	parkedBy   [blockKinds]int64        // messages, by what holds them back
	pausedTo   int64                    // the queue delivers nothing until then; 0: it does
	pausedKeys map[string]int64         // fairness keys, until when
	failures   map[string]*failureTimes // of fairness keys, if they are limited

	perKey *keyCounts // messages by fairness key, if they are limited

	ordered      bool // strict order per key
	skipBlocked  bool
	orders       map[drr.Flow]*keyOrder
	orderWaiting int64 // messages that wait for their predecessors

	main       *batch // changes that the store does not have yet
	committing int    // batches that it has and that are not on disk
	young      int    // leased messages whose Add is in main
	now        int64  // of this turn
	fresh      freshWindow
	trying     bool // messages try their gates: what opens now is looked at in the next turn
}

// Work of one kind done in one turn at most, so that a burst of one kind does
// not hold up the others.
const (
	timersPerTurn  = 1024
	deliverPerTurn = 1024
)

func newLoop(q *queue) *loop {
	l := &loop{
		q:         q,
		keys:      newKeyTable(),
		sched:     drr.New(q.policy.Load().settings.Quantum),
		consumers: newConsumerSet(),
		byReg:     make(map[uint64]*consumer),
		back:      make(map[drr.Flow]takenBack),
		lanes:     newLaneTable(),
		sites:     newSiteTable(),
		orders:    make(map[drr.Flow]*keyOrder),
		graceEnds: q.core.clock.Now() + restoreGrace,
	}
	if q.isDLQ() {
		l.dead = make(map[uint64]*store.Dead)
	}
	l.applyOrdering()
	l.applyLimits()
	return l
}

type eventKind uint8

const (
	evEnqueue eventKind = iota
	evDuplicate
	evAck
	evCommitted
	evDecided
	evUndelivered
	evGate
	evCircuit
	evCall
)

// event is one thing that a loop is told.
type event struct {
	kind     eventKind
	incoming *incoming
	id       store.ID // evDuplicate: the first message's
	reply    string
	token    wire.Token // evAck, evUndelivered
	ack      wire.Ack
	batch    *batch
	decided  *decidedFailure
	gate     *throttle.Gate
	circuit  *circuit
	call     func(l *loop)
}

// run is the loop's goroutine.
func (l *loop) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var events []event
	stop := l.q.stop
	for {
		select {
		case <-l.q.mail.wake:
		case <-timer.C:
		case <-stop:
			l.finish()
			return
		}
		events = l.q.mail.take(events)
		l.turn(events)
		events = recycle(events)
		timer.Reset(l.sleep())
	}
}

// finish handles what was posted before the end and writes every lease, so that
// consumers which go on working can ack to the next process.
func (l *loop) finish() {
	for {
		events := l.q.mail.take(nil)
		if len(events) == 0 {
			break
		}
		l.turn(events)
	}
	l.storeLeases(math.MaxInt64 - leaseWriteDelay)
	if l.q.deleted.Load() {
		l.leaveGates(l.q.core.clock.Now())
	}
	l.q.mail.close()
	for _, e := range l.q.mail.take(nil) {
		l.refuse(e)
	}
	for c := range l.consumers.fetches {
		l.status(c, statusExpired)
	}
	l.flush()
}

// turn handles events and whatever time has brought, picks deliveries, and
// hands the changes to the store.
func (l *loop) turn(events []event) {
	now := l.q.core.clock.Now()
	l.now = now
	for i := range events {
		l.handle(&events[i], now)
	}
	l.tryAgain(now)
	more := l.expire(now)
	more = l.serve(now) || more
	l.endNoWait(more)
	l.storeLeases(now)
	l.flushIfDue(now)
	l.countOpen()
	if more {
		l.q.mail.poke()
	}
}

func (l *loop) countOpen() { l.q.open.Store(int64(l.leases.live + l.failing)) }

func (l *loop) handle(e *event, now int64) {
	switch e.kind {
	case evEnqueue:
		l.enqueue(e.incoming, now)
	case evDuplicate:
		b := l.batch()
		b.replies = append(b.replies, reply{kind: replyDuplicate, subject: e.reply, id: e.id})
	case evAck:
		l.onAck(e, now)
	case evCommitted:
		l.committed(e.batch)
	case evDecided:
		l.onDecided(e.decided, now)
	case evUndelivered:
		l.onUndelivered(e.token, now)
	case evGate:
		l.onGate(e.gate)
	case evCircuit:
		l.onCircuit(e.circuit)
	case evCall:
		e.call(l)
	}
}

// refuse answers an event that came after the loop's end.
func (l *loop) refuse(e event) {
	switch e.kind {
	case evEnqueue:
		l.q.core.settleBytes(l.q, e.incoming)
		l.q.core.replyError(e.incoming.reply, l.q.gone())
	case evDuplicate, evAck:
		l.q.core.replyError(e.reply, l.q.gone())
	case evDecided:
		l.q.core.replyError(e.decided.reply, l.q.gone())
	case evCall:
		e.call(l)
	}
}

// sleep is how long the loop may wait when nothing is posted.
func (l *loop) sleep() time.Duration {
	next := int64(math.MaxInt64)
	if d, ok := l.leases.first(); ok {
		next = min(next, d.deadline)
	}
	for _, h := range []*dueHeap{&l.delays, &l.ttls, &l.expiring, &l.siteTimers} {
		if it, ok := h.next(); ok {
			next = min(next, it.at)
		}
	}
	if len(l.absent) > 0 {
		next = min(next, l.absent[0].until)
	}
	if at, ok := l.leases.nextUnstored(); ok {
		next = min(next, at)
	}
	if l.pausedTo != 0 {
		next = min(next, l.pausedTo)
	}
	if l.reserving != 0 && l.noCredit != 0 {
		next = min(next, l.noCredit+reserveAfter)
	}
	now := l.q.core.clock.Now()
	if l.main != nil {
		if at := l.flushAt(now); at != 0 {
			next = min(next, at)
		}
	}
	if next <= now {
		return 0
	}
	return time.Duration(min(next-now, int64(time.Hour)))
}

// expire ends leases, delays, TTLs and registrations whose time has come. It
// reports whether some are left.
func (l *loop) expire(now int64) (more bool) {
	n := 0
	for ; n < timersPerTurn; n++ {
		le, ok := l.leases.first()
		if !ok || le.deadline > now {
			break
		}
		l.onExpired(le.seq, now)
	}
	more = n == timersPerTurn
	more = l.due(&l.delays, now, l.onDelayOver) || more
	more = l.due(&l.ttls, now, l.onTTL) || more
	more = l.due(&l.expiring, now, l.onConsumerEnd) || more
	more = l.due(&l.siteTimers, now, l.onSiteTimer) || more
	return more
}

func (l *loop) due(h *dueHeap, now int64, fn func(it dueItem, now int64)) (more bool) {
	for range timersPerTurn {
		it, ok := h.next()
		if !ok || it.at > now {
			return false
		}
		h.pop()
		fn(it, now)
	}
	return true
}

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
		if s.expiresAt != 0 && s.expiresAt <= now {
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
	l.q.out.post(delivery{
		subject:    c.subject,
		seq:        seq,
		lease:      le.id,
		deadline:   le.deadline,
		id:         s.id,
		enqueuedAt: s.enqueuedAt,
		attempt:    s.attempts + 1,
		key:        l.keys.name(s.flow),
		dead:       l.dead[seq],
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
	state, flow, lane, ttl := s.state, s.flow, s.lane, s.expiresAt
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
	delete(l.dead, seq)
	if ttl != 0 {
		l.ttls.dropped(l.ttlCounts)
	}
	if state == slotDelayed {
		l.delays.dropped(l.delayCounts)
	}
}

func (l *loop) ttlCounts(it dueItem) bool {
	s := l.slots.get(it.seq)
	return s != nil && s.expiresAt == it.at
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
