package client

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"

	"github.com/filaq/fila/wire"
)

// BatchMessage is a message of [Client.PublishAtomic].
type BatchMessage struct {
	Payload []byte
	Options []PublishOption // its headers
}

// PublishAtomic sends 1 to 1000 messages to a queue and waits for the confirmation. fila accepts
// all of them, in one commit, or none: the error says which message it refuses. The receipts are
// in the order of the messages. The options are for all messages; of them, [RetryFor] sends all
// again, and after an unknown outcome only if each message has a [DedupeID].
//
// Consumers get the messages one by one, and the first perhaps before the confirmation.
func (c *Client) PublishAtomic(ctx context.Context, queue string, messages []BatchMessage, opts ...PublishOption) (_ []Receipt, err error) {
	if err := inRange("messages", int64(len(messages)), 1, wire.MaxBatchMessages, ""); err != nil {
		return nil, err
	}
	batch, o, err := c.enqueueMsg(queue, nil, opts)
	if err != nil {
		return nil, err
	}
	batch.Header = nats.Header{wire.HeaderBatch: {strconv.Itoa(len(messages))}, wire.HeaderBatchAtomic: {"true"}}
	all, spans := make([]Receipt, len(messages)), []trace.Span(nil)
	defer func() {
		for i, span := range spans {
			published(span, all[i], err)
		}
	}()
	safe := true
	for i, m := range messages {
		msg, _, err := c.enqueueMsg(queue, m.Payload, slices.Concat(opts, m.Options))
		if err != nil {
			return nil, err
		}
		if _, batchable := frame(msg); !batchable {
			return nil, badRequest(wire.CodeBadBatch, fmt.Errorf("message %d has a header that fila does not take in a batch", i))
		}
		spans = append(spans, c.publishing(ctx, queue, msg))
		safe = safe && hasDedupeID(msg)
		batch.Data = wire.AppendBatch(batch.Data, msg.Header, msg.Data)
	}
	err = c.publishRetrying(ctx, batch, o.retryFor, safe, func(data []byte) error {
		answers, err := parseBatchReply(data, len(messages))
		for i, a := range answers {
			all[i], err = a.receipt, cmp.Or(err, a.err) // a.err: the commit failed
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}
