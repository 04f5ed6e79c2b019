package sidecar

import (
	"testing"
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
