package sidecar

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

func (x *testSite) peek(queue, body string) wire.PeekReply {
	x.t.Helper()
	var reply wire.PeekReply
	x.must("fila.admin.peek."+queue, body, &reply)
	require.Equal(x.t, queue, reply.Queue)
	return reply
}

// only returns the one message that a peek has to show.
func only(t *testing.T, reply wire.PeekReply) wire.PeekedMessage {
	t.Helper()
	require.Len(t, reply.Messages, 1)
	require.Zero(t, reply.Next)
	return reply.Messages[0]
}

func TestPeekShowsEveryStateAndChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, x *testSite) {
		x.must("fila.admin.queue-create.orders", `{"fairness_header":"tenant","throttle_headers":["api"],"max_deliveries":1}`, nil)
		x.must("fila.admin.throttle-set.stripe", `{"rate":"0.1","burst":1}`, nil)
		require.Empty(t, x.peek("orders", "").Messages)

		x.enqueue("dies", nats.Header{"tenant": {"d"}})
		ch, sub := x.consumer("w", "orders", `{"consumer":"w","max_in_flight":2}`)
		first := <-ch
		require.Nil(t, x.ack(first, `-NAK {"error":"no money","code":"402"}`))
		taken := x.enqueue("taken", nats.Header{"tenant": {"a"}, "api": {"stripe"}})
		held := x.enqueue("held", nats.Header{"tenant": {"a"}, "api": {"stripe"}, "X": {"1", "2"}})
		later := x.enqueue("later", nats.Header{"tenant": {"b"}, "Fila-Delay": {"1h"}, "Nats-TTL": {"2h"}})
		require.Equal(t, "taken", string((<-ch).Data))
		x.must("fila.consume.orders", `{"consumer":"w","leave":true}`, nil)
		ready := x.enqueue("\xff\x00", nats.Header{"tenant": {"b"}})

		before := x.depth("orders")
		reply := x.peek("orders", "")
		require.Zero(t, reply.Next)
		require.Len(t, reply.Messages, 4)
		states := map[string]wire.PeekedMessage{}
		for _, m := range reply.Messages {
			states[m.State] = m
		}
		m := states["leased"]
		require.Equal(t, []any{taken, "a", "w", uint32(1)}, []any{m.ID, m.Key, m.Consumer, m.Attempt})
		require.NotEmpty(t, m.LeaseUntil)
		require.Equal(t, "taken", *m.Payload)
		require.Nil(t, m.BlockedBy)
		m = states["parked"]
		require.Equal(t, held, m.ID)
		require.Equal(t, "throttle:stripe rate", m.BlockedBy.Gate+" "+m.BlockedBy.Kind)
		require.NotEmpty(t, m.BlockedBy.OpensAt)
		require.Equal(t, map[string][]string{"tenant": {"a"}, "api": {"stripe"}, "X": {"1", "2"}}, m.Headers)
		m = states["delayed"]
		require.Equal(t, later, m.ID)
		enqueued, err := time.Parse(time.RFC3339Nano, m.EnqueuedAt)
		require.NoError(t, err)
		require.Equal(t, timestamp(enqueued.Add(time.Hour).UnixNano()), m.ReadyAt)
		require.Equal(t, timestamp(enqueued.Add(2*time.Hour).UnixNano()), m.ExpiresAt)
		m = states["pending"]
		require.Equal(t, ready, m.ID)
		require.Nil(t, m.Payload)
		require.Equal(t, "\xff\x00", string(m.PayloadBase64))

		m = only(t, x.peek("orders.dlq", ""))
		require.Equal(t, "dead", m.State)
		require.Equal(t, "dies", *m.Payload)
		require.Equal(t, &wire.DeadInfo{
			Reason: "max_deliveries", Error: "no money", ErrorCode: "402", SourceQueue: "orders", At: m.Dead.At, Attempts: 1,
		}, m.Dead)

		require.Equal(t, held, x.peek("orders", `{"key":"a","limit":1,"after":3}`).Messages[0].ID)
		require.Empty(t, x.peek("orders", `{"key":"nobody"}`).Messages)
		require.Equal(t, before, x.depth("orders"), "peeking counts nothing and takes nothing")
		x.none(ch)

		x.must("fila.admin.pause", `{"kind":"key","queue":"orders","name":"b"}`, nil)
		require.Equal(t, "key:b paused", blocked(x.peek("orders", `{"key":"b"}`), ready))
		x.must("fila.admin.pause", `{"kind":"queue","name":"orders","for_ms":60000}`, nil)
		require.Equal(t, "queue:orders paused", blocked(x.peek("orders", ""), ready))
		require.Equal(t, "queue:orders paused", blocked(x.peek("orders", ""), held))
		require.NoError(t, sub.Unsubscribe())
	})
}

// blocked is the gate of a message in a reply.
func blocked(reply wire.PeekReply, id string) string {
	for _, m := range reply.Messages {
		if m.ID == id && m.BlockedBy != nil {
			return m.BlockedBy.Gate + " " + m.BlockedBy.Kind
		}
	}
	return ""
}

func TestPeekKeyOrder(t *testing.T) {
	bubble(t, func(t *testing.T, x *testSite) {
		x.must("fila.admin.queue-create.orders", `{"ordering":"key"}`, nil)
		ch, _ := x.consumer("w", "orders", `{"consumer":"w"}`)
		x.enqueue("1", nil)
		second := x.enqueue("2", nil)
		m := <-ch
		require.Equal(t, "key:default order", blocked(x.peek("orders", ""), second))
		require.Nil(t, x.ack(m, ""))
		require.Nil(t, x.ack(<-ch, ""))
		require.Empty(t, x.peek("orders", "").Messages)
	})
}

func TestPeekPagesAndCuts(t *testing.T) {
	bubble(t, func(t *testing.T, x *testSite) {
		x.must("fila.admin.queue-create.orders", "", nil)
		var want []string
		for i := range 25 {
			want = append(want, x.enqueue(fmt.Sprintf("message %d", i), nil))
		}
		pages := func(body string) (ids []string, requests int) {
			var next uint64
			for {
				reply := x.peek("orders", fmt.Sprintf(body, next))
				requests++
				for _, m := range reply.Messages {
					ids = append(ids, m.ID)
				}
				if next = reply.Next; next == 0 {
					return ids, requests
				}
			}
		}
		got, n := pages(`{"limit":10,"after":%d}`)
		require.Equal(t, want, got)
		require.Equal(t, 3, n)
		got, n = pages(`{"limit":25,"after":%d}`)
		require.Equal(t, want, got)
		require.Equal(t, 1, n)

		m := x.peek("orders", `{"limit":1,"payload_bytes":4}`).Messages[0]
		require.Equal(t, "mess", *m.Payload)
		require.True(t, m.PayloadCut)
		require.Equal(t, 9, m.PayloadBytes)

		// A reply that would not fit into a message of NATS comes in parts.
		big := strings.Repeat("\x01", 60_000)
		for range 20 {
			want = append(want, x.enqueue(big, nil))
		}
		got, n = pages(`{"limit":1000,"payload_bytes":65536,"after":%d}`)
		require.Equal(t, want, got)
		require.Greater(t, n, 10)
	})
}

func TestPeekRefuses(t *testing.T) {
	bubble(t, func(t *testing.T, x *testSite) {
		for subject, want := range map[string]int{
			"fila.admin.peek.nosuch": wire.CodeQueueNotFound,
			"fila.admin.peek.a$b":    wire.CodeBadQueueName,
		} {
			require.Equal(t, want, x.request(subject, "", nil, nil).ErrCode, subject)
		}
		x.must("fila.admin.queue-create.orders", "", nil)
		require.Equal(t, wire.CodeBadField, x.request("fila.admin.peek.orders", `{"limit":0}`, nil, nil).ErrCode)
	})
}

// The loop is held up for so many slots at a time, and finds everything in the
// end.
func TestPeekInPieces(t *testing.T) {
	r := newRig(t, nil)
	l := r.loop(r.q)
	const n = explainSlots + 10
	for i := range n {
		s := l.slots.add(uint64(i + 1))
		s.state, s.flow = slotPending, l.keys.acquire([]string{"common", "rare"}[i/(n-3)], 1000)
	}
	found, next := l.peek(0, "rare", 10)
	require.Empty(t, found)
	require.NotZero(t, next)
	found, next = l.peek(next, "rare", 10)
	require.Len(t, found, 3)
	require.Zero(t, next)

	found, next = l.peek(0, "", 10)
	require.Len(t, found, 10)
	require.Equal(t, found[9].seq+1, next)
}

// What is not on disk, yet or any more, is left out; what cannot be read is shown
// as that.
func TestPeekReadsWhatIsThere(t *testing.T) {
	r := newRig(t, nil)
	p := peek{s: &Server{core: r.core}, q: r.q, room: 1 << 20, req: wire.PeekRequest{PayloadBytes: 4}}
	id := r.enqueue("k", func(m *store.Message) { m.Headers = []byte{0} })
	found, _ := r.loop(r.q).peek(0, "", 10)
	require.Len(t, found, 1)
	require.True(t, p.take(&found[0]))
	require.Empty(t, p.reply.Messages, "not confirmed")
	r.commit()
	gone := found[0]
	gone.seq += 1000
	require.True(t, p.take(&gone))
	require.Empty(t, p.reply.Messages)
	require.True(t, p.take(&found[0]))
	require.Equal(t, formatID(id), p.reply.Messages[0].ID)
	require.Contains(t, p.reply.Messages[0].Unreadable, "malformed stored headers")
	require.Equal(t, "0123", *p.reply.Messages[0].Payload)
}
