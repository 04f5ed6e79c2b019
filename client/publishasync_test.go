package client

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

// confirm answers an enqueue as fila does.
func (f *fakeFila) confirm(msg *nats.Msg) {
	f.reply(msg, wire.EnqueueReply{ID: "id-" + string(msg.Data), Queue: "orders"})
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func result(t *testing.T, f *PublishFuture) (Receipt, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	receipt, err := f.Wait(ctx)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	return receipt, err
}

func TestPublishAsync(t *testing.T) {
	f, c := setup(t)
	require.True(t, isClosed(c.PublishAsyncComplete()), "nothing is on its way")
	got := make(chan *nats.Msg, 100)
	f.handle("fila.enqueue.orders", func(msg *nats.Msg) { got <- msg })
	var futures []*PublishFuture
	for i := range 3 {
		future, err := c.PublishAsync(t.Context(), "orders", fmt.Append(nil, i), Header("tenant", "acme"))
		require.NoError(t, err)
		require.Equal(t, "orders", future.Queue())
		futures = append(futures, future)
	}
	ok := futures[0].Ok()
	require.Equal(t, 3, c.PublishAsyncPending())
	complete := c.PublishAsyncComplete()
	for range 3 {
		msg := next(t, got)
		require.Equal(t, "acme", msg.Header.Get("tenant"))
		require.False(t, isClosed(complete))
		f.confirm(msg)
	}
	<-complete
	require.Zero(t, c.PublishAsyncPending())
	for i, future := range futures {
		require.True(t, isClosed(future.Done()))
		receipt, err := future.Result()
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint("id-", i), receipt.ID)
		require.Equal(t, fmt.Sprint(i), string(future.Msg().Data))
	}
	require.Equal(t, "id-0", (<-ok).ID, "asked before it was there")
	require.Equal(t, "id-1", (<-futures[1].Ok()).ID, "and after")
	require.Empty(t, futures[1].Err())
}

func TestPublishAsyncWindow(t *testing.T) {
	f, c := setup(t, WithMaxPending(2))
	got := make(chan *nats.Msg, 100)
	f.handle("fila.enqueue.orders", func(msg *nats.Msg) { got <- msg })
	publish := func(ctx context.Context, opts ...PublishOption) error {
		_, err := c.PublishAsync(ctx, "orders", nil, opts...)
		return err
	}
	require.NoError(t, publish(t.Context()))
	require.NoError(t, publish(t.Context()))
	require.ErrorIs(t, publish(t.Context(), NoWait()), ErrWindowFull)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	err := publish(ctx)
	require.ErrorIs(t, err, ErrWindowFull)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	waited := make(chan error, 1)
	go func() { waited <- publish(context.WithoutCancel(t.Context())) }()
	f.confirm(next(t, got))
	require.NoError(t, <-waited)
	next(t, got)
	next(t, got)
	require.Empty(t, got, "what was refused was not sent")
	require.ErrorIs(t, publish(ctx), context.DeadlineExceeded)

	_, err = New(c.nc, WithMaxPending(0))
	require.ErrorContains(t, err, "max pending")
}

func TestPublishAsyncFails(t *testing.T) {
	var told atomic.Int64
	f, c := setup(t, WithTimeout(50*time.Millisecond), WithPublishErrHandler(func(*PublishFuture, error) { told.Add(1) }))
	f.failingQueues()
	for queue, check := range map[string]func(err error){
		"full": func(err error) {
			requireRefused(t, err, 429)
			require.Equal(t, 1500*time.Millisecond, refusal(t, err).RetryAfter)
		},
		"nobody": func(err error) { require.ErrorIs(t, err, ErrNoFila) },
		"silent": func(err error) { require.ErrorIs(t, err, ErrNoReply) },
		"odd":    func(err error) { require.ErrorContains(t, err, "not what fila sends") },
	} {
		future, err := c.PublishAsync(t.Context(), queue, nil)
		require.NoError(t, err)
		_, err = result(t, future)
		check(err)
		check(<-future.Err())
	}
	<-c.PublishAsyncComplete()
	require.Eventually(t, func() bool { return told.Load() == 4 }, 10*time.Second, time.Millisecond)

	_, err := c.PublishAsync(t.Context(), "bad name", nil)
	requireRefused(t, err, 400)
	_, err = c.PublishAsync(t.Context(), "silent", make([]byte, 2<<20))
	requireRefused(t, err, 413)
	require.Zero(t, c.PublishAsyncPending())

	future, err := c.PublishAsync(t.Context(), "silent", nil)
	require.NoError(t, err)
	c.Close()
	_, err = result(t, future)
	require.ErrorIs(t, err, ErrClosed)
	_, err = c.PublishAsync(t.Context(), "silent", nil)
	require.ErrorIs(t, err, ErrClosed)
	require.Zero(t, c.PublishAsyncPending())
}

// TestPublishAsyncMissingReply: a missing reply does not delay other messages, but it delays
// completion.
func TestPublishAsyncMissingReply(t *testing.T) {
	f, c := setup(t, WithTimeout(100*time.Millisecond))
	f.handle("fila.enqueue.silent", func(*nats.Msg) {})
	f.handle("fila.enqueue.orders", func(msg *nats.Msg) { require.NoError(t, msg.Respond([]byte(`{"id":"1","queue":"orders"}`))) })
	lost, err := c.PublishAsync(t.Context(), "silent", nil)
	require.NoError(t, err)
	one, two := c.PublishAsyncComplete(), c.PublishAsyncComplete()
	for range 100 {
		future, err := c.PublishAsync(t.Context(), "orders", nil)
		require.NoError(t, err)
		_, err = result(t, future)
		require.NoError(t, err)
	}
	_, err = result(t, lost)
	require.ErrorIs(t, err, ErrNoReply)
	<-one
	<-two
	c.async.mu.Lock()
	defer c.async.mu.Unlock()
	require.Empty(t, c.async.mu.requests)
	require.Empty(t, c.async.mu.sent)
}

// bothWays are the ways to publish to orders.
func bothWays(t *testing.T, c *Client, payload []byte) map[string]func(...PublishOption) (Receipt, error) {
	return map[string]func(...PublishOption) (Receipt, error){
		"async": func(opts ...PublishOption) (Receipt, error) {
			future, err := c.PublishAsync(t.Context(), "orders", payload, opts...)
			if err != nil {
				return Receipt{}, err
			}
			return result(t, future)
		},
		"sync": func(opts ...PublishOption) (Receipt, error) {
			return c.Publish(t.Context(), "orders", payload, opts...)
		},
	}
}

// TestPublishRetries with a queue that is full at first, then does not reply, and then stores
// the message.
func TestPublishRetries(t *testing.T) {
	f, c := setup(t, WithTimeout(20*time.Millisecond))
	var tries atomic.Int64
	f.handle("fila.enqueue.orders", func(msg *nats.Msg) {
		switch tries.Add(1) {
		case 1:
			f.reply(msg, &wire.Error{Code: 429, ErrCode: wire.CodeBacklogMessages, Description: "full", RetryAfter: 5 * time.Millisecond})
		case 2:
			f.reply(msg, &wire.Error{Code: 500, ErrCode: wire.CodeOutcomeUnknown, Description: "unknown"})
		case 3:
		default:
			f.confirm(msg)
		}
	})
	for name, publish := range bothWays(t, c, []byte("1")) {
		t.Run(name, func(t *testing.T) {
			tries.Store(0)
			receipt, err := publish(RetryFor(time.Minute), DedupeID("1"))
			require.NoError(t, err)
			require.Equal(t, "id-1", receipt.ID)
			require.EqualValues(t, 4, tries.Load())

			tries.Store(0)
			_, err = publish(RetryFor(time.Minute))
			requireRefused(t, err, 500, "without an id a second copy would be stored")
			require.EqualValues(t, 2, tries.Load())

			tries.Store(0)
			_, err = publish(RetryFor(time.Millisecond), DedupeID("1"))
			requireRefused(t, err, 429, "the last error, since the next try would be too late")
			require.EqualValues(t, 1, tries.Load())
		})
	}
	require.Zero(t, c.PublishAsyncPending())
}

// brittle is a server; a test can make one write to it fail.
type brittle struct {
	*server.Server
	fail atomic.Bool
}

type brittleConn struct {
	net.Conn
	b *brittle
}

func (b *brittle) InProcessConn() (net.Conn, error) {
	conn, err := b.Server.InProcessConn()
	return &brittleConn{conn, b}, err
}

func (c *brittleConn) Write(data []byte) (int, error) {
	if c.b.fail.CompareAndSwap(true, false) {
		return 0, &net.OpError{Op: "write", Net: "tcp", Err: syscall.ECONNRESET}
	}
	return c.Conn.Write(data)
}

// TestPublishRetriesBrokenWrites: a publish that fills the buffer writes it, and gets the error
// of a connection that was just lost.
func TestPublishRetriesBrokenWrites(t *testing.T) {
	srv := startNATS(t)
	f := startFake(t, srv)
	b := &brittle{Server: srv}
	c := newClient(t, b)
	f.handle("fila.enqueue.orders", func(msg *nats.Msg) { f.reply(msg, wire.EnqueueReply{ID: "1", Queue: "orders"}) })
	large := make([]byte, 64<<10)
	for name, publish := range bothWays(t, c, large) {
		t.Run(name, func(t *testing.T) {
			_, err := publish()
			require.NoError(t, err, "now it has its subscription")
			require.NoError(t, c.nc.Flush())
			b.fail.Store(true)
			_, err = publish(RetryFor(time.Minute), DedupeID("1"))
			require.NoError(t, err)
			require.False(t, b.fail.Load())

			require.NoError(t, c.nc.Flush())
			b.fail.Store(true)
			_, err = publish(RetryFor(time.Minute))
			require.ErrorIs(t, err, ErrNoReply, "without an id a second copy would be stored")
			require.ErrorIs(t, err, syscall.ECONNRESET)
			require.Zero(t, c.PublishAsyncPending())
		})
	}
}

func TestLostConnectionsLeaveTheOutcomeOpen(t *testing.T) {
	for _, err := range []error{
		nats.ErrTimeout, nats.ErrDisconnected, context.DeadlineExceeded, io.EOF, io.ErrClosedPipe, net.ErrClosed,
		&net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE},
	} {
		require.ErrorIs(t, sendError("x", err), ErrNoReply)
		require.ErrorIs(t, sendError("x", err), err)
	}
	for _, err := range []error{nats.ErrConnectionClosed, nats.ErrMaxPayload, nats.ErrReconnectBufExceeded, nats.ErrNoResponders, context.Canceled, ErrClosed} {
		require.NotErrorIs(t, sendError("x", err), ErrNoReply)
	}
}

func TestRetryAfter(t *testing.T) {
	for _, tc := range []struct {
		err         error
		safe, again bool
	}{
		{&Error{Code: 400}, true, false},
		{&Error{Code: 404}, true, false},
		{&Error{Code: 413}, true, false},
		{&Error{Code: 429}, false, true},
		{&Error{Code: 500}, false, false},
		{&Error{Code: 500}, true, true},
		{&Error{Code: 503}, false, true},
		{ErrNoFila, false, true},
		{ErrNoReply, false, false},
		{ErrNoReply, true, true},
		{nats.ErrReconnectBufExceeded, false, true},
		{nats.ErrConnectionClosed, true, false},
	} {
		for spread, most := range map[float64]time.Duration{0: 2 * retryFirst, 1: 4 * retryFirst} {
			wait, again := retryAfter(tc.err, 3, tc.safe, spread)
			require.Equal(t, tc.again, again, "%v", tc)
			require.Equal(t, most, wait, "%v", tc)
		}
	}
	for spread, want := range map[float64]time.Duration{0: time.Second, 1: 1250 * time.Millisecond} { // never earlier than asked
		wait, again := retryAfter(&Error{Code: 429, RetryAfter: time.Second}, 1, false, spread)
		require.True(t, again)
		require.Equal(t, want, wait)
	}
	for try := range 100 {
		wait, _ := retryAfter(ErrNoFila, try+1, false, 1)
		require.LessOrEqual(t, wait, retryMost)
	}
}
