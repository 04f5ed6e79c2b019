package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Client talks to one fila. It is safe for concurrent use.
type Client struct {
	nc       *nats.Conn
	owned    bool // Close closes nc
	subjects wire.Subjects
	timeout  time.Duration
	async    *publisher
	refusals *refusals    // of the connection
	tracer   trace.Tracer // nil: none
}

// Option changes how a Client works.
type Option func(*options)

type options struct {
	prefix     string
	timeout    time.Duration
	maxPending int
	maxBatch   int
	onAsync    func(*PublishFuture, error)
	tracer     trace.Tracer
}

// WithPrefix sets the subject prefix; the default is "fila".
func WithPrefix(prefix string) Option { return func(o *options) { o.prefix = prefix } }

// WithTimeout sets how long a request whose context has no deadline waits for
// its reply; the default is 5 seconds. 0 is no timeout.
func WithTimeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// WithMaxPending sets the window of [Client.PublishAsync]: how many messages
// may wait for their confirmation at once, at least 1; the default is 4000.
func WithMaxPending(n int) Option { return func(o *options) { o.maxPending = n } }

// WithMaxBatch sets how many messages [Client.PublishAsync] puts into one enqueue at most, 1 to
// 1000; the default is 64. 1 sends all messages one by one.
func WithMaxBatch(n int) Option { return func(o *options) { o.maxBatch = n } }

// WithPublishErrHandler sets a function that is called for every PublishAsync that finally
// failed. It must not block: confirmations wait for it.
func WithPublishErrHandler(fn func(*PublishFuture, error)) Option {
	return func(o *options) { o.onAsync = fn }
}

// Connect connects to NATS and returns a client, whose Close closes the connection as well. The
// connection reconnects for ever, unless an option limits that. Operators see the name that
// nats.Name gives it. [New] has the options of clients.
func Connect(url string, opts ...nats.Option) (*Client, error) {
	nc, err := nats.Connect(url, append([]nats.Option{nats.MaxReconnects(-1)}, opts...)...)
	if err != nil {
		return nil, err
	}
	c, err := New(nc)
	if err != nil {
		nc.Close()
		return nil, err
	}
	c.owned = true
	return c, nil
}

// New returns a client on a connection, which the caller closes. It wraps the connection's
// error handler, to which NATS reports missing permissions: after another handler is set,
// they are an [ErrNoReply] instead of a [PermissionError]. The error is about an option.
func New(nc *nats.Conn, opts ...Option) (*Client, error) {
	o := options{prefix: DefaultPrefix, timeout: 5 * time.Second, maxPending: 4000, maxBatch: 64}
	for _, opt := range opts {
		opt(&o)
	}
	subjects, err := wire.NewSubjects(o.prefix)
	if err != nil {
		return nil, err
	}
	if o.maxPending < 1 {
		return nil, fmt.Errorf("max pending is %d: allowed is at least 1", o.maxPending)
	}
	if o.maxBatch < 1 || o.maxBatch > wire.MaxBatchMessages {
		return nil, fmt.Errorf("max batch is %d: allowed is 1 to %d", o.maxBatch, wire.MaxBatchMessages)
	}
	c := &Client{nc: nc, subjects: subjects, timeout: max(o.timeout, 0), refusals: refusalsOf(nc), tracer: o.tracer}
	c.async = newPublisher(c, &o)
	return c, nil
}

// Conn returns the NATS connection.
func (c *Client) Conn() *nats.Conn { return c.nc }

// Prefix returns the subject prefix.
func (c *Client) Prefix() string { return c.subjects.Prefix() }

// Close ends PublishAsync: unconfirmed messages fail with [ErrClosed], as do later calls.
// Wait for [Client.PublishAsyncComplete] before. It closes the connection if [Connect] made it.
// Otherwise all other methods still work, and Close is needed only if the connection outlives
// the client.
func (c *Client) Close() {
	c.async.close()
	if c.owned {
		c.nc.Close()
	}
}

// withTimeout gives a context a deadline if it has none.
func (c *Client) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok || c.timeout == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.timeout)
}

// limited bounds a context by the client's timeout, if there is one, and more.
func (c *Client) limited(ctx context.Context, more time.Duration) (context.Context, context.CancelFunc) {
	if c.timeout == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.timeout+more)
}

// request sends a message and returns the reply, or the refusal in it as an
// error.
func (c *Client) request(ctx context.Context, msg *nats.Msg) (*nats.Msg, error) {
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	if err := c.openInbox(ctx); err != nil {
		return nil, err
	}
	ctx, stop := c.refusals.listenPublish(ctx, msg.Subject)
	defer stop()
	reply, err := c.nc.RequestMsgWithContext(ctx, msg)
	if err != nil {
		return nil, becauseOf(ctx, sendError(msg.Subject, err))
	}
	if refused := wire.ParseError(reply.Header, reply.Data); refused != nil {
		return nil, refused
	}
	return reply, nil
}

type senderKey struct{}

// As returns a context whose admin requests are made in the name of an owner, with a reason and with
// or without force. Without a client they have the name of the connection.
func As(ctx context.Context, s api.Sender) context.Context {
	return context.WithValue(ctx, senderKey{}, s)
}

// sendError maps an error of the NATS library about a request to an error of this package,
// which wraps it.
func sendError(subject string, err error) error {
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w %s: %w", ErrNoFila, subject, err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout), brokeOff(err):
		return fmt.Errorf("%w (%s): %w", ErrNoReply, subject, err)
	case errors.Is(err, nats.ErrMaxPayload):
		return badRequest(wire.CodeMessageTooLarge, err)
	}
	return err
}

// brokeOff reports whether the connection was lost during a request, so that the server may
// or may not have got it. The NATS library returns errors of writes unchanged.
func brokeOff(err error) bool {
	_, failed := errors.AsType[net.Error](err)
	return failed || errors.Is(err, nats.ErrDisconnected) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, io.EOF)
}

// call makes a request whose body and reply are JSON. A nil body is empty, and a
// nil into discards the reply.
func (c *Client) call(ctx context.Context, subject string, body, into any) error {
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	msg := nats.NewMsg(subject)
	if deadline, ok := ctx.Deadline(); ok {
		msg.Header.Set(wire.HeaderTimeoutMs, strconv.FormatInt(min(max(time.Until(deadline).Milliseconds(), 1), wire.MaxSettingMs), 10))
	}
	sender, _ := ctx.Value(senderKey{}).(api.Sender)
	sender.Client = cmp.Or(sender.Client, c.nc.Opts.Name)
	for name, values := range sender.Headers() {
		msg.Header[name] = values
	}
	if c.tracer != nil {
		injectTrace(ctx, msg.Header)
	}
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		msg.Data = data
	}
	reply, err := c.request(ctx, msg)
	if err != nil {
		return err
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(reply.Data, into); err != nil {
		return fmt.Errorf("reply on %s is not what fila sends: %w", subject, err)
	}
	return nil
}

// refusalIn returns the refusal in the chain of err, or one without a code.
func refusalIn(err error) Error {
	if refused, ok := errors.AsType[*Error](err); ok {
		return *refused
	}
	return Error{}
}

// badRequest returns the refusal that fila would send for err; nil if err is nil.
func badRequest(errCode int, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Code: errCode % 1000, ErrCode: errCode, Description: err.Error()}
}

// inRange refuses a value that fila would refuse.
func inRange(name string, value, lo, hi int64, unit string) error {
	if value >= lo && value <= hi {
		return nil
	}
	return badRequest(wire.CodeBadField,
		fmt.Errorf("%s is %d: allowed are %d to %d%s", name, value, lo, hi, unit))
}

func checkQueue(name string) error {
	return badRequest(wire.CodeBadQueueName, wire.CheckQueueName(name))
}
