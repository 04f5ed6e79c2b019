package client

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/wire"
)

const (
	// fewRequests is how many unanswered requests to a queue are light load: below, each
	// message is sent at once.
	fewRequests = 8
	// batchWait is how long a message waits for a batch.
	batchWait = 2 * time.Millisecond
	// maxBatchBytes bounds the messages of a batch together.
	maxBatchBytes = 256 << 10
	// frameHead is how many bytes a batch has in front of each message.
	frameHead = 8
	// manyOutboxes is when outboxes without messages are forgotten.
	manyOutboxes = 1024
)

// batchSupport is what is known about the server.
type batchSupport int

const (
	batchesUntried batchSupport = iota
	batchesKnown
	batchesRefused // a server from before batches; all messages are sent one by one
)

// outbox has the messages to one queue that were not sent yet. They wait only while requests
// are unanswered, and are sent in their order:
//
//   - as soon as they fill a batch,
//   - when a reply leaves fewer than fewRequests unanswered,
//   - after batchWait.
//
// The first batch shows whether the server knows batches. Until its reply nothing else is sent
// to its queue, so that its messages keep their place if they have to be sent one by one.
//
// The publisher's mutex guards it.
type outbox struct {
	subject    string
	waiting    []*PublishFuture
	bytes      int      // of waiting, in a batch
	unanswered int      // requests that are awaited
	first      *request // the first batch, while it is awaited and batches are untried
	// size is how many messages a batch has at most. A refusal with 429 halves it, and a
	// full batch that is taken whole adds one.
	size  int
	timer *time.Timer
	until time.Time // the end of the wait, if messages wait
}

// outboxOf returns the outbox of a message's queue. The caller holds mu.
func (p *publisher) outboxOf(f *PublishFuture) *outbox {
	b := p.mu.outboxes[f.queue]
	if b == nil {
		if len(p.mu.outboxes) >= manyOutboxes {
			maps.DeleteFunc(p.mu.outboxes, func(_ string, b *outbox) bool { return b.unanswered == 0 && len(b.waiting) == 0 })
		}
		b = &outbox{subject: f.msg.Subject, size: p.maxBatch}
		b.timer = stoppedTimer(func() { p.waitOver(b) })
		p.mu.outboxes[f.queue] = b
	}
	return b
}

// post sends a new message, or makes it wait for a batch. The error is that it was not sent and
// will not be retried. The caller holds mu.
func (p *publisher) post(f *PublishFuture, ended *results) error {
	b := p.outboxOf(f)
	if b.first == nil && len(b.waiting) == 0 && (b.unanswered < fewRequests || b.size == 1 || p.mu.batches == batchesRefused) {
		r, err := p.send(b, []*PublishFuture{f})
		if err == nil {
			return nil
		}
		wait, again := f.nextTry(err, rand.Float64())
		if !again {
			return err
		}
		time.AfterFunc(wait, func() { p.retry(r, r.futures) })
		return nil
	}
	// Errors that a later try cannot mend are for the caller.
	if int64(len(f.msg.Data)) > p.c.nc.MaxPayload() {
		return sendError(b.subject, nats.ErrMaxPayload)
	}
	if p.c.nc.IsClosed() {
		return nats.ErrConnectionClosed
	}
	f.size, f.batchable = frame(f.msg)
	b.waiting = append(b.waiting, f)
	b.bytes += f.size
	if len(b.waiting) == 1 {
		b.startTimer(p)
	}
	p.sendWaiting(b, false, ended)
	return nil
}

// sendWaiting sends what waits: full batches, and all of it at light load or if the server knows
// no batches. The caller holds mu.
func (p *publisher) sendWaiting(b *outbox, all bool, ended *results) {
	all = all || b.unanswered < fewRequests || p.mu.batches == batchesRefused
	before := len(b.waiting)
	for b.first == nil && len(b.waiting) > 0 && (all || len(b.waiting) >= b.size || b.bytes >= maxBatchBytes) {
		p.sendOrFail(b, p.cut(b), ended)
	}
	switch len(b.waiting) {
	case 0:
		b.timer.Stop()
	case before: // the timer runs
	default:
		b.startTimer(p)
	}
}

// cut takes the messages of the next request from an outbox. The caller holds mu.
func (p *publisher) cut(b *outbox) []*PublishFuture {
	limit := int(min(maxBatchBytes, p.c.nc.MaxPayload()-wire.HeaderRoom))
	n, bytes := 0, 0
	for _, f := range b.waiting {
		if n == b.size || n > 0 && (bytes+f.size > limit || !f.batchable || !b.waiting[0].batchable) {
			break
		}
		n++
		bytes += f.size
	}
	b.bytes -= bytes
	batch := slices.Clone(b.waiting[:n])
	b.waiting = slices.Delete(b.waiting, 0, n)
	return batch
}

// sendOrFail sends messages in one request if the server knows batches, or fails them. The
// caller holds mu.
func (p *publisher) sendOrFail(b *outbox, futures []*PublishFuture, ended *results) {
	for len(futures) > 0 {
		part := futures
		if p.mu.batches == batchesRefused {
			part = futures[:1]
		}
		futures = futures[len(part):]
		if r, err := p.send(b, part); err != nil {
			p.fail(r, failed(r, err), ended)
		}
	}
}

// startTimer bounds how long messages wait. They wait longer for the reply to the first batch.
func (b *outbox) startTimer(p *publisher) {
	wait := p.longestWait
	if b.first != nil {
		wait = replyWithin
	}
	b.until = time.Now().Add(wait)
	b.timer.Reset(wait)
}

// stoppedTimer returns a timer that calls fn once it is reset and over.
func stoppedTimer(fn func()) *time.Timer {
	t := time.AfterFunc(time.Hour, fn)
	t.Stop()
	return t
}

// waitOver sends what has waited long enough.
func (p *publisher) waitOver(b *outbox) {
	var ended results
	defer p.report(&ended)
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Now().Before(b.until) {
		return // the timer was set again meanwhile
	}
	b.first = nil
	p.sendWaiting(b, true, &ended)
}

// frame returns the size of a message in a batch, and whether it can be in one: fila reads a
// batch more strictly than NATS a message, and does not take a schedule in it.
func frame(msg *nats.Msg) (size int, batchable bool) {
	size, batchable = frameHead+len(msg.Data), true
	for name, values := range msg.Header {
		for _, v := range values {
			size += len(name) + len(v) + len(": \r\n")
		}
		switch name {
		case wire.HeaderMsgID, wire.HeaderDelay, wire.HeaderNotBefore, wire.HeaderTTL:
		default:
			batchable = batchable && wire.LegalHeaderName(name) && !wire.Reserved(name)
		}
	}
	return size, batchable
}

// batchMsg returns the enqueue of a batch. The caller holds mu, and sends it before the next one.
func (p *publisher) batchMsg(futures []*PublishFuture) *nats.Msg {
	p.mu.frames = p.mu.frames[:0]
	for _, f := range futures {
		p.mu.frames = wire.AppendBatch(p.mu.frames, f.msg.Header, f.msg.Data)
	}
	return &nats.Msg{
		Subject: futures[0].msg.Subject, Data: p.mu.frames,
		Header: nats.Header{wire.HeaderBatch: {strconv.Itoa(len(futures))}},
	}
}

// answer is the reply to one message.
type answer struct {
	receipt Receipt
	err     error
}

// parseAnswers parses the reply to n messages. The error is about all of them.
func parseAnswers(msg *nats.Msg, subject string, n int) ([]answer, error) {
	if refused := wire.ParseError(msg.Header, msg.Data); refused != nil {
		return nil, refused
	}
	if msg.Header.Get(wire.HeaderStatus) == wire.StatusNoResponders {
		return nil, sendError(subject, nats.ErrNoResponders)
	}
	if n == 1 {
		receipt, err := parseReceipt(msg.Data)
		return []answer{{receipt: receipt}}, err
	}
	return parseBatchReply(msg.Data, n)
}

func parseBatchReply(data []byte, n int) ([]answer, error) {
	var reply wire.BatchReply
	if err := json.Unmarshal(data, &reply); err != nil {
		return nil, fmt.Errorf("confirmation of a batch is not what fila sends: %w", err)
	}
	ids, err := base64.RawURLEncoding.DecodeString(reply.IDs)
	if err != nil || len(ids) != n*len(uuid.UUID{}) {
		return nil, fmt.Errorf("confirmation of a batch is not what fila sends: it has %d bytes of ids for %d messages", len(ids), n)
	}
	all := make([]answer, n)
	for i := range all {
		var id uuid.UUID
		copy(id[:], ids[i*len(id):])
		all[i].receipt = Receipt{ID: id.String(), Queue: reply.Queue}
	}
	for _, i := range reply.Duplicates {
		if i < 0 || i >= n {
			return nil, fmt.Errorf("confirmation of a batch is not what fila sends: duplicate %d of %d messages", i, n)
		}
		all[i].receipt.Duplicate = true
	}
	for i, refused := range reply.Errors() {
		if i >= 0 && i < n {
			all[i] = answer{err: refused}
		}
	}
	return all, nil
}
