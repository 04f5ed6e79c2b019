package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/wire"
)

// PublishOption adds a header to a message or changes how it is published. The last of
// several equal options counts, except that each [Header] adds a header.
type PublishOption func(*publishOptions)

type publishOptions struct {
	header   nats.Header
	retryFor time.Duration
	noWait   bool
}

// Header adds a header, which consumers get. Names that start with Fila- or Nats- are
// reserved; fila refuses the ones it does not know.
func Header(name, value string) PublishOption {
	return func(o *publishOptions) { o.header.Add(name, value) }
}

// DedupeID sets the id by which fila recognises duplicates within the queue's window. It
// confirms a duplicate with the id of the first message and does not store it.
func DedupeID(id string) PublishOption {
	return func(o *publishOptions) { o.header.Set(wire.HeaderMsgID, id) }
}

// Delay makes the message ready d after the enqueue.
func Delay(d time.Duration) PublishOption {
	return func(o *publishOptions) { o.header.Set(wire.HeaderDelay, d.String()) }
}

// NotBefore makes the message ready at t.
func NotBefore(t time.Time) PublishOption {
	return func(o *publishOptions) { o.header.Set(wire.HeaderNotBefore, t.Format(time.RFC3339Nano)) }
}

// TTL dead-letters the message, with reason "expired", if it has not been
// delivered within d; at least one second.
func TTL(d time.Duration) PublishOption {
	return func(o *publishOptions) { o.header.Set(wire.HeaderTTL, d.String()) }
}

// RetryFor retries a refused message until fila takes it, or until d after the first try; then
// the last error is returned. It waits for the Retry-After of a refusal with 429 or 503, and
// with a growing backoff if nobody listens. With a [DedupeID] it also retries if the outcome is
// unknown: no reply within the client's timeout, a broken connection, or a refusal with 500.
// Later messages overtake a retried one. In a strictly ordered queue fila refuses the later
// messages of the key in the same batch as well, and they are retried with it, in their order.
func RetryFor(d time.Duration) PublishOption {
	return func(o *publishOptions) { o.retryFor = d }
}

// NoWait makes PublishAsync return [ErrWindowFull] instead of waiting for room in the window.
// Publish ignores it.
func NoWait() PublishOption { return func(o *publishOptions) { o.noWait = true } }

// Publish sends a message to a queue and waits for the confirmation: when it
// returns without error, the message survives a crash of fila. After
// [ErrNoReply] the outcome is unknown: publish again with the same
// [DedupeID], or use [RetryFor].
func (c *Client) Publish(ctx context.Context, queue string, payload []byte, opts ...PublishOption) (receipt Receipt, err error) {
	msg, o, err := c.enqueueMsg(queue, payload, opts)
	if err != nil {
		return Receipt{}, err
	}
	span := c.publishing(ctx, queue, msg)
	defer func() { published(span, receipt, err) }()
	err = c.publishRetrying(ctx, msg, o.retryFor, hasDedupeID(msg), func(data []byte) (err error) {
		receipt, err = parseReceipt(data)
		return err
	})
	return receipt, err
}

// publishRetrying sends an enqueue and passes the reply to parse. After a failure, which parse
// may return, it tries again for so long; safe means that all messages have a deduplication id.
// A try waits only for the client's timeout, so that a lost reply leaves time for a retry.
func (c *Client) publishRetrying(ctx context.Context, msg *nats.Msg, retryFor time.Duration, safe bool, parse func(data []byte) error) error {
	if retryFor <= 0 {
		return c.publishTry(ctx, msg, parse)
	}
	until := time.Now().Add(retryFor)
	for try := 1; ; try++ {
		limited, cancel := c.limited(ctx, 0)
		err := c.publishTry(limited, msg, parse)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
		pause, again := retryAfter(err, try, safe, rand.Float64())
		if !again || time.Now().Add(pause).After(until) || !wait(ctx, time.After(pause)) {
			return err
		}
	}
}

func (c *Client) publishTry(ctx context.Context, msg *nats.Msg, parse func(data []byte) error) error {
	reply, err := c.request(ctx, msg)
	if err != nil {
		return err
	}
	return parse(reply.Data)
}

// PublishJSON publishes a value as JSON, as [JSONHandler] reads it.
func (c *Client) PublishJSON(ctx context.Context, queue string, payload any, opts ...PublishOption) (Receipt, error) {
	data, err := json.Marshal(payload)
	if err != nil {
		return Receipt{}, err
	}
	return c.Publish(ctx, queue, data, opts...)
}

func hasDedupeID(msg *nats.Msg) bool { return msg.Header.Get(wire.HeaderMsgID) != "" }

func parseReceipt(data []byte) (Receipt, error) {
	var reply wire.EnqueueReply
	if err := json.Unmarshal(data, &reply); err != nil {
		return Receipt{}, fmt.Errorf("confirmation is not what fila sends: %w", err)
	}
	return Receipt(reply), nil
}

// Send publishes a message without a confirmation. The message may be lost or refused
// unnoticed; fila counts refusals and publishes an event. Flush the connection before
// closing it. With a tracer, the span of the message begins a trace.
func (c *Client) Send(queue string, payload []byte, opts ...PublishOption) error {
	msg, _, err := c.enqueueMsg(queue, payload, opts)
	if err != nil {
		return err
	}
	span := c.publishing(context.Background(), queue, msg)
	err = sendError(msg.Subject, c.nc.PublishMsg(msg))
	published(span, Receipt{}, err)
	return err
}

func (c *Client) enqueueMsg(queue string, payload []byte, opts []PublishOption) (*nats.Msg, publishOptions, error) {
	o := publishOptions{header: nats.Header{}}
	if err := checkQueue(queue); err != nil {
		return nil, o, err
	}
	for _, opt := range opts {
		opt(&o)
	}
	return &nats.Msg{Subject: c.subjects.Enqueue(queue), Header: o.header, Data: payload}, o, nil
}

const (
	retryFirst = 50 * time.Millisecond // the wait after the first failure without Retry-After
	retryMost  = 2 * time.Second       // the longest such wait
)

// retryAfter returns how long to wait after the failed try number try, and whether a retry
// makes sense. safe means that the message has a deduplication id. spread, from 0 to 1, spreads the
// retries of clients that failed at the same time.
func retryAfter(err error, try int, safe bool, spread float64) (time.Duration, bool) {
	refused := refusalIn(err)
	again := refused.Code == 429 || refused.Code == 503 || refused.Code == 500 && safe ||
		refused.ErrCode == wire.CodePredecessorRefused || // with its predecessor, or after that has failed
		errors.Is(err, ErrNoFila) || errors.Is(err, nats.ErrReconnectBufExceeded) || safe && errors.Is(err, ErrNoReply)
	if refused.RetryAfter > 0 {
		return refused.RetryAfter + time.Duration(spread*float64(refused.RetryAfter/4)), again
	}
	d := min(retryFirst<<min(try-1, 10), retryMost)
	return d/2 + time.Duration(spread*float64(d/2)), again
}
