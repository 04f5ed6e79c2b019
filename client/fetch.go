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

// Fetch asks for up to batch messages (1 to 65536) and waits at most expires
// (up to an hour) for them; with 0 it takes what is there now. It returns what
// came, possibly nothing, as soon as the batch is full or fila says that there
// is no more. With an error, the context's among them, messages that had come
// are returned as well: they are leased to the caller. Nobody extends the leases
// of fetched messages but [Message.Extend].
func (c *Client) Fetch(ctx context.Context, queue string, batch int, expires time.Duration) ([]*Message, error) {
	if err := cmp.Or(
		checkQueue(queue),
		inRange("batch", int64(batch), 1, wire.MaxBatch, ""),
		inRange("expires", expires.Milliseconds(), 0, wire.MaxExpiresMs, " ms"),
	); err != nil {
		return nil, err
	}
	body, err := json.Marshal(wire.FetchRequest{Batch: batch, ExpiresMs: expires.Milliseconds()})
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
	defer func() { _ = unsubscribe(sub) }() // only fails when it is gone already
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return nil, err
	}
	ctx, stop := c.refusals.listenPublish(ctx, c.subjects.Fetch(queue))
	defer stop()
	if err := c.nc.PublishRequest(c.subjects.Fetch(queue), inbox, body); err != nil {
		return nil, sendError(c.subjects.Fetch(queue), err)
	}
	if c.timeout > 0 { // fila ends the fetch by itself; this is for one that went away
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, expires+c.timeout)
		defer cancel()
	}
	var messages []*Message
	for len(messages) < batch {
		msg, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return c.rest(sub, messages), becauseOf(ctx, sendError(c.subjects.Fetch(queue), err))
		}
		m, err := c.fetched(queue, msg)
		if m == nil {
			return messages, err
		}
		messages = append(messages, m)
	}
	return messages, nil
}

// fetched returns the message, or nil at the end of the fetch and, if it was not
// a good one, an error.
func (c *Client) fetched(queue string, msg *nats.Msg) (*Message, error) {
	if refused := wire.ParseError(msg.Header, msg.Data); refused != nil {
		return nil, refused
	}
	switch status := msg.Header.Get(wire.HeaderStatus); status {
	case "":
		return c.newMessage(msg), nil
	case wire.StatusNotFound, wire.StatusExpired:
		return nil, nil
	case wire.StatusNoResponders:
		return nil, sendError(c.subjects.Fetch(queue), nats.ErrNoResponders)
	default:
		return nil, fmt.Errorf("fetch from %s ended with status %s", queue, status)
	}
}

// rest takes what has come in meanwhile: it is leased to this fetch already.
func (c *Client) rest(sub *nats.Subscription, messages []*Message) []*Message {
	for {
		msg, err := sub.NextMsg(time.Microsecond)
		if err != nil {
			return messages
		}
		if m, _ := c.fetched(sub.Subject, msg); m != nil { // the end needs no telling
			messages = append(messages, m)
		}
	}
}
