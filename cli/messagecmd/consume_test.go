package messagecmd

import (
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

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/wire"
)

func TestPublish(t *testing.T) {
	f := clitest.StartFake(t)
	f.Answer("fila.enqueue.orders", wire.EnqueueReply{ID: "id-1", Queue: "orders"})
	r := program.Run(t, "", "publish", "orders", "hello", "-H", "tenant=acme", "--header", "q=a=b,c", "--delay", "1500ms", "--ttl", "1h", "--dedupe-id", "d")
	require.Equal(t, clitest.Ended(command.ExitOK, "id-1\n", ""), r)
	msg := f.Next()
	require.Equal(t, "hello", string(msg.Data))
	require.Equal(t, nats.Header{
		"tenant": {"acme"}, "q": {"a=b,c"}, "Fila-Delay": {"1.5s"}, "Nats-TTL": {"1h0m0s"}, "Nats-Msg-Id": {"d"},
	}, msg.Header)
	_, bad := wire.ParseEnqueueHeaders(msg.Header, time.Now().UnixNano())
	require.Nil(t, bad)

	for _, args := range [][]string{{"publish", "orders"}, {"publish", "orders", "-"}} {
		clitest.OK(t, program.Run(t, "from\nstdin\n", args...))
		require.Equal(t, "from\nstdin\n", string(f.Next().Data))
	}
	clitest.OK(t, program.Run(t, "ignored", "publish", "orders", ""))
	require.Empty(t, f.Next().Data)

	r = program.Run(t, "", "publish", "orders", "x", "--json")
	require.JSONEq(t, `{"id":"id-1","queue":"orders"}`, r.Out)
	f.Next()
	r = program.Run(t, "", "publish", "orders", "x", "--no-confirm")
	require.Equal(t, clitest.Ended(command.ExitOK, "", ""), r)
	require.Empty(t, f.Next().Reply)
}

func TestPublishDuplicate(t *testing.T) {
	f := clitest.StartFake(t)
	f.Answer("fila.enqueue.orders", wire.EnqueueReply{ID: "id-1", Queue: "orders", Duplicate: true})
	r := program.Run(t, "", "publish", "orders", "x")
	require.Equal(t, clitest.Ended(command.ExitOK, "id-1\n", "fila: a duplicate; the id belongs to the first message\n"), r)
}

// The subject of a queue that does not exist has no responder, so an inspect request finds out
// whether the queue or fila is missing.
func TestPublishToNoQueue(t *testing.T) {
	f := clitest.StartFake(t)
	clitest.Complains(t, program.Run(t, "", "publish", "orders", "x"), command.ExitConnect, "no fila listens")
	f.Answer("fila.admin.queue-inspect.orders", &wire.Error{Code: 404, ErrCode: wire.CodeQueueNotFound, Description: "no such queue"})
	clitest.Complains(t, program.Run(t, "", "publish", "orders", "x"), command.ExitNotFound, "no such queue")
}

// fakeQueue delivers messages within the credit of one consumer, as fila does.
type fakeQueue struct {
	f  *clitest.Fake
	mu sync.Mutex

	consumer     string
	credit, left int
	counts       taken
	nack         string // the latest
	ackError     *wire.Error
	headers      nats.Header // of the producer
}

// taken counts the messages of a queue: sent, acked, acked without a confirmation, nacked; and
// how often the consumer has left.
type taken struct{ sent, acked, unasked, nacked, left int }

func (q *fakeQueue) taken() taken {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.counts
}

func startQueue(f *clitest.Fake, messages int) *fakeQueue {
	q := &fakeQueue{f: f, left: messages}
	f.Handle("fila.consumer.*.orders", func(msg *nats.Msg) any {
		name, _, _ := f.Subjects.ParseConsumer(msg.Subject)
		request, bad := wire.ParseConsumer(name, msg.Data)
		if bad != nil {
			return bad
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		q.consumer, q.credit = request.Consumer, request.MaxInFlight
		if request.Leave {
			q.credit = 0
			q.counts.left++
		}
		q.deliver()
		return wire.ConsumeReply{MaxInFlight: request.MaxInFlight, VisibilityTimeoutMs: 30_000, Left: request.Leave}
	})
	f.Handle("fila.ack.0.>", func(msg *nats.Msg) any {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.ackError != nil {
			return q.ackError
		}
		if len(msg.Data) == 0 {
			q.counts.acked++
			if msg.Reply == "" {
				q.counts.unasked++
			}
		} else {
			q.counts.nacked++
			q.nack = string(msg.Data)
		}
		q.deliver()
		return []byte{}
	})
	return q
}

func (q *fakeQueue) deliver() {
	for q.left > 0 && q.counts.sent-q.counts.acked-q.counts.nacked < q.credit {
		q.left--
		q.counts.sent++
		msg := nats.NewMsg(q.f.Subjects.Deliver(q.consumer, "orders"))
		msg.Reply = q.f.Subjects.Ack(fmt.Sprintf("token%d", q.counts.sent), "orders")
		msg.Data = fmt.Appendf(nil, "message %d", q.counts.sent)
		maps.Copy(msg.Header, q.headers)
		msg.Header.Set(wire.HeaderID, fmt.Sprintf("id-%d", q.counts.sent))
		msg.Header.Set(wire.HeaderQueue, "orders")
		msg.Header.Set(wire.HeaderKey, "acme")
		msg.Header.Set(wire.HeaderAttempt, "1")
		msg.Header.Set(wire.HeaderEnqueuedAt, "2026-01-02T03:04:05Z")
		require.NoError(q.f.T, q.f.NC.PublishMsg(msg))
	}
}

func TestConsumeTakesExactlyCount(t *testing.T) {
	for _, tc := range []struct{ count, maxInFlight int }{{1, 64}, {5, 64}, {5, 1}, {10, 3}, {10, 10}} {
		f := clitest.StartFake(t)
		q := startQueue(f, 20)
		r := clitest.OK(t, program.Run(t, "", "consume", "orders", "--consumer", "w1",
			"--count", fmt.Sprint(tc.count), "--max-in-flight", fmt.Sprint(tc.maxInFlight)))
		var want strings.Builder
		for i := range tc.count {
			fmt.Fprintf(&want, "message %d\n", i+1)
		}
		require.Equal(t, want.String(), r.Out)
		require.Equal(t, taken{sent: tc.count, acked: tc.count, left: 1}, q.taken(), "not one more was taken")
		require.Equal(t, "w1", q.consumer)
	}
}

func TestConsumeJSON(t *testing.T) {
	f := clitest.StartFake(t)
	startQueue(f, 1).headers = nats.Header{"name": {"caf\xe9", "a\ttab"}}
	r := clitest.OK(t, program.Run(t, "", "consume", "orders", "--count", "1", "--json"))
	var got map[string]any
	require.NoError(t, json.Unmarshal([]byte(r.Out), &got))
	require.Equal(t, 1, strings.Count(r.Out, "\n"))
	require.Equal(t, "message 1", got["payload"])
	require.Equal(t, "id-1", got["id"])
	require.Equal(t, "acme", got["key"])
	require.EqualValues(t, 1, got["attempt"])
	require.Equal(t, []any{`caf\xe9`, "a\ttab"}, got["headers"].(map[string]any)["name"], "JSON is UTF-8, headers may be anything")
}

func TestConsumeTimeout(t *testing.T) {
	f := clitest.StartFake(t)
	startQueue(f, 2)
	r := program.Run(t, "", "consume", "orders", "--timeout", "50ms")
	require.Equal(t, clitest.Ended(command.ExitOK, "message 1\nmessage 2\n", ""), r)

	startQueue(clitest.StartFake(t), 2)
	r = program.Run(t, "", "consume", "orders", "--timeout", "50ms", "--count", "3")
	require.Equal(t, command.ExitFailed, r.Code)
	require.Equal(t, "fila: 2 of 3 messages came; none within the last 50ms\n", r.Err)
}

func TestConsumeNoAck(t *testing.T) {
	f := clitest.StartFake(t)
	q := startQueue(f, 9)
	r := program.Run(t, "", "consume", "orders", "--no-ack", "--count", "3", "--max-in-flight", "1")
	require.Equal(t, clitest.Ended(command.ExitOK, "message 1\nmessage 2\nmessage 3\n", ""), r)
	require.Equal(t, taken{sent: 3, left: 1}, q.taken())
}

func TestConsumeStopsGracefully(t *testing.T) {
	f := clitest.StartFake(t)
	q := startQueue(f, 1)
	r := program.Start(t, nil, "consume", "orders")
	require.Eventually(t, func() bool { return r.Out.String() == "message 1\n" }, 10*time.Second, time.Millisecond)
	r.Stop()
	require.Equal(t, command.ExitOK, <-r.Code)
	require.Empty(t, r.Err.String())
	require.Equal(t, taken{sent: 1, acked: 1, left: 1}, q.taken())
}

func TestConsumeLostLeaseIsANotice(t *testing.T) {
	f := clitest.StartFake(t)
	q := startQueue(f, 1)
	q.ackError = &wire.Error{Code: 409, ErrCode: wire.CodeLeaseLost, Description: "lease lost"}
	clitest.Complains(t, program.Run(t, "", "consume", "orders", "--count", "1"), command.ExitOK, "fila: ack of id-1: lease lost")
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, os.ErrClosed }

func TestConsumeDoesNotAckWhatItCannotPrint(t *testing.T) {
	f := clitest.StartFake(t)
	q := startQueue(f, 1)
	var errOut clitest.Buffer
	code := program.Exec(t.Context(), []string{"consume", "orders"}, strings.NewReader(""), brokenWriter{}, &errOut)
	require.Equal(t, command.ExitFailed, code)
	require.Contains(t, errOut.String(), "file already closed")
	require.Equal(t, taken{sent: 1, nacked: 1, left: 1}, q.taken())
}

func TestConsumeUnknownQueue(t *testing.T) {
	f := clitest.StartFake(t)
	f.Answer("fila.consumer.>", &wire.Error{Code: 404, ErrCode: wire.CodeQueueNotFound, Description: "no such queue"})
	require.Equal(t, command.ExitNotFound, program.Run(t, "", "consume", "nosuch").Code)
}
