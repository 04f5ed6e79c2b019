package client

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/wire"
)

// PublishOption adds a header to a message. Several of the same header leave
// the last, except for [Header], which adds.
type PublishOption func(nats.Header)

// Header adds a header of the producer's own. Consumers get it, unless its
// name starts with Fila- or Nats-, which are reserved.
func Header(name, value string) PublishOption {
	return func(h nats.Header) { h.Add(name, value) }
}

// DedupeID makes a message with the same id within the queue's window a
// duplicate: it is confirmed with the id of the first and not stored again.
func DedupeID(id string) PublishOption {
	return func(h nats.Header) { h.Set(wire.HeaderMsgID, id) }
}

// Delay holds the message back for d after it has been taken.
func Delay(d time.Duration) PublishOption {
	return func(h nats.Header) { h.Set(wire.HeaderDelay, d.String()) }
}

// NotBefore holds the message back until t.
func NotBefore(t time.Time) PublishOption {
	return func(h nats.Header) { h.Set(wire.HeaderNotBefore, t.Format(time.RFC3339Nano)) }
}

// TTL dead-letters the message, with reason "expired", if it has not been
// delivered within d; at least one second.
func TTL(d time.Duration) PublishOption {
	return func(h nats.Header) { h.Set(wire.HeaderTTL, d.String()) }
}

// Publish sends a message to a queue and waits for the confirmation: when it
// returns without error, the message survives a crash of fila. After
// [ErrNoReply] the outcome is not known; publish again with the same
// [DedupeID] to be safe.
func (c *Client) Publish(ctx context.Context, queue string, payload []byte, opts ...PublishOption) (Receipt, error) {
	var receipt Receipt
	msg, err := c.enqueueMsg(queue, payload, opts)
	if err != nil {
		return receipt, err
	}
	reply, err := c.request(ctx, msg)
	if err != nil {
		return receipt, err
	}
	if err := json.Unmarshal(reply.Data, &receipt); err != nil {
		return receipt, fmt.Errorf("confirmation is not what fila sends: %w", err)
	}
	return receipt, nil
}

// Send hands a message to the NATS connection and waits for nothing. It may be
// lost or refused without a word here; fila counts refusals and publishes an
// event. Flush the connection before closing it.
func (c *Client) Send(queue string, payload []byte, opts ...PublishOption) error {
	msg, err := c.enqueueMsg(queue, payload, opts)
	if err != nil {
		return err
	}
	return c.nc.PublishMsg(msg)
}

func (c *Client) enqueueMsg(queue string, payload []byte, opts []PublishOption) (*nats.Msg, error) {
	if err := checkQueue(queue); err != nil {
		return nil, err
	}
	msg := nats.NewMsg(c.subjects.Enqueue(queue))
	msg.Data = payload
	for _, opt := range opts {
		opt(msg.Header)
	}
	return msg, nil
}
