package sidecar

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

func TestVisibilityTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, x *testSite) {
		x.must("fila.admin.queue-create.orders", `{"visibility_timeout_ms":30000}`, nil)
		ch, _ := x.consumer("w", "orders", `{"consumer":"w"}`)
		id := x.enqueue("hello", nil)
		first := <-ch
		require.Equal(t, "hello", string(first.Data))
		require.Equal(t, id, first.Header.Get(wire.HeaderID))
		deadline, err := time.Parse(time.RFC3339Nano, first.Header.Get(wire.HeaderDeadline))
		require.NoError(t, err)
		require.WithinDuration(t, time.Now().Add(30*time.Second), deadline, time.Second)

		time.Sleep(20 * time.Second)
		require.Nil(t, x.ack(first, "+WPI"), "an extension")
		time.Sleep(29 * time.Second)
		x.none(ch)
		time.Sleep(2 * time.Second)
		second := <-ch
		require.Equal(t, "2", second.Header.Get(wire.HeaderAttempt))
		require.Equal(t, id, second.Header.Get(wire.HeaderID))
		for _, payload := range []string{"", "-NAK", "+WPI", "+TERM"} {
			require.Equal(t, 409, x.ack(first, payload).Code, "the lease is lost")
		}
		require.Nil(t, x.ack(second, ""))
		require.Equal(t, 409, x.ack(second, "").Code, "a second ack")
		time.Sleep(time.Hour)
		x.none(ch)
		require.Zero(t, x.depth("orders").Bytes)
	})
}

func TestDelaysSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	inBubble(t, func(t *testing.T) {
		x := startSite(t, dir, nil)
		x.must("fila.admin.queue-create.orders", `{"visibility_timeout_ms":3600000}`, nil)
		x.enqueue("later", nats.Header{wire.HeaderDelay: {"2h"}})
		x.enqueue("retry", nil)
		ch, _ := x.consumer("w", "orders", `{"consumer":"w"}`)
		require.Nil(t, x.ack(<-ch, `-NAK {"delay":3600000000000}`))
		time.Sleep(30 * time.Minute)
		x.none(ch)
		require.EqualValues(t, 2, x.depth("orders").Delayed)
		x.end()

		x = startSite(t, dir, nil)
		time.Sleep(10 * time.Minute)
		ch, _ = x.consumer("w", "orders", `{"consumer":"w"}`)
		time.Sleep(19 * time.Minute)
		x.none(ch)
		time.Sleep(2 * time.Minute)
		m := <-ch
		require.Equal(t, "retry", string(m.Data))
		require.Equal(t, "2", m.Header.Get(wire.HeaderAttempt))
		require.Nil(t, x.ack(m, ""))
		time.Sleep(58 * time.Minute)
		x.none(ch)
		time.Sleep(2 * time.Minute)
		m = <-ch
		require.Equal(t, "later", string(m.Data))
		require.Equal(t, "1", m.Header.Get(wire.HeaderAttempt))
		require.Nil(t, x.ack(m, ""))
		x.end()
	})
}

func TestTTLEndsInTheDeadLetterQueue(t *testing.T) {
	bubble(t, func(t *testing.T, x *testSite) {
		x.must("fila.admin.queue-create.orders", ``, nil)
		x.enqueue("old", nats.Header{wire.HeaderTTL: {"10s"}})
		time.Sleep(9 * time.Second)
		require.EqualValues(t, 1, x.depth("orders").Pending)
		time.Sleep(2 * time.Second)
		require.Zero(t, x.depth("orders").Pending)
		ch, _ := x.consumer("w", "orders.dlq", `{"consumer":"w"}`)
		m := <-ch
		require.Equal(t, wire.ReasonExpired, m.Header.Get(wire.HeaderDeadReason))
		require.Equal(t, "orders", m.Header.Get(wire.HeaderSourceQueue))
		require.Nil(t, x.ack(m, "-NAK"))
		m = <-ch

		// A redrive drops the TTL; leased dead letters are skipped.
		var r wire.RedriveReply
		x.must("fila.admin.redrive.orders.dlq", ``, &r)
		require.Zero(t, r.Redriven)
		x.must("fila.consume.orders.dlq", `{"consumer":"w","leave":true}`, nil)
		require.Nil(t, x.ack(m, "-NAK"))
		x.must("fila.admin.redrive.orders.dlq", ``, &r)
		require.EqualValues(t, 1, r.Redriven)
		time.Sleep(time.Hour)
		require.EqualValues(t, 1, x.depth("orders").Pending)
		require.Zero(t, x.depth("orders.dlq").Pending)
	})
}

func TestRegistrationsEndWithoutRenewal(t *testing.T) {
	bubble(t, func(t *testing.T, x *testSite) {
		x.must("fila.admin.queue-create.orders", ``, nil)
		lost := make(chan *nats.Msg, 10)
		_, err := x.nc.Subscribe("fila.event.consumer-lost.orders", func(m *nats.Msg) { lost <- m })
		require.NoError(t, err)
		const body = `{"consumer":"w","ttl_ms":60000}`
		ch, _ := x.consumer("w", "orders", body)
		for range 5 {
			time.Sleep(50 * time.Second)
			x.must("fila.consume.orders", body, nil)
		}
		x.none(lost)
		time.Sleep(61 * time.Second)
		<-lost
		x.enqueue("waits", nil)
		x.none(ch)
		x.must("fila.consume.orders", body, nil)
		require.Nil(t, x.ack(<-ch, ""))
	})
}

func TestNoRespondersGivesTheMessageToAnother(t *testing.T) {
	bubble(t, func(t *testing.T, x *testSite) {
		x.must("fila.admin.queue-create.orders", ``, nil)
		x.must("fila.consume.orders", `{"consumer":"nobody"}`, nil)
		x.enqueue("hello", nil)
		synctest.Wait()
		begin := time.Now()
		ch, _ := x.consumer("w", "orders", `{"consumer":"w"}`)
		m := <-ch
		require.Zero(t, time.Since(begin), "no lease is waited for")
		require.Equal(t, "1", m.Header.Get(wire.HeaderAttempt))
		require.Equal(t, 1, x.depth("orders").Consumers)
		require.Nil(t, x.ack(m, ""))
	})
}

func TestFetchOverNATS(t *testing.T) {
	bubble(t, func(t *testing.T, x *testSite) {
		x.must("fila.admin.queue-create.orders", ``, nil)
		got := make(chan *nats.Msg, 10)
		inbox := nats.NewInbox()
		_, err := x.nc.Subscribe(inbox, func(m *nats.Msg) { got <- m })
		require.NoError(t, err)
		fetch := func(body string) {
			require.NoError(t, x.nc.PublishRequest("fila.fetch.orders", inbox, []byte(body)))
		}
		fetch(``)
		require.Equal(t, "404", (<-got).Header.Get("Status"))
		fetch(`{"batch":2,"expires_ms":5000}`)
		time.Sleep(time.Second)
		x.enqueue("one", nil)
		m := <-got
		require.Equal(t, "one", string(m.Data))
		require.Nil(t, x.ack(m, "+ACK"))
		time.Sleep(3 * time.Second)
		x.none(got)
		time.Sleep(2 * time.Second)
		require.Equal(t, "408", (<-got).Header.Get("Status"))
	})
}

func TestOnFailureRunsForNacksAndExpiredLeases(t *testing.T) {
	bubble(t, func(t *testing.T, x *testSite) {
		x.must("fila.admin.queue-create.orders", `{"visibility_timeout_ms":1000,"on_failure":
			"function on_failure(msg) if msg.attempts >= 3 then return { action = 'dlq' } end return { action = 'retry', delay_ms = 60000 * msg.attempts } end"}`, nil)
		ch, _ := x.consumer("w", "orders", `{"consumer":"w"}`)
		id := x.enqueue("poison", nil)
		require.Nil(t, x.ack(<-ch, "-NAK"))
		begin := time.Now()
		<-ch // not acked: the lease runs out
		require.Equal(t, time.Minute, time.Since(begin).Round(time.Second))
		begin = time.Now()
		require.Nil(t, x.ack(<-ch, `-NAK {"error":"no","code":"E"}`))
		require.Equal(t, 2*time.Minute+time.Second, time.Since(begin).Round(time.Second))
		dead, _ := x.consumer("w", "orders.dlq", `{"consumer":"w"}`)
		m := <-dead
		require.Equal(t, id, m.Header.Get(wire.HeaderID))
		require.Equal(t, "poison", string(m.Data))
		require.Equal(t, "no", m.Header.Get(wire.HeaderDeadError))
		require.Equal(t, "3", m.Header.Get(wire.HeaderDeadAttempts))
		require.Equal(t, wire.ReasonOnFailure, m.Header.Get(wire.HeaderDeadReason))
	})
}

// TestShutdownWaitsForLeases as long as drain_timeout allows, and no longer.
func TestShutdownWaitsForLeases(t *testing.T) {
	for name, tc := range map[string]struct {
		drainMs int64
		ackIn   time.Duration // 0: never
		took    time.Duration
	}{
		"settled in time":  {10_000, 3 * time.Second, 3 * time.Second},
		"kept in the end":  {10_000, 0, 10 * time.Second},
		"no time to drain": {0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			inBubble(t, func(t *testing.T) {
				x := startSite(t, dir, func(c *Config) { c.DrainTimeoutMs = tc.drainMs })
				x.must("fila.admin.queue-create.orders", `{"visibility_timeout_ms":3600000}`, nil)
				ch, _ := x.consumer("w", "orders", `{"consumer":"w","max_in_flight":1}`)
				x.enqueue("one", nil)
				x.enqueue("two", nil)
				m := <-ch
				acked := make(chan error, 1)
				if tc.ackIn > 0 {
					go func() {
						time.Sleep(tc.ackIn)
						_, err := x.nc.RequestWithContext(context.Background(), m.Reply, nil)
						acked <- err
					}()
				}
				require.InDelta(t, tc.took, x.end(), float64(100*time.Millisecond))
				if tc.ackIn > 0 {
					require.NoError(t, <-acked, "an ack is confirmed while fila is stopping")
				}

				x = startSite(t, dir, nil)
				n := x.depth("orders")
				if tc.ackIn > 0 {
					require.EqualValues(t, 1, n.Pending+n.InFlight)
				} else {
					require.EqualValues(t, 1, n.InFlight, "the lease is kept")
					require.Nil(t, x.ack(m, ""), "its consumer can ack to the next process")
				}
				x.end()
			})
		})
	}
}

// TestSecondSignal stops at once.
func TestSecondSignal(t *testing.T) {
	bubble(t, func(t *testing.T, x *testSite) {
		x.must("fila.admin.queue-create.orders", ``, nil)
		ch, _ := x.consumer("w", "orders", `{"consumer":"w"}`)
		x.enqueue("one", nil)
		<-ch
		time.AfterFunc(time.Second, x.s.Kill)
		require.InDelta(t, time.Second, x.end(), float64(100*time.Millisecond))
	})
}

// TestForceDelete ends leases and fetches and answers 404 from then on.
func TestForceDelete(t *testing.T) {
	bubble(t, func(t *testing.T, x *testSite) {
		x.must("fila.admin.queue-create.orders", ``, nil)
		ch, _ := x.consumer("w", "orders", `{"consumer":"w","max_in_flight":1}`)
		x.enqueue("one", nil)
		x.enqueue("two", nil)
		m := <-ch
		require.Equal(t, 409, x.request("fila.admin.queue-delete.orders", ``, nil, nil).Code)
		require.Equal(t, 400, x.request("fila.admin.queue-delete.orders.dlq", `{"force":true}`, nil, nil).Code)
		var r wire.QueueDeleteReply
		x.must("fila.admin.queue-delete.orders", `{"force":true}`, &r)
		require.EqualValues(t, 2, r.Deleted)
		require.Equal(t, 404, x.ack(m, "").Code)
		require.Equal(t, 404, x.request("fila.consume.orders", `{"consumer":"w"}`, nil, nil).Code)
		require.Nil(t, x.s.queues.get("orders.dlq"))

		// A new queue of the same name begins empty.
		x.must("fila.admin.queue-create.orders", ``, nil)
		require.Zero(t, x.depth("orders").Pending)
		require.Equal(t, 409, x.ack(m, "").Code, "an old token is not the lease of anything")
		x.must("fila.admin.queue-delete.orders", ``, &r)
		require.Zero(t, r.Deleted)
	})
}

// TestForceDeleteAnswersEverybody: enqueues that have reached fila when a queue
// goes are confirmed or refused, never dropped.
func TestForceDeleteAnswersEverybody(t *testing.T) {
	bubble(t, func(t *testing.T, x *testSite) {
		const n = 2000
		x.must("fila.admin.queue-create.orders", ``, nil)
		answers := make(chan *nats.Msg, 2*n)
		inbox := nats.NewInbox()
		_, err := x.nc.Subscribe(inbox, func(m *nats.Msg) { answers <- m })
		require.NoError(t, err)
		for range n {
			require.NoError(t, x.nc.PublishRequest("fila.enqueue.orders", inbox, []byte("x")))
		}
		x.must("fila.admin.queue-delete.orders", `{"force":true}`, nil)
		for i := range n {
			select {
			case m := <-answers:
				if werr := wire.ParseError(m.Header, m.Data); werr != nil {
					require.Equal(t, 404, werr.Code)
				}
			case <-time.After(time.Minute):
				require.FailNow(t, "enqueues were never answered", "%d of %d", n-i, n)
			}
		}
	})
}
