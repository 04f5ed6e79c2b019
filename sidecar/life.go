package sidecar

import (
	"cmp"
	"slices"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/hooks"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// leaseExpired is the error that on_failure sees for an expired lease.
const leaseExpired = "lease expired"

// enqueue takes a message that the intake has accepted. It may be delivered from
// now on; its confirmation waits for the disk, or for its ack.
func (l *loop) enqueue(in *incoming, now int64) {
	m := &in.msg
	m.Seq = l.q.nextSeq()
	s := l.slots.add(m.Seq)
	s.id = m.ID
	s.enqueuedAt = m.EnqueuedAt
	s.readyAt = max(m.EnqueuedAt, m.NotBefore)
	s.size = uint32(in.size)
	s.cost = m.Cost
	s.flow = l.keys.acquire(m.Key, m.Weight)
	s.lane = l.acquireLane(s.flow, m.ThrottleKeys, m.CircuitKey, m.EnqueuedAt)
	l.countKey(m.Key, in.counted)
	b := l.open()
	if b.bytes > maxBatchBytes {
		l.flush()
		b = l.open()
	}
	b.Add = append(b.Add, *m)
	b.confirm = append(b.confirm, in.reply)
	if in.reply != "" {
		b.waited++
	}
	s.unsent = true
	b.bytes += in.size
	if in.dedupeID != "" {
		b.Dedupe = append(b.Dedupe, store.Dedupe{Queue: l.q.id, DedupeID: in.dedupeID, ID: m.ID, Until: in.dedupeUntil})
	}
	l.fresh.put(m.Seq, in)
	if m.ExpiresAt != 0 {
		l.slots.expire(m.Seq, s, m.ExpiresAt)
		l.ttls.push(m.ExpiresAt, m.Seq)
	}
	l.wait(m.Seq, s, now)
}

// committed is told that a batch is on disk.
func (l *loop) committed(b *batch) {
	l.committing--
	for i := range b.Add {
		l.fresh.drop(b.Add[i].Seq)
	}
	b.release()
}

// unwritten takes message seq, which is finished, out of main, if it is in there: then it never gets to the disk. What answers the producer is
// returned.
func (l *loop) unwritten(seq uint64, s *slot) (confirm string, found bool) {
	if !s.unsent {
		return "", false
	}
	b := l.main
	i, _ := slices.BinarySearchFunc(b.Add, seq, func(m store.Message, seq uint64) int { return cmp.Compare(m.Seq, seq) })
	s.unsent = false
	if s.state == slotLeased {
		l.young--
	}
	size := int64(s.size)
	confirm = b.confirm[i]
	b.drop(i, size)
	l.q.core.uncommitted.Add(-size)
	return confirm, true
}

// arrival is a message that a move has brought into this queue.
type arrival struct {
	msg     store.Message
	size    uint32
	counted *keyCounts // where its fairness key was counted; nil: nowhere
}

// arrive takes a message whose move into this queue is on disk. Whoever moved it
// has counted it in depth and bytes.
func (l *loop) arrive(a *arrival, now int64) {
	s := l.slots.add(a.msg.Seq)
	s.id = a.msg.ID
	s.enqueuedAt = a.msg.EnqueuedAt
	s.readyAt = now
	s.size = a.size
	s.cost = a.msg.Cost
	s.flow = l.keys.acquire(a.msg.Key, a.msg.Weight)
	s.lane = l.acquireLane(s.flow, a.msg.ThrottleKeys, a.msg.CircuitKey, now)
	l.countKey(a.msg.Key, a.counted)
	l.pend(a.msg.Seq, s)
}

// leased returns the slot that a token speaks for, or nil when it names no
// current lease.
func (l *loop) leased(t wire.Token) *slot {
	s := l.slots.get(t.Seq)
	if s == nil || s.state != slotLeased || s.attempts+1 != t.Attempt || l.leases.items[s.ref].id != t.Lease {
		return nil
	}
	return s
}

// onAck handles what came on a reply subject.
func (l *loop) onAck(e *event, now int64) {
	s := l.leased(e.token)
	if s == nil {
		if e.ack.Kind != wire.AckNoResponders {
			l.q.core.refuse(l.q, e.reply, wire.LeaseLost())
		}
		return
	}
	seq := e.token.Seq
	switch e.ack.Kind {
	case wire.AckDone:
		l.q.metrics.acked.Inc()
		l.countAck(s, now)
		l.complete(seq, s, e.reply, succeeded, now)
	case wire.AckProgress:
		l.leases.extend(s.ref, now+l.q.visibility(), now)
		if e.reply != "" {
			l.storeLease(&l.leases.items[s.ref])
			l.answer(e.reply)
		}
	case wire.AckNack:
		l.q.metrics.nacked.Inc()
		l.fail(seq, s, failure{
			err: e.ack.Error, code: e.ack.ErrorCode, reply: e.reply,
			explicit: e.ack.HasDelay, delay: int64(e.ack.Delay), retryAfter: int64(e.ack.RetryAfter),
		}, now)
	case wire.AckTerm:
		if l.q.isDLQ() {
			l.complete(seq, s, e.reply, neutral, now)
			return
		}
		s.attempts++
		l.deadLetter(seq, s, deadLetterCause{reason: wire.ReasonTerm, err: e.ack.Error, code: e.ack.ErrorCode, reply: e.reply}, now)
	case wire.AckNoResponders:
		le := l.takeBack(seq, s, now)
		if c := le.consumer; c.reg == le.reg {
			l.unreachable(c, now)
		}
	}
}

// complete finishes message seq for good.
func (l *loop) complete(seq uint64, s *slot, replyTo string, e ending, now int64) {
	in := l.fresh.get(seq)
	confirm, unwritten := l.unwritten(seq, s)
	switch {
	case unwritten && in.dedupeID == "":
		// Nothing of it can come back, so nobody has to wait for the disk.
		if confirm != "" {
			l.reply(confirm, enqueueReply(l.q.name, s.id, false))
		}
		if replyTo != "" {
			l.reply(replyTo, nil)
		}
	case unwritten:
		// Its dedupe id must be known.
		b := l.batch()
		b.replies = append(b.replies, reply{kind: replyEnqueued, subject: confirm, id: s.id})
		l.answer(replyTo)
	default:
		b := l.batch()
		b.Finish = append(b.Finish, l.ref(seq))
		l.answer(replyTo)
	}
	l.forget(seq, s, e, now)
}

// reply answers at once, behind the deliveries so far.
func (l *loop) reply(subject string, data []byte) {
	l.send(delivery{kind: sendReply, subject: subject, data: data})
}

// How leases end: acked, without anything said about the destination, failed, or
// without having reached anybody.
var (
	succeeded = ending{outcome: breaker.Success}
	neutral   = ending{outcome: breaker.Neutral}
	failed    = ending{outcome: breaker.Failure}
	unheard   = ending{outcome: breaker.Neutral, undo: true}
)

// answer confirms to replyTo when this turn's changes are on disk.
func (l *loop) answer(replyTo string) {
	if replyTo != "" {
		b := l.batch()
		b.replies = append(b.replies, reply{kind: replyEmpty, subject: replyTo})
	}
}

// onExpired ends the attempt of a message whose lease has run out.
func (l *loop) onExpired(seq uint64, now int64) {
	l.q.metrics.expired.Inc()
	l.fail(seq, l.slots.get(seq), failure{err: leaseExpired}, now)
}

// failure says how an attempt ended without an ack.
type failure struct {
	err, code string
	explicit  bool  // the nack named a delay
	delay     int64 // nanoseconds
	// retryAfter is for how long (ns) the destination wants to be left alone.
	retryAfter int64
	reply      string
	verdict    verdict // of the rules
}

// failureJob is an ended attempt that on_failure shall decide about.
type failureJob struct {
	seq      uint64
	id       store.ID
	attempts uint32
	fresh    *incoming // if it may not be on disk yet
	failure
}

// decidedFailure is on_failure's answer to a job.
type decidedFailure struct {
	failureJob
	decision hooks.FailureDecision
}

// fail ends the attempt of the leased message seq. The delay of the nack counts
// first, then on_failure, then the rules, then retry at once.
func (l *loop) fail(seq uint64, s *slot, f failure, now int64) {
	s.attempts++
	e := l.judge(s, &f)
	l.unlease(s, e, now)
	l.retryAfter(s, f.retryAfter, now)
	l.countFailure(s, now)
	if !f.explicit && !l.q.isDLQ() && l.q.policy.Load().onFailure != nil {
		s.state = slotFailing
		l.failing++
		l.q.failures.post(failureJob{seq: seq, id: s.id, attempts: s.attempts, fresh: l.fresh.get(seq), failure: f})
		return
	}
	// The slot is in no place now; settle gives it one.
	s.state = slotMoving
	l.settle(seq, s, f, hooks.FailureDecision{Action: hooks.Retry, Delay: 0}, now)
}

// onDecided carries out what on_failure has decided.
func (l *loop) onDecided(d *decidedFailure, now int64) {
	s := l.slots.get(d.seq)
	if s == nil || s.state != slotFailing || s.attempts != d.attempts {
		l.answer(d.reply)
		return
	}
	l.failing--
	s.state = slotMoving
	l.settle(d.seq, s, d.failure, d.decision, now)
}

// settle retries or dead-letters a message whose attempt has failed.
func (l *loop) settle(seq uint64, s *slot, f failure, d hooks.FailureDecision, now int64) {
	cause := deadLetterCause{err: f.err, code: f.code, reply: f.reply}
	byRules := !f.explicit && !d.Decided && f.verdict.decided
	if byRules {
		l.report(s, &f)
	}
	switch {
	case l.q.isDLQ():
	case l.slots.expired(seq, s, now):
		cause.reason = wire.ReasonExpired
	case l.exhausted(s.attempts, d.Decided):
		cause.reason = wire.ReasonMaxDeliveries
	case d.Decided && d.Action == hooks.DeadLetter:
		cause.reason = wire.ReasonOnFailure
	case byRules:
		cause.reason = f.verdict.deadReason()
	}
	if cause.reason != "" {
		l.deadLetter(seq, s, cause, now)
		return
	}
	delay := int64(d.Delay)
	switch {
	case f.explicit:
		delay = f.delay
	case byRules:
		delay = f.verdict.delay
	}
	s.readyAt = now + delay
	l.storeState(seq, s, f.err)
	l.answer(f.reply)
	l.wait(seq, s, now)
}

// exhausted reports whether a message has used up its deliveries.
func (l *loop) exhausted(attempts uint32, decided bool) bool {
	limit := l.q.policy.Load().settings.DeliveryLimit(decided)
	return limit > 0 && int64(attempts) >= limit
}

// storeState writes the state of a message that is not leased.
func (l *loop) storeState(seq uint64, s *slot, lastError string) {
	s.stored = true
	b := l.batch()
	b.State = append(b.State, store.State{
		Ref: l.ref(seq), Attempts: s.attempts, ReadyAt: s.readyAt, LastError: lastError,
	})
}
