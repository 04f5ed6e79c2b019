package client

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/e2e/natstest"
	"github.com/filaq/fila/wire"
)

func batchOf(texts ...string) (messages []BatchMessage) {
	for _, text := range texts {
		messages = append(messages, BatchMessage{[]byte(text), []PublishOption{DedupeID(text)}})
	}
	return messages
}

func TestPublishAtomic(t *testing.T) {
	f, c := setup(t)
	q := f.producerQueue("unused")
	replies := []func(msg *nats.Msg){
		func(msg *nats.Msg) { q.reply(msg, wire.BacklogMessages("orders", 1, time.Millisecond)) },
		func(msg *nats.Msg) {
			require.Equal(t, "3", msg.Header.Get(wire.HeaderBatch))
			require.Equal(t, "true", msg.Header.Get(wire.HeaderBatchAtomic))
			all, err := wire.ParseBatch(msg.Data, &wire.Batch{Messages: 3})
			require.Nil(t, err)
			for i, text := range []string{"a", "b", "a"} {
				header, err := all[i].Header.Parse(nil, wire.HeaderLimits{})
				require.Nil(t, err)
				require.Equal(t, map[string][]string{"tenant": {"acme"}, wire.HeaderMsgID: {text}}, header)
				require.Equal(t, text, string(all[i].Data))
			}
			q.answer(msg)
		},
		func(msg *nats.Msg) {
			q.reply(msg, (&wire.Error{Code: 400, ErrCode: wire.CodeBadTTL, Description: "no"}).InBatch(1))
		},
		func(msg *nats.Msg) { // as after a commit that failed
			reply := wire.BatchReply{}
			reply.Refuse(0, wire.OutcomeUnknown())
			reply.Refuse(1, wire.OutcomeUnknown())
			reply.Encode(make([]byte, 32))
			q.reply(msg, reply)
		},
		func(msg *nats.Msg) { require.NoError(t, msg.Respond([]byte("OK"))) },
	}
	n := 0
	f.handle("fila.enqueue.orders", func(msg *nats.Msg) { n++; replies[n-1](msg) })
	receipts, err := c.PublishAtomic(t.Context(), "orders", batchOf("a", "b", "a"), Header("tenant", "acme"), RetryFor(time.Minute))
	require.NoError(t, err)
	require.Len(t, receipts, 3)
	require.Equal(t, Receipt{ID: receipts[0].ID, Queue: "orders", Duplicate: true}, receipts[2])
	require.NotEqual(t, receipts[0].ID, receipts[1].ID)

	_, err = c.PublishAtomic(t.Context(), "orders", batchOf("a", "b"))
	require.ErrorContains(t, err, "message 1 of the batch")
	_, err = c.PublishAtomic(t.Context(), "orders", batchOf("a", "b"))
	requireRefused(t, err, 500)
	_, err = c.PublishAtomic(t.Context(), "orders", batchOf("a", "b"))
	require.ErrorContains(t, err, "not what fila sends")

	for text, messages := range map[string][]BatchMessage{
		"messages is 0: allowed are 1 to": nil,
		"allowed are 1 to":                make([]BatchMessage, wire.MaxBatchMessages+1),
		"message 1 has a header":          {{}, {Options: []PublishOption{Header(wire.HeaderSchedule, "@daily")}}},
	} {
		_, err := c.PublishAtomic(t.Context(), "orders", messages)
		requireRefused(t, err, 400)
		require.ErrorContains(t, err, text)
	}
	require.Len(t, replies, n)
}

// TestPublishAtomicAfterAFailedCommit: the outcome is unknown, so it sends the batch again only if
// all of its messages have a dedupe id.
func TestPublishAtomicAfterAFailedCommit(t *testing.T) {
	f, c := setup(t)
	q := f.producerQueue("unused")
	requests := 0
	f.handle("fila.enqueue.orders", func(msg *nats.Msg) {
		requests++
		if requests == 2 {
			q.answer(msg)
			return
		}
		reply := wire.BatchReply{}
		reply.Refuse(0, wire.OutcomeUnknown())
		reply.Refuse(1, wire.OutcomeUnknown())
		reply.Encode(make([]byte, 32))
		q.reply(msg, reply)
	})
	receipts, err := c.PublishAtomic(t.Context(), "orders", batchOf("a", "b"), RetryFor(time.Minute))
	require.NoError(t, err)
	require.NotEqual(t, receipts[0].ID, receipts[1].ID)
	require.Equal(t, 2, requests)
	_, err = c.PublishAtomic(t.Context(), "orders", []BatchMessage{{}, {Options: []PublishOption{DedupeID("c")}}}, RetryFor(time.Minute))
	requireRefused(t, err, 500)
	require.Equal(t, 3, requests)
}

// TestBatchesOfAServer: batches of a producer to a queue that is too small for them, with
// duplicates, while a consumer empties it.
func TestBatchesOfAServer(t *testing.T) {
	t.Parallel()
	n := natstest.Start(t)
	startFila(t, n.URL, "[[queue]]\nname = \"orders\"\nmax_depth = 50\n[[queue]]\nname = \"atomic\"\nmax_depth = 3\n")
	producer, consumer := dial(t, n.URL), dial(t, n.URL)

	receipts, err := producer.PublishAtomic(t.Context(), "atomic", batchOf("a", "b", "a"))
	require.NoError(t, err)
	require.True(t, receipts[2].Duplicate)
	_, err = producer.PublishAtomic(t.Context(), "atomic", batchOf("c", "d"))
	requireRefused(t, err, 429)
	info, err := producer.QueueInspect(t.Context(), "atomic", 0)
	require.NoError(t, err)
	require.EqualValues(t, 2, info.Pending, "all or none")

	const messages = 1500
	var futures []*PublishFuture
	for i := range messages {
		future, err := producer.PublishAsync(t.Context(), "orders", fmt.Append(nil, i), DedupeID(fmt.Sprint(i/2)), RetryFor(time.Minute))
		require.NoError(t, err)
		futures = append(futures, future)
	}
	h := newHistory()
	k, err := consumer.Consume(t.Context(), "orders", h.handle, Concurrency(8), Batch(20), OnError(h.onError))
	require.NoError(t, err)
	ids, duplicates := map[string]int{}, 0
	for _, future := range futures {
		receipt, err := result(t, future)
		require.NoError(t, err)
		ids[receipt.ID]++
		if receipt.Duplicate {
			duplicates++
		}
	}
	require.Len(t, ids, messages/2)
	require.Equal(t, messages/2, duplicates)
	require.Eventually(t, func() bool {
		h.Lock()
		defer h.Unlock()
		return len(h.acked) == messages/2
	}, patience, time.Millisecond)
	require.NoError(t, stopWithin(t, k, patience))
	require.Empty(t, h.problems)
}
