package client

import (
	"context"
	"fmt"
	"maps"
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
		f.retry, f.until = true, time.Now().Add(o.retryFor)
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
	if len(p.mu.pending) == 0 {
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
// message, and one timer for their timeouts.
type publisher struct {
	c      *Client
	window chan struct{} // one entry per pending message
	onErr  func(*PublishFuture, error)

	mu struct {
		sync.Mutex
		sub      *nats.Subscription
		inbox    string // with the dot at its end
		unlisten func() // to refusals; set with sub
		closed   bool
		lastID   uint64
		pending  map[uint64]*PublishFuture
		complete chan struct{} // closed when nothing is pending; nil: not requested
		// sent is ordered by deadline, because all messages have the same timeout. It may
		// have entries of finished or resent messages.
		sent  []sending
		timer *time.Timer // armed while sent is not empty
	}
}

// sending is a try that waits for its reply, as long as the message is pending with the same
// attempt.
type sending struct {
	id       uint64
	attempt  int
	deadline time.Time
}

func newPublisher(c *Client, window int, onErr func(*PublishFuture, error)) *publisher {
	p := &publisher{c: c, window: make(chan struct{}, window), onErr: onErr}
	p.mu.pending = map[uint64]*PublishFuture{}
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

// begin sends a message for the first time.
func (p *publisher) begin(f *PublishFuture) error {
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
	p.mu.lastID++
	f.id = p.mu.lastID
	f.msg.Reply = p.mu.inbox + strconv.FormatUint(f.id, 36)
	if err := p.send(f); err != nil {
		f.tries++
		if err = sendError(f.msg.Subject, err); !p.scheduleRetry(f, err, f.tries) {
			return err
		}
	}
	p.mu.pending[f.id] = f
	return nil
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

// send sends a message. The caller holds mu, so that sent stays in order.
func (p *publisher) send(f *PublishFuture) error {
	if err := p.c.nc.PublishMsg(f.msg); err != nil {
		return err
	}
	f.tries++
	f.attempt++
	if p.c.timeout == 0 {
		return nil
	}
	p.mu.sent = append(p.mu.sent, sending{f.id, f.attempt, time.Now().Add(p.c.timeout)})
	if len(p.mu.sent) == 1 {
		p.arm()
	}
	return nil
}

// arm sets the timer to the first deadline. The caller holds mu.
func (p *publisher) arm() {
	wait := time.Until(p.mu.sent[0].deadline)
	if p.mu.timer == nil {
		p.mu.timer = time.AfterFunc(wait, p.expire)
	} else {
		p.mu.timer.Reset(wait)
	}
}

// trim removes finished entries from the front of sent. The caller holds mu.
func (p *publisher) trim() {
	for len(p.mu.sent) > 0 {
		first := p.mu.sent[0]
		if f := p.mu.pending[first.id]; f != nil && f.attempt == first.attempt {
			return
		}
		p.mu.sent = p.mu.sent[1:]
	}
}

// expire fails the messages whose deadline has passed.
func (p *publisher) expire() {
	p.mu.Lock()
	var late []*PublishFuture
	now := time.Now()
	for p.trim(); len(p.mu.sent) > 0 && !now.Before(p.mu.sent[0].deadline); p.trim() {
		f := p.mu.pending[p.mu.sent[0].id]
		f.attempt++ // it does not expire again, but a late reply still counts
		late = append(late, f)
	}
	if len(p.mu.sent) > 0 {
		p.arm()
	}
	p.mu.Unlock()
	for _, f := range late {
		p.fail(f, fmt.Errorf("%w (%s)", ErrNoReply, f.msg.Subject))
	}
}

// reply runs on the subscription's goroutine.
func (p *publisher) reply(msg *nats.Msg) {
	id, err := strconv.ParseUint(msg.Subject[strings.LastIndexByte(msg.Subject, '.')+1:], 36, 64)
	if err != nil {
		return
	}
	p.mu.Lock()
	f := p.mu.pending[id]
	p.mu.Unlock()
	if f == nil {
		return // too late
	}
	if refused := wire.ParseError(msg.Header, msg.Data); refused != nil {
		p.fail(f, refused)
		return
	}
	if msg.Header.Get(wire.HeaderStatus) == wire.StatusNoResponders {
		p.fail(f, sendError(f.msg.Subject, nats.ErrNoResponders))
		return
	}
	receipt, err := parseReceipt(msg.Data)
	p.resolve(f, receipt, err)
}

// denied fails the messages that NATS permissions do not allow.
func (p *publisher) denied(err *PermissionError) {
	if err.Subscribe {
		return
	}
	p.mu.Lock()
	var failed []*PublishFuture
	for _, f := range p.mu.pending {
		if f.msg.Subject == err.Subject {
			failed = append(failed, f)
		}
	}
	p.mu.Unlock()
	for _, f := range failed {
		p.resolve(f, Receipt{}, err)
	}
}

// fail schedules a retry or ends the message.
func (p *publisher) fail(f *PublishFuture, err error) {
	p.mu.Lock()
	f.attempt++
	tries := f.tries
	p.mu.Unlock()
	if !p.scheduleRetry(f, err, tries) {
		p.resolve(f, Receipt{}, err)
	}
}

// scheduleRetry sends a message again later, after tries of which the last failed with err,
// if that makes sense and there is time left.
func (p *publisher) scheduleRetry(f *PublishFuture, err error, tries int) bool {
	if !f.retry {
		return false
	}
	wait, again := retryAfter(err, tries, f.msg.Header.Get(wire.HeaderMsgID) != "")
	if !again || time.Now().Add(wait).After(f.until) {
		return false
	}
	time.AfterFunc(wait, func() { p.retry(f) })
	return true
}

func (p *publisher) retry(f *PublishFuture) {
	p.mu.Lock()
	var err error
	if p.mu.pending[f.id] == f {
		if err = p.send(f); err != nil {
			f.tries++
		}
	}
	p.mu.Unlock()
	if err != nil {
		p.fail(f, sendError(f.msg.Subject, err))
	}
}

// resolve ends a message; only the first call has an effect.
func (p *publisher) resolve(f *PublishFuture, receipt Receipt, err error) {
	p.mu.Lock()
	if p.mu.pending[f.id] != f {
		p.mu.Unlock()
		return
	}
	delete(p.mu.pending, f.id)
	f.attempt++
	p.trim()
	f.receipt, f.err = receipt, err
	close(f.done)
	f.sendResult(f.ok, f.failed)
	<-p.window
	var complete chan struct{}
	if len(p.mu.pending) == 0 {
		complete, p.mu.complete = p.mu.complete, nil
	}
	p.mu.Unlock()
	published(f.span, receipt, err)
	if err != nil && p.onErr != nil {
		p.onErr(f, err)
	}
	if complete != nil {
		close(complete)
	}
}

func (p *publisher) close() {
	p.mu.Lock()
	p.mu.closed = true
	sub := p.mu.sub
	p.mu.sub = nil
	if p.mu.timer != nil {
		p.mu.timer.Stop()
	}
	left := slices.Collect(maps.Values(p.mu.pending))
	p.mu.Unlock()
	for _, f := range left {
		p.resolve(f, Receipt{}, ErrClosed)
	}
	if sub != nil {
		p.mu.unlisten()
		_ = unsubscribe(sub) // what fails to end has ended
	}
}
