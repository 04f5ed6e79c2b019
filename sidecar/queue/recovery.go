package queue

import (
	"cmp"
	"slices"

	"github.com/filaq/fila/sidecar/queue/backlog"
	"github.com/filaq/fila/sidecar/queue/container"
	"github.com/filaq/fila/sidecar/queue/history"
	"github.com/filaq/fila/store"
)

// Recovery fills a machine from the store, before its first step: Message in the order of
// queues and sequences, then Done, then Consumer.
type Recovery struct {
	m       *Queue
	effects Effects // ignored: the owner counts stored messages itself
	roles   [Roles]recovered
}

// recovered holds what can be put in its place only when all messages are there.
type recovered struct {
	late   container.Timers // messages whose delay is over, by the end of the delay
	leased []recoveredLease
}

type recoveredLease struct {
	seq uint64
	store.Lease
}

// Recover begins a recovery.
func (m *Queue) Recover() *Recovery {
	r := &Recovery{m: m}
	for i := range r.roles {
		r.roles[i].late = container.NewTimers(func(container.Timer) bool { return true })
	}
	m.begin(m.now, &r.effects)
	return r
}

// later puts message seq, which was delayed, in its place: it waits on, or comes behind the
// messages that were ready before it.
func (r *recovered) later(q *side, seq uint64, s *backlog.Slot, now int64) {
	if s.ReadyAt > now {
		q.wait(seq, s, now)
		return
	}
	r.late.Add(s.ReadyAt, seq)
}

// readyUntil makes messages ready whose time came before at.
func (r *recovered) readyUntil(q *side, at int64) {
	for next, ok := r.late.Next(); ok && next.At < at; next, ok = r.late.Next() {
		r.late.Pop()
		q.ready(next.ID, q.Slots.Get(next.ID))
	}
}

// Message adds a stored message; size is the size of headers and payload.
func (r *Recovery) Message(m *store.Message, size int, st *store.State, now int64) {
	r.m.begin(now, &r.effects)
	q := r.m.sideOf(m.Queue)
	rest := &r.roles[q.role]
	s := q.addSlot(m, int64(size), r.m.perKey, now)
	s.ReadyAt = readySince(m)
	s.Attempts = m.Attempts
	q.seq = max(q.seq, m.Seq)
	ready := func() {
		if delayed(m) {
			rest.later(q, m.Seq, s, now)
			return
		}
		if !q.Order.On { // which messages own keys is known when all are there
			rest.readyUntil(q, s.ReadyAt)
		}
		q.ready(m.Seq, s)
	}
	if st == nil {
		ready()
		return
	}
	s.Stored = true
	s.Attempts = st.Attempts
	if st.ReadyAt != 0 { // an earlier version parked messages without it
		s.ReadyAt = st.ReadyAt
	}
	switch {
	case isParked(&st.Lease): // as after the Claim
		s.State, s.Claimed = backlog.Moving, s.ReadyAt <= now
		q.markMoving(m.Seq, s)
	case st.Lease.ID != 0:
		q.recoverOwner(m.Seq, s)
		rest.leased = append(rest.leased, recoveredLease{m.Seq, st.Lease})
	case st.Attempts == m.Attempts:
		if !delayed(m) { // it was put back: its sequence is its place
			s.ReadyAt = readySince(m)
		}
		ready()
	default:
		if q.Order.On && !q.Order.Skip {
			q.recoverOwner(m.Seq, s) // it keeps its place while it waits for its retry
		}
		rest.later(q, m.Seq, s, now)
	}
}

// Used keeps the queue from giving out sequences up to last again: a job takes messages up
// to the sequence that was the last when the job was created.
func (r *Recovery) Used(id store.QueueID, last uint64) {
	q := r.m.sideOf(id)
	q.seq = max(q.seq, last)
}

// Done files leases in the order of their deadlines, and the rest of the messages that
// waited for a time.
func (r *Recovery) Done(now int64) {
	for i := range r.roles {
		q, rest := &r.m.sides[i], &r.roles[i]
		slices.SortFunc(rest.leased, func(a, b recoveredLease) int { return cmp.Compare(a.Deadline, b.Deadline) })
		for _, le := range rest.leased {
			q.recoverLease(le)
		}
		rest.readyUntil(q, now+1)
	}
	if counts := r.m.perKey; counts != nil {
		r.m.perKey = nil
		r.m.sides[Main].countKeys(counts)
	}
}

func (q *side) recoverLease(r recoveredLease) {
	s := q.Slots.Get(r.seq)
	c := q.Consumers.Named(r.Consumer)
	c.InFlight++
	s.State = backlog.Leased
	le := backlog.Lease{ID: r.ID, Seq: r.seq, Deadline: r.Deadline, Consumer: c, Stored: true, At: r.DeliveredAt}
	route := 0
	if r.Held != "" {
		if list, by, err := history.ReadBlocked([]byte(r.Held)); err == nil { // or of a newer version
			le.Blocked, route = list, by
		}
	}
	if s.Sub != 0 {
		le.Permits = q.gates.Adopt(s.Sub, route)
	}
	s.Ref = q.Leases.Add(le)
}

// Consumer restores a registration, whose deliveries go to subject.
func (r *Recovery) Consumer(rec store.ConsumerRecord, subject string) {
	q := r.m.sideOf(rec.Queue)
	c := q.Consumers.Named(rec.Name)
	c.Gone, c.Restored = false, true
	c.Reg, c.Limit, c.Subject, c.Form = rec.Reg, int(rec.MaxInFlight), subject, rec.Form
	q.Consumers.Regs = max(q.Consumers.Regs, rec.Reg)
	if rec.ExpiresAt != 0 {
		q.Consumers.EndAt(c, rec.ExpiresAt)
	}
	q.Consumers.Update(c)
}
