package sidecar

import (
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/hooks"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// incoming is a message that the intake has accepted. It is counted in the
// queue's depth and bytes and in the server's uncommitted bytes.
type incoming struct {
	msg         store.Message
	headers     nats.Header // those of msg, for deliveries from memory: the dispatcher's
	size        int64       // headers and payload
	dedupeID    string
	dedupeUntil int64
	reply       string
	counted     *keyCounts // where its fairness key was counted; nil: nowhere
}

// intake takes a queue's enqueues. All of it belongs to the goroutine of the
// NATS subscription; recovery fills seen before that starts.
type intake struct {
	q      *queue
	seen   dedupe
	limits admission
}

func newIntake(q *queue) intake { return intake{q: q, seen: newDedupe()} }

// onMessage is the callback of the enqueue subject.
func (in *intake) onMessage(m *nats.Msg) {
	q := in.q
	c := q.core
	if m.Reply != "" && c.subjects.Owns(m.Reply) {
		// Answering would make fila publish to itself on the producer's behalf.
		c.refuse(q, "", wire.BadReplySubject(m.Reply, ownReplyText))
		return
	}
	if err := in.accept(m); err != nil {
		c.refuse(q, m.Reply, err)
	}
}

// accept decides about one message and posts it to the loop.
func (in *intake) accept(m *nats.Msg) *wire.Error {
	q := in.q
	c := q.core
	now := c.clock.Now()
	opts, werr := wire.ParseEnqueueHeaders(m.Header, now)
	if werr != nil {
		return werr
	}
	if limit := c.nc.MaxPayload() - wire.HeaderRoom; wireSize(m) > limit {
		return wire.MessageTooLarge(wireSize(m), limit)
	}
	if opts.DedupeID != "" {
		in.seen.sweep(now)
		if id, ok := in.seen.find(opts.DedupeID, now); ok {
			q.metrics.duplicates.Inc()
			if m.Reply != "" && !q.post(event{kind: evDuplicate, id: id, reply: m.Reply}, m.Sub) {
				return q.gone()
			}
			return nil
		}
	}
	headers := wire.EncodeHeaders(nil, m.Header)
	size := int64(len(headers) + len(m.Data))
	p := q.policy.Load()
	if werr := c.room(q, p, size); werr != nil {
		return werr
	}
	d := p.decide(q.name, m.Header, len(m.Data))
	counted, werr := q.pendingLimit(&p.settings, d.FairnessKey)
	if werr == nil {
		werr = in.limits.admit(q, &p.settings, d.FairnessKey, now)
	}
	if werr != nil {
		counted.giveBack(d.FairnessKey)
		return werr
	}
	msg := &incoming{
		msg: store.Message{
			Ref:          store.Ref{Queue: q.id},
			ID:           newID(),
			EnqueuedAt:   now,
			NotBefore:    opts.NotBefore,
			Weight:       d.Weight,
			Cost:         d.Cost,
			Key:          d.FairnessKey,
			ThrottleKeys: d.ThrottleKeys,
			CircuitKey:   d.CircuitKey,
			Headers:      headers,
			Payload:      m.Data,
		},
		headers: deliverable(m.Header),
		size:    size,
		reply:   m.Reply,
		counted: counted,
	}
	if opts.TTL > 0 {
		msg.msg.ExpiresAt = now + int64(opts.TTL)
	}
	if window := p.settings.DedupeWindowMs * 1e6; opts.DedupeID != "" && window > 0 {
		msg.dedupeID, msg.dedupeUntil = opts.DedupeID, now+window
	}
	id, until := msg.msg.ID, msg.dedupeUntil // msg is the loop's once it is posted
	q.depth.Add(1)
	q.bytes.Add(size)
	c.uncommitted.Add(size)
	// Counted first, looked at second; remove does it the other way round. So a
	// deletion without force either sees this message or keeps it out.
	if q.deleted.Load() || !q.post(event{kind: evEnqueue, incoming: msg}, m.Sub) {
		c.settleBytes(q, msg)
		counted.giveBack(d.FairnessKey)
		return q.gone()
	}
	q.metrics.enqueued.Inc()
	if until != 0 {
		in.seen.add(opts.DedupeID, id, until)
	}
	return nil
}

// Hints for producers that were refused, when there is no better estimate.
const (
	fullRetryAfter        = time.Second
	uncommittedRetryAfter = 100 * time.Millisecond
	drainRetryAfter       = 5 * time.Second
)

// room refuses what would exceed a limit.
func (c *core) room(q *queue, p *policy, size int64) *wire.Error {
	s := &p.settings
	waiting := c.uncommitted.Load()
	switch {
	case c.store.Err() != nil:
		return wire.StoreFailed(drainRetryAfter)
	case waiting > 0 && waiting+size > c.cfg.Limits.MaxUncommittedBytes:
		return wire.BacklogUncommitted(uncommittedRetryAfter)
	case s.MaxDepth > 0 && q.depth.Load() >= s.MaxDepth:
		return wire.BacklogMessages(q.name, s.MaxDepth, fullRetryAfter)
	case s.MaxBytes > 0 && q.bytes.Load()+size > s.MaxBytes:
		return wire.BacklogBytes(q.name, s.MaxBytes, fullRetryAfter)
	}
	return nil
}

// decide gives a message its fairness key, weight and gates: by on_enqueue, or
// by the headers that the settings name.
func (p *policy) decide(queue string, headers map[string][]string, size int) hooks.EnqueueDecision {
	if p.onEnqueue != nil {
		return p.onEnqueue.enqueue(&hooks.EnqueueInput{Headers: headers, PayloadSize: size, Queue: queue})
	}
	d := hooks.DefaultEnqueueDecision()
	s := &p.settings
	if key := first(headers, s.FairnessHeader); key != "" && len(key) <= hooks.MaxKeyBytes {
		d.FairnessKey = key
	}
	if w := first(headers, s.WeightHeader); w != "" {
		if weight, ok := parseWeight(w); ok {
			d.Weight = weight
		}
	}
	for _, name := range s.ThrottleHeaders {
		if key := first(headers, name); key != "" && len(key) <= hooks.MaxKeyBytes && !slices.Contains(d.ThrottleKeys, key) {
			d.ThrottleKeys = append(d.ThrottleKeys, key)
		}
	}
	d.CircuitKey = circuitKey(headers, s)
	return d
}

// thousand is how weights and costs are kept: in thousandths.
const thousand = 1000

// parseWeight reads a weight from 1 to 1,000,000 and returns it in thousandths.
func parseWeight(s string) (uint32, bool) {
	w, err := strconv.ParseFloat(s, 64)
	if err != nil || !(w >= 1 && w <= hooks.MaxThousandths/thousand) {
		return 0, false
	}
	return uint32(w*thousand + 0.5), true
}

func first(headers map[string][]string, name string) string {
	if name == "" {
		return ""
	}
	if v := headers[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// wireSize is what NATS counts of a message against max_payload.
func wireSize(m *nats.Msg) int64 {
	n := len(m.Data)
	if len(m.Header) > 0 {
		n += len("NATS/1.0\r\n\r\n")
		for k, vs := range m.Header {
			for _, v := range vs {
				n += len(k) + len(": \r\n") + len(v)
			}
		}
	}
	return int64(n)
}

// deliverable takes out of h what a producer cannot set, see [wire.EncodeHeaders].
func deliverable(h nats.Header) nats.Header {
	for name := range h {
		if name == "" || wire.Reserved(name) {
			delete(h, name)
		}
	}
	return h
}

// Ids of messages are no secrets: random bytes are drawn for many at once.
func init() { uuid.EnableRandPool() }

// newID returns a UUIDv7.
func newID() store.ID {
	id, err := uuid.NewV7()
	if err != nil {
		panic(err) // the system's random source is gone: nothing can be trusted
	}
	return store.ID(id)
}
