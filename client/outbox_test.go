package client

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/filaq/fila/wire"
)

// producerQueue is a queue of a fake fila that takes batches. Its functions run on one
// goroutine.
type producerQueue struct {
	*fakeFila
	accept func(payload string) *wire.Error // nil: all messages
	old    bool                             // from before batches

	mu struct {
		sync.Mutex
		ids      map[string]uuid.UUID // by payload
		order    []string             // accepted payloads
		requests []int                // their numbers of messages
	}
}

func (f *fakeFila) producerQueue(subject string) *producerQueue {
	q := &producerQueue{fakeFila: f}
	q.mu.ids = map[string]uuid.UUID{}
	f.handle(subject, func(msg *nats.Msg) { q.answer(msg) })
	return q
}

// answer accepts what it can and replies.
func (q *producerQueue) answer(msg *nats.Msg) {
	reply, messages, refused := q.take(msg)
	switch {
	case refused != nil:
		q.reply(msg, refused)
	case messages == 1 && msg.Header.Get(wire.HeaderBatch) == "":
		if no := reply.Errors()[0]; no != nil {
			q.reply(msg, no)
			return
		}
		id, _ := base64.RawURLEncoding.DecodeString(reply.IDs)
		q.reply(msg, wire.EnqueueReply{ID: uuid.UUID(id).String(), Queue: "orders", Duplicate: len(reply.Duplicates) > 0})
	default:
		q.reply(msg, reply)
	}
}

// take accepts the messages of a request.
func (q *producerQueue) take(msg *nats.Msg) (*wire.BatchReply, int, *wire.Error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	messages := []wire.BatchMessage{{Data: msg.Data}}
	switch o, err := wire.ParseEnqueueHeaders(msg.Header, 0); {
	case err != nil:
		return nil, 0, err
	case o.Batch != nil && q.old:
		return nil, 0, wire.HeaderReserved(wire.HeaderBatch, "")
	case o.Batch != nil:
		if messages, err = wire.ParseBatch(msg.Data, o.Batch); err != nil {
			return nil, 0, err
		}
	}
	q.mu.requests = append(q.mu.requests, len(messages))
	reply, ids := &wire.BatchReply{Queue: "orders"}, []byte(nil)
	for i, m := range messages {
		text := string(m.Data)
		id, known := q.mu.ids[text]
		switch err := q.check(text); {
		case m.Err != nil:
			reply.Refuse(i, m.Err)
		case known:
			reply.Duplicates = append(reply.Duplicates, i)
		case err != nil:
			reply.Refuse(i, err)
		default:
			id = uuid.NewSHA1(uuid.UUID{}, m.Data)
			q.mu.ids[text], q.mu.order = id, append(q.mu.order, text)
		}
		ids = append(ids, id[:]...)
	}
	reply.Encode(ids)
	return reply, len(messages), nil
}

func (q *producerQueue) check(payload string) *wire.Error {
	if q.accept == nil {
		return nil
	}
	return q.accept(payload)
}

// seen returns the accepted payloads and the sizes of the requests.
func (q *producerQueue) seen() (order []string, requests []int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return append([]string(nil), q.mu.order...), append([]int(nil), q.mu.requests...)
}

// publishMany publishes texts with these numbers and returns their futures.
func publishMany(t *testing.T, c *Client, from, to int, opts ...PublishOption) (futures []*PublishFuture) {
	t.Helper()
	for i := from; i < to; i++ {
		future, err := c.PublishAsync(t.Context(), "orders", fmt.Append(nil, i), opts...)
		require.NoError(t, err)
		futures = append(futures, future)
	}
	return futures
}

func requireConfirmed(t *testing.T, futures []*PublishFuture) {
	t.Helper()
	for i, future := range futures {
		receipt, err := result(t, future)
		require.NoError(t, err, i)
		require.Equal(t, Receipt{ID: uuid.NewSHA1(uuid.UUID{}, future.msg.Data).String(), Queue: "orders"}, receipt)
	}
}

func numbers(from, to int) (texts []string) {
	for i := from; i < to; i++ {
		texts = append(texts, fmt.Sprint(i))
	}
	return texts
}

// held collects requests until the test answers them.
func held(f *fakeFila) chan *nats.Msg {
	got := make(chan *nats.Msg, 1000)
	f.handle("fila.enqueue.orders", func(msg *nats.Msg) { got <- msg })
	return got
}

// batching returns a client that does not send a batch before it is full or a reply comes.
func batching(t *testing.T, opts ...Option) (*fakeFila, *Client) {
	t.Helper()
	f, c := setup(t, opts...)
	c.async.longestWait = time.Hour
	return f, c
}

// endWait sends what waits, as after batchWait.
func endWait(c *Client) {
	c.async.mu.Lock()
	b := c.async.mu.outboxes["orders"]
	b.until = time.Time{}
	c.async.mu.Unlock()
	c.async.waitOver(b)
}

func TestPublishAsyncBatches(t *testing.T) {
	f, c := batching(t, WithMaxBatch(20))
	got := held(f)
	q := f.producerQueue("unused")
	futures := publishMany(t, c, 0, fewRequests+50, Header("tenant", "acme"))
	for range fewRequests {
		msg := next(t, got)
		require.Empty(t, msg.Header.Get(wire.HeaderBatch), "light load")
		defer q.answer(msg)
	}
	first := next(t, got)
	require.NoError(t, c.nc.Flush())
	require.NoError(t, f.nc.Flush())
	require.Empty(t, got, "the others wait for the reply to the first batch")
	q.answer(first)
	q.answer(next(t, got))
	require.NoError(t, c.nc.Flush())
	require.NoError(t, f.nc.Flush())
	require.Empty(t, got, "the rest waits for more messages")
	endWait(c)
	q.answer(next(t, got))
	requireConfirmed(t, futures[fewRequests:])
	order, requests := q.seen()
	require.Equal(t, numbers(fewRequests, fewRequests+50), order)
	require.Equal(t, []int{20, 20, 10}, requests)
}

func TestPublishAsyncWithoutBatches(t *testing.T) {
	f, c := batching(t, WithMaxBatch(1))
	q := f.producerQueue("fila.enqueue.orders")
	requireConfirmed(t, publishMany(t, c, 0, 100))
	order, requests := q.seen()
	require.Equal(t, numbers(0, 100), order)
	require.Len(t, requests, 100)

	_, err := New(c.nc, WithMaxBatch(0))
	require.ErrorContains(t, err, "max batch is 0: allowed is 1 to")
}

// TestPublishAsyncToAnOldServer that refuses batches: everything is sent one by one, in order.
func TestPublishAsyncToAnOldServer(t *testing.T) {
	f, c := batching(t)
	got := held(f)
	q := f.producerQueue("unused")
	q.old = true
	futures := publishMany(t, c, 0, 300)
	for range fewRequests {
		q.answer(next(t, got))
	}
	first := next(t, got)
	require.Equal(t, "64", first.Header.Get(wire.HeaderBatch))
	q.answer(first)
	var others []*nats.Msg
	for range 300 - fewRequests { // none waits for the reply to another one
		others = append(others, next(t, got))
	}
	for _, msg := range others {
		require.Empty(t, msg.Header.Get(wire.HeaderBatch))
		q.answer(msg)
	}
	requireConfirmed(t, futures)
	order, _ := q.seen()
	require.Equal(t, numbers(0, 300), order)
	f.handle("fila.enqueue.mails", func(msg *nats.Msg) { got <- msg })
	for range 2 * fewRequests {
		_, err := c.PublishAsync(t.Context(), "mails", nil)
		require.NoError(t, err)
	}
	for range 2 * fewRequests {
		require.Empty(t, next(t, got).Header.Get(wire.HeaderBatch), "it is not tried again")
	}
	c.Close()
}

// TestPublishAsyncAfterTheFirstBatch: messages behind it wait for its reply, and then not longer
// than others, though other requests are unanswered.
func TestPublishAsyncAfterTheFirstBatch(t *testing.T) {
	f, c := batching(t, WithMaxBatch(4))
	got := held(f)
	q := f.producerQueue("unused")
	futures := publishMany(t, c, 0, fewRequests+5)
	for range fewRequests {
		defer q.answer(next(t, got))
	}
	first := next(t, got)
	c.async.mu.Lock()
	c.async.longestWait = time.Millisecond
	c.async.mu.Unlock()
	began := time.Now()
	q.answer(first)
	q.answer(next(t, got))
	require.Less(t, time.Since(began), replyWithin)
	requireConfirmed(t, futures[fewRequests:])
}

// TestPublishAsyncLosesTheReplyToABatch: it sends the messages with a dedupe id again, which fila
// recognises; the outcome of the others is unknown.
func TestPublishAsyncLosesTheReplyToABatch(t *testing.T) {
	f, c := batching(t, WithMaxBatch(3), WithTimeout(100*time.Millisecond))
	got := held(f)
	q := f.producerQueue("unused")
	publishMany(t, c, 0, fewRequests)
	for range fewRequests {
		next(t, got)
	}
	futures := publishMany(t, c, 10, 11, DedupeID("10"), RetryFor(time.Minute))
	futures = append(futures, publishMany(t, c, 11, 12, RetryFor(time.Minute))...)
	futures = append(futures, publishMany(t, c, 12, 13, DedupeID("12"))...)
	_, n, refused := q.take(next(t, got))
	require.Nil(t, refused)
	require.Equal(t, 3, n)
	for _, future := range futures[1:] {
		_, err := result(t, future)
		require.ErrorIs(t, err, ErrNoReply)
	}
	again := next(t, got)
	require.Equal(t, "10", string(again.Data), "the only one")
	q.answer(again)
	receipt, err := result(t, futures[0])
	require.NoError(t, err)
	require.True(t, receipt.Duplicate)
	order, _ := q.seen()
	require.Equal(t, numbers(10, 13), order)
}

// TestPublishAsyncSomeGoAlone: messages that cannot be in a batch, and large ones.
func TestPublishAsyncSomeGoAlone(t *testing.T) {
	f, c := batching(t, WithMaxBatch(8))
	got := held(f)
	q := f.producerQueue("unused")
	publishMany(t, c, 0, fewRequests)
	for range fewRequests {
		next(t, got) // without a reply for now
	}
	publish := func(text string, opts ...PublishOption) {
		t.Helper()
		_, err := c.PublishAsync(t.Context(), "orders", []byte(text), opts...)
		require.NoError(t, err)
	}
	half := strings.Repeat("x", maxBatchBytes/2)
	publish("a", DedupeID("a"))
	publish("b", TTL(time.Minute), Delay(time.Second))
	publish("schedule", Header(wire.HeaderSchedule, "@daily"))
	publish(half + "1")
	publish("c")
	publish(half + "2") // the outbox is full
	q.answer(next(t, got))
	next(t, got)
	next(t, got)
	endWait(c)
	next(t, got)
	_, err := c.PublishAsync(t.Context(), "orders", make([]byte, 2<<20))
	requireRefused(t, err, 413, "at once, also if it would have to wait")
	_, requests := q.seen()
	require.Equal(t, []int{2}, requests)
	c.Close()
}

// TestPublishAsyncAfterTooMany: the size of batches halves with a refusal, and grows again.
func TestPublishAsyncAfterTooMany(t *testing.T) {
	f, c := batching(t, WithMaxBatch(40))
	got := held(f)
	q := f.producerQueue("unused")
	full := true
	q.accept = func(payload string) *wire.Error {
		if payload == "20" && full {
			full = false
			return &wire.Error{Code: 429, ErrCode: wire.CodeBacklogMessages, Description: "full", RetryAfter: time.Millisecond}
		}
		return nil
	}
	futures := publishMany(t, c, 0, fewRequests+40, RetryFor(time.Minute))
	for range fewRequests {
		defer q.answer(next(t, got)) // until the end
	}
	q.answer(next(t, got))
	retried := next(t, got)
	require.Equal(t, "20", string(retried.Data))
	q.answer(retried)
	requireConfirmed(t, futures[fewRequests:])
	for i, size := range []int{20, 21, 22} {
		more := publishMany(t, c, 1000*(i+1), 1000*(i+1)+size)
		q.answer(next(t, got))
		requireConfirmed(t, more)
	}
	_, requests := q.seen()
	require.Equal(t, []int{40, 1, 20, 21, 22}, requests)
}

// TestPublishAsyncKeepsTheOrderOfARetry in a strictly ordered queue: the followers of a refused
// message are sent again behind it.
func TestPublishAsyncKeepsTheOrderOfARetry(t *testing.T) {
	f, c := batching(t, WithMaxBatch(6))
	got := held(f)
	q := f.producerQueue("unused")
	broken := errors.New("refused for good")
	tries := 0
	q.accept = func(payload string) *wire.Error {
		switch payload {
		case "9":
			if tries++; tries < 3 {
				return &wire.Error{Code: 429, ErrCode: wire.CodeKeyPending, RetryAfter: time.Millisecond}
			}
		case "10", "12":
			if tries < 3 {
				return wire.PredecessorRefused(1, "key", time.Millisecond)
			}
		case "11":
			return &wire.Error{Code: 400, ErrCode: wire.CodeBadTTL, Description: broken.Error()}
		}
		return nil
	}
	futures := publishMany(t, c, 0, fewRequests+6, RetryFor(time.Minute))
	for range fewRequests {
		defer q.answer(next(t, got))
	}
	for range 3 {
		q.answer(next(t, got))
	}
	for i, future := range futures[fewRequests:] {
		_, err := result(t, future)
		if i+fewRequests == 11 {
			requireRefused(t, err, 400)
			continue
		}
		require.NoError(t, err)
	}
	order, requests := q.seen()
	require.Equal(t, []string{"8", "13", "9", "10", "12"}, order)
	require.Equal(t, []int{6, 3, 3}, requests)
}

// TestPublishAsyncRetriesByRetryAfter: no message comes again before its own Retry-After.
func TestPublishAsyncRetriesByRetryAfter(t *testing.T) {
	f, c := batching(t, WithMaxBatch(8))
	got := held(f)
	q := f.producerQueue("unused")
	again := map[string]time.Time{} // when a refused payload may come again
	var early []string
	q.accept = func(payload string) *wire.Error {
		if at, refused := again[payload]; refused {
			if time.Now().Before(at) {
				early = append(early, payload)
			}
			return nil
		}
		i, err := strconv.Atoi(payload)
		require.NoError(t, err)
		after := time.Duration(10*i) * time.Millisecond
		again[payload] = time.Now().Add(after)
		return &wire.Error{Code: 429, ErrCode: wire.CodeKeyPending, RetryAfter: after}
	}
	futures := publishMany(t, c, 0, fewRequests+8, RetryFor(time.Minute))
	for range fewRequests {
		defer q.answer(next(t, got))
	}
	for range 1 + 8 {
		q.answer(next(t, got))
	}
	requireConfirmed(t, futures[fewRequests:])
	require.Empty(t, early)
}

// TestPublishAsyncOddReplies to a batch end all of its messages.
func TestPublishAsyncOddReplies(t *testing.T) {
	ids := base64.RawURLEncoding.EncodeToString(make([]byte, 16*2))
	for _, reply := range []string{"OK", `{}`, `{"ids":"AAAA"}`, `{"ids":"` + ids + `","duplicates":[2]}`, `{"ids":"` + ids + `!"}`} {
		_, err := parseBatchReply([]byte(reply), 2)
		require.ErrorContains(t, err, "not what fila sends", reply)
	}
	all, err := parseBatchReply([]byte(`{"ids":"`+ids+`","refused":[{"index":7,"code":400},{"index":1,"code":429,"err_code":10429,"description":"full","retry_after_ms":5}]}`), 2)
	require.NoError(t, err)
	require.NoError(t, all[0].err)
	require.Equal(t, &Error{Code: 429, ErrCode: 10429, Description: "full", RetryAfter: 5 * time.Millisecond}, all[1].err)
}

// TestPublishAsyncEndsEachMessageOnce, whatever the server does: it confirms, refuses some or
// all, replies twice, late, oddly or not at all, or knows no batches; the client is closed at the
// end, or when everything has a result.
func TestPublishAsyncEndsEachMessageOnce(t *testing.T) {
	srv := startNATS(t)
	f := startFake(t, srv)
	nc := connect(t, srv)
	subject := 0
	rapid.Check(t, func(rt *rapid.T) {
		subject++
		name := fmt.Sprint("orders-", subject)
		q := &producerQueue{fakeFila: f}
		q.mu.ids = map[string]uuid.UUID{}
		q.old = rapid.IntRange(0, 4).Draw(rt, "old") == 0
		refusals := rapid.SliceOfN(rapid.SampledFrom([]int{0, 0, 0, wire.CodeBadTTL, wire.CodeBacklogMessages, wire.CodePredecessorRefused, wire.CodeOutcomeUnknown}), 1, 20).Draw(rt, "refusals")
		n := 0
		q.accept = func(string) *wire.Error {
			n++
			if code := refusals[n%len(refusals)]; code != 0 {
				return &wire.Error{Code: code % 1000, ErrCode: code, Description: "refused", RetryAfter: time.Duration(n%3) * time.Millisecond}
			}
			return nil
		}
		replies := rapid.SliceOfN(rapid.SampledFrom([]string{"", "", "", "twice", "odd", "none", "all", "late"}), 1, 8).Draw(rt, "replies")
		requests := 0
		var late []*nats.Msg
		sub := f.handle("fila.enqueue."+name, func(msg *nats.Msg) {
			requests++
			switch replies[requests%len(replies)] {
			case "twice":
				q.answer(msg)
				q.answer(msg)
			case "odd":
				_ = msg.Respond([]byte("OK"))
			case "none":
			case "all":
				q.reply(msg, wire.Draining())
			case "late":
				late = append(late, msg)
			default:
				q.answer(msg)
				for _, m := range late {
					q.answer(m)
				}
				late = nil
			}
		})
		var failed atomic.Int64
		c, err := New(nc, WithTimeout(20*time.Millisecond), WithMaxBatch(rapid.IntRange(1, 16).Draw(rt, "batch")), WithMaxPending(64),
			WithPublishErrHandler(func(*PublishFuture, error) { failed.Add(1) }))
		require.NoError(rt, err)
		var futures []*PublishFuture
		for i := range rapid.IntRange(1, 120).Draw(rt, "messages") {
			var opts []PublishOption
			if i%3 > 0 {
				opts = append(opts, RetryFor(30*time.Millisecond))
			}
			if i%2 > 0 {
				opts = append(opts, DedupeID(fmt.Sprint(i)))
			}
			future, err := c.PublishAsync(t.Context(), name, fmt.Append(nil, name, i), opts...)
			require.NoError(rt, err)
			futures = append(futures, future)
		}
		if rapid.Bool().Draw(rt, "wait") {
			<-c.PublishAsyncComplete()
		}
		c.Close()
		var errs int64
		for _, future := range futures {
			receipt, err := future.Result()
			if err != nil {
				errs++
				require.Zero(rt, receipt)
				continue
			}
			require.Equal(rt, uuid.NewSHA1(uuid.UUID{}, future.msg.Data).String(), receipt.ID)
		}
		require.Eventually(rt, func() bool { return failed.Load() == errs }, patience, time.Millisecond)
		require.Zero(rt, c.PublishAsyncPending())
		c.async.mu.Lock()
		defer c.async.mu.Unlock()
		require.Empty(rt, c.async.mu.requests)
		require.Zero(rt, c.async.mu.open)
		require.NoError(rt, sub.Unsubscribe())
	})
}
