package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

// batch is a delivery of n messages with the payloads 0, 1, ...
func (f *fakeFila) batch(subject string, n int) *nats.Msg {
	msg := nats.NewMsg(subject)
	msg.Reply = f.subjects.Ack("all", "orders")
	msg.Header.Set(wire.HeaderBatch, strconv.Itoa(n))
	for i := range n {
		lines := wire.AppendHeaderLines(nil, map[string][]string{
			"tenant": {"acme"}, wire.HeaderKey: {"acme"}, wire.HeaderEnqueuedAt: {"2026-01-02T03:04:05.000000006Z"},
		})
		msg.Data = wire.AppendDelivered(msg.Data, &wire.Delivered{
			ID: messageID(i), Attempt: uint32(i + 1), Deadline: 1767323075e9, Data: fmt.Append(nil, i),
		}, nil, lines)
	}
	return msg
}

func messageID(i int) uuid.UUID { return uuid.NewSHA1(uuid.UUID{}, fmt.Append(nil, i)) }

func (f *fakeFila) deliverBatch(n int) {
	require.NoError(f.t, f.nc.PublishMsg(f.batch(f.subjects.Deliver("w1", "orders"), n)))
}

// gathering makes answers wait for the others of their batch until the test sends them.
func gathering() ConsumeOption { return func(o *consumeOptions) { o.gatherFor = time.Hour } }

func (f *fakeFila) nextAck() string {
	f.t.Helper()
	return string(next(f.t, f.acks).Data)
}

func TestConsumeBatch(t *testing.T) {
	f, c := setup(t)
	k, problems := consume(t, c, func(_ context.Context, m *Message) error {
		switch string(m.Data) {
		case "0":
			require.Equal(t, "orders", m.Queue)
			require.Equal(t, messageID(0).String(), m.ID)
			require.Equal(t, "acme", m.Key)
			require.Equal(t, 1, m.Attempt)
			require.Equal(t, time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), m.EnqueuedAt)
			require.Equal(t, time.Date(2026, 1, 2, 3, 4, 35, 0, time.UTC), m.Deadline)
			require.Equal(t, "acme", m.Header.Get("tenant"))
		case "2":
			return errors.New("no good")
		case "3":
			return m.Term("two\nlines", "")
		case "5":
			return m.AckCost(3)
		}
		return nil
	}, Batch(10), gathering())
	require.Equal(t, 10, f.nextRequest().Batch)
	f.deliverBatch(6)
	require.Equal(t, "0-1 +ACK\n2 -NAK {\"error\":\"no good\"}\n3 +TERM two lines\n4 +ACK\n5 +ACK {\"cost\":3}\n", f.nextAck())
	require.Eventually(t, func() bool { return k.heldCount() == 0 }, patience, time.Millisecond)
	f.deliver("w1", "single")
	require.Empty(t, f.nextAck())
	require.NoError(t, stopWithin(t, k, patience))
	require.Empty(t, k.mu.batches)
	require.Empty(t, f.acks)
	require.Empty(t, problems)
}

// TestAnswersOfABatchAreGathered until all have one, all workers wait, or some time has passed.
func TestAnswersOfABatchAreGathered(t *testing.T) {
	f, c := setup(t)
	proceed := make(chan struct{})
	begun := make(chan string, 100)
	k, _ := consume(t, c, func(_ context.Context, m *Message) error {
		begun <- string(m.Data)
		if m.Attempt == 2 {
			<-proceed
		}
		return nil
	}, Batch(10), Concurrency(2), gathering())
	f.deliverBatch(4) // one worker has message 1, the other one does the rest and waits
	for range 4 {
		<-begun
	}
	require.Eventually(t, func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return len(k.mu.gathered) == 1 && k.mu.free == k.o.concurrency-1
	}, patience, time.Millisecond)
	require.Empty(t, f.acks)
	k.sendGathered() // as the timer does
	require.Equal(t, "0 +ACK\n2-3 +ACK\n", f.nextAck())
	proceed <- struct{}{}
	require.Equal(t, "1 +ACK\n", f.nextAck())

	// A handler that has acked goes on.
	k2, err := c.Consume(t.Context(), "orders", func(_ context.Context, m *Message) error {
		if err := m.Ack(); m.Attempt == 1 || err != nil {
			return err
		}
		<-proceed
		return nil
	}, Batch(10), ConsumerName("w1"), gathering(), Shared())
	require.NoError(t, err)
	require.NoError(t, stopWithin(t, k, patience))
	f.deliverBatch(2)
	require.Equal(t, "0-1 +ACK\n", f.nextAck(), "all have an answer, though a handler runs")
	proceed <- struct{}{}
	require.NoError(t, stopWithin(t, k2, patience))
}

// TestConfirmedAcksOfABatch: handlers wait for one request together, and each gets its own
// result.
func TestConfirmedAcksOfABatch(t *testing.T) {
	f, c := setup(t)
	require.NoError(t, f.ackSub.Unsubscribe())
	f.handle(f.subjects.Wildcard(wire.KindAck), func(msg *nats.Msg) {
		reply := wire.BatchReply{Queue: "orders"}
		reply.Refuse(1, wire.LeaseLost())
		f.acks <- msg
		f.reply(msg, reply)
	})
	results := make(chan error, 10)
	k, problems := consume(t, c, func(ctx context.Context, m *Message) error {
		err := m.AckSync(ctx)
		if (string(m.Data) == "1") != errors.Is(err, ErrLeaseLost) {
			results <- err
		}
		results <- nil
		return nil
	}, Batch(10), Concurrency(2), gathering())
	f.deliverBatch(4)
	for range 2 {
		require.Contains(t, []string{"0-1 +ACK\n", "2-3 +ACK\n"}, f.nextAck())
	}
	for range 4 {
		require.NoError(t, <-results)
	}
	require.ErrorIs(t, <-problems, ErrLeaseLost)
	require.NoError(t, stopWithin(t, k, patience))
}

// TestAnswersOfABatchAreRepeated until they are confirmed; a late reply counts as well.
func TestAnswersOfABatchAreRepeated(t *testing.T) {
	f, c := setup(t)
	block := make(chan struct{})
	k, problems := consume(t, c, func(_ context.Context, m *Message) error {
		if m.Attempt == 3 {
			<-block
		}
		return nil
	}, Batch(10), Concurrency(4), gathering())
	f.silence(2)
	f.deliverBatch(4)
	require.Eventually(t, func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.mu.free == k.o.concurrency-1 && k.mu.unsettled == 3
	}, patience, time.Millisecond)
	k.sendGathered()
	first := next(t, f.acks)
	require.Equal(t, "0-1 +ACK\n3 +ACK\n", string(first.Data))
	k.resend() // as after a reconnect
	repeated := next(t, f.acks)
	require.Equal(t, "0-1 +ACK\n2 +WPI\n3 +ACK\n", string(repeated.Data))
	reply := wire.BatchReply{}
	reply.Refuse(1, wire.LeaseLost())
	f.reply(first, reply)
	require.ErrorContains(t, <-problems, "sent 2 times")
	require.Eventually(t, func() bool { return k.heldCount() == 1 }, patience, time.Millisecond)

	k.tend(time.Now().Add(k.extendEvery()))
	require.Equal(t, "2 +WPI\n", f.nextAck())
	reply = wire.BatchReply{}
	reply.Refuse(2, wire.LeaseLost())
	f.reply(repeated, reply)
	require.ErrorIs(t, <-problems, ErrLeaseLost)
	require.Zero(t, k.heldCount())
	close(block)
	require.NoError(t, stopWithin(t, k, patience))
	require.Empty(t, f.acks)
}

func TestStopGivesABatchBack(t *testing.T) {
	f, c := setup(t)
	block, begun := make(chan struct{}), make(chan struct{})
	k, _ := consume(t, c, func(context.Context, *Message) error {
		close(begun)
		<-block
		return nil
	}, Batch(10), gathering())
	f.deliverBatch(3)
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, k.Stop(ctx), context.Canceled)
	require.Equal(t, "1-2 -NAK {\"delay\":0,\"error\":\"consumer stopped\"}\n", f.nextAck())
	close(block)
}

func TestConsumeBatchFromAnOldServer(t *testing.T) {
	f, c := setup(t)
	f.refuseWith(wire.UnknownField("batch", nil))
	_, err := c.Consume(t.Context(), "orders", noWork, Batch(5))
	requireRefused(t, err, 400)
	require.Equal(t, 5, f.nextRequest().Batch)
	require.Zero(t, f.nextRequest().Batch, "it is tried without")

	_, err = c.Consume(t.Context(), "orders", noWork, Batch(0))
	require.ErrorContains(t, err, "batch is 0: allowed are 1 to")
}

func TestOddBatches(t *testing.T) {
	f, c := setup(t)
	k, problems := consume(t, c, noWork, Batch(5))
	for _, change := range []func(*nats.Msg){
		func(msg *nats.Msg) { msg.Header.Set(wire.HeaderBatch, "many") },
		func(msg *nats.Msg) { msg.Header.Set(wire.HeaderBatch, "0") },
		func(msg *nats.Msg) { msg.Header.Set(wire.HeaderBatch, "3") },
		func(msg *nats.Msg) { msg.Data = msg.Data[:10] },
	} {
		msg := f.batch(f.subjects.Deliver("w1", "orders"), 2)
		change(msg)
		require.NoError(t, f.nc.PublishMsg(msg))
		require.Error(t, <-problems)
	}
	require.Zero(t, k.heldCount())
	for tail, body := range map[string]string{"b": "", "bx": "", "b1-x": "", "b1-7": "", "b1--1": "", "bzz-0": "{}"} {
		k.reply(&nats.Msg{Subject: k.inbox + tail, Data: []byte(body)})
	}
	require.NoError(t, stopWithin(t, k, patience))
	whole, _ := parseAckReply(&nats.Msg{Data: []byte("OK")})
	require.Equal(t, 500, whole.Code)
}

func TestFetchBatched(t *testing.T) {
	f, c := setup(t)
	f.handle(f.subjects.Wildcard(wire.KindFetch), func(msg *nats.Msg) {
		request, bad := wire.ParseFetch(msg.Data)
		require.Nil(t, bad)
		require.True(t, request.Batched)
		require.NoError(t, f.nc.PublishMsg(f.batch(msg.Reply, 3)))
		require.NoError(t, f.nc.PublishMsg(f.delivery(msg.Reply, "single", 1)))
	})
	fetch := func() []*Message {
		messages, err := c.Fetch(t.Context(), "orders", 4, 0, FetchBatched())
		require.NoError(t, err)
		require.Len(t, messages, 4)
		return messages
	}
	messages, others := fetch(), fetch()
	require.Equal(t, messageID(2).String(), messages[2].ID)
	require.NoError(t, messages[3].Ack())
	require.Empty(t, f.nextAck(), "it is not in the batch")
	synctest.Test(t, func(t *testing.T) { // its clock stands while a goroutine runs
		require.NoError(t, messages[2].Ack())
		require.NoError(t, messages[1].Nack(NackOptions{Code: "x"}))
		time.Sleep(gatherFor)
		require.Equal(t, "2 +ACK\n1 -NAK {\"code\":\"x\"}\n", f.nextAck())
		require.NoError(t, messages[0].Ack())
		require.Equal(t, "0 +ACK\n", f.nextAck(), "all have an answer")

		for _, m := range others[:3] {
			require.NoError(t, m.Ack())
		}
		require.ErrorIs(t, others[1].Ack(), ErrSettled)
		require.Equal(t, "0-2 +ACK\n", f.nextAck())
	})

	// A full request does not wait for more answers.
	messages = fetch()
	long := strings.Repeat("x", maxAnswerBytes)
	require.NoError(t, messages[1].Term(long, ""))
	require.Equal(t, "1 +TERM "+long+"\n", f.nextAck())
}

// TestConfirmedAnswersOfAFetchedBatch: each is a request of its own, with the message's index.
func TestConfirmedAnswersOfAFetchedBatch(t *testing.T) {
	f, c := setup(t)
	f.handle(f.subjects.Wildcard(wire.KindFetch), func(msg *nats.Msg) {
		require.NoError(t, f.nc.PublishMsg(f.batch(msg.Reply, 3)))
	})
	messages, err := c.Fetch(t.Context(), "orders", 3, 0, FetchBatched())
	require.NoError(t, err)
	// The server would refuse the whole request, with the answers to other messages.
	require.ErrorContains(t, messages[1].Nack(NackOptions{Delay: 366 * 24 * time.Hour}), "allowed are times up to")
	require.ErrorContains(t, messages[1].NackSync(t.Context(), NackOptions{RetryAfter: 366 * 24 * time.Hour}), "allowed are times up to")
	require.NoError(t, messages[1].Extend())
	require.Equal(t, "1 +WPI\n", f.nextAck())
	require.NoError(t, messages[2].AckSync(t.Context()))
	require.Equal(t, "2 +ACK\n", f.nextAck())
	require.NoError(t, f.ackSub.Unsubscribe())
	f.handle(f.subjects.Wildcard(wire.KindAck), func(msg *nats.Msg) {
		body, err := json.Marshal(map[string]any{"queue": "orders", "refused": []wire.BatchRefusal{{Index: 0, Code: 409, ErrCode: wire.CodeLeaseLost}}})
		require.NoError(t, err)
		require.NoError(t, msg.Respond(body))
	})
	require.ErrorIs(t, messages[0].TermSync(t.Context(), "bad", ""), ErrLeaseLost)
}

func TestFetchBatchedFromAnOldServer(t *testing.T) {
	f, c := setup(t)
	f.handle(f.subjects.Wildcard(wire.KindFetch), func(msg *nats.Msg) {
		if request, _ := wire.ParseFetch(msg.Data); request.Batched {
			f.reply(msg, wire.UnknownField("batched", nil))
			return
		}
		require.NoError(t, f.nc.PublishMsg(f.delivery(msg.Reply, "1", 1)))
	})
	messages, err := c.Fetch(t.Context(), "orders", 1, 0, FetchBatched())
	require.NoError(t, err)
	require.Len(t, messages, 1)
}
