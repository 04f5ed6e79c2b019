package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

func TestPublish(t *testing.T) {
	f := startFake(t)
	f.answer("fila.enqueue.orders", wire.EnqueueReply{ID: "id-1", Queue: "orders"})
	r := runCLI(t, "", "publish", "orders", "hello", "-H", "tenant=acme", "--header", "q=a=b,c", "--delay", "1500", "--ttl", "1h", "--dedupe-id", "d")
	require.Equal(t, result{exitOK, "id-1\n", ""}, r)
	msg := f.next()
	require.Equal(t, "hello", string(msg.Data))
	require.Equal(t, nats.Header{
		"tenant": {"acme"}, "q": {"a=b,c"}, "Fila-Delay": {"1.5s"}, "Nats-TTL": {"1h0m0s"}, "Nats-Msg-Id": {"d"},
	}, msg.Header)
	_, bad := wire.ParseEnqueueHeaders(msg.Header, time.Now().UnixNano())
	require.Nil(t, bad)

	for _, args := range [][]string{{"publish", "orders"}, {"publish", "orders", "-"}} {
		r = runCLI(t, "from\nstdin\n", args...)
		require.Equal(t, exitOK, r.code, r.err)
		require.Equal(t, "from\nstdin\n", string(f.next().Data))
	}
	r = runCLI(t, "ignored", "publish", "orders", "")
	require.Equal(t, exitOK, r.code, r.err)
	require.Empty(t, f.next().Data)

	r = runCLI(t, "", "publish", "orders", "x", "--json")
	require.JSONEq(t, `{"id":"id-1","queue":"orders"}`, r.out)
	f.next()
	r = runCLI(t, "", "publish", "orders", "x", "--no-confirm")
	require.Equal(t, result{exitOK, "", ""}, r)
	require.Empty(t, f.next().Reply)
}

func TestPublishDuplicate(t *testing.T) {
	f := startFake(t)
	f.answer("fila.enqueue.orders", wire.EnqueueReply{ID: "id-1", Queue: "orders", Duplicate: true})
	r := runCLI(t, "", "publish", "orders", "x")
	require.Equal(t, result{exitOK, "id-1\n", "fila: a duplicate; the id is that of the first message\n"}, r)
}

// Nobody listens on the subject of a queue that does not exist, so the answer
// to an inspect tells whether the queue or fila is missing.
func TestPublishToNoQueue(t *testing.T) {
	f := startFake(t)
	r := runCLI(t, "", "publish", "orders", "x")
	require.Equal(t, exitConnect, r.code)
	require.Contains(t, r.err, "no fila listens")
	f.answer("fila.admin.queue-inspect.orders", &wire.Error{Code: 404, ErrCode: wire.CodeQueueNotFound, Description: "no such queue"})
	r = runCLI(t, "", "publish", "orders", "x")
	require.Equal(t, exitNotFound, r.code)
	require.Contains(t, r.err, "no such queue")
}

// fakeQueue hands out messages within the credit of one consumer, as fila does.
type fakeQueue struct {
	f  *fakeFila
	mu sync.Mutex

	consumer            string
	credit, left, sent  int
	acked, nacked       []string
	leaves, ackRequests int
	ackError            *wire.Error
	headers             nats.Header // of the producer
}

func startQueue(f *fakeFila, messages int) *fakeQueue {
	q := &fakeQueue{f: f, left: messages}
	f.handle("fila.consume.orders", func(msg *nats.Msg) any {
		request, bad := wire.ParseConsume(msg.Data)
		if bad != nil {
			return bad
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		q.consumer, q.credit = request.Consumer, request.MaxInFlight
		if request.Leave {
			q.credit = 0
			q.leaves++
		}
		q.deliver()
		return wire.ConsumeReply{MaxInFlight: request.MaxInFlight, VisibilityTimeoutMs: 30_000, Left: request.Leave}
	})
	f.handle("fila.ack.0.>", func(msg *nats.Msg) any {
		token, _, _ := f.subj.ParseToken(msg.Subject)
		q.mu.Lock()
		defer q.mu.Unlock()
		if msg.Reply != "" {
			q.ackRequests++
		}
		if q.ackError != nil {
			return q.ackError
		}
		if len(msg.Data) == 0 {
			q.acked = append(q.acked, token)
		} else {
			q.nacked = append(q.nacked, token+" "+string(msg.Data))
		}
		q.deliver()
		return []byte{}
	})
	return q
}

func (q *fakeQueue) deliver() {
	for q.left > 0 && q.sent-len(q.acked)-len(q.nacked) < q.credit {
		q.left--
		q.sent++
		msg := nats.NewMsg(q.f.subj.Deliver(q.consumer, "orders"))
		msg.Reply = q.f.subj.Ack(fmt.Sprintf("token%d", q.sent), "orders")
		msg.Data = fmt.Appendf(nil, "message %d", q.sent)
		maps.Copy(msg.Header, q.headers)
		msg.Header.Set(wire.HeaderID, fmt.Sprintf("id-%d", q.sent))
		msg.Header.Set(wire.HeaderQueue, "orders")
		msg.Header.Set(wire.HeaderKey, "acme")
		msg.Header.Set(wire.HeaderAttempt, "1")
		msg.Header.Set(wire.HeaderEnqueuedAt, "2026-01-02T03:04:05Z")
		require.NoError(q.f.t, q.f.nc.PublishMsg(msg))
	}
}

func TestConsumeTakesExactlyCount(t *testing.T) {
	for _, tc := range []struct{ count, maxInFlight int }{{1, 64}, {5, 64}, {5, 1}, {10, 3}, {10, 10}} {
		f := startFake(t)
		q := startQueue(f, 20)
		r := runCLI(t, "", "consume", "orders", "--consumer", "w1",
			"--count", fmt.Sprint(tc.count), "--max-in-flight", fmt.Sprint(tc.maxInFlight))
		require.Equal(t, exitOK, r.code, r.err)
		var want strings.Builder
		for i := range tc.count {
			fmt.Fprintf(&want, "message %d\n", i+1)
		}
		require.Equal(t, want.String(), r.out)
		q.mu.Lock()
		require.Equal(t, tc.count, q.sent, "not one more was taken")
		require.Len(t, q.acked, tc.count)
		require.Equal(t, tc.count, q.ackRequests, "acks are confirmed")
		require.Equal(t, 1, q.leaves)
		require.Equal(t, "w1", q.consumer)
		q.mu.Unlock()
	}
}

func TestConsumeJSON(t *testing.T) {
	f := startFake(t)
	startQueue(f, 1)
	r := runCLI(t, "", "consume", "orders", "--count", "1", "--json")
	require.Equal(t, exitOK, r.code, r.err)
	var got map[string]any
	require.NoError(t, json.Unmarshal([]byte(r.out), &got))
	require.Equal(t, 1, strings.Count(r.out, "\n"))
	require.Equal(t, "message 1", got["payload"])
	require.Equal(t, "id-1", got["id"])
	require.Equal(t, "acme", got["key"])
	require.EqualValues(t, 1, got["attempt"])
	require.Contains(t, got, "headers")
}

func TestConsumeTimeout(t *testing.T) {
	f := startFake(t)
	startQueue(f, 2)
	r := runCLI(t, "", "consume", "orders", "--timeout", "50ms")
	require.Equal(t, result{exitOK, "message 1\nmessage 2\n", ""}, r)

	startQueue(startFake(t), 2)
	r = runCLI(t, "", "consume", "orders", "--timeout", "50ms", "--count", "3")
	require.Equal(t, exitFailed, r.code)
	require.Equal(t, "fila: 2 of 3 messages came; none within the last 50ms\n", r.err)
}

func TestConsumeNoAck(t *testing.T) {
	f := startFake(t)
	q := startQueue(f, 9)
	r := runCLI(t, "", "consume", "orders", "--no-ack", "--count", "3", "--max-in-flight", "1")
	require.Equal(t, result{exitOK, "message 1\nmessage 2\nmessage 3\n", ""}, r)
	q.mu.Lock()
	defer q.mu.Unlock()
	require.Empty(t, q.acked)
	require.Empty(t, q.nacked)
	require.Equal(t, 1, q.leaves)
}

func TestConsumeStopsGracefully(t *testing.T) {
	f := startFake(t)
	q := startQueue(f, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out, errOut lockedBuffer
	done := make(chan int)
	go func() { done <- runRaw(ctx, []string{"consume", "orders"}, strings.NewReader(""), &out, &errOut) }()
	require.Eventually(t, func() bool { return out.String() == "message 1\n" }, 10*time.Second, time.Millisecond)
	cancel()
	require.Equal(t, exitOK, <-done)
	require.Empty(t, errOut.String())
	q.mu.Lock()
	defer q.mu.Unlock()
	require.Len(t, q.acked, 1)
	require.Equal(t, 1, q.leaves)
}

func TestConsumeLostLeaseIsANotice(t *testing.T) {
	f := startFake(t)
	q := startQueue(f, 1)
	q.ackError = &wire.Error{Code: 409, ErrCode: wire.CodeLeaseLost, Description: "lease lost"}
	r := runCLI(t, "", "consume", "orders", "--count", "1")
	require.Equal(t, exitOK, r.code)
	require.Contains(t, r.err, "fila: ack of id-1: lease lost")
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, os.ErrClosed }

func TestConsumeDoesNotAckWhatItCannotPrint(t *testing.T) {
	f := startFake(t)
	q := startQueue(f, 1)
	var errOut lockedBuffer
	code := runRaw(t.Context(), []string{"consume", "orders"}, strings.NewReader(""), brokenWriter{}, &errOut)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errOut.String(), "file already closed")
	q.mu.Lock()
	defer q.mu.Unlock()
	require.Empty(t, q.acked)
	require.Len(t, q.nacked, 1)
}

func TestConsumeUnknownQueue(t *testing.T) {
	f := startFake(t)
	f.answer("fila.consume.>", &wire.Error{Code: 404, ErrCode: wire.CodeQueueNotFound, Description: "no such queue"})
	require.Equal(t, exitNotFound, runCLI(t, "", "consume", "nosuch").code)
}
