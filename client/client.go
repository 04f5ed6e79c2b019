package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/wire"
)

// ErrNoFila is returned when nobody listens on the subject of a request: no
// fila is connected to this NATS server under this prefix, or, for publishing,
// consuming and fetching, possibly no such queue.
var ErrNoFila = errors.New("no fila listens on the subject")

// ErrNoReply is returned when a request got no answer in time. Whether it had
// an effect is not known.
var ErrNoReply = errors.New("no reply in time; whether it was done is not known")

// Client talks to one fila. It is safe for concurrent use.
type Client struct {
	nc       *nats.Conn
	subjects wire.Subjects
	timeout  time.Duration
}

// Option changes how a Client works.
type Option func(*options)

type options struct {
	prefix  string
	timeout time.Duration
}

// WithPrefix sets the subject prefix; the default is "fila".
func WithPrefix(prefix string) Option { return func(o *options) { o.prefix = prefix } }

// WithTimeout sets how long a request whose context has no deadline waits for
// its reply; the default is 5 seconds.
func WithTimeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// New returns a client on a connection that stays the caller's to close. The
// error is about an impossible prefix.
func New(nc *nats.Conn, opts ...Option) (*Client, error) {
	o := options{prefix: DefaultPrefix, timeout: 5 * time.Second}
	for _, opt := range opts {
		opt(&o)
	}
	subjects, err := wire.NewSubjects(o.prefix)
	if err != nil {
		return nil, err
	}
	return &Client{nc: nc, subjects: subjects, timeout: o.timeout}, nil
}

// Conn returns the NATS connection.
func (c *Client) Conn() *nats.Conn { return c.nc }

// Prefix returns the subject prefix.
func (c *Client) Prefix() string { return c.subjects.Prefix() }

// withTimeout gives a context a deadline if it has none.
func (c *Client) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok || c.timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.timeout)
}

// request sends a message and returns the reply, or the refusal in it as an
// error.
func (c *Client) request(ctx context.Context, msg *nats.Msg) (*nats.Msg, error) {
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	reply, err := c.nc.RequestMsgWithContext(ctx, msg)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, fmt.Errorf("%w %s", ErrNoFila, msg.Subject)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return nil, fmt.Errorf("%w (%s)", ErrNoReply, msg.Subject)
	case err != nil:
		return nil, err
	}
	if refused := wire.ParseError(reply.Header, reply.Data); refused != nil {
		return nil, refused
	}
	return reply, nil
}

// call makes a request whose body and reply are JSON. A nil body is empty, a
// nil into discards the reply.
func (c *Client) call(ctx context.Context, subject string, body, into any) error {
	msg := nats.NewMsg(subject)
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

// badRequest is a refusal that need not travel: the subject could not even be
// built.
func badRequest(errCode int, err error) error {
	return &Error{Code: errCode % 1000, ErrCode: errCode, Description: err.Error()}
}

func checkQueue(name string) error {
	if err := wire.CheckQueueName(name); err != nil {
		return badRequest(wire.CodeBadQueueName, err)
	}
	return nil
}

func checkKey(key string) error {
	if err := wire.CheckConfigKey(key); err != nil {
		return badRequest(wire.CodeBadConfigKey, err)
	}
	return nil
}
