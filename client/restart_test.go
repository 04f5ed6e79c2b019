package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/e2e/natstest"
)

// history counts what handlers saw, by payload, and what was confirmed, by message
// id.
type history struct {
	sync.Mutex
	handled, acked map[string]int
	problems       []error
}

func newHistory() *history { return &history{handled: map[string]int{}, acked: map[string]int{}} }

func (h *history) handle(ctx context.Context, m *Message) error {
	h.Lock()
	h.handled[string(m.Data)]++ // one that a kill took before it was confirmed gets another id
	h.Unlock()
	err := m.AckSync(ctx)
	h.Lock()
	defer h.Unlock()
	if err == nil {
		h.acked[m.ID]++
	}
	return err
}

func (h *history) onError(err error) {
	h.Lock()
	defer h.Unlock()
	h.problems = append(h.problems, err)
}

// TestRestarts kills fila and restarts NATS under a producer and a consumer: all confirmed
// messages are handled, none is acked twice, and both clients reconnect.
func TestRestarts(t *testing.T) {
	t.Parallel()
	n := natstest.Start(t)
	p := startFila(t, n.URL, "[[queue]]\nname = \"orders\"\nvisibility_timeout_ms = 3000\n")
	producer, consumer := dial(t, n.URL, WithTimeout(time.Second)), dial(t, n.URL, WithTimeout(30*time.Second))
	h := newHistory()
	k, err := consumer.Consume(t.Context(), "orders", h.handle, Concurrency(8), Batch(16), OnError(h.onError))
	require.NoError(t, err)

	const messages = 2000
	published := make(chan map[string]bool, 1)
	disturb := make(chan struct{})
	go func() {
		ids := map[string]bool{}
		defer func() { published <- ids }()
		defer close(disturb) // also when it gave up early
		var futures []*PublishFuture
		for i := range messages {
			if i%(messages/5) == messages/10 {
				disturb <- struct{}{}
			}
			future, err := producer.PublishAsync(context.WithoutCancel(t.Context()), "orders", fmt.Append(nil, i),
				DedupeID(fmt.Sprint("m", i)), RetryFor(patience))
			if err != nil {
				h.onError(err)
				return
			}
			futures = append(futures, future)
		}
		for _, future := range futures {
			receipt, err := future.Result()
			if err != nil {
				h.onError(err)
				return
			}
			ids[receipt.ID] = true
		}
	}()
	for round := range 5 {
		<-disturb
		if round%2 == 0 {
			p.restart(t)
		} else {
			n.Stop()
			n.Again()
		}
	}
	ids := <-published
	require.Len(t, ids, messages, "%v", h.problems)
	require.Eventually(t, func() bool {
		info, err := consumer.QueueInspect(t.Context(), "orders", 0)
		return err == nil && info.Pending == 0 && info.InFlight == 0
	}, patience, 50*time.Millisecond)
	require.NoError(t, stopWithin(t, k, patience))
	for id, times := range h.acked {
		require.True(t, ids[id])
		require.Equal(t, 1, times, "confirmed acks of %s", id)
	}
	// An ack whose confirmation was lost in a crash leaves a message handled but
	// not known to be acked; there can be no more than were in hand.
	require.Len(t, h.handled, messages)
	t.Logf("%d messages, %d acks confirmed, %d handled twice or more, %d problems",
		messages, len(h.acked), repeated(h.handled), len(h.problems))
}

func repeated(counts map[string]int) (n int) {
	for _, times := range counts {
		if times > 1 {
			n++
		}
	}
	return n
}

// The lease of a message outlives its visibility timeout and a restart of fila
// while its handler runs. The timeout leaves a slow machine time to restart.
func TestLeaseIsExtended(t *testing.T) {
	t.Parallel()
	n := natstest.Start(t)
	p := startFila(t, n.URL, "[[queue]]\nname = \"orders\"\nvisibility_timeout_ms = 4000\n")
	c := dial(t, n.URL)
	attempts := make(chan int, 100)
	k, err := c.Consume(t.Context(), "orders", func(ctx context.Context, m *Message) error {
		err := m.ExtendSync(ctx) // now the lease is on disk
		attempts <- m.Attempt
		if err != nil {
			return err
		}
		if m.Attempt > 1 {
			return errors.New("delivered again")
		}
		select {
		case <-time.After(6 * time.Second):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}, OnError(func(err error) { t.Log(err) }))
	require.NoError(t, err)
	_, err = c.Publish(t.Context(), "orders", []byte("slow"))
	require.NoError(t, err)
	require.Equal(t, 1, <-attempts)
	p.restart(t)
	require.Eventually(t, func() bool {
		info, err := c.QueueInspect(t.Context(), "orders", 0)
		return err == nil && info.Pending == 0 && info.InFlight == 0
	}, patience, 20*time.Millisecond)
	require.Empty(t, attempts, "it was delivered once")
	require.NoError(t, stopWithin(t, k, patience))
}

// With RetryFor all messages get into a full queue as soon as there is space. A message of one
// fetch is not fetched again.
func TestFullQueue(t *testing.T) {
	t.Parallel()
	p := startFila(t, "", "[[queue]]\nname = \"orders\"\nmax_depth = 10\n")
	c := dial(t, p.url)
	for range 10 {
		_, err := c.Publish(t.Context(), "orders", nil)
		require.NoError(t, err)
	}
	_, err := c.Publish(t.Context(), "orders", nil)
	requireRefused(t, err, 429)
	require.Positive(t, refusal(t, err).RetryAfter)

	future, err := c.PublishAsync(t.Context(), "orders", nil, RetryFor(patience))
	require.NoError(t, err)
	messages, err := c.Fetch(t.Context(), "orders", 100, 0, FetchBatched())
	require.NoError(t, err)
	require.Len(t, messages, 10)
	for _, m := range messages[:5] {
		require.NoError(t, m.Ack())
	}
	for _, m := range messages[5:] {
		require.NoError(t, m.AckSync(t.Context()))
		require.ErrorIs(t, m.AckSync(t.Context()), ErrSettled)
	}
	_, err = future.Result()
	require.NoError(t, err)
	messages, err = c.Fetch(t.Context(), "orders", 1, time.Minute)
	require.NoError(t, err)
	require.Len(t, messages, 1)
	require.NoError(t, messages[0].ExtendSync(t.Context()))
	require.NoError(t, messages[0].Nack(NackOptions{Delay: time.Hour, Error: "later"}))
	messages, err = c.Fetch(t.Context(), "orders", 1, 0)
	require.NoError(t, err)
	require.Empty(t, messages)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = c.Fetch(ctx, "orders", 1, time.Minute)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = c.Fetch(t.Context(), "nobody", 1, 0)
	requireRefused(t, err, 404)
	_, err = c.Fetch(t.Context(), "orders", 0, 0)
	requireRefused(t, err, 400)
}
