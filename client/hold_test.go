package client

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

// The client repeats an ack until fila confirms it: first nobody listens, then fila refuses it.
func TestAcksAreRepeated(t *testing.T) {
	f, c := setup(t)
	handled := make(chan struct{})
	k, problems := consume(t, c, func(context.Context, *Message) error {
		<-handled
		return nil
	})
	f.deliver("w1", "1")
	require.Eventually(t, func() bool { return k.heldCount() == 1 }, 10*time.Second, time.Millisecond)
	f.stopAcks()
	close(handled)
	require.Eventually(t, func() bool { return k.sentTimes() >= 2 }, 10*time.Second, time.Millisecond)
	f.refuseWith(&wire.Error{Code: 503, ErrCode: wire.CodeStoreFailed, Description: "no disk", RetryAfter: time.Millisecond})
	f.startAcks()
	require.Empty(t, next(t, f.acks).Data)
	require.Empty(t, next(t, f.acks).Data)
	require.Equal(t, 1, k.heldCount())
	f.refuseWith(nil)
	require.NoError(t, stopWithin(t, k, patience), "Stop waits for it")
	require.Zero(t, k.heldCount())
	require.Empty(t, problems)
}

func (k *Consumer) sentTimes() (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, h := range k.mu.held {
		n = max(n, h.sent)
	}
	return n
}

func TestRefusedAckIsReported(t *testing.T) {
	f, c := setup(t)
	k, problems := consume(t, c, noWork)
	f.refuseWith(wire.LeaseLost())
	f.deliver("w1", "1")
	require.ErrorIs(t, <-problems, ErrLeaseLost)
	require.Zero(t, k.heldCount())
	f.refuseWith(nil)
	require.NoError(t, stopWithin(t, k, patience))
}

// When a lease is lost, the context of its handler ends and its ack is not sent. Waiting
// messages whose leases are lost are not handled.
func TestLostLeaseCancelsTheHandler(t *testing.T) {
	f, c := setup(t)
	f.visibility.Store(30)
	causes := make(chan error, 10)
	bothLost := make(chan struct{})
	k, problems := consume(t, c, func(ctx context.Context, m *Message) error {
		if m.ID == "3" {
			return nil
		}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		<-bothLost
		require.ErrorIs(t, m.AckSync(ctx), ErrLeaseLost)
		return ctx.Err()
	})
	f.deliver("w1", "1")
	f.deliver("w1", "2")
	require.Equal(t, "+WPI", string(next(t, f.acks).Data))
	f.refuseWith(wire.LeaseLost())
	require.ErrorIs(t, <-causes, ErrLeaseLost)
	for range 2 {
		require.ErrorIs(t, <-problems, ErrLeaseLost)
	}
	require.Zero(t, k.heldCount())
	close(bothLost)
	f.refuseWith(nil)
	f.deliver("w1", "3")
	for {
		if msg := next(t, f.acks); string(msg.Data) != "+WPI" {
			require.Empty(t, msg.Data)
			require.Equal(t, f.subjects.Ack("token-3", "orders"), msg.Subject)
			break
		}
	}
	require.NoError(t, stopWithin(t, k, patience))
	require.Empty(t, causes, "the second one was not begun")
}

func TestHandlerThatEndsItsGoroutine(t *testing.T) {
	f, c := setup(t)
	ctxs := make(chan context.Context, 1)
	k, problems := consume(t, c, func(ctx context.Context, m *Message) error {
		if m.ID == "1" {
			ctxs <- ctx
			runtime.Goexit()
		}
		return nil
	})
	f.deliver("w1", "1")
	f.deliver("w1", "2")
	require.Equal(t, `-NAK {"error":"the handler ended its goroutine"}`, string(next(t, f.acks).Data))
	require.Empty(t, next(t, f.acks).Data, "another worker took over")
	var ended *PanicError
	require.ErrorAs(t, <-problems, &ended)
	ctx := <-ctxs
	require.Eventually(t, func() bool { return ctx.Err() != nil }, 10*time.Second, time.Millisecond, "its context is let go")
	require.NoError(t, stopWithin(t, k, patience))
}

func TestConsumerOnAClosedConnection(t *testing.T) {
	f, c := setup(t)
	k, problems := consume(t, c, func(ctx context.Context, _ *Message) error {
		c.nc.Close()
		return nil
	}, RegistrationTTL(100*time.Millisecond))
	f.deliver("w1", "1")
	for range 2 { // the ack and the renewal
		require.ErrorIs(t, <-problems, nats.ErrConnectionClosed)
	}
	require.ErrorIs(t, stopWithin(t, k, patience), nats.ErrConnectionClosed)
	require.Empty(t, problems, "once each")
}

// After Stop a message that is still held can be settled, without a Consumer that repeats the
// answer.
func TestSettleAfterStop(t *testing.T) {
	f, c := setup(t)
	held := make(chan *Message, 3)
	k, _ := consume(t, c, func(_ context.Context, m *Message) error {
		held <- m
		return nil
	}, ManualAck())
	for _, id := range []string{"1", "2", "3"} {
		f.deliver("w1", id)
	}
	first, second, third := <-held, <-held, <-held
	require.NoError(t, stopWithin(t, k, patience))
	require.NoError(t, first.AckSync(t.Context()))
	require.NoError(t, second.Nack(NackOptions{Error: "late"}))
	f.refuseWith(wire.Draining())
	require.Error(t, third.AckSync(t.Context()))
	f.refuseWith(nil)
	require.NoError(t, third.AckSync(t.Context()), "can be asked again")
	for _, want := range []string{"", `-NAK {"error":"late"}`, "", ""} {
		require.Equal(t, want, string(next(t, f.acks).Data))
	}
}

// After SetMaxInFlight more messages arrive, and the consumer extends the leases of all.
func TestRaisedMaxInFlight(t *testing.T) {
	f, c := setup(t)
	f.visibility.Store(90)
	release := make(chan struct{})
	k, _ := consume(t, c, func(context.Context, *Message) error {
		<-release
		return errors.New("again")
	}, MaxInFlight(1))
	require.NoError(t, k.SetMaxInFlight(t.Context(), 20))
	ids := []string{"a", "b", "c", "d", "e", "f"}
	for _, id := range ids {
		f.deliver("w1", id)
	}
	extended := map[string]bool{}
	for len(extended) < len(ids) {
		msg := next(t, f.acks)
		require.Equal(t, "+WPI", string(msg.Data))
		extended[msg.Subject] = true
	}
	close(release)
	require.NoError(t, stopWithin(t, k, patience))
}
