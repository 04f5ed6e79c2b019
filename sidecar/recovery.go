package sidecar

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// recovering is a loop that is being filled from the store, before it runs.
type recovering struct {
	*loop
	retried []uint64 // messages with ended attempts, which wait behind the others
	leased  []recoveredLease
}

type recoveredLease struct {
	seq uint64
	store.Lease
}

// recover makes the queues of the store, with everything in them.
func (s *Server) recover(snap store.Snapshot) (map[store.QueueID]*recovering, error) {
	c := s.core
	loops := make(map[store.QueueID]*recovering, len(snap.Queues))
	byName := make(map[string]*queue, len(snap.Queues))
	for _, rec := range snap.Queues {
		settings := wire.DefaultQueueSettings(rec.Name)
		if err := json.Unmarshal(rec.Settings, &settings); err != nil {
			return nil, fmt.Errorf("settings of queue %s in the store: %w", rec.Name, err)
		}
		q := newQueue(c, rec, s.recoveredPolicy(settings))
		byName[rec.Name] = q
		loops[rec.ID] = nil
	}
	for name, q := range byName {
		if wire.IsDLQ(name) {
			continue
		}
		dlq := byName[wire.DLQ(name)]
		if dlq == nil {
			return nil, fmt.Errorf("queue %s has no dead letter queue in the store", name)
		}
		q.dlq, dlq.source = dlq, q
	}
	for _, q := range byName {
		if q.dlq == nil && q.source == nil {
			return nil, fmt.Errorf("dead letter queue %s has no queue in the store", q.name)
		}
		l := newLoop(q)
		l.keys.overrides = c.config.weights(q.name)
		s.applyPauses(l)
		loops[q.id] = &recovering{loop: l}
	}
	if err := s.recoverMessages(loops); err != nil {
		return nil, err
	}
	now := c.clock.Now()
	for _, r := range loops {
		r.settle(now)
	}
	for _, rec := range snap.Consumers {
		if r := loops[rec.Queue]; r != nil {
			r.consumer(rec)
		}
	}
	return loops, nil
}

func (s *Server) recoverMessages(loops map[store.QueueID]*recovering) error {
	log := s.core.log
	start := time.Now()
	next := 2 * time.Second
	stats, err := s.core.store.Recover(store.Visitor{
		Message: func(m *store.Message, size int, st *store.State) error {
			r := loops[m.Queue]
			if r == nil {
				return fmt.Errorf("message %s belongs to queue %d, which the store does not have", formatID(m.ID), m.Queue)
			}
			r.message(m, size, st)
			return nil
		},
		Dedupe: func(d store.Dedupe) error {
			if r := loops[d.Queue]; r != nil {
				r.q.intake.seen.add(d.DedupeID, d.ID, d.Until)
			}
			return nil
		},
		Progress: func(done, total int64) {
			if spent := time.Since(start); spent >= next {
				log.Info("recovering", "messages", done, "of", total)
				next = spent + 2*time.Second
			}
		},
	})
	if err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	log.Info("recovered", "queues", len(loops), "messages", stats.Messages, "bytes", stats.Bytes,
		"states", stats.States, "dedupe_ids", stats.Dedupes, "took", stats.Duration.Round(time.Millisecond))
	return nil
}

// message takes a stored message. Messages come in the order of their
// sequences.
func (r *recovering) message(m *store.Message, size int, st *store.State) {
	q := r.q
	s := r.slots.add(m.Seq)
	s.id = m.ID
	s.enqueuedAt = m.EnqueuedAt
	s.readyAt = max(m.EnqueuedAt, m.NotBefore)
	s.size = uint32(size)
	s.cost = m.Cost
	s.attempts = m.Attempts
	s.flow = r.keys.acquire(m.Key, m.Weight)
	s.lane = r.acquireLane(s.flow, m.ThrottleKeys, m.CircuitKey, q.core.clock.Now())
	q.depth.Add(1)
	q.bytes.Add(int64(size))
	q.seq.Store(max(q.seq.Load(), m.Seq))
	if m.ExpiresAt != 0 {
		r.slots.expire(m.Seq, s, m.ExpiresAt)
		r.ttls.push(m.ExpiresAt, m.Seq)
	}
	// What was never delayed is ready, also when the clock has been set back.
	ready := func() {
		if m.NotBefore > m.EnqueuedAt {
			r.wait(m.Seq, s, q.core.clock.Now())
		} else {
			r.pend(m.Seq, s)
		}
	}
	if st == nil {
		ready()
		return
	}
	s.stored = true
	s.attempts, s.readyAt = st.Attempts, st.ReadyAt
	switch {
	case st.Lease.ID != 0:
		r.holdKey(m.Seq, s)
		r.leased = append(r.leased, recoveredLease{m.Seq, st.Lease})
	case st.Attempts == m.Attempts:
		ready()
	default:
		if r.ordered && !r.skipBlocked {
			r.holdKey(m.Seq, s) // it keeps its place while it waits for its retry
		}
		r.retried = append(r.retried, m.Seq)
	}
}

// holdKey lets a message that was delivered before the restart hold its fairness
// key. There is one of a key at most, unless the queue was not ordered then.
func (r *recovering) holdKey(seq uint64, s *slot) {
	if !r.ordered {
		return
	}
	o := r.orderOf(s.flow)
	younger, had := o.holder, o.held
	if had && r.slots.get(younger).state != slotPending {
		return
	}
	o.held, o.holder, s.holds = true, seq, true
	if had {
		h := r.slots.get(younger)
		r.sched.Remove(drr.Handle(h.ref))
		r.unready(younger, h)
		h.holds = false
		r.queueUp(younger, h)
	}
}

// settle files leases in the order of their deadlines, and retries, which had
// joined the end of their flows, behind the other messages.
func (r *recovering) settle(now int64) {
	slices.SortFunc(r.leased, func(a, b recoveredLease) int { return cmp.Compare(a.Deadline, b.Deadline) })
	for _, le := range r.leased {
		s := r.slots.get(le.seq)
		c := r.consumers.named(le.Consumer)
		c.inFlight++
		s.state = slotLeased
		le := lease{id: le.ID, seq: le.seq, deadline: le.Deadline, consumer: c, stored: true}
		if s.lane != 0 {
			le.pass = r.newPass()
			le.pass.ticket = r.lanes.at(s.lane).set.Adopt()
		}
		s.ref = r.leases.add(le)
	}
	slices.SortFunc(r.retried, func(a, b uint64) int {
		return cmp.Or(cmp.Compare(r.slots.get(a).readyAt, r.slots.get(b).readyAt), cmp.Compare(a, b))
	})
	for _, seq := range r.retried {
		r.wait(seq, r.slots.get(seq), now)
	}
	r.leased, r.retried = nil, nil
	r.perKey = nil
	r.applyLimits()
}

// consumer restores a registration.
func (r *recovering) consumer(rec store.ConsumerRecord) {
	c := r.consumers.named(rec.Name)
	c.gone, c.restored = false, true
	c.reg = rec.Reg
	c.limit = int(rec.MaxInFlight)
	c.subject = r.q.core.subjects.Deliver(c.name, r.q.name)
	r.consumers.regs = max(r.consumers.regs, rec.Reg)
	if rec.ExpiresAt != 0 {
		r.endAt(c, rec.ExpiresAt)
	}
	r.consumers.settle(c)
}
