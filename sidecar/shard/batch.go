package shard

import (
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/hooks"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// batch collects the answers to the parts of a request with several messages or acks, and
// publishes one reply when it has them all.
type batch struct {
	q     *Queue
	reply string // subject

	mu    sync.Mutex // guards what follows
	left  int        // parts without an answer
	ids   []byte     // of the messages; nil: the parts are acks
	parts wire.BatchReply
}

func newBatch(q *Queue, reply string, parts int) *batch {
	return &batch{q: q, reply: reply, left: parts, parts: wire.BatchReply{Queue: q.name}}
}

// confirmation returns the confirmation of a part.
func (b *batch) confirmation(index int) queue.Confirmation {
	if b.reply == "" {
		return queue.Confirmation{}
	}
	return queue.Confirmation{Batch: b, Index: index}
}

// done answers a part that is on disk.
func (b *batch) done(r *queue.Reply) {
	b.answer(func() {
		if b.ids != nil {
			copy(b.ids[r.Index*len(r.ID):], r.ID[:])
		}
		if r.Kind == queue.ReplyDuplicate {
			b.parts.Duplicates = append(b.parts.Duplicates, r.Index)
		}
	})
}

// refuse answers a part that is refused.
func (b *batch) refuse(index int, e *wire.Error) { b.answer(func() { b.parts.Refuse(index, e) }) }

// answer notes the answer to a part and publishes the reply after the last one.
func (b *batch) answer(note func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	note()
	if b.left--; b.left > 0 {
		return
	}
	if b.ids != nil {
		b.parts.Room = b.q.vacant()
	}
	b.q.shard.publish(b.reply, b.parts.Encode(b.ids))
}

// AckBatch handles the acks of deliveries of a batch with these tokens, see [Queue.Ack].
func (q *Queue) AckBatch(tokens []wire.Token, acks []wire.PartAck, reply string, by *nats.Subscription) *wire.Error {
	answers := newBatch(q, reply, len(acks))
	posted := q.run.postEach(by, len(acks), func(i int) queue.Input {
		a := &acks[i]
		return queue.Input{Kind: queue.Acked, Role: q.side, Token: tokens[a.Index], Ack: a.Ack, Confirm: answers.confirmation(a.Index)}
	})
	if !posted {
		return q.Gone()
	}
	return nil
}

// vacant is how many messages would be accepted now; nil if nothing limits their number.
func (q *Queue) vacant() *int64 {
	p := q.policy.Load()
	n, limits := int64(-1), &p.Settings
	least := func(room int64) {
		if n < 0 || room < n {
			n = max(room, 0)
		}
	}
	if limits.MaxDepth > 0 {
		least(limits.MaxDepth - q.depth.Load())
	}
	if q.room(p, 0, 0, 1) != nil {
		least(0)
	}
	if limits.EnqueueRate != "" {
		if gates := q.intake.rates.gates.Load(); gates != nil {
			if g, ok := gates.Find(allProducers); ok {
				least(g.Info(q.shard.Now()).Tokens / throttle.One)
			}
		}
	}
	if n < 0 {
		return nil
	}
	return &n
}

// acceptBatch accepts or refuses each message of a batch, or all of them if it is atomic.
func (in *intake) acceptBatch(q *Queue, m *nats.Msg, b *wire.Batch, now int64) *wire.Error {
	messages, werr := wire.ParseBatch(m.Data, b)
	if werr != nil {
		return werr
	}
	t := taking{in: in, q: q, now: now, atomic: b.Atomic, answers: newBatch(q, m.Reply, len(messages))}
	t.room = q.shard.Conn.MaxPayload() - 2*wire.HeaderRoom
	t.takingBuffers = takings.Get().(*takingBuffers)
	defer t.recycle()
	t.taken = make([]*queue.Message, 0, len(messages))
	lines := 0
	for i := range messages {
		lines += len(messages[i].Header)
	}
	t.headers = make([]byte, 0, lines)
	t.answers.ids = make([]byte, len(messages)*len(store.ID{}))
	if q.policy.Load().Settings.Ordering == wire.OrderingKey && !b.Atomic {
		t.refused = make(map[string]predecessor)
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.seen.sweep(now)
	for i := range messages {
		werr := t.take(i, &messages[i])
		switch {
		case werr == nil:
		case b.Atomic:
			t.undo()
			return werr.InBatch(i)
		default:
			t.refuse(i, werr)
		}
	}
	return t.post(m.Sub)
}

// taking takes the messages of a batch, under the lock of the intake.
type taking struct {
	in      *intake
	q       *Queue
	now     int64
	atomic  bool
	answers *batch
	taken   []*queue.Message
	headers []byte   // of taken messages, in their stored form
	room    int64    // a message of this size is not too large
	charges []charge // of taken messages; if atomic
	*takingBuffers

	// In a strictly ordered queue later messages must not overtake a refused one: neither now, nor
	// by a shorter Retry-After.
	refused map[string]predecessor // by fairness key; nil: the queue is not ordered
	unknown *predecessor           // the refused message whose key is not known that waits longest
	longest time.Duration          // the longest Retry-After so far
	key     *string                // of the message that is being taken; nil: not known yet
}

// takingBuffers are what batches use one after the other.
type takingBuffers struct {
	inputs []queue.Input // for duplicates and, unless atomic, for taken messages
	header nats.Header   // of the message that is being taken
}

var takings = sync.Pool{New: func() any { return &takingBuffers{header: make(nats.Header)} }}

// recycle gives the buffers back, without what a huge message has made of them.
func (t *taking) recycle() {
	const keep = 64 // headers
	clear(t.inputs)
	t.inputs = t.inputs[:0]
	if len(t.header) <= keep {
		clear(t.header)
		takings.Put(t.takingBuffers)
	}
}

// encode returns the stored form of the headers of a message, which is in a batch if t is not nil.
func (t *taking) encode(header nats.Header) []byte {
	if t == nil {
		return wire.EncodeHeaders(nil, header)
	}
	from := len(t.headers)
	t.headers = wire.EncodeHeaders(t.headers, header)
	return slices.Clip(t.headers[from:])
}

// predecessor is a refused message.
type predecessor struct {
	index      int
	retryAfter time.Duration
}

// charge is what a message has taken from the enqueue rates.
type charge struct {
	gates *throttle.Gates
	set   *throttle.Set
	grant throttle.Grant
}

// take takes or refuses a message, and counts it.
func (t *taking) take(i int, m *wire.BatchMessage) *wire.Error {
	t.key = nil
	if m.Err != nil {
		return m.Err
	}
	header, werr := m.Header.Parse(t.header, t.q.shard.Headers)
	if werr != nil {
		return werr
	}
	opts, werr := wire.ParseEnqueueHeaders(header, t.now)
	switch {
	case werr != nil:
		return werr
	case opts.Schedule != nil || opts.Batch != nil:
		return wire.BadBatch("a message in it makes a schedule, or is a batch itself")
	}
	confirm := t.answers.confirmation(i)
	if id, ok := t.in.seen.find(opts.DedupeID, t.now); ok && opts.DedupeID != "" {
		t.q.metrics.Duplicate()
		if confirm.Awaited() {
			t.inputs = append(t.inputs, queue.Input{Kind: queue.Duplicate, ID: id, Confirm: confirm})
		}
		return nil
	}
	// On the wire a header line has at most a space more than in the batch.
	if most := int64(2*len(m.Header) + len(m.Data)); most > t.room {
		if werr := t.q.shard.tooLarge(header, m.Data); werr != nil {
			return werr
		}
	}
	msg, werr := t.in.take(t.q, header, m.Data, &opts, t.now, t)
	if werr != nil {
		return werr
	}
	msg.Confirm = confirm
	t.q.countIn(msg)
	if msg.DedupeUntil != 0 {
		t.in.seen.add(msg.DedupeID, msg.ID, msg.DedupeUntil)
	}
	t.taken = append(t.taken, msg)
	if !t.atomic {
		t.inputs = append(t.inputs, queue.Input{Kind: queue.Enqueue, Message: msg})
	}
	return nil
}

// follows notes the key of a message, and refuses the message if an earlier one of its key was
// refused.
func (t *taking) follows(key string) *wire.Error {
	t.key = &key
	p, ok := t.refused[key]
	if u := t.unknown; u != nil && (!ok || u.retryAfter > p.retryAfter) {
		return wire.PredecessorRefused(u.index, "", u.retryAfter)
	}
	if ok {
		return wire.PredecessorRefused(p.index, key, p.retryAfter)
	}
	return nil
}

// refuse answers a message that is not taken.
func (t *taking) refuse(i int, e *wire.Error) {
	if t.refused != nil && t.key == nil && e.RetryAfter > 0 { // it may be of any key
		later := *e
		later.RetryAfter = max(e.RetryAfter, t.longest)
		e = &later
	}
	t.longest = max(t.longest, e.RetryAfter)
	p := predecessor{i, e.RetryAfter}
	switch {
	case t.refused == nil:
	case t.key != nil:
		t.refused[*t.key] = p
	case t.unknown == nil || p.retryAfter > t.unknown.retryAfter:
		t.unknown = &p
	}
	t.q.refuse(t.answers.confirmation(i), e)
}

// uncount takes back the counts of all messages.
func (t *taking) uncount() {
	for _, m := range t.taken {
		t.q.uncount(m)
		uncountKey(m.Counted, m.Key)
		t.in.seen.remove(m.DedupeID)
	}
}

// undo takes back the messages of an atomic batch.
func (t *taking) undo() {
	t.uncount()
	for i := range t.charges {
		c := &t.charges[i]
		c.set.Undo(&c.grant, t.now, nil)
		c.gates.Close(c.set, t.now)
	}
}

// post passes what was taken to the machine.
func (t *taking) post(by *nats.Subscription) *wire.Error {
	for i := range t.charges {
		c := &t.charges[i]
		c.set.Release(&c.grant, t.now, nil)
		c.gates.Close(c.set, t.now)
	}
	inputs, n := t.inputs, len(t.taken) // after post, the messages belong to the machine
	if t.atomic && n > 0 {
		all := t.q.changed(queue.EnqueueAll{Messages: t.taken})
		inputs = append([]queue.Input{all}, inputs...) // duplicates may be of messages in it
	}
	if len(inputs) == 0 {
		return nil
	}
	hooked := t.q.policy.Load().Has(hooks.OnEnqueue)
	for _, m := range t.taken {
		t.q.shard.set.traces.Enqueued(m, hooked)
	}
	if t.q.deleted.Load() || !t.q.run.post(by, inputs...) {
		t.uncount()
		return t.q.Gone()
	}
	for range n {
		t.q.metrics.Enqueued()
	}
	return nil
}
