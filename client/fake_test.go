package client

import (
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

// startNATS runs a NATS server without a port, for these users or for everybody.
func startNATS(t *testing.T, users ...*server.User) *server.Server {
	t.Helper()
	srv, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true, Users: users})
	require.NoError(t, err)
	srv.Start()
	require.True(t, srv.ReadyForConnections(5*time.Second))
	t.Cleanup(func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	})
	return srv
}

func connect(t *testing.T, srv nats.InProcessConnProvider) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(srv), nats.ReconnectWait(time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc
}

// fakeFila answers on the subjects of fila; a test sets the answers.
type fakeFila struct {
	t        *testing.T
	nc       *nats.Conn
	subjects wire.Subjects
	ackSub   *nats.Subscription

	visibility atomic.Int64   // ms, in replies to registrations
	requests   chan *nats.Msg // registrations, leaves
	acks       chan *nats.Msg // everything sent to a reply subject of a delivery

	mu struct {
		sync.Mutex
		silent int         // how many of the next of these requests get no reply
		refuse *wire.Error // answer of the next ack requests and registrations
	}
}

func startFake(t *testing.T, srv *server.Server) *fakeFila {
	t.Helper()
	subjects, err := wire.NewSubjects("fila")
	require.NoError(t, err)
	f := &fakeFila{
		t: t, nc: connect(t, srv), subjects: subjects,
		requests: make(chan *nats.Msg, 1000), acks: make(chan *nats.Msg, 1000),
	}
	f.visibility.Store(30_000)
	f.handle(subjects.Wildcard(wire.KindConsumer), func(msg *nats.Msg) {
		name, _, _ := subjects.ParseConsumer(msg.Subject)
		request, bad := wire.ParseConsumer(name, msg.Data)
		if request.Fetch != nil {
			return // for the test
		}
		f.requests <- msg
		if f.refused(msg) {
			return
		}
		if bad != nil {
			f.reply(msg, bad)
			return
		}
		f.reply(msg, wire.ConsumeReply{MaxInFlight: request.MaxInFlight, VisibilityTimeoutMs: f.visibility.Load(), Left: request.Leave})
	})
	f.startAcks()
	return f
}

func (f *fakeFila) startAcks() {
	f.ackSub = f.handle(f.subjects.Wildcard(wire.KindAck), func(msg *nats.Msg) {
		f.acks <- msg
		if msg.Reply != "" && !f.refused(msg) {
			if err := msg.Respond(nil); !f.nc.IsClosed() { // the test may have ended
				require.NoError(f.t, err)
			}
		}
	})
}

// stopAcks leaves acks without a responder.
func (f *fakeFila) stopAcks() {
	require.NoError(f.t, f.ackSub.Unsubscribe())
	require.NoError(f.t, f.nc.Flush())
}

func (f *fakeFila) handle(subject string, fn nats.MsgHandler) *nats.Subscription {
	sub, err := f.nc.Subscribe(subject, fn)
	require.NoError(f.t, err)
	require.NoError(f.t, f.nc.Flush())
	return sub
}

// failingQueues are queues that refuse every message.
func (f *fakeFila) failingQueues() {
	f.handle("fila.enqueue.full", func(msg *nats.Msg) {
		f.reply(msg, &wire.Error{Code: 429, ErrCode: wire.CodeBacklogMessages, Description: "full", RetryAfter: 1500 * time.Millisecond})
	})
	f.handle("fila.enqueue.silent", func(*nats.Msg) {})
	f.handle("fila.enqueue.odd", func(msg *nats.Msg) { require.NoError(f.t, msg.Respond([]byte("OK"))) })
}

func (f *fakeFila) refuseWith(e *wire.Error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.refuse = e
}

// silence leaves the next n requests without a reply.
func (f *fakeFila) silence(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.silent = n
}

func (f *fakeFila) refused(msg *nats.Msg) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.silent > 0 {
		f.mu.silent--
		return true
	}
	if f.mu.refuse == nil {
		return false
	}
	f.reply(msg, f.mu.refuse)
	return true
}

func (f *fakeFila) reply(to *nats.Msg, v any) {
	msg := nats.NewMsg(to.Reply)
	if refusal, ok := v.(*wire.Error); ok {
		msg.Header, msg.Data = refusal.Headers(), refusal.Body()
	} else {
		data, err := json.Marshal(v)
		require.NoError(f.t, err)
		msg.Data = data
	}
	if err := f.nc.PublishMsg(msg); !errors.Is(err, nats.ErrConnectionClosed) { // the test is over
		require.NoError(f.t, err)
	}
}

// delivery is a message as fila sends it.
func (f *fakeFila) delivery(subject, id string, attempt int) *nats.Msg {
	msg := nats.NewMsg(subject)
	msg.Reply = f.subjects.Ack("token-"+id, "orders")
	msg.Data = []byte("payload " + id)
	msg.Header.Set("tenant", "acme")
	msg.Header.Set(wire.HeaderID, id)
	msg.Header.Set(wire.HeaderQueue, "orders")
	msg.Header.Set(wire.HeaderKey, "acme")
	msg.Header.Set(wire.HeaderAttempt, strconv.Itoa(attempt))
	msg.Header.Set(wire.HeaderEnqueuedAt, "2026-01-02T03:04:05.000000006Z")
	msg.Header.Set(wire.HeaderDeadline, "2026-01-02T03:04:35Z")
	return msg
}

func (f *fakeFila) deliver(consumer, id string) {
	require.NoError(f.t, f.nc.PublishMsg(f.delivery(f.subjects.Deliver(consumer, "orders"), id, 1)))
}

// next waits for the next value of a channel.
func next(t *testing.T, from <-chan *nats.Msg) *nats.Msg {
	t.Helper()
	select {
	case msg := <-from:
		return msg
	case <-time.After(10 * time.Second):
		require.FailNow(t, "nothing came")
		return nil
	}
}

func newClient(t *testing.T, srv nats.InProcessConnProvider, opts ...Option) *Client {
	t.Helper()
	c, err := New(connect(t, srv), opts...)
	require.NoError(t, err)
	return c
}

// setup starts a NATS server with a fake fila, and returns the fila and a client.
func setup(t *testing.T, opts ...Option) (*fakeFila, *Client) {
	t.Helper()
	srv := startNATS(t)
	return startFake(t, srv), newClient(t, srv, opts...)
}

// refusal requires that err is a refusal and returns it.
func refusal(t *testing.T, err error, msg ...any) *Error {
	t.Helper()
	var refused *Error
	require.ErrorAs(t, err, &refused, msg...)
	return refused
}

func requireRefused(t *testing.T, err error, code int, msg ...any) {
	t.Helper()
	require.Equal(t, code, refusal(t, err, msg...).Code, msg...)
}

// adminRequest is a call that makes a request of one subject and body (JSON, or
// nothing) and returns the reply.
type adminRequest struct {
	name, subject, body string
	reply               any
	call                func() (any, error)
}

func testRequests(t *testing.T, f *fakeFila, requests []adminRequest) {
	t.Helper()
	for _, r := range requests {
		t.Run(r.name, func(t *testing.T) {
			got := make(chan *nats.Msg, 1)
			sub := f.handle(r.subject, func(msg *nats.Msg) {
				got <- msg
				f.reply(msg, r.reply)
			})
			reply, err := r.call()
			require.NoError(t, err)
			require.Equal(t, r.reply, reply)
			if data := next(t, got).Data; r.body == "" {
				require.Empty(t, data)
			} else {
				require.JSONEq(t, r.body, string(data))
			}
			require.NoError(t, sub.Unsubscribe())
		})
	}
}
