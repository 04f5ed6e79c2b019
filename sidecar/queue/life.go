package queue

import (
	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// leaseExpired is the error of an attempt whose lease has run out.
const leaseExpired = "lease expired"

// enqueue takes a message that has been accepted. It may be delivered from now on;
// its confirmation waits for the disk, or for its ack.
func (q *side) enqueue(in *Message, now int64) {
	j := &q.m.journal
	m := &in.Message
	m.Seq = q.nextSeq()
	s := q.newSlot(m, in.Size, in.Counted, m.EnqueuedAt)
	s.watched = in.Watched
	s.readyAt = max(m.EnqueuedAt, m.NotBefore)
	c := j.get()
	if c.Bytes > maxCommitBytes {
		q.m.flush()
		c = j.get()
	}
	c.Add = append(c.Add, *m)
	c.Confirm = append(c.Confirm, in.Reply)
	if in.Reply != "" {
		c.waited++
	}
	s.open = true
	c.Bytes += in.Size
	if in.DedupeID != "" {
		c.Dedupe = append(c.Dedupe, store.Dedupe{Queue: q.id, DedupeID: in.DedupeID, ID: m.ID, Until: in.DedupeUntil})
	}
	j.uncommitted.put(m.Seq, in)
	if m.ExpiresAt != 0 {
		q.setTTL(m.Seq, s, m.ExpiresAt)
	}
	q.wait(m.Seq, s, now)
}

// newSlot makes the slot of message m, which is in no place yet.
func (q *side) newSlot(m *store.Message, size int64, counted KeyCounts, now int64) *slot {
	s := q.slots.Add(m.Seq)
	s.id = m.ID
	s.enqueuedAt = m.EnqueuedAt
	s.size = uint32(size)
	s.cost = m.Cost
	if s.cost != throttle.One {
		q.costly++
	}
	s.flow = q.keys.acquire(m.Key, m.Weight)
	q.reweigh(s.flow)
	if !q.order.on {
		s.priority = m.Priority
	}
	s.sub = q.acquireSub(s.flow, m, now)
	q.countKey(m.Key, counted)
	return s
}

// readySince is when message m is ready for the first time on its side, as its record says:
// when its delay ends, when it became a dead letter, or else when it was enqueued.
func readySince(m *store.Message) int64 {
	switch {
	case delayed(m):
		return m.NotBefore // before EnqueuedAt if the clock has been set back
	case m.Dead != nil:
		return m.Dead.At
	}
	return m.EnqueuedAt
}

// delayed reports whether the record of message m says when it is ready. What was never
// delayed is ready, also when the clock has been set back.
func delayed(m *store.Message) bool { return m.Delayed || m.NotBefore > m.EnqueuedAt }

// arrive takes a message whose move to this side is on disk. It has been counted in
// depth and bytes.
func (q *side) arrive(a *arrival, now int64) {
	m := &a.msg
	s := q.newSlot(m, int64(a.size), a.counted, now)
	s.attempts = m.Attempts
	if m.ExpiresAt != 0 {
		q.setTTL(m.Seq, s, m.ExpiresAt)
	}
	if m.Dead != nil && !delayed(m) { // wherever the clock has been set meanwhile
		s.readyAt = m.Dead.At
		q.pend(m.Seq, s)
		return
	}
	s.readyAt = max(now, m.NotBefore)
	q.wait(m.Seq, s, now)
}

// leased returns the slot that a token speaks for, or nil when it names no current
// lease.
func (q *side) leased(t wire.Token) *slot {
	s := q.slots.Get(t.Seq)
	if s == nil || s.state != slotLeased || s.attempts+1 != t.Attempt || q.leases.items[s.ref].id != t.Lease {
		return nil
	}
	return s
}

// onAck handles what came on a reply subject.
func (q *side) onAck(in *Input, now int64) {
	s := q.leased(in.Token)
	if s == nil {
		if in.Ack.Kind != wire.AckNoResponders {
			q.m.out.Refuse = append(q.m.out.Refuse, Refusal{Role: q.which, Reply: in.Reply, Err: wire.LeaseLost()})
		}
		return
	}
	seq := in.Token.Seq
	switch in.Ack.Kind {
	case wire.AckDone:
		q.tally().Acked++
		q.ended(s, OutcomeAck, now)
		q.m.journal.countAck(s, now)
		e := succeeded
		if in.Ack.HasCost {
			e.delta = int64(max(in.Ack.Cost, leastCost)) - int64(s.cost)
			q.correct(s, e.delta)
		}
		q.complete(seq, s, in.Reply, e, now)
	case wire.AckProgress:
		q.leases.extend(s.ref, now+q.visibility(), now)
		if in.Reply != "" {
			q.storeLease(&q.leases.items[s.ref])
			q.answer(in.Reply)
		}
	case wire.AckNack:
		q.tally().Nacked++
		q.ended(s, OutcomeNack, now)
		q.fail(seq, s, wire.AttemptNack, Failure{
			Error: in.Ack.Error, Code: in.Ack.ErrorCode, Reply: in.Reply,
			HasDelay: in.Ack.HasDelay, Delay: int64(in.Ack.Delay),
		}, int64(in.Ack.RetryAfter), now)
	case wire.AckTerm:
		q.ended(s, OutcomeTerm, now)
		if q.isDead() {
			q.complete(seq, s, in.Reply, neutral, now)
			return
		}
		s.attempts++
		a := spentBy(&q.leases.items[s.ref], wire.AttemptTerm, now)
		p := q.past(s, s.attempts, &a)
		p.Error, p.Code, p.DecidedBy, p.Reason = in.Ack.Error, in.Ack.ErrorCode, wire.DecidedByConsumer, wire.ReasonTerm
		q.deadLetter(seq, s, cause{reason: wire.ReasonTerm, err: in.Ack.Error, code: in.Ack.ErrorCode, reply: in.Reply, past: &p}, now)
	case wire.AckNoResponders:
		le := q.takeBack(seq, s, now)
		a := spentBy(&le, wire.AttemptNoResponders, now)
		p := q.past(s, s.attempts+1, &a)
		q.remember(seq, &p)
		if c := le.consumer; c.reg == le.reg {
			q.unreachable(c, now)
		}
	}
}

// complete finishes message seq for good.
func (q *side) complete(seq uint64, s *slot, replyTo string, e ending, now int64) {
	var in *Message
	if s.open {
		in = q.uncommitted(seq)
	}
	confirm, withdrawn := q.withdraw(seq, s)
	switch {
	case withdrawn && in.DedupeID == "":
		// Nothing of it can come back, so nobody has to wait for the disk.
		if confirm != "" {
			q.publish(Reply{Kind: ReplyEnqueued, Subject: confirm, ID: s.id})
		}
		if replyTo != "" {
			q.publish(Reply{Kind: ReplyDone, Subject: replyTo})
		}
	case withdrawn:
		// Its dedupe id must be known.
		q.m.journal.reply(now, Reply{Kind: ReplyEnqueued, Subject: confirm, ID: s.id})
		q.answer(replyTo)
	default:
		c := q.m.journal.change(now)
		c.Finish = append(c.Finish, q.ref(seq))
		q.answer(replyTo)
	}
	q.forget(seq, s, e, now)
}

// publish answers at once, behind the deliveries so far.
func (q *side) publish(r Reply) {
	q.m.out.Publish = append(q.m.out.Publish, Delivery{Kind: DeliverReply, Role: q.which, Reply: r})
}

// How leases end: acked, without anything said about the destination, or without
// having reached anybody.
var (
	succeeded = ending{outcome: breaker.Success}
	neutral   = ending{outcome: breaker.Neutral}
	unheard   = ending{outcome: breaker.Neutral, undo: true}
)

// answer confirms to replyTo when the changes of this step are on disk.
func (q *side) answer(replyTo string) {
	if replyTo != "" {
		q.m.journal.reply(q.m.now, Reply{Kind: ReplyDone, Subject: replyTo})
	}
}

// onExpired ends the attempt of a message whose lease has run out.
func (q *side) onExpired(seq uint64, now int64) {
	s := q.slots.Get(seq)
	q.tally().Expired++
	q.ended(s, OutcomeExpired, now)
	q.fail(seq, s, wire.AttemptExpired, Failure{Error: leaseExpired}, 0, now)
}

// undecided is what the verdict about a failed attempt is waited for with.
type undecided struct {
	attempts uint32
	spent    spent
	pass     breaker.Pass // of the circuit of its subqueue; 0: none
	bytes    int64        // what the failure has in journal.failed
}

// fail ends the attempt of the leased message seq in that way. retryAfter (ns) is for how long
// the destination wants to be left alone. What the delivery held is given back at
// once; only the circuit waits for the verdict, if there is to be one.
func (q *side) fail(seq uint64, s *slot, outcome string, f Failure, retryAfter, now int64) {
	s.attempts++
	judged := !q.isDead() && q.m.settings.Judge
	e := ending{outcome: breaker.Failure, later: judged}
	if q.isDead() {
		e = neutral
	}
	le, pass := q.unlease(s, e, now)
	a := spentBy(&le, outcome, now)
	q.retryAfter(s, retryAfter, now)
	q.countFailure(s, now)
	f.Role, f.Seq, f.ID, f.Attempts, f.Key = q.which, seq, s.id, s.attempts, q.keys.name(s.flow)
	if !judged {
		if !q.isDead() {
			q.tally().Failed++
		}
		s.state = slotMoving
		v := Verdict{Failure: f, DecidedBy: wire.DecidedByDefault}
		if f.HasDelay {
			v.Delay, v.DecidedBy = f.Delay, wire.DecidedByConsumer
		}
		q.conclude(s, &v, &a, now)
		return
	}
	f.Fresh = q.uncommitted(seq)
	s.state = slotFailing
	if q.failing == nil {
		q.failing = make(map[uint64]undecided)
	}
	u := undecided{attempts: s.attempts, spent: a, pass: pass, bytes: int64(len(f.Error)+len(f.Code)) + failedBytes}
	q.failing[seq] = u
	q.m.journal.failed += u.bytes
	q.m.out.Judge = append(q.m.out.Judge, f)
}

// onVerdict carries out what has been decided about a failure.
func (q *side) onVerdict(v *Verdict, now int64) {
	u, ok := q.failing[v.Seq]
	if !ok || u.attempts != v.Attempts {
		q.answer(v.Reply)
		return
	}
	delete(q.failing, v.Seq)
	q.m.journal.failed -= u.bytes
	s := q.slots.Get(v.Seq)
	q.returnJudged(s, u.pass, v.Outcome, now)
	s.state = slotMoving
	q.conclude(s, v, &u.spent, now)
}

// conclude retries or dead-letters a message whose attempt a has failed, and which is
// in no place.
func (q *side) conclude(s *slot, v *Verdict, a *spent, now int64) {
	p := q.past(s, s.attempts, a)
	p.Error, p.Code, p.DecidedBy, p.Rule = v.Error, v.Code, v.DecidedBy, v.Rule
	switch {
	case q.isDead():
	case q.expired(v.Seq, s, now):
		p.Reason, p.DecidedBy = wire.ReasonExpired, wire.DecidedByTTL
	case q.exhausted(s.attempts, v.ByHook()):
		p.Reason, p.DecidedBy = wire.ReasonMaxDeliveries, wire.DecidedByLimit
	default:
		p.Reason = v.Reason
	}
	if p.Reason != "" {
		q.deadLetter(v.Seq, s, cause{reason: p.Reason, err: v.Error, code: v.Code, reply: v.Reply, past: &p}, now)
		return
	}
	p.Delay = v.Delay
	q.remember(v.Seq, &p)
	s.readyAt = now + v.Delay
	q.storeState(v.Seq, s, v.Error)
	q.answer(v.Reply)
	q.wait(v.Seq, s, now)
}

// exhausted reports whether a message has used up its deliveries.
func (q *side) exhausted(attempts uint32, byHook bool) bool {
	limit := q.m.settings.DeliveryLimit(byHook)
	return limit > 0 && int64(attempts) >= limit
}

// storeState writes the state of a message that is not leased.
func (q *side) storeState(seq uint64, s *slot, lastError string) {
	s.stored = true
	c := q.m.journal.change(q.m.now)
	c.State = append(c.State, store.State{
		Ref: q.ref(seq), Attempts: s.attempts, ReadyAt: s.readyAt, LastError: lastError,
	})
}

// pend lets message seq wait for its delivery, at the end of its flow or, with
// strict order, at its place.
func (q *side) pend(seq uint64, s *slot) {
	if q.order.on && !q.mayOwn(seq, s) {
		q.queueUp(seq, s)
		return
	}
	q.pendNow(seq, s)
}

// pendNow lets message seq wait at the end of its flow.
func (q *side) pendNow(seq uint64, s *slot) {
	q.enter(seq, s, q.nextStamp(s))
}

// wait makes message seq pending, at once or when s.readyAt has come.
func (q *side) wait(seq uint64, s *slot, now int64) {
	if s.readyAt > now {
		s.state = slotDelayed
		q.delays.Add(s.readyAt, seq)
		q.orderDelayed(s)
		return
	}
	q.pend(seq, s)
}

// uncommitted returns message seq if it may not be on disk yet, or else nil.
func (q *side) uncommitted(seq uint64) *Message {
	if q.isDead() {
		return nil
	}
	return q.m.journal.uncommitted.get(seq)
}

// forget removes what is known of message seq, wherever it is.
func (q *side) forget(seq uint64, s *slot, e ending, now int64) {
	state, flow, sub, ttl := s.state, s.flow, s.sub, s.ttl
	if state == slotLeased {
		q.unlease(s, e, now)
	}
	q.yield(s)
	t := q.tally()
	t.Messages--
	t.Bytes -= int64(s.size)
	if s.cost != throttle.One {
		q.costly--
	}
	q.slots.Remove(seq)
	if ttl {
		q.endTTL(seq)
	}
	if !q.isDead() {
		if q.m.perKey != nil {
			q.m.perKey.Add(q.keys.name(flow), -1)
		}
		q.m.journal.uncommitted.forget(seq)
	}
	q.releaseSub(sub, now)
	q.keys.release(flow)
	if state == slotDelayed {
		q.delays.Dropped()
	}
}

func (q *side) onDelayOver(seq uint64, _ int64) { q.pend(seq, q.slots.Get(seq)) }

// onTTL dead-letters a message whose time is over. A lease that runs then runs
// on, and a hook that decides about a failure is waited for.
func (q *side) onTTL(seq uint64, now int64) {
	if s := q.slots.Get(seq); q.pull(s) {
		q.deadLetter(seq, s, cause{reason: wire.ReasonExpired}, now)
	}
}

// pull takes a message that waits out of its place, and reports whether it waited. One
// that is delayed keeps its state, which forget has to know.
func (q *side) pull(s *slot) bool {
	switch s.state {
	case slotWaiting:
		q.unlist(s)
	case slotOrdered:
		q.leaveOrder(s, q.order.keys[s.flow])
	case slotDelayed:
	default:
		return false
	}
	return true
}
