package client

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/wire"
)

// FetchOption changes a [Client.Fetch].
type FetchOption func(*fetchOptions)

type fetchOptions struct {
	name    string
	named   bool
	headers string // of FetchRequest
}

func (o *fetchOptions) check() error {
	if !o.named {
		return nil
	}
	return wire.CheckConsumerName(o.name)
}

// FetchAs fetches on the subject of a consumer, for connections that may publish only on
// that subject. fila then sends messages only to inboxes of that consumer: the connection
// needs nats.CustomInboxPrefix("_INBOX." + name).
func FetchAs(name string) FetchOption {
	return func(o *fetchOptions) { o.name, o.named = name, true }
}

// FetchMinHeaders is [MinHeaders] for a fetch.
func FetchMinHeaders() FetchOption {
	return func(o *fetchOptions) { o.headers = wire.HeadersMin }
}

// Fetch requests up to batch messages (1 to 65536) and waits for them up to expires (at most
// an hour; 0: not at all). It returns as soon as the batch is full or fila ends the fetch,
// possibly without messages. With an error it also returns the messages that came before,
// because they are leased to the caller. Only [Message.Extend] extends their leases.
func (c *Client) Fetch(ctx context.Context, queue string, batch int, expires time.Duration, opts ...FetchOption) ([]*Message, error) {
	var o fetchOptions
	for _, opt := range opts {
		opt(&o)
	}
	if err := cmp.Or(
		checkQueue(queue),
		o.check(),
		inRange("batch", int64(batch), 1, wire.MaxBatch, ""),
		inRange("expires", expires.Milliseconds(), 0, wire.MaxExpiresMs, " ms"),
	); err != nil {
		return nil, err
	}
	subject, body, err := c.fetchRequest(queue, o, wire.FetchRequest{Batch: batch, ExpiresMs: expires.Milliseconds(), Headers: o.headers})
	if err != nil {
		return nil, err
	}
	if err := c.openInbox(ctx); err != nil {
		return nil, err
	}
	inbox := c.nc.NewInbox()
	sub, err := c.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unsubscribe(sub) }() // an error means that it is gone already
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return nil, err
	}
	ctx, stop := c.refusals.listenPublish(ctx, subject)
	defer stop()
	if err := c.nc.PublishRequest(subject, inbox, body); err != nil {
		return nil, sendError(subject, err)
	}
	ctx, cancel := c.limited(ctx, expires) // fila ends the fetch, unless it is gone
	defer cancel()
	var messages []*Message
	for len(messages) < batch {
		msg, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return c.rest(sub, queue, messages), becauseOf(ctx, sendError(subject, err))
		}
		m, err := c.fetched(subject, queue, msg)
		if m == nil {
			return messages, err
		}
		messages = append(messages, m)
	}
	return messages, nil
}

// fetchRequest returns the request for a fetch and its subject.
func (c *Client) fetchRequest(queue string, o fetchOptions, r wire.FetchRequest) (subject string, body []byte, err error) {
	if body, err = json.Marshal(r); err != nil || !o.named {
		return c.subjects.Fetch(queue), body, err
	}
	body, err = json.Marshal(wire.ConsumerRequest{Fetch: body})
	return c.subjects.Consumer(o.name, queue), body, err
}

// fetched returns the message, or nil at the end of the fetch, with an error if it failed.
func (c *Client) fetched(subject, queue string, msg *nats.Msg) (*Message, error) {
	if refused := wire.ParseError(msg.Header, msg.Data); refused != nil {
		return nil, refused
	}
	switch status := msg.Header.Get(wire.HeaderStatus); status {
	case "":
		return c.newMessage(msg, queue), nil
	case wire.StatusNotFound, wire.StatusExpired:
		return nil, nil
	case wire.StatusNoResponders:
		return nil, sendError(subject, nats.ErrNoResponders)
	default:
		return nil, fmt.Errorf("%s ended with status %s", subject, status)
	}
}

// rest appends the messages that have arrived: they are leased to this fetch already.
func (c *Client) rest(sub *nats.Subscription, queue string, messages []*Message) []*Message {
	for {
		msg, err := sub.NextMsg(time.Microsecond)
		if err != nil {
			return messages
		}
		if m, _ := c.fetched(sub.Subject, queue, msg); m != nil { // the end needs no telling
			messages = append(messages, m)
		}
	}
}
