package queue

import (
	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/queue/backlog"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/sidecar/queue/history"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// leaseExpired is the error of an attempt whose lease has expired.
const leaseExpired = "lease expired"

// enqueue accepts a message. It may be delivered from now on; its confirmation waits
// for the disk, or for its ack.
func (q *side) enqueue(in *Message, now int64) {
	j, m := &q.m.journal, &in.Message
	m.Seq = q.nextSeq()
	s := q.addSlot(m, in.Size, in.Counted, m.EnqueuedAt)
	s.Watched = in.Watched
	s.ReadyAt = max(m.EnqueuedAt, m.NotBefore)
	c := j.get()
	if c.Bytes > maxCommitBytes {
		q.m.flush()
		c = j.get()
	}
	c.Add = append(c.Add, *m)
	c.Confirm = append(c.Confirm, in.Confirm)
	if in.Confirm.Awaited() {
		c.waited++
	}
	s.Open = true
	c.Bytes += in.Size
	if in.DedupeID != "" {
		c.Dedupe = append(c.Dedupe, store.Dedupe{Queue: q.id, DedupeID: in.DedupeID, ID: m.ID, Until: in.DedupeUntil})
	}
	j.uncommitted.put(m.Seq, in)
	q.wait(m.Seq, s, now)
}

// readySince is when message m is ready for the first time in its role, by its record:
// when its delay ends, when it became a dead letter, or when it was enqueued.
func readySince(m *store.Message) int64 {
	switch {
	case delayed(m):
		return m.NotBefore // before EnqueuedAt if the clock was set back
	case m.Dead != nil:
		return m.Dead.At
	}
	return m.EnqueuedAt
}

// delayed reports whether the record of message m has a time from which it is ready. A
// message that was never delayed is ready even if the clock was set back.
func delayed(m *store.Message) bool { return m.Delayed || m.NotBefore > m.EnqueuedAt }

// arrive adds a message whose move to this role is on disk. It has been counted in
// depth and bytes, and in counted by its key.
func (q *side) arrive(m *store.Message, size int64, counted KeyCounts, now int64) {
	s := q.addSlot(m, size, counted, now)
	s.Attempts = m.Attempts
	if m.Dead != nil && !delayed(m) { // ready, even if the clock was set back meanwhile
		s.ReadyAt = m.Dead.At
		q.ready(m.Seq, s)
		return
	}
	s.ReadyAt = max(now, m.NotBefore)
	q.wait(m.Seq, s, now)
}

// leased returns the slot of the message that a token names, or nil if the token names
// no current lease.
func (q *side) leased(t wire.Token) *backlog.Slot {
	s := q.Slots.Get(t.Seq)
	if s == nil || s.State != backlog.Leased || s.Attempts+1 != t.Attempt || q.Leases.Items[s.Ref].ID != t.Lease {
		return nil
	}
	return s
}

// onAck handles a message on a reply subject.
func (q *side) onAck(in *Input, now int64) {
	s := q.leased(in.Token)
	if s == nil {
		if in.Ack.Kind != wire.AckNoResponders {
			q.m.out.Refuse = append(q.m.out.Refuse, Refusal{Role: q.role, Confirm: in.Confirm, Err: wire.LeaseLost()})
		}
		return
	}
	seq := in.Token.Seq
	switch in.Ack.Kind {
	case wire.AckDone:
		q.count().Acked++
		q.countAttempt(s, inspect.OutcomeAck, now)
		q.m.journal.countAck(s, now)
		e := q.reported(s, &in.Ack)
		e.Outcome = breaker.Success
		q.complete(seq, s, in.Confirm, e, now)
	case wire.AckProgress:
		q.Leases.Extend(s.Ref, now+q.visibility(), now)
		if in.Confirm.Awaited() {
			q.storeLease(&q.Leases.Items[s.Ref])
			q.answer(in.Confirm)
		}
	case wire.AckNack:
		q.count().Nacked++
		q.countAttempt(s, inspect.OutcomeNack, now)
		q.fail(seq, s, wire.AttemptNack, Failure{
			Error: in.Ack.Error, Code: in.Ack.ErrorCode, Confirm: in.Confirm,
			HasDelay: in.Ack.HasDelay, Delay: int64(in.Ack.Delay),
		}, q.reported(s, &in.Ack), int64(in.Ack.RetryAfter), now)
	case wire.AckTerm:
		q.onTerm(seq, s, in, now)
	case wire.AckNoResponders:
		r := q.record(s, s.Attempts+1, wire.AttemptNoResponders, now)
		le := q.takeBack(seq, s, now)
		q.storeRecord(seq, &r)
		if c := le.Consumer; c.Reg == le.Reg {
			q.unreachable(c, now)
		}
	}
}

// reported returns the part of an ending that an ack or nack reports, its cost and the
// destination's feedback, and charges the flow of the leased message s with the cost.
func (q *side) reported(s *backlog.Slot, a *wire.Ack) (e gates.Ending) {
	if a.HasCost {
		e.Delta = int64(max(a.Cost, leastCost)) - int64(s.Cost)
		q.correct(s, e.Delta)
	}
	if f := a.Feedback; f != nil {
		e.Feedback = &throttle.Feedback{Remaining: f.Remaining, Reset: int64(f.Reset)}
	}
	return e
}

// onTerm ends a message that its consumer has given up: it becomes a dead letter, and a
// dead letter is removed.
func (q *side) onTerm(seq uint64, s *backlog.Slot, in *Input, now int64) {
	q.countAttempt(s, inspect.OutcomeTerm, now)
	if q.isDead() {
		q.complete(seq, s, in.Confirm, neutral, now)
		return
	}
	s.Attempts++
	r := q.record(s, s.Attempts, wire.AttemptTerm, now)
	r.Error, r.Code, r.DecidedBy, r.Reason = in.Ack.Error, in.Ack.ErrorCode, wire.DecidedByConsumer, wire.ReasonTerm
	q.deadLetterFailed(seq, s, &r, in.Confirm, now)
}

// countAttempt counts the attempt of the leased message s, which ends now. Its begin is
// not known if an older version of fila has written the lease.
func (q *side) countAttempt(s *backlog.Slot, o inspect.Outcome, now int64) {
	at := q.Leases.Items[s.Ref].At
	if at == 0 {
		return
	}
	took := max(now-at, 0)
	q.counted.CountAttempt(o, took)
	if s.Watched {
		q.m.out.Ended = append(q.m.out.Ended, Ended{Role: q.role, Outcome: o, ID: s.ID, Took: took})
	}
}

// record is the record of an attempt of the leased message s that ends now.
func (q *side) record(s *backlog.Slot, number uint32, outcome string, now int64) history.AttemptRecord {
	le := &q.Leases.Items[s.Ref]
	r := history.AttemptRecord{
		Outcome: outcome, Number: number, Dead: q.isDead(), At: le.At, Consumer: le.Consumer.Name, Route: q.routeName(s.Sub, le.Permits), Blocked: le.Blocked,
	}
	if le.At != 0 {
		r.Took, r.Waited = now-le.At, le.At-s.ReadyAt
	}
	return r
}

// complete removes message seq, which is done.
func (q *side) complete(seq uint64, s *backlog.Slot, acked Confirmation, e gates.Ending, now int64) {
	var in *Message
	if s.Open {
		in = q.uncommitted(seq)
	}
	stored, withdrawn := q.withdraw(seq, s)
	switch {
	case withdrawn && in.DedupeID == "":
		// Nothing of it can come back, so nobody has to wait for the disk.
		if stored.Awaited() {
			q.publish(Reply{Kind: ReplyEnqueued, Confirmation: stored, ID: s.ID})
		}
		if acked.Awaited() {
			q.publish(Reply{Kind: ReplyDone, Confirmation: acked})
		}
	case withdrawn:
		// Its dedupe id has to be on disk.
		q.m.journal.reply(now, Reply{Kind: ReplyEnqueued, Confirmation: stored, ID: s.ID})
		q.answer(acked)
	default:
		c := q.m.journal.change(now)
		c.Finish = append(c.Finish, q.ref(seq))
		q.answer(acked)
	}
	q.forget(seq, s, e, now)
}

// How leases end: without a statement about the destination, or without having reached
// anybody.
var (
	neutral     = gates.Ending{Outcome: breaker.Neutral}
	undelivered = gates.Ending{Outcome: breaker.Neutral, Undo: true}
)

// onExpired ends the attempt of a message whose lease has expired.
func (q *side) onExpired(seq uint64, now int64) {
	s := q.Slots.Get(seq)
	q.count().Expired++
	q.countAttempt(s, inspect.OutcomeExpired, now)
	q.fail(seq, s, wire.AttemptExpired, Failure{Error: leaseExpired}, gates.Ending{}, 0, now)
}

// judging is the state of a message whose failure is being judged.
type judging struct {
	record history.AttemptRecord
	later  gates.Permission // of the circuit that the delivery passed
	bytes  int64            // what the failure has in journal.failed
}

// fail ends the attempt of the leased message seq. e has what was reported about it; retryAfter is how long (ns) the
// destination wants to be left alone. The permits of the delivery are returned at once; only
// the circuit waits for the verdict, if the failure is judged.
func (q *side) fail(seq uint64, s *backlog.Slot, outcome string, f Failure, e gates.Ending, retryAfter, now int64) {
	s.Attempts++
	judged := !q.isDead() && q.m.settings.Judge
	f.ID, f.Attempts = s.ID, s.Attempts
	call := f.failedCall()
	if e.Outcome = breaker.Neutral; !q.isDead() {
		e.Outcome, e.Failed, e.Later = breaker.Failure, &call, judged
	}
	route := q.Leases.Items[s.Ref].Permits.Route()
	r := q.record(s, s.Attempts, outcome, now)
	le, later := q.unlease(s, e, now)
	q.gates.RetryAfter(s.Sub, route, retryAfter, now)
	switch {
	case q.isDead():
	case outcome == wire.AttemptExpired:
		q.gates.Overloaded(s.Sub, route, le.At, call, "", true, now)
	case !judged && wire.OverloadCode(f.Code):
		q.gates.Overloaded(s.Sub, route, le.At, call, "", false, now)
	}
	q.countFailure(s.Flow, now)
	f.Role, f.Seq, f.Key, f.Route = q.role, seq, q.Name(s.Flow), r.Route
	if !judged {
		if !q.isDead() {
			q.count().Failed++
		}
		s.State = backlog.Moving
		v := Verdict{Failure: f, DecidedBy: wire.DecidedByDefault}
		if f.HasDelay {
			v.Delay, v.DecidedBy = f.Delay, wire.DecidedByConsumer
		}
		q.conclude(s, &v, &r, now)
		return
	}
	f.Fresh = q.uncommitted(seq)
	s.State = backlog.Failing
	if q.failing == nil {
		q.failing = make(map[uint64]judging)
	}
	u := judging{record: r, later: later, bytes: int64(len(f.Error)+len(f.Code)) + failedBytes}
	q.failing[seq] = u
	q.m.journal.failed += u.bytes
	q.m.out.Judge = append(q.m.out.Judge, f)
}

// onVerdict carries out the verdict about a failure.
func (q *side) onVerdict(v *Verdict, now int64) {
	u, ok := q.failing[v.Seq]
	if !ok || u.record.Number != v.Attempts {
		q.answer(v.Confirm)
		return
	}
	delete(q.failing, v.Seq)
	q.m.journal.failed -= u.bytes
	s := q.Slots.Get(v.Seq)
	q.gates.ReturnJudged(s.Sub, u.later, v.Outcome, v.failedCall(), now)
	if v.Overload {
		q.gates.Overloaded(s.Sub, u.later.Route(), u.record.At, v.failedCall(), v.Rule, false, now)
	}
	s.State = backlog.Moving
	q.conclude(s, v, &u.record, now)
}

// conclude retries or dead-letters a message whose attempt has failed and which is in no
// place. r is the record of the attempt.
func (q *side) conclude(s *backlog.Slot, v *Verdict, r *history.AttemptRecord, now int64) {
	r.Error, r.Code, r.DecidedBy, r.Rule = v.Error, v.Code, v.DecidedBy, v.Rule
	switch {
	case q.isDead():
	case q.Expired(v.Seq, s, now):
		r.Reason, r.DecidedBy = wire.ReasonExpired, wire.DecidedByTTL
	case q.exhausted(s.Attempts, v.ByHook()):
		r.Reason, r.DecidedBy = wire.ReasonMaxDeliveries, wire.DecidedByLimit
	default:
		r.Reason = v.Reason
	}
	if r.Reason != "" {
		q.deadLetterFailed(v.Seq, s, r, v.Confirm, now)
		return
	}
	r.Delay = v.Delay
	q.storeRecord(v.Seq, r)
	s.ReadyAt = now + v.Delay
	q.storeState(v.Seq, s, v.Error)
	q.answer(v.Confirm)
	q.wait(v.Seq, s, now)
}

// exhausted reports whether a message has used up its deliveries.
func (q *side) exhausted(attempts uint32, byHook bool) bool {
	limit := q.m.settings.DeliveryLimit(byHook)
	return limit > 0 && int64(attempts) >= limit
}

// forget removes message seq from all containers.
func (q *side) forget(seq uint64, s *backlog.Slot, e gates.Ending, now int64) {
	if s.State == backlog.Leased {
		q.unlease(s, e, now)
	}
	q.yield(s)
	q.countMessage(-1, int64(s.Size))
	flow, sub := s.Flow, s.Sub
	q.Remove(seq, s)
	if !q.isDead() {
		if q.m.perKey != nil {
			q.m.perKey.Add(q.Name(flow), -1)
		}
		q.m.journal.uncommitted.forget(seq)
	}
	q.gates.Release(sub, now)
	q.Keys.Release(flow)
}

func (q *side) onDelayOver(seq uint64, _ int64) { q.ready(seq, q.Slots.Get(seq)) }

// onTTL dead-letters a message whose TTL is over. A lease that is running continues, and
// so does a hook that judges a failure.
func (q *side) onTTL(seq uint64, now int64) {
	if s := q.Slots.Get(seq); q.pull(s) {
		q.deadLetterExpired(seq, s, now)
	}
}
