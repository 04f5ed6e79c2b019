package client

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/wire"
)

// FetchOption changes a [Client.Fetch].
type FetchOption func(*fetchOptions)

type fetchOptions struct {
	as      *string // the consumer; nil: none
	request wire.FetchRequest
}

func (o *fetchOptions) check() error {
	if o.as == nil {
		return nil
	}
	return wire.CheckConsumerName(*o.as)
}

// FetchAs fetches on the subject of a consumer, for connections that may publish only on
// that subject. fila then sends messages only to inboxes of that consumer: the connection
// needs nats.CustomInboxPrefix("_INBOX." + name).
func FetchAs(name string) FetchOption { return func(o *fetchOptions) { o.as = &name } }

// FetchMinHeaders is [MinHeaders] for a fetch.
func FetchMinHeaders() FetchOption {
	return func(o *fetchOptions) { o.request.Headers = wire.HeadersMin }
}

// FetchBatched is [Batch] for a fetch: messages that are there at once come in one delivery.
// Ack, Nack and Term, without Sync, of its messages are sent together: when all have one, and
// after at most a millisecond. Until then the connection must stay open.
func FetchBatched() FetchOption { return func(o *fetchOptions) { o.request.Batched = true } }

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
	o.request.Batch, o.request.ExpiresMs = batch, expires.Milliseconds()
	subject, body, err := c.fetchRequest(queue, o)
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
		received, err := c.fetched(subject, queue, msg)
		if o.request.Batched && refusalIn(err).ErrCode == wire.CodeUnknownField { // by a fila from before batches
			return c.Fetch(ctx, queue, batch, expires, append(slices.Clone(opts), func(o *fetchOptions) { o.request.Batched = false })...)
		}
		if received == nil {
			return messages, err
		}
		messages = append(messages, received...)
	}
	return messages, nil
}

// fetchRequest returns the request for a fetch and its subject.
func (c *Client) fetchRequest(queue string, o fetchOptions) (subject string, body []byte, err error) {
	if body, err = json.Marshal(o.request); err != nil || o.as == nil {
		return c.subjects.Fetch(queue), body, err
	}
	body, err = json.Marshal(wire.ConsumerRequest{Fetch: body})
	return c.subjects.Consumer(*o.as, queue), body, err
}

// fetched returns the messages of a delivery, or nil at the end of the fetch, with an error if it
// failed.
func (c *Client) fetched(subject, queue string, msg *nats.Msg) ([]*Message, error) {
	if refused := wire.ParseError(msg.Header, msg.Data); refused != nil {
		return nil, refused
	}
	switch status := msg.Header.Get(wire.HeaderStatus); status {
	case "":
	case wire.StatusNotFound, wire.StatusExpired:
		return nil, nil
	case wire.StatusNoResponders:
		return nil, sendError(subject, nats.ErrNoResponders)
	default:
		return nil, fmt.Errorf("%s ended with status %s", subject, status)
	}
	messages, err := c.parseDelivery(queue, msg)
	if err == nil && messages[0].batched {
		b := &fetchedBatch{open: len(messages)}
		for _, m := range messages {
			m.fetched = b
		}
	}
	return messages, err
}

// rest appends the messages that have arrived: they are leased to this fetch already.
func (c *Client) rest(sub *nats.Subscription, queue string, messages []*Message) []*Message {
	for {
		msg, err := sub.NextMsg(time.Microsecond)
		if err != nil {
			return messages
		}
		received, _ := c.fetched(sub.Subject, queue, msg) // the end needs no telling
		messages = append(messages, received...)
	}
}

// fetchedBatch has the answers to messages of a fetched batch that wait for others.
type fetchedBatch struct {
	sync.Mutex
	open  int // messages without an answer
	lines answerLines
}

// gather sends an answer with others of its batch: when all messages have one, and after gatherFor.
func (m *Message) gather(answer []byte) error {
	b := m.fetched
	b.Lock()
	first := len(b.lines.payload) == 0
	b.lines.addAnswer(m.index, answer)
	b.open--
	wait := b.open > 0 && len(b.lines.payload) < maxAnswerBytes
	b.Unlock()
	switch {
	case !wait:
		return m.sendGathered()
	case first:
		time.AfterFunc(gatherFor, func() { _ = m.sendGathered() }) // it fails if the connection is closed
	}
	return nil
}

// sendGathered sends the answers of the message's batch that wait for others.
func (m *Message) sendGathered() error {
	m.fetched.Lock()
	defer m.fetched.Unlock()
	payload := m.fetched.lines.payload
	if m.fetched.lines = (answerLines{}); len(payload) == 0 {
		return nil
	}
	return m.c.nc.Publish(m.ackTo, payload)
}
