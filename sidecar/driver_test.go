package sidecar

import (
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

// TestDeliveriesKeepTheirOrder: whoever publishes a delivery, the callback that
// brought its message, the loop or the dispatcher, nothing of a key overtakes what
// came before it. The consumer's credit is small at times, so that messages get to
// disk and are read from there, and large at others.
func TestDeliveriesKeepTheirOrder(t *testing.T) {
	x := startSite(t, t.TempDir(), nil)
	x.must("fila.admin.queue-create.orders", `{}`, nil)
	const n = 20_000
	done, wrong := make(chan struct{}), make(chan string, 1)
	next := 0
	handle := func(m *nats.Msg) {
		if got, err := strconv.Atoi(string(m.Data)); err != nil || got != next {
			select {
			case wrong <- string(m.Data) + " instead of " + strconv.Itoa(next):
			default:
			}
		}
		if next++; next == n {
			close(done)
		}
		_ = m.Respond(nil)
	}
	_, err := x.nc.Subscribe("fila.deliver.w.orders", handle)
	require.NoError(t, err)
	x.must("fila.consume.orders", `{"consumer":"w","max_in_flight":3}`, nil)
	for i := range n {
		require.NoError(t, x.nc.Publish("fila.enqueue.orders", []byte(strconv.Itoa(i))))
		if i%1000 == 0 {
			require.NoError(t, x.nc.Flush())
			credit := []string{"3", "50", "1000"}[i/1000%3]
			x.must("fila.consume.orders", `{"consumer":"w","max_in_flight":`+credit+`}`, nil)
		}
	}
	select {
	case <-done:
	case text := <-wrong:
		require.FailNow(t, text)
	case <-time.After(time.Minute):
		require.FailNow(t, "deliveries stopped")
	}
	require.Empty(t, wrong)
	x.end()
}

// TestTurnsOfManyPosters: events that find the loop busy are handled by whoever is
// making the turn, or by the loop's goroutine. None is left behind, and no two turns
// are made at a time.
func TestTurnsOfManyPosters(t *testing.T) {
	x := startSite(t, t.TempDir(), nil)
	x.must("fila.admin.queue-create.orders", `{}`, nil)
	q := x.s.queues.get("orders")
	const posters, each = 8, 2000
	var handled int
	var posting, waiting sync.WaitGroup
	waiting.Add(posters * each)
	for range posters {
		posting.Go(func() {
			for range each {
				q.post(event{kind: evCall, call: func(*loop) { handled++; waiting.Done() }}, q.sub)
			}
		})
	}
	posting.Wait()
	waiting.Wait()
	require.Equal(t, posters*each, handled)
	x.end()
	require.False(t, q.post(event{kind: evAck, ack: wire.Ack{}}, q.sub), "the loop has ended")
}

// TestTwoDeliveriesOfOneMessage that go out together, since the first one had to
// wait: each has its own headers.
func TestTwoDeliveriesOfOneMessage(t *testing.T) {
	x := startSite(t, t.TempDir(), nil)
	x.must("fila.admin.queue-create.orders", `{}`, nil)
	q := x.s.queues.get("orders")
	sub, err := x.nc.SubscribeSync("deliveries")
	require.NoError(t, err)
	require.NoError(t, x.nc.Flush())
	in := &incoming{headers: nats.Header{"Own": {"1"}}}
	var work []delivery
	for attempt := range uint32(2) {
		work = append(work, delivery{subject: "deliveries", fresh: in, attempt: attempt + 1, deadline: int64(attempt)})
	}
	q.dispatcher.mu.Lock()
	q.dispatcher.send(work)
	q.dispatcher.mu.Unlock()
	for attempt := range 2 {
		m, err := sub.NextMsg(time.Minute)
		require.NoError(t, err)
		require.Equal(t, "1", m.Header.Get("Own"))
		require.Equal(t, strconv.Itoa(attempt+1), m.Header.Get(wire.HeaderAttempt))
		require.Equal(t, timestamp(int64(attempt)), m.Header.Get(wire.HeaderDeadline))
	}
	x.end()
}
