package shard

import (
	"slices"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/hooks"
	"github.com/filaq/fila/sidecar/policy"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// intake accepts messages for a queue: from the goroutine of its subscription and from
// schedules. Recovery fills it before.
type intake struct {
	mu    watchedMutex // held while a message is accepted
	seen  dedupe
	rates rates
}

// accept accepts or refuses one message and posts it to the machine.
func (in *intake) accept(q *Queue, m *nats.Msg) *wire.Error {
	s := q.shard
	now := s.Now()
	opts, werr := wire.ParseEnqueueHeaders(m.Header, now)
	switch {
	case werr != nil:
		return werr
	case opts.Schedule != nil:
		return q.addScheduleOf(m, opts.Schedule)
	case opts.Batch != nil:
		return in.acceptBatch(q, m, opts.Batch, now)
	}
	if werr := s.tooLarge(m.Header, m.Data); werr != nil {
		return werr
	}
	confirm := queue.Confirmation{Subject: m.Reply}
	in.mu.Lock()
	defer in.mu.Unlock()
	if opts.DedupeID != "" {
		in.seen.sweep(now)
		if id, ok := in.seen.find(opts.DedupeID, now); ok {
			q.metrics.Duplicate()
			if confirm.Awaited() && !q.run.post(m.Sub, queue.Input{Kind: queue.Duplicate, ID: id, Confirm: confirm}) {
				return q.Gone()
			}
			return nil
		}
	}
	msg, werr := in.take(q, m.Header, m.Data, &opts, now, nil)
	if werr != nil {
		return werr
	}
	msg.HeaderMap, msg.Confirm = deliverable(m.Header), confirm
	return in.hand(q, msg, func() bool { return q.run.post(m.Sub, queue.Input{Kind: queue.Enqueue, Message: msg}) })
}

// take makes a message of what arrived at time now, in a batch if t is not nil, or refuses it.
func (in *intake) take(q *Queue, header nats.Header, data []byte, opts *wire.EnqueueOptions, now int64, t *taking) (*queue.Message, *wire.Error) {
	headers := t.encode(header)
	size := int64(len(headers) + len(data))
	p := q.policy.Load()
	if werr := q.room(p, 0, 0, size); werr != nil {
		return nil, werr
	}
	class, werr := p.Classify(header, len(data))
	if werr != nil {
		return nil, werr
	}
	if t != nil {
		if werr := t.follows(class.Key); werr != nil {
			return nil, werr
		}
	}
	if werr := in.full(q, &class, opts.DedupeID, now); werr != nil {
		return nil, werr
	}
	if werr := q.budget(&class, opts.NotBefore, now); werr != nil {
		return nil, werr
	}
	counted, werr := q.countPending(&p.Settings, class.Key)
	if werr != nil {
		return nil, werr
	}
	if werr := in.rates.admit(q, &p.Settings, class.Key, now, t); werr != nil {
		uncountKey(counted, class.Key)
		return nil, werr
	}
	msg := &queue.Message{
		Message: store.Message{
			Ref:        store.Ref{Queue: q.id},
			ID:         newID(),
			EnqueuedAt: now,
			NotBefore:  opts.NotBefore,
			Delayed:    opts.Delayed,
			Class:      class,
			Headers:    headers,
			Payload:    data,
		},
		Size:    size,
		Counted: counted,
	}
	if opts.TTL > 0 {
		msg.ExpiresAt = now + int64(opts.TTL)
	}
	if window := p.Settings.DedupeWindowMs * 1e6; opts.DedupeID != "" && window > 0 {
		msg.DedupeID, msg.DedupeUntil = opts.DedupeID, now+window
	}
	return msg, nil
}

// hand counts a message and passes it to the machine by post, which reports false if the
// machine has ended.
func (in *intake) hand(q *Queue, msg *queue.Message, post func() bool) *wire.Error {
	q.shard.set.traces.Enqueued(msg, q.policy.Load().Has(hooks.OnEnqueue))
	id, key, dedupeID, until := msg.ID, msg.Key, msg.DedupeID, msg.DedupeUntil // after post, msg belongs to the machine
	q.countIn(msg)
	// Count first, check second; Delete does it in the other order. So a deletion without
	// force either counts this message or keeps it out.
	if q.deleted.Load() || !post() {
		q.uncount(msg)
		uncountKey(msg.Counted, key)
		return q.Gone()
	}
	q.metrics.Enqueued()
	if until != 0 {
		in.seen.add(dedupeID, id, until)
	}
	return nil
}

// full refuses a message that would create a key or dedupe id beyond the Caps. Nothing in use
// is forgotten to make room.
func (in *intake) full(q *Queue, c *store.Class, dedupeID string, now int64) *wire.Error {
	s := q.shard
	caps := &s.Caps
	throttleKeys, circuitFull := c.ThrottleKeys, caps.Circuits > 0 && c.CircuitKey != "" && s.Circuits.Full(c.CircuitKey, caps.Circuits)
	for i := range c.Routes {
		r := &c.Routes[i]
		throttleKeys = slices.Concat(throttleKeys, r.ThrottleKeys)
		circuitFull = circuitFull || caps.Circuits > 0 && r.CircuitKey != "" && s.Circuits.Full(r.CircuitKey, caps.Circuits)
	}
	switch {
	case caps.ThrottleKeys > 0 && len(throttleKeys) > 0 && s.Control.Gates().Full(throttleKeys, caps.ThrottleKeys, now):
		return wire.LimitReached("throttle keys (limits.max_throttle_keys)", caps.ThrottleKeys, capRetryAfter)
	case circuitFull:
		return wire.LimitReached("circuits (limits.max_circuits)", caps.Circuits, capRetryAfter)
	case caps.DedupeIDs > 0 && dedupeID != "" && int64(len(in.seen.ids)) >= caps.DedupeIDs:
		return wire.LimitReached("dedupe ids in queue "+q.name+" (limits.max_dedupe_ids)", caps.DedupeIDs, capRetryAfter)
	}
	return nil
}

// countIn counts a message that is taken.
func (q *Queue) countIn(m *queue.Message) {
	q.depth.Add(1)
	q.bytes.Add(m.Size)
	q.shard.set.uncommitted.Add(m.Size)
}

// uncount takes back the counts of a message that will not be stored.
func (q *Queue) uncount(m *queue.Message) {
	q.shard.set.uncommitted.Add(-m.Size)
	q.depth.Add(-1)
	q.bytes.Add(-m.Size)
}

// room refuses a message of a size that would exceed a limit of the node, the shard or the
// queue. messages and bytes are on their way and not counted yet.
func (q *Queue) room(p *policy.Policy, messages, bytes, size int64) *wire.Error {
	s := q.shard
	waiting, disk := s.set.uncommitted.Load(), s.set.Disk()
	switch {
	case s.failed():
		return wire.StoreFailed()
	case disk != nil && disk.Low:
		return wire.DiskLow(disk.Free, disk.MinFree, diskLowRetryAfter)
	case s.Full != nil && s.Full():
		return wire.BacklogLog(s.number, logFullRetryAfter)
	case waiting > 0 && waiting+size > s.MaxUncommittedBytes:
		return wire.BacklogUncommitted(uncommittedRetryAfter)
	}
	return q.fits(p, messages, bytes, size)
}

// fits refuses a message of a size that would exceed a limit of the queue, besides messages
// and bytes that are not counted yet.
func (q *Queue) fits(p *policy.Policy, messages, bytes, size int64) *wire.Error {
	limits := &p.Settings
	switch {
	case limits.MaxDepth > 0 && q.depth.Load()+messages >= limits.MaxDepth:
		return wire.BacklogMessages(q.name, limits.MaxDepth, fullRetryAfter)
	case limits.MaxBytes > 0 && q.bytes.Load()+bytes+size > limits.MaxBytes:
		return wire.BacklogBytes(q.name, limits.MaxBytes, fullRetryAfter)
	}
	return nil
}

// tooLarge refuses a message that would not fit into a delivery.
func (s *Shard) tooLarge(header nats.Header, data []byte) *wire.Error {
	if limit, n := s.Conn.MaxPayload()-wire.HeaderRoom, wireSize(header, data); n > limit {
		return wire.MessageTooLarge(n, limit)
	}
	return nil
}

// wireSize returns the size that NATS compares with max_payload.
func wireSize(header nats.Header, data []byte) int64 {
	n := len(data)
	if len(header) > 0 {
		n += len("NATS/1.0\r\n\r\n")
		for k, vs := range header {
			for _, v := range vs {
				n += len(k) + len(": \r\n") + len(v)
			}
		}
	}
	return int64(n)
}

// deliverable removes from h the headers that producers cannot set, see [wire.EncodeHeaders].
func deliverable(h nats.Header) nats.Header {
	for name := range h {
		if name == "" || wire.Reserved(name) {
			delete(h, name)
		}
	}
	return h
}

// Message ids are no secrets: uuid may draw random bytes for many at once.
func init() { uuid.EnableRandPool() }

// newID returns a UUIDv7.
func newID() store.ID {
	id, err := uuid.NewV7()
	if err != nil {
		panic(err) // the system's random source has failed
	}
	return store.ID(id)
}
