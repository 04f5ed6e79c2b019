package client

import (
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
func (c *Client) PublishAtomic(ctx context.Context, queue string, messages []BatchMessage, opts ...PublishOption) (receipts []Receipt, err error) {
	if err := inRange("messages", int64(len(messages)), 1, wire.MaxBatchMessages, ""); err != nil {
		return nil, err
	}
	batch, o, err := c.enqueueMsg(queue, nil, opts)
	if err != nil {
		return nil, err
	}
	batch.Header = nats.Header{wire.HeaderBatch: {strconv.Itoa(len(messages))}, wire.HeaderBatchAtomic: {"true"}}
	var spans []trace.Span
	defer func() {
		for i, span := range spans {
			var receipt Receipt
			if err == nil {
				receipt = receipts[i]
			}
			published(span, receipt, err)
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
		safe = safe && msg.Header.Get(wire.HeaderMsgID) != ""
		batch.Data = wire.AppendBatch(batch.Data, msg.Header, msg.Data)
	}
	reply, err := c.publishRetrying(ctx, batch, o.retryFor, safe)
	if err != nil {
		return nil, err
	}
	answers, err := parseBatchReply(reply.Data, len(messages))
	if err != nil {
		return nil, err
	}
	for _, a := range answers {
		if a.err != nil {
			return nil, a.err // the commit failed
		}
		receipts = append(receipts, a.receipt)
	}
	return receipts, nil
}
