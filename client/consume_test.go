package client

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

// nextRequest returns the next registration or leave, and the name in its subject.
func (f *fakeFila) nextRequest() wire.ConsumeRequest {
	f.t.Helper()
	msg := next(f.t, f.requests)
	var request wire.ConsumeRequest
	require.NoError(f.t, json.Unmarshal(msg.Data, &request))
	request.Consumer, _, _ = f.subjects.ParseConsumer(msg.Subject)
	return request
}

func (k *Consumer) heldCount() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.mu.held)
}

func noWork(context.Context, *Message) error { return nil }

// consume registers the consumer w1 of orders. The channel receives background errors.
func consume(t *testing.T, c *Client, handler Handler, opts ...ConsumeOption) (*Consumer, <-chan error) {
	t.Helper()
	problems := make(chan error, 100)
	onError := func(err error) {
		select {
		case problems <- err:
		default:
		}
	}
	k, err := c.Consume(t.Context(), "orders", handler, append(opts, ConsumerName("w1"), OnError(onError))...)
	require.NoError(t, err)
	return k, problems
}

func stopWithin(t *testing.T, k *Consumer, d time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	return k.Stop(ctx)
}

// TestConsumeDuringATakeover: a registration without an answer or without an owner is repeated
// until the deadline. Without a deadline, or if a repetition cannot help, it fails.
func TestConsumeDuringATakeover(t *testing.T) {
	f, c := setup(t)
	for name, prepare := range map[string]func(){
		"no reply": func() { f.silence(1) },
		"nobody":   func() { f.refuseWith(wire.NoOwner("orders")) },
	} {
		t.Run(name, func(t *testing.T) {
			prepare()
			short, err := New(c.Conn(), WithTimeout(50*time.Millisecond))
			require.NoError(t, err)
			_, err = short.Consume(t.Context(), "orders", noWork, ConsumerName("w1"))
			require.Error(t, err)
			f.nextRequest()
			prepare()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			began := make(chan *Consumer)
			go func() {
				k, err := short.Consume(ctx, "orders", noWork, ConsumerName("w1"))
				assert.NoError(t, err)
				began <- k
			}()
			f.nextRequest()
			f.refuseWith(nil)
			require.NoError(t, stopWithin(t, <-began, time.Minute))
			for len(f.requests) > 0 {
				<-f.requests
			}
		})
	}
	f.refuseWith(wire.QueueNotFound("orders"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	_, err := c.Consume(ctx, "orders", noWork)
	require.Error(t, err)
}

func TestConsume(t *testing.T) {
	f, c := setup(t)
	k, problems := consume(t, c, func(ctx context.Context, m *Message) error {
		switch m.ID {
		case "bad":
			return errors.New("no good")
		case "panic":
			panic("oh")
		case "own":
			err := m.TermSync(ctx, "mine", "")
			require.NoError(t, ctx.Err(), "the handler may go on")
			return err
		}
		return nil
	}, MaxInFlight(5))
	require.Equal(t, "w1", k.Name())
	require.Equal(t, wire.ConsumeRequest{Consumer: "w1", MaxInFlight: 5, TTLMs: 30_000}, f.nextRequest())

	for id, want := range map[string]string{
		"good": "", "bad": `-NAK {"error":"no good"}`, "panic": `-NAK {"error":"panic: oh"}`, "own": "+TERM mine",
	} {
		f.deliver("w1", id)
		msg := next(t, f.acks)
		require.Equal(t, want, string(msg.Data))
		require.Equal(t, f.subjects.Ack("token-"+id, "orders"), msg.Subject)
	}
	problem := <-problems
	require.ErrorContains(t, problem, "panic: oh")
	var panicked *PanicError
	require.ErrorAs(t, problem, &panicked)
	require.Equal(t, "oh", panicked.Value)
	require.Contains(t, string(panicked.Stack), "TestConsume")
	require.Eventually(t, func() bool { return k.heldCount() == 0 }, 10*time.Second, time.Millisecond)

	require.NoError(t, stopWithin(t, k, patience))
	require.Equal(t, wire.ConsumeRequest{Consumer: "w1", Leave: true}, f.nextRequest())
	require.NoError(t, stopWithin(t, k, patience), "again")
	require.Empty(t, f.requests)
	require.Zero(t, c.nc.NumSubscriptions()-1, "only the inbox of requests is left")
}

func TestConsumeGeneratesNames(t *testing.T) {
	f, c := setup(t)
	for range 2 {
		k, err := c.Consume(t.Context(), "orders", noWork)
		require.NoError(t, err)
		require.NoError(t, wire.CheckConsumerName(k.Name()))
		require.Equal(t, k.Name(), f.nextRequest().Consumer)
		require.NoError(t, stopWithin(t, k, patience))
		f.nextRequest()
	}
}

// TestConsumerTakesWhatItCanHandle unless an option says otherwise.
func TestConsumerTakesWhatItCanHandle(t *testing.T) {
	f, c := setup(t)
	for _, tc := range []struct {
		want int
		opts []ConsumeOption
	}{
		{1, nil},
		{8, []ConsumeOption{Concurrency(8)}},
		{64, []ConsumeOption{Concurrency(8), Batch(64)}},
		{8, []ConsumeOption{Batch(4), Concurrency(8)}},
		{5, []ConsumeOption{MaxInFlight(5), Concurrency(8), Batch(64)}},
	} {
		k, _ := consume(t, c, noWork, tc.opts...)
		require.Equal(t, tc.want, f.nextRequest().MaxInFlight)
		require.NoError(t, stopWithin(t, k, patience))
		require.True(t, f.nextRequest().Leave)
	}
}

func TestConsumeRefusedLeavesNothing(t *testing.T) {
	f, c := setup(t)
	f.refuseWith(wire.QueueNotFound("orders"))
	_, err := c.Consume(t.Context(), "orders", noWork)
	requireRefused(t, err, 404)

	for _, opt := range []ConsumeOption{
		ConsumerName("a.b"), MaxInFlight(0), MaxInFlight(65_537), Concurrency(0), RegistrationTTL(time.Millisecond),
	} {
		_, err := c.Consume(t.Context(), "orders", noWork, opt)
		requireRefused(t, err, 400)
	}
	_, err = c.Consume(t.Context(), "bad name", noWork)
	requireRefused(t, err, 400)
	_, err = c.Consume(t.Context(), "orders", nil)
	require.ErrorContains(t, err, "without a handler")
	require.LessOrEqual(t, c.nc.NumSubscriptions(), 1, "only the inbox of requests is left")
}

func TestConsumerRenews(t *testing.T) {
	f, c := setup(t)
	k, problems := consume(t, c, noWork, RegistrationTTL(300*time.Millisecond), MinHeaders())
	for range 3 {
		require.Equal(t, wire.ConsumeRequest{Consumer: "w1", MaxInFlight: 1, TTLMs: 300, Headers: wire.HeadersMin}, f.nextRequest())
	}
	f.refuseWith(wire.Draining())
	require.ErrorContains(t, <-problems, "renew consumer w1 of orders: fila is shutting down")
	f.refuseWith(nil)
	require.NoError(t, k.SetMaxInFlight(t.Context(), 7))
	for f.nextRequest().MaxInFlight != 7 {
		continue // renewals that were on their way
	}
	require.Equal(t, 7, f.nextRequest().MaxInFlight, "renewals keep it")
	require.Error(t, k.SetMaxInFlight(t.Context(), 0))

	require.NoError(t, k.Leave(t.Context()))
	for !f.nextRequest().Leave {
		continue
	}
	require.NoError(t, stopWithin(t, k, patience))
	require.Empty(t, f.requests, "nothing after the leave")
}

func TestConsumerRegistersAfterReconnect(t *testing.T) {
	f, c := setup(t)
	k, _ := consume(t, c, noWork, RegistrationTTL(time.Hour))
	f.nextRequest()
	require.NoError(t, c.nc.ForceReconnect())
	require.Equal(t, "w1", f.nextRequest().Consumer)
	require.NoError(t, stopWithin(t, k, patience))
}

func TestConsumerExtendsLeases(t *testing.T) {
	f, c := setup(t)
	f.visibility.Store(60)
	release := make(chan struct{})
	held := make(chan *Message, 2)
	k, _ := consume(t, c, func(_ context.Context, m *Message) error {
		<-release
		held <- m
		return nil
	}, ManualAck())
	f.deliver("w1", "1")
	f.deliver("w1", "2") // waits behind the first
	seen := map[string]int{}
	for seen[f.subjects.Ack("token-1", "orders")] < 3 || seen[f.subjects.Ack("token-2", "orders")] < 3 {
		msg := next(t, f.acks)
		require.Equal(t, "+WPI", string(msg.Data))
		seen[msg.Subject]++
	}
	close(release)
	for _, m := range []*Message{<-held, <-held} { // manual: still held after the handler
		require.NoError(t, m.AckSync(t.Context()))
		require.ErrorIs(t, m.Ack(), ErrSettled)
	}
	require.Zero(t, k.heldCount())
	require.NoError(t, stopWithin(t, k, patience))
}

func TestStopFinishesWhatCame(t *testing.T) {
	f, c := setup(t)
	started, release := make(chan string, 10), make(chan struct{})
	k, _ := consume(t, c, func(_ context.Context, m *Message) error {
		started <- m.ID
		<-release
		return nil
	})
	f.nextRequest()
	for _, id := range []string{"1", "2", "3"} {
		f.deliver("w1", id)
	}
	require.Equal(t, "1", <-started)
	require.Eventually(t, func() bool { return k.heldCount() == 3 }, 10*time.Second, time.Millisecond)
	stopped := make(chan error, 1)
	go func() { stopped <- k.Stop(context.WithoutCancel(t.Context())) }()
	require.True(t, f.nextRequest().Leave)
	close(release)
	require.NoError(t, <-stopped)
	var acked []string
	for range 3 {
		msg := next(t, f.acks)
		require.Empty(t, msg.Data)
		acked = append(acked, msg.Subject)
	}
	require.True(t, slices.IsSorted(acked), "in order: %v", acked)
}

func TestStopGivesUp(t *testing.T) {
	f, c := setup(t)
	started := make(chan struct{})
	k, _ := consume(t, c, func(ctx context.Context, _ *Message) error {
		close(started)
		<-ctx.Done()
		return ctx.Err()
	}, Shared())
	f.nextRequest()
	f.deliver("w1", "1")
	f.deliver("w1", "2")
	<-started
	require.Eventually(t, func() bool { return k.heldCount() == 2 }, 10*time.Second, time.Millisecond)
	require.ErrorIs(t, stopWithin(t, k, 20*time.Millisecond), context.DeadlineExceeded)
	want := map[string]string{
		f.subjects.Ack("token-1", "orders"): `-NAK {"error":"context canceled"}`,
		f.subjects.Ack("token-2", "orders"): `-NAK {"delay":0,"error":"consumer stopped"}`,
	}
	for range 2 {
		msg := next(t, f.acks)
		require.Equal(t, want[msg.Subject], string(msg.Data))
		delete(want, msg.Subject)
	}
	require.Empty(t, f.requests, "a shared name does not leave")
}
