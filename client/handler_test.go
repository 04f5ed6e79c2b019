package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// TestHandlersSayHowTheyFail by the error that they return, also through middleware and wrapping.
func TestHandlersSayHowTheyFail(t *testing.T) {
	f, c := setup(t)
	gone := errors.New("gone")
	var order []string
	named := func(name string) func(Handler) Handler {
		return func(next Handler) Handler {
			return func(ctx context.Context, m *Message) error {
				order = append(order, name)
				err := next(ctx, m)
				if err != nil {
					err = fmt.Errorf("%s: %w", name, err)
				}
				return err
			}
		}
	}
	outcomes := map[string]error{
		"+TERM gone":                           Dead(gone, ""),
		`+TERM {"code":"E1","error":"gone"}`:   Dead(gone, "E1"),
		"+TERM":                                Dead(nil, ""),
		`-NAK {"error":"gone"}`:                Retry(gone, NackOptions{}),
		`-NAK {"code":"E1","error":"gone"}`:    Retry(gone, NackOptions{Code: "E1"}),
		`-NAK {"delay":1000000000}`:            Retry(nil, NackOptions{Delay: time.Second}),
		`-NAK {"error":"mine"}`:                Retry(gone, NackOptions{Error: "mine"}),
		`-NAK {"error":"outer: inner: plain"}`: errors.New("plain"),
		`-NAK {"delay":2000000000,"error":"outer: inner: full (429, err_code 10429)"}`: &Error{Code: 429, ErrCode: 10429, Description: "full", RetryAfter: 2 * time.Second},
		`-NAK {"delay":3000000,"error":"outer: inner: the guard refuses the call: rate k, ask again in 3ms"}`: &RefusedError{
			api.GuardAnswer{Gate: "rate", Key: "k", RetryAfterMs: 3},
		},
		"": nil,
	}
	for want, outcome := range outcomes {
		order = nil
		k, _ := consume(t, c, func(context.Context, *Message) error { return outcome }, Use(named("outer"), named("inner")))
		f.deliver("w1", "1")
		require.Equal(t, want, f.nextAck())
		require.NoError(t, stopWithin(t, k, patience))
		require.Equal(t, []string{"outer", "inner"}, order)
	}
	require.ErrorIs(t, Dead(gone, "E1"), gone)
	require.ErrorIs(t, Retry(gone, NackOptions{Error: "mine"}), gone)
}

// TestBackgroundErrorsAreLogged unless an option takes them.
func TestBackgroundErrorsAreLogged(t *testing.T) {
	f, c := setup(t)
	var text bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&text, nil)))
	defer slog.SetDefault(before)
	k, err := c.Consume(t.Context(), "orders", func(context.Context, *Message) error { panic("oh") }, ConsumerName("w1"))
	require.NoError(t, err)
	f.deliver("w1", "1")
	require.Equal(t, `-NAK {"error":"panic: oh"}`, f.nextAck())
	require.NoError(t, stopWithin(t, k, patience))
	require.Contains(t, text.String(), `level=WARN msg="fila consumer" queue=orders consumer=w1 error="handler of 1: panic: oh"`)
}

// TestJSONHandler: a payload of another type becomes a dead letter without a call.
func TestJSONHandler(t *testing.T) {
	_, c := setup(t)
	type order struct{ ID int }
	got := order{}
	handle := JSONHandler(func(_ context.Context, m *Message, o order) error {
		got = o
		return m.Ack()
	})
	message := func(payload string) *Message {
		return c.newMessage(&nats.Msg{Data: []byte(payload), Reply: "reply"}, "orders")
	}
	require.NoError(t, handle(t.Context(), message(`{"id":7}`)))
	require.Equal(t, order{7}, got)
	for _, payload := range []string{"", "{", `{"id":"7"}`} {
		err := handle(t.Context(), message(payload))
		require.ErrorContains(t, err, "the payload is no client.order: ")
		var failed *failure
		require.ErrorAs(t, err, &failed)
	}
}

// TestWork leaves the queue when its context ends, also during the registration, and acks what its
// handler has begun.
func TestWork(t *testing.T) {
	f, c := setup(t)
	ctx, stop := context.WithCancel(t.Context())
	handled := func(context.Context, *Message) error {
		stop()
		return nil
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Work(ctx, "orders", handled, ConsumerName("w1"), StopWithin(patience)) }()
	f.nextRequest()
	f.deliver("w1", "1")
	require.Empty(t, f.nextAck())
	require.NoError(t, <-ended)
	require.True(t, f.nextRequest().Leave)

	require.NoError(t, c.Work(ctx, "orders", handled), "the context has ended already")
	require.False(t, f.nextRequest().Leave)
	require.True(t, f.nextRequest().Leave)

	f.refuseWith(wire.QueueNotFound("orders"))
	requireRefused(t, c.Work(t.Context(), "orders", handled), 404)
	f.nextRequest()
	f.refuseWith(nil)

	go func() {
		ended <- c.Work(t.Context(), "orders", handled, ConsumerName("w1"), StopWithin(time.Millisecond))
	}()
	f.nextRequest()
	f.deliver("w1", "2")
	require.Empty(t, f.nextAck(), "it is registered")
	c.nc.Close()
	require.ErrorIs(t, <-ended, nats.ErrConnectionClosed)
}
