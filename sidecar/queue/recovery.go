package queue

import (
	"cmp"
	"slices"

	"github.com/filaq/fila/sidecar/queue/container"
	"github.com/filaq/fila/store"
)

// Recovery fills a machine from the store, before its first step: messages in the
// order of their queues and sequences, Done, then consumers.
type Recovery struct {
	m       *Queue
	effects Effects // of no interest: whoever recovers counts what comes
	sides   [Roles]recovered
}

// recovered is what can be put in its place only when all messages have come.
type recovered struct {
	late   container.Timers // messages whose time, or retry, has come: they take their places by that time
	leased []recoveredLease
}

type recoveredLease struct {
	seq uint64
	store.Lease
}

// Recover begins a recovery.
func (m *Queue) Recover() *Recovery {
	r := &Recovery{m: m}
	for i := range r.sides {
		r.sides[i].late = container.NewTimers(everyTimer)
	}
	m.out = &r.effects
	return r
}

// everyTimer counts.
func everyTimer(container.Timer) bool { return true }

// later puts message seq, which was to be ready at a time, where it belongs: it waits on, or
// comes behind the messages that were ready before.
func (r *recovered) later(q *side, seq uint64, s *slot, now int64) {
	if s.readyAt > now {
		q.wait(seq, s, now)
		return
	}
	r.late.Add(s.readyAt, seq)
}

// until has those of them wait whose time came before at.
func (r *recovered) until(q *side, at int64) {
	for next, ok := r.late.Next(); ok && next.At < at; next, ok = r.late.Next() {
		r.late.Pop()
		q.pend(next.ID, q.slots.Get(next.ID))
	}
}

func (r *Recovery) side(id store.QueueID) *side {
	if id == r.m.sides[Dead].id {
		return &r.m.sides[Dead]
	}
	return &r.m.sides[Main]
}

// Message takes a stored message; size is that of headers and payload.
func (r *Recovery) Message(m *store.Message, size int, st *store.State, now int64) {
	r.m.now = now
	q := r.side(m.Queue)
	rest := &r.sides[q.which]
	s := q.newSlot(m, int64(size), r.m.perKey, now)
	s.readyAt = readySince(m)
	s.attempts = m.Attempts
	q.seq = max(q.seq, m.Seq)
	if m.ExpiresAt != 0 {
		q.setTTL(m.Seq, s, m.ExpiresAt)
	}
	ready := func() {
		if delayed(m) {
			rest.later(q, m.Seq, s, now)
			return
		}
		if !q.order.on { // who owns a key is known when all have come
			rest.until(q, s.readyAt)
		}
		q.pend(m.Seq, s)
	}
	if st == nil {
		ready()
		return
	}
	s.stored = true
	s.attempts = st.Attempts
	if st.ReadyAt != 0 { // a program before this one held messages without it
		s.readyAt = st.ReadyAt
	}
	switch {
	case isHeld(&st.Lease): // as after the Pick
		s.state, s.picked = slotMoving, s.readyAt <= now
		q.moves(m.Seq, s)
	case st.Lease.ID != 0:
		q.recoverOwner(m.Seq, s)
		rest.leased = append(rest.leased, recoveredLease{m.Seq, st.Lease})
	case st.Attempts == m.Attempts:
		if !delayed(m) { // it was put back: its place is that of its sequence
			s.readyAt = readySince(m)
		}
		ready()
	default:
		if q.order.on && !q.order.skip {
			q.recoverOwner(m.Seq, s) // it keeps its place while it waits for its retry
		}
		rest.later(q, m.Seq, s, now)
	}
}

// Used has no sequence up to last be given to a message: somebody goes by which messages
// were there when it was the last.
func (r *Recovery) Used(id store.QueueID, last uint64) {
	q := r.side(id)
	q.seq = max(q.seq, last)
}

// recoverOwner lets a message that was delivered before the restart own its fairness
// key. There is one of a key at most, unless the queue was not ordered then, or the end
// of one was not on disk.
func (q *side) recoverOwner(seq uint64, s *slot) {
	if !q.order.on {
		return
	}
	o := q.orderOf(s.flow)
	younger := o.owner
	if younger != 0 && q.slots.Get(younger).state != slotWaiting {
		o.also = append(o.also, seq)
		return
	}
	o.give(seq, s)
	if younger != 0 {
		y := q.slots.Get(younger)
		q.unlist(y)
		y.owns = false
		q.queueUp(younger, y)
	}
}

// Done files leases in the order of their deadlines, and what is left that waited for a time.
func (r *Recovery) Done(now int64) {
	for i := range r.sides {
		q, rest := &r.m.sides[i], &r.sides[i]
		slices.SortFunc(rest.leased, func(a, b recoveredLease) int { return cmp.Compare(a.Deadline, b.Deadline) })
		for _, le := range rest.leased {
			q.recoverLease(le)
		}
		rest.until(q, now+1)
	}
	if counts := r.m.perKey; counts != nil {
		r.m.perKey = nil
		r.m.sides[Main].countKeys(counts)
	}
}

func (q *side) recoverLease(r recoveredLease) {
	s := q.slots.Get(r.seq)
	c := q.consumers.named(r.Consumer)
	c.inFlight++
	s.state = slotLeased
	le := lease{id: r.ID, seq: r.seq, deadline: r.Deadline, consumer: c, stored: true, at: r.DeliveredAt}
	if r.Held != "" {
		held := pastReader{b: []byte(r.Held)}
		if le.held = held.holds(); held.done() != nil {
			le.held = nil // of a newer fila
		}
	}
	if s.sub != 0 {
		le.permit = q.gating.newPermit()
		le.permit.ticket = q.gating.subs.at(s.sub).set.Adopt()
	}
	s.ref = q.leases.add(le)
}

// Consumer restores a registration, whose deliveries go to subject.
func (r *Recovery) Consumer(rec store.ConsumerRecord, subject string) {
	q := r.side(rec.Queue)
	c := q.consumers.named(rec.Name)
	c.gone, c.restored = false, true
	c.reg = rec.Reg
	c.limit = int(rec.MaxInFlight)
	c.subject = subject
	q.consumers.regs = max(q.consumers.regs, rec.Reg)
	if rec.ExpiresAt != 0 {
		q.endAt(c, rec.ExpiresAt)
	}
	q.consumers.update(c)
}
