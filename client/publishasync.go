package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/wire"
)

// PublishAsync sends a message to a queue and returns a future of its confirmation. Up to
// [WithMaxPending] messages may be unconfirmed, and fila writes them to disk together. If the
// window is full, it waits until ctx ends, or not at all with [NoWait], and fails with
// [ErrWindowFull]. The context has no effect on a message that was sent.
//
// While several messages to a queue are unconfirmed, later ones wait up to 2 ms for each other
// and are sent in batches of up to [WithMaxBatch]. Behind the first batch they wait for its reply,
// which shows whether fila knows batches. fila accepts or refuses each message by itself.
//
// A message without a reply within the client's timeout fails with
// [ErrNoReply]. The payload must not be changed before the future is done.
func (c *Client) PublishAsync(ctx context.Context, queue string, payload []byte, opts ...PublishOption) (*PublishFuture, error) {
	msg, o, err := c.enqueueMsg(queue, payload, opts)
	if err != nil {
		return nil, err
	}
	if err := c.openInbox(ctx); err != nil {
		return nil, err
	}
	p := c.async
	if err := p.acquire(ctx, o.noWait); err != nil {
		return nil, err
	}
	f := &PublishFuture{p: p, queue: queue, msg: msg, done: make(chan struct{}), span: c.publishing(ctx, queue, msg)}
	if o.retryFor > 0 {
		f.until = time.Now().Add(o.retryFor)
	}
	if err := p.begin(f); err != nil {
		<-p.window
		published(f.span, Receipt{}, err)
		return nil, err
	}
	return f, nil
}

// PublishAsyncPending returns how many messages wait for their confirmation.
func (c *Client) PublishAsyncPending() int { return len(c.async.window) }

// PublishAsyncComplete returns a channel that is closed as soon as no message waits for its
// confirmation.
func (c *Client) PublishAsyncComplete() <-chan struct{} {
	p := c.async
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.open == 0 {
		ch := make(chan struct{})
		close(ch)
		return ch
	}
	if p.mu.complete == nil {
		p.mu.complete = make(chan struct{})
	}
	return p.mu.complete
}

// publisher is the state of PublishAsync: a subscription for the replies, since the first
// message, an outbox for each queue, and one timer for the timeouts of requests.
type publisher struct {
	c           *Client
	maxBatch    int           // messages
	longestWait time.Duration // batchWait, except in tests
	window      chan struct{} // one entry per pending message
	onErr       func(*PublishFuture, error)

	mu struct {
		sync.Mutex
		sub      *nats.Subscription
		inbox    string // with the dot at its end
		unlisten func() // to refusals; set with sub
		closed   bool
		outboxes map[string]*outbox // by queue
		batches  batchSupport
		frames   []byte // of the latest batch; reused, because the connection copies it

		lastID uint64
		// requests has the requests with messages that have no result and were not sent again.
		requests map[uint64]*request
		// sent is ordered by deadline, because all requests have the same timeout. It may
		// have requests that are not awaited any more.
		sent  []*request
		timer *time.Timer // set while sent is not empty, and perhaps once more

		open     int           // messages without a result
		complete chan struct{} // closed when open is 0; nil: not requested
	}
}

// request is an enqueue of one message or of a batch. Its reply counts for the messages that
// were not sent again.
type request struct {
	id       uint64 // in the reply subject
	box      *outbox
	futures  []*PublishFuture // in the order of the batch; constant
	open     int              // futures whose request it is
	awaited  bool             // there was neither a reply nor a timeout
	deadline time.Time
}

// remaining returns the given messages of a request that have no result and were not sent again.
func (r *request) remaining(of []*PublishFuture) []*PublishFuture {
	return slices.DeleteFunc(slices.Clone(of), func(f *PublishFuture) bool { return f.request != r })
}

func newPublisher(c *Client, o *options) *publisher {
	p := &publisher{c: c, maxBatch: o.maxBatch, longestWait: batchWait, window: make(chan struct{}, o.maxPending), onErr: o.onAsync}
	p.mu.requests, p.mu.timer = map[uint64]*request{}, stoppedTimer(p.expire)
	p.mu.outboxes = map[string]*outbox{}
	return p
}

// acquire takes a slot of the window.
func (p *publisher) acquire(ctx context.Context, noWait bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case p.window <- struct{}{}:
		return nil
	default:
	}
	if noWait {
		return ErrWindowFull
	}
	select {
	case p.window <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrWindowFull, ctx.Err())
	}
}

// begin sends a message for the first time, or adds it to the outbox of its queue.
func (p *publisher) begin(f *PublishFuture) error {
	var ended results
	defer p.report(&ended)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		return ErrClosed
	}
	if p.mu.sub == nil {
		if err := p.subscribe(); err != nil {
			return err
		}
	}
	p.mu.open++
	err := p.post(f, &ended)
	if err != nil {
		p.leaveRequest(f)
		p.mu.open--
	}
	return err
}

// subscribe subscribes to the replies. The caller holds mu.
func (p *publisher) subscribe() error {
	inbox := p.c.nc.NewInbox() + "."
	sub, err := p.c.nc.Subscribe(inbox+"*", p.reply)
	if err != nil {
		return err
	}
	p.mu.sub, p.mu.inbox = sub, inbox
	p.mu.unlisten = p.c.refusals.listen(p.denied)
	return sub.SetPendingLimits(-1, -1) // the window bounds them
}

// send sends messages in one request. If that fails, the request is not awaited, but its
// messages belong to it. The caller holds mu, so that sent stays in order.
func (p *publisher) send(b *outbox, futures []*PublishFuture) (*request, error) {
	p.mu.lastID++
	r := &request{id: p.mu.lastID, box: b, futures: futures, open: len(futures)}
	p.mu.requests[r.id] = r
	for _, f := range futures {
		p.leaveRequest(f)
		f.request = r
		f.tries++
	}
	msg := futures[0].msg
	if len(futures) > 1 {
		msg = p.batchMsg(futures)
	}
	msg.Reply = p.mu.inbox + strconv.FormatUint(r.id, 36)
	if err := p.c.nc.PublishMsg(msg); err != nil {
		return r, sendError(msg.Subject, err)
	}
	r.awaited = true
	b.unanswered++
	if len(futures) > 1 && p.mu.batches == batchesUntried {
		b.first = r
	}
	if p.c.timeout > 0 {
		r.deadline = time.Now().Add(p.c.timeout)
		p.mu.sent = append(p.mu.sent, r)
		if len(p.mu.sent) == 1 {
			p.mu.timer.Reset(p.c.timeout)
		}
	}
	return r, nil
}

// leaveRequest takes a message from its request. The caller holds mu.
func (p *publisher) leaveRequest(f *PublishFuture) {
	r := f.request
	if r == nil {
		return
	}
	f.request = nil
	if r.open--; r.open == 0 {
		p.unawait(r)
		delete(p.mu.requests, r.id)
	}
}

// unawait notes that a request needs no reply any more. The caller holds mu.
func (p *publisher) unawait(r *request) {
	if !r.awaited {
		return
	}
	b := r.box
	r.awaited = false
	b.unanswered--
	if b.first == r {
		b.first = nil
		b.startTimer(p) // from now on messages do not wait for this reply
	}
	for len(p.mu.sent) > 0 && !p.mu.sent[0].awaited {
		p.mu.sent[0] = nil
		p.mu.sent = p.mu.sent[1:]
	}
}

// expire fails the messages of requests whose deadline has passed. A late confirmation still
// counts.
func (p *publisher) expire() {
	var ended results
	defer p.report(&ended)
	p.mu.Lock()
	defer p.mu.Unlock()
	for now := time.Now(); len(p.mu.sent) > 0 && !now.Before(p.mu.sent[0].deadline); {
		r := p.mu.sent[0]
		p.unawait(r)
		p.fail(r, failed(r, fmt.Errorf("%w (%s)", ErrNoReply, r.box.subject)), &ended)
		p.sendWaiting(r.box, false, &ended)
	}
	if len(p.mu.sent) > 0 {
		p.mu.timer.Reset(time.Until(p.mu.sent[0].deadline))
	}
}

// reply runs on the subscription's goroutine.
func (p *publisher) reply(msg *nats.Msg) {
	id, err := strconv.ParseUint(msg.Subject[strings.LastIndexByte(msg.Subject, '.')+1:], 36, 64)
	if err != nil {
		return
	}
	p.mu.Lock()
	r := p.mu.requests[id]
	p.mu.Unlock()
	if r == nil {
		return // too late
	}
	answers, err := parseAnswers(msg, r.box.subject, len(r.futures))
	var ended results
	defer p.report(&ended)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer(r, answers, err, &ended)
	p.sendWaiting(r.box, false, &ended)
}

// answer ends the messages of a request that has a reply, or sends them again later. whole is
// about all of them. A late reply counts only for confirmed messages, because the others have
// failed already. The caller holds mu.
func (p *publisher) answer(r *request, answers []answer, whole error, ended *results) {
	late := !r.awaited
	p.unawait(r)
	switch batch := len(r.futures) > 1; {
	case whole == nil && batch:
		p.mu.batches = batchesKnown
	case whole != nil && !late && batch && refusalIn(whole).ErrCode == wire.CodeHeaderReserved:
		// From now on one by one, beginning with those that are still of this request.
		p.mu.batches = batchesRefused
		p.sendOrFail(r.box, r.remaining(r.futures), ended)
		return
	case whole != nil:
		answers = failed(r, whole)
	}
	taken, tooMany := true, false
	for i, f := range r.futures {
		switch err := answers[i].err; {
		case err != nil:
			taken, tooMany = false, tooMany || refusalIn(err).Code == 429
		case f.request == r:
			p.resolve(f, answers[i].receipt, nil, ended)
		}
	}
	if late {
		return
	}
	switch b := r.box; {
	case tooMany:
		b.size = max(b.size/2, 1)
	case taken && len(r.futures) >= b.size:
		b.size = min(b.size+1, p.maxBatch)
	}
	p.fail(r, answers, ended)
}

// denied fails the messages that NATS permissions do not allow.
func (p *publisher) denied(err *PermissionError) {
	if err.Subscribe {
		return
	}
	p.end(err, func(f *PublishFuture) bool { return f.msg.Subject == err.Subject })
}

// end ends the messages for which which returns true.
func (p *publisher) end(err error, which func(*PublishFuture) bool) {
	var ended results
	defer p.report(&ended)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.mu.requests {
		for _, f := range r.futures {
			if f.request == r && which(f) {
				p.resolve(f, Receipt{}, err, &ended)
			}
		}
	}
	for _, b := range p.mu.outboxes {
		if len(b.waiting) > 0 && which(b.waiting[0]) { // all have one subject
			for _, f := range b.waiting {
				p.resolve(f, Receipt{}, err, &ended)
			}
			b.waiting, b.bytes = nil, 0
			b.timer.Stop()
		}
	}
}

// failed returns the answers to a request of which every message failed.
func failed(r *request, err error) []answer {
	return slices.Repeat([]answer{{err: err}}, len(r.futures))
}

// fail ends the messages of a request whose answer is an error, or sends them again later if that
// makes sense and there is time left. Messages with the same Retry-After are sent in one request,
// in their order: so a message of a strictly ordered queue goes with the one that it was refused
// for. The caller holds mu.
func (p *publisher) fail(r *request, answers []answer, ended *results) {
	type retry struct {
		after, wait time.Duration
		futures     []*PublishFuture
	}
	var retries []retry
	spread := rand.Float64() // for all, so that a longer Retry-After is a longer wait
	for i, f := range r.futures {
		err := answers[i].err
		if err == nil || f.request != r {
			continue
		}
		wait, again := f.nextTry(err, spread)
		after := refusalIn(err).RetryAfter
		at := slices.IndexFunc(retries, func(t retry) bool { return t.after == after })
		switch {
		case !again:
			p.resolve(f, Receipt{}, err, ended)
		case at >= 0:
			retries[at].futures = append(retries[at].futures, f)
		default:
			retries = append(retries, retry{after, wait, []*PublishFuture{f}})
		}
	}
	for _, t := range retries {
		time.AfterFunc(t.wait, func() { p.retry(r, t.futures) })
	}
}

// retry sends messages of a request again.
func (p *publisher) retry(r *request, futures []*PublishFuture) {
	var ended results
	defer p.report(&ended)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sendOrFail(r.box, r.remaining(futures), &ended)
}

// results are the messages that ended in one step, and what to do after unlocking.
type results struct {
	futures  []*PublishFuture // that have a span or a handler of errors
	complete chan struct{}    // to close; nil: none
}

// resolve ends a message. The caller holds mu, and the message has not ended.
func (p *publisher) resolve(f *PublishFuture, receipt Receipt, err error, ended *results) {
	p.leaveRequest(f)
	f.receipt, f.err = receipt, err
	close(f.done)
	f.sendResult()
	<-p.window
	if f.span != nil || err != nil && p.onErr != nil {
		ended.futures = append(ended.futures, f)
	}
	if p.mu.open--; p.mu.open == 0 {
		ended.complete, p.mu.complete = p.mu.complete, nil
	}
}

// report ends the spans of messages and reports errors.
func (p *publisher) report(ended *results) {
	for _, f := range ended.futures {
		published(f.span, f.receipt, f.err)
		if f.err != nil && p.onErr != nil {
			p.onErr(f, f.err)
		}
	}
	if ended.complete != nil {
		close(ended.complete)
	}
}

func (p *publisher) close() {
	p.mu.Lock()
	p.mu.closed = true
	sub := p.mu.sub
	p.mu.sub = nil
	p.mu.Unlock()
	p.end(ErrClosed, func(*PublishFuture) bool { return true })
	if sub != nil {
		p.mu.unlisten()
		_ = unsubscribe(sub) // what fails to end has ended
	}
}
