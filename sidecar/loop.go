package sidecar

import (
	"math"
	"time"

	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// Invariants of a queue's loop:
//
//  1. Every live message of the queue has exactly one slot, and its state says
//     where else it is: a pending one is in drr, a parked one in the list of its
//     lane, a leased one in leases, a delayed one in delays. depth and bytes
//     count the slots and what the intake has accepted for them.
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
// none and somebody waits for it, or after a moment (pacing.go) if consumers are
// working on messages of it.
type loop struct {
	q *queue

	slots     slotTable
	keys      keyTable
	sched     *drr.Scheduler
	leases    leaseTable
	delays    dueHeap // delayed messages, by readyAt
	ttls      dueHeap // messages with a TTL, by the end of it
	consumers consumerSet
	expiring  dueHeap              // consumers with an end, by reg
	byReg     map[uint64]*consumer // those in expiring
	noWait    []*consumer          // fetches to be ended this turn
	failing   int
	absent    []absence              // restored consumers that nobody has heard of, in the order of until
	graceEnds int64                  // when a restored consumer is one like any other
	back      map[drr.Flow]takenBack // since the last delivery

	lanes      laneTable
	links      links
	sites      siteTable
	siteTimers dueHeap                   // sites to look at, by time
	looks      []siteID                  // sites to look at in this turn
	touched    []siteID                  // sites that have called in this turn
	wakes      []*throttle.Wait          // scratch
	passes     []*pass                   // to be used again
	reserving  laneID                    // the lane that has the Reservation of the process
	noCredit   int64                     // since when nobody has credit, while there is a Reservation; 0: somebody has
	parked     int64                     // messages
	parkedBy   [blockKinds]int64         // messages, by what holds them back
	pausedTo   int64                     // the queue delivers nothing until then; 0: it does
	pausedKeys map[string]int64          // fairness keys, until when
	failures   map[string]*failureWindow // of fairness keys, if they are limited

	perKey *keyCounts // messages by fairness key, if they are limited

	ordered      bool // strict order per key
	skipBlocked  bool
	orders       map[drr.Flow]*keyOrder
	orderWaiting int64 // messages that wait for their predecessors

	outgoing outgoing // by this turn

	main       *batch // changes that the store does not have yet
	committing int    // batches that it has and that are not on disk
	young      int    // leased messages whose Add is in main
	ackTime    int64  // how long messages live (ns), see countAck
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
	l.flush()
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

// next is when the loop must have a turn even if nothing is posted.
func (l *loop) next(now int64) int64 {
	next := now + int64(time.Hour)
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
	if l.main != nil {
		if at := l.flushAt(now); at != 0 {
			next = min(next, at)
		}
	}
	return next
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
