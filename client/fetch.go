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

// Fetch asks for up to batch messages (1 to 65536) and waits at most expires
// (up to an hour) for them; with 0 it takes what is there now. It returns what
// came, possibly nothing, as soon as the batch is full or fila says that there
// is no more. With an error, messages that had come are returned as well.
func (c *Client) Fetch(ctx context.Context, queue string, batch int, expires time.Duration) ([]*Message, error) {
	if err := checkQueue(queue); err != nil {
		return nil, err
	}
	body, err := json.Marshal(wire.FetchRequest{Batch: batch, ExpiresMs: expires.Milliseconds()})
	if err != nil {
		return nil, err
	}
	inbox := c.nc.NewInbox()
	sub, err := c.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }() // only fails when it is gone already
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return nil, err
	}
	if err := c.nc.PublishRequest(c.subjects.Fetch(queue), inbox, body); err != nil {
		return nil, err
	}
	// fila ends the fetch by itself; this is for a fila that went away.
	ctx, cancel := context.WithTimeout(ctx, expires+c.timeout)
	defer cancel()
	var messages []*Message
	for len(messages) < batch {
		msg, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return messages, c.fetchError(queue, err)
		}
		if refused := wire.ParseError(msg.Header, msg.Data); refused != nil {
			return messages, refused
		}
		switch msg.Header.Get(wire.HeaderStatus) {
		case "":
			messages = append(messages, c.newMessage(msg))
		case wire.StatusNotFound, wire.StatusExpired:
			return messages, nil
		case wire.StatusNoResponders:
			return messages, c.fetchError(queue, nats.ErrNoResponders)
		default:
			return messages, fmt.Errorf("fetch from %s ended with status %s", queue, msg.Header.Get(wire.HeaderStatus))
		}
	}
	return messages, nil
}

func (c *Client) fetchError(queue string, err error) error {
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w %s", ErrNoFila, c.subjects.Fetch(queue))
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w (%s)", ErrNoReply, c.subjects.Fetch(queue))
	}
	return err
}
