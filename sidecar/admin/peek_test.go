package admin

import (
	"cmp"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storetest"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// peekedStore is a store with one queue and its dead letters, ids 1 and 2, in which
// each message is on disk.
func peekedStore(t *testing.T, messages ...store.Message) store.Store {
	t.Helper()
	st, err := storetest.OpenModel(t.TempDir(), func() int64 { return now })
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	done := make(chan error, 1)
	st.Submit(&store.Batch{
		PutQueues: []store.QueueRecord{{ID: 1, Name: "orders"}, {ID: 2, Name: "orders.dlq"}}, Add: messages,
		Done: func(err error) { done <- err },
	})
	require.NoError(t, <-done)
	return st
}

// newPeeking is a request about a queue of peekedStore.
func newPeeking(t *testing.T, name string, st store.Store) (*peeking, *explained) {
	x := newExplained(t)
	p := &peeking{
		Admin: &Admin{log: slog.New(slog.DiscardHandler), gates: x.gateStates},
		queue: name, id: 1, store: st, room: 1 << 20, req: api.PeekRequest{Limit: 10, PayloadBytes: 4},
	}
	if wire.IsDLQ(name) {
		p.id = 2
	}
	return p, x
}

// TestPeekShowsEveryState of messages, with what blocks them.
func TestPeekShowsEveryState(t *testing.T) {
	paused := api.GateState{Kind: "paused", Gate: "key:acme", AdmitsAt: at(60), OpensAt: at(60)}
	for name, tc := range map[string]struct {
		queue string // orders unless set
		view  inspect.MessageView
		at    place             // nil: as view says
		want  api.PeekedMessage // without what all of them have
	}{
		"ready": {
			view: inspect.MessageView{State: inspect.StatePending, ExpiresAt: now + 3600*second},
			want: api.PeekedMessage{State: "ready", ExpiresAt: at(3600), WaitsFor: "turn"},
		},
		"delayed": {
			view: inspect.MessageView{State: inspect.StateDelayed, ReadyAt: now + 60*second},
			want: api.PeekedMessage{State: "delayed", ReadyAt: at(60)},
		},
		"leased": {
			view: inspect.MessageView{State: inspect.StateLeased, Consumer: "w", LeaseUntil: now + 30*second},
			want: api.PeekedMessage{State: "leased", Consumer: "w", LeaseUntil: at(30)},
		},
		"failing": {
			view: inspect.MessageView{State: inspect.StateFailing},
			want: api.PeekedMessage{State: "ready", WaitsFor: "verdict"},
		},
		"at a throttle": {at: atRate, want: api.PeekedMessage{State: "blocked", BlockedBy: &rateGate}},
		"at a circuit":  {at: atFailures, want: api.PeekedMessage{State: "blocked", BlockedBy: &circuitGate}},
		"of a paused key": {
			at:   atPause(now + 60*second),
			want: api.PeekedMessage{State: "blocked", BlockedBy: &paused},
		},
		"ready, without a consumer": {
			view: inspect.MessageView{State: inspect.StatePending, WaitReason: inspect.WaitReason{By: gates.ByNoConsumer}},
			want: api.PeekedMessage{State: "ready", WaitsFor: "consumer"},
		},
		"ready, without credit": {
			view: inspect.MessageView{State: inspect.StatePending, WaitReason: inspect.WaitReason{By: gates.ByNoCredit}},
			want: api.PeekedMessage{State: "ready", WaitsFor: "credit"},
		},
		"in a paused queue": {
			at:   atQueuePause(queue.Forever),
			want: api.PeekedMessage{State: "blocked", BlockedBy: &api.GateState{Kind: "paused", Gate: "queue:orders"}},
		},
		"behind its predecessors": {
			view: inspect.MessageView{State: inspect.StateOrdered, WaitReason: inspect.WaitReason{By: gates.ByOrder}},
			want: api.PeekedMessage{
				State: "blocked", BlockedBy: &api.GateState{Kind: "order", Gate: "key:acme", SetBy: "ordering of queue orders"},
			},
		},
		"dead": {
			queue: "orders.dlq",
			view:  inspect.MessageView{State: inspect.StatePending},
			want: api.PeekedMessage{State: "dead", Dead: &api.DeadInfo{
				Reason: "max_deliveries", Error: "no money", ErrorCode: "402", SourceQueue: "orders", At: at(-1), Attempts: 1,
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := store.Message{
				Ref: store.Ref{Queue: 1, Seq: 7}, ID: id, Payload: []byte("hello"),
				Headers: wire.EncodeHeaders(nil, map[string][]string{"X": {"1", "2"}}),
			}
			if tc.queue != "" {
				m.Queue = 2
				m.Dead = &store.Dead{
					Reason: "max_deliveries", Error: "no money", ErrorCode: "402", SourceQueue: "orders", At: now - second, Attempts: 1,
				}
			}
			p, x := newPeeking(t, cmp.Or(tc.queue, "orders"), peekedStore(t, m))
			v := tc.view
			if tc.at != nil {
				tc.at(x, &v)
			}
			v.Seq, v.ID, v.Key, v.Attempt, v.EnqueuedAt = 7, id, "acme", 2, now-10*second
			require.False(t, p.take([]inspect.MessageView{v}, 0))
			want, start := tc.want, "hell"
			want.ID, want.Key, want.Attempt, want.EnqueuedAt = idText, "acme", 2, at(-10)
			want.Headers, want.Payload, want.PayloadBytes, want.PayloadCut = map[string][]string{"X": {"1", "2"}}, &start, 5, true
			require.Equal(t, []api.PeekedMessage{want}, p.reply.Messages)
		})
	}
}

// TestPeekReadsWhatIsThere: peek leaves out a message that is not on disk, and shows a corrupt
// one as unreadable.
func TestPeekReadsWhatIsThere(t *testing.T) {
	ref := store.Ref{Queue: 1, Seq: 1}
	p, _ := newPeeking(t, "orders", peekedStore(t, store.Message{Ref: ref, ID: id, Headers: []byte{0}, Payload: []byte("0123456789")}))
	require.False(t, p.take([]inspect.MessageView{{Seq: 2}}, 0))
	require.Empty(t, p.reply.Messages)
	require.True(t, p.take([]inspect.MessageView{{Seq: 1, ID: id}}, 2))
	require.EqualValues(t, 2, p.reply.Next)
	require.Equal(t, idText, p.reply.Messages[0].ID)
	require.Contains(t, p.reply.Messages[0].Unreadable, "malformed stored headers")
	require.Equal(t, "0123", *p.reply.Messages[0].Payload)
}

// reasonsLost is a store whose header indexes are corrupt.
type reasonsLost struct{ store.Store }

func (reasonsLost) Dead([]store.Ref, func(int, *store.Dead)) error {
	return &store.CorruptError{File: "fila.db", Part: "index", Segment: 7, Reason: "checksum does not match"}
}

// TestDeadLettersWithoutReason: dead letters whose reason cannot be read are shown and
// explained.
func TestDeadLettersWithoutReason(t *testing.T) {
	ref := store.Ref{Queue: 2, Seq: 1}
	st := peekedStore(t, store.Message{Ref: ref, Payload: []byte("0123"), Dead: &store.Dead{Reason: "term"}})
	p, _ := newPeeking(t, "orders.dlq", reasonsLost{st})
	require.False(t, p.take([]inspect.MessageView{{Seq: 1}}, 0))
	m := p.reply.Messages[0]
	require.Equal(t, "0123", *m.Payload)
	require.Empty(t, m.Unreadable)
	require.Equal(t, "unknown", m.Dead.Reason)
	require.Contains(t, m.Dead.Error, "checksum does not match")

	reason := whyDead(p.store, ref)
	require.Contains(t, reason, "Why it is a dead letter cannot be read: ")
	require.Contains(t, reason, "checksum does not match")
}

// TestWhyDead: the reason of a dead letter names its source queue.
func TestWhyDead(t *testing.T) {
	dead := func(seq uint64, d *store.Dead) store.Message {
		return store.Message{Ref: store.Ref{Queue: 2, Seq: seq}, Dead: d}
	}
	st := peekedStore(t,
		dead(1, &store.Dead{Reason: "term", SourceQueue: "orders", At: now, Attempts: 1}),
		dead(2, &store.Dead{Reason: "expired", Error: "no money", SourceQueue: "orders", At: now, Attempts: 3}),
		dead(3, nil),
	)
	for seq, want := range map[uint64]string{
		1: "It was dead-lettered from orders at " + at(0) + " after 1 attempt: term.",
		2: "It was dead-lettered from orders at " + at(0) + " after 3 attempts: expired. Last error: no money",
		3: "",
		4: "", // gone meanwhile
	} {
		require.Equal(t, want, whyDead(st, store.Ref{Queue: 2, Seq: seq}), seq)
	}
}

// TestPeekFitsIntoAReply: messages that do not fit come with the next reply. A reply always has
// at least one message.
func TestPeekFitsIntoAReply(t *testing.T) {
	const n = 4
	var messages []store.Message
	var found []inspect.MessageView
	for seq := range uint64(n) {
		messages = append(messages, store.Message{Ref: store.Ref{Queue: 1, Seq: seq + 1}, Payload: make([]byte, 100)})
		found = append(found, inspect.MessageView{Seq: seq + 1})
	}
	st := peekedStore(t, messages...)
	for room, want := range map[int]int{1 << 20: 4, 1: 1, 1800: 2} {
		p, _ := newPeeking(t, "orders", st)
		p.room, p.req.PayloadBytes = room, 100
		require.False(t, p.take(found, 0))
		require.Len(t, p.reply.Messages, want, room)
		require.EqualValues(t, (want+1)%(n+1), p.reply.Next, room)
	}
	p, _ := newPeeking(t, "orders", st)
	p.req.Limit = n
	require.False(t, p.take(found, 9), "as many as were asked for")
	require.EqualValues(t, 9, p.reply.Next)
}

// TestPeekAsksAGateOnce for all messages that it blocks.
func TestPeekAsksAGateOnce(t *testing.T) {
	p, x := newPeeking(t, "orders", nil)
	g := x.throttle("stripe", throttle.Limits{Concurrency: 1}, 1)
	held := func(key string) *inspect.MessageView {
		return &inspect.MessageView{Key: key, State: inspect.StateBlocked, WaitReason: inspect.WaitReason{By: gates.ByInFlight, At: gates.Place{Throttle: g}}}
	}
	require.Same(t, p.blockedBy(held("a")), p.blockedBy(held("b")))
	paused := func(key string) *inspect.MessageView {
		return &inspect.MessageView{Key: key, State: inspect.StateBlocked, WaitReason: inspect.WaitReason{By: gates.ByPause, At: gates.Place{Paused: true}}}
	}
	require.Equal(t, "key:a", p.blockedBy(paused("a")).Gate)
	require.Equal(t, "key:b", p.blockedBy(paused("b")).Gate)
	require.Nil(t, p.blockedBy(&inspect.MessageView{State: inspect.StatePending}))
}

func (h *rig) peek(name, body string) api.PeekReply {
	h.t.Helper()
	var reply api.PeekReply
	h.must(api.VerbPeek, name, body, &reply)
	require.Equal(h.t, name, reply.Queue)
	return reply
}

// summary is what queue-inspect says in one line.
func (h *rig) summary(name string) api.QueueSummary {
	h.t.Helper()
	var info api.QueueInfo
	h.must(api.VerbQueueInspect, name, ``, &info)
	info.OldestAgeMs = 0 // time goes on
	return info.QueueSummary
}

// TestPeekChangesNothing: messages stay in their places.
func TestPeekChangesNothing(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.must(api.VerbQueueCreate, "orders", `{"fairness_header":"tenant","throttle_headers":["api"],"max_deliveries":1}`, nil)
		h.must(api.VerbThrottleSet, "stripe", `{"rate":"1/3600","burst":1}`, nil)
		require.Empty(t, h.peek("orders", "").Messages)

		h.enqueue("orders", "dies", nats.Header{"tenant": {"d"}})
		h.consume("orders", 2)
		h.ack(h.one(), `-NAK {"error":"no money","code":"402"}`)
		taken := h.enqueue("orders", "taken", nats.Header{"tenant": {"a"}, "api": {"stripe"}})
		require.Equal(t, "taken", string(h.one().Data))
		held := h.enqueue("orders", "held", nats.Header{"tenant": {"a"}, "api": {"stripe"}, "X": {"1", "2"}})
		later := h.enqueue("orders", "later", nats.Header{"tenant": {"b"}, "Fila-Delay": {"1h"}, "Nats-TTL": {"2h"}})
		h.consume("orders", 0)
		ready := h.enqueue("orders", "\xff\x00", nats.Header{"tenant": {"b"}})

		before := h.summary("orders")
		reply := h.peek("orders", "")
		require.Zero(t, reply.Next)
		states := map[string]string{}
		for _, m := range reply.Messages {
			states[m.ID] = m.State
		}
		require.Equal(t, map[string]string{taken: "leased", held: "blocked", later: "delayed", ready: "ready"}, states)
		require.Equal(t, "throttle:stripe rate", heldBy(reply, held))
		m := reply.Messages[len(reply.Messages)-1]
		require.Equal(t, ready, m.ID, "the order of arrival")
		require.Nil(t, m.Payload)
		require.Equal(t, "\xff\x00", string(m.PayloadBase64))
		for _, m := range reply.Messages {
			if m.ID == held {
				require.Equal(t, map[string][]string{"tenant": {"a"}, "api": {"stripe"}, "X": {"1", "2"}}, m.Headers)
			}
		}
		dead := h.peek("orders.dlq", "").Messages
		require.Len(t, dead, 1)
		require.Equal(t, "dead dies max_deliveries no money", strings.Join(
			[]string{dead[0].State, *dead[0].Payload, dead[0].Dead.Reason, dead[0].Dead.Error}, " "))

		require.Equal(t, held, h.peek("orders", `{"key":"a","limit":1,"after":3}`).Messages[0].ID)
		require.Empty(t, h.peek("orders", `{"key":"nobody"}`).Messages)
		require.Equal(t, before, h.summary("orders"), "peeking counts nothing and takes nothing")

		h.must(api.VerbPause, "", `{"kind":"key","queue":"orders","name":"b"}`, nil)
		require.Equal(t, "key:b paused", heldBy(h.peek("orders", `{"key":"b"}`), ready))
		h.must(api.VerbPause, "", `{"kind":"queue","name":"orders","for_ms":60000}`, nil)
		require.Equal(t, "queue:orders paused", heldBy(h.peek("orders", ""), ready))
		require.Equal(t, "queue:orders paused", heldBy(h.peek("orders", ""), held))
	})
}

// TestPeekFilters shows only messages that match a filter, and refuses invalid filters.
func TestPeekFilters(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.must(api.VerbQueueCreate, "orders", `{"fairness_header":"tenant","throttle_headers":["api"]}`, nil)
		h.must(api.VerbThrottleSet, "stripe", `{"rate":"1/3600","burst":1}`, nil)
		h.must(api.VerbPause, "", `{"kind":"throttle","name":"stripe"}`, nil)
		h.enqueue("orders", "1", nats.Header{"tenant": {"a"}, "x": {"1"}})
		second := h.enqueue("orders", "2", nats.Header{"tenant": {"b"}, "x": {"1"}})
		time.Sleep(time.Hour)
		third := h.enqueue("orders", "3", nats.Header{"tenant": {"b"}, "x": {"2"}, "api": {"stripe"}})
		for body, want := range map[string][]string{
			`{"filter":{"keys":["b"]}}`:                               {second, third},
			`{"filter":{"keys":["b"]},"limit":1}`:                     {second},
			`{"filter":{"header":{"X":"1"},"keys":["b"]}}`:            {second},
			`{"filter":{"enqueued_after":"1m"}}`:                      {third},
			`{"filter":{"state":"blocked","gate":"throttle:stripe"}}`: {third},
			`{"filter":{"header":{"x":"3"}}}`:                         nil,
			`{"filter":null,"key":"b"}`:                               {second, third},
		} {
			var got []string
			for _, m := range h.peek("orders", body).Messages {
				got = append(got, m.ID)
			}
			require.Equal(t, want, got, body)
		}
		for body, code := range map[string]int{
			`{"filter":{}}`: wire.CodeBadField, `{"filter":{"state":"x"}}`: wire.CodeBadField, `{"filter":{"no":1}}`: wire.CodeUnknownField,
			`{"filter":{"reason":"term"}}`: wire.CodeOnlyForDLQ, `{"filter":{"keys":["b"]},"key":"b"}`: wire.CodeBadField, `{"filter":[]}`: wire.CodeBadJSON,
		} {
			werr := h.ask(api.VerbPeek, "orders", body, nil)
			require.NotNil(t, werr, body)
			require.Equal(t, code, werr.ErrCode, "%s: %v", body, werr)
		}
	})
}

// TestDeadGroups groups the dead letters of a queue. The request may name either queue.
func TestDeadGroups(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.must(api.VerbQueueCreate, "orders", `{"max_deliveries":1}`, nil)
		h.consume("orders", 1)
		id := h.enqueue("orders", "1", nil)
		h.ack(h.one(), `-NAK {"error":"no order 17","code":"404"}`)
		var reply api.DeadGroups
		h.must(api.VerbDeadGroups, "orders.dlq", `{}`, &reply)
		require.Equal(t, "orders.dlq", reply.Queue)
		require.Len(t, reply.Groups, 1)
		var again api.DeadGroups
		h.must(api.VerbDeadGroups, "orders", `{}`, &again)
		require.Equal(t, reply, again, "the queue names its dead letters as well")
		g := reply.Groups[0]
		require.Equal(t, []any{"404", "no order #", int64(1), id}, []any{g.ErrorCode, g.Error, g.Messages, g.Sample})
		require.Equal(t, []api.KeyCount{{Key: "default", Messages: 1}}, g.Keys)
		require.Equal(t, id, h.peek("orders.dlq", `{"filter":{"error_group":"`+g.Group+`"}}`).Messages[0].ID)
		for body, code := range map[string]int{`{"limit":0}`: wire.CodeBadField, `{"limit":1001}`: wire.CodeBadField, `{"x":1}`: wire.CodeUnknownField} {
			require.Equal(t, code, h.ask(api.VerbDeadGroups, "orders.dlq", body, nil).ErrCode)
		}
	})
}

// heldBy is the gate of a message in a reply.
func heldBy(reply api.PeekReply, id string) string {
	for _, m := range reply.Messages {
		if m.ID == id && m.BlockedBy != nil {
			return m.BlockedBy.Gate + " " + m.BlockedBy.Kind
		}
	}
	return ""
}

// TestPeekInTheOrderOfAKey names the order of the key as the cause that blocks a message.
func TestPeekInTheOrderOfAKey(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.must(api.VerbQueueCreate, "orders", `{"ordering":"key"}`, nil)
		h.consume("orders", 10)
		h.enqueue("orders", "1", nil)
		m := h.one()
		second := h.enqueue("orders", "2", nil)
		require.Equal(t, "key:default order", heldBy(h.peek("orders", ""), second))
		h.ack(m, "")
		h.ack(h.one(), "")
		require.Empty(t, h.peek("orders", "").Messages)
	})
}

// TestPeekPages returns every message once, for any size of replies and of pieces.
func TestPeekPages(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.must(api.VerbQueueCreate, "orders", `{"fairness_header":"tenant"}`, nil)
		var want []string
		for i := range 25 {
			want = append(want, h.enqueue("orders", fmt.Sprintf("message %d", i), nil))
		}
		pages := func(body string) (ids []string, requests int) {
			var next uint64
			for {
				reply := h.peek("orders", fmt.Sprintf(body, next))
				requests++
				for _, m := range reply.Messages {
					ids = append(ids, m.ID)
				}
				if next = reply.Next; next == 0 {
					return ids, requests
				}
			}
		}
		for body, requests := range map[string]int{`{"limit":10,"after":%d}`: 3, `{"limit":25,"after":%d}`: 1} {
			got, n := pages(body)
			require.Equal(t, want, got)
			require.Equal(t, requests, n)
		}
		m := h.peek("orders", `{"limit":1,"payload_bytes":4}`).Messages[0]
		require.Equal(t, "mess", *m.Payload)
		require.True(t, m.PayloadCut)
		require.Equal(t, 9, m.PayloadBytes)

		// A key with few messages is looked for in pieces, as far as one request goes.
		rare := h.enqueue("orders", "rare", nats.Header{"tenant": {"rare"}})
		want = append(want, rare)
		h.piece = 3
		require.Equal(t, rare, h.peek("orders", `{"key":"rare"}`).Messages[0].ID)
		got, n := pages(`{"limit":1000,"after":%d}`)
		require.Equal(t, want, got)
		require.Equal(t, 1, n)
		h.piece = 16_384

		// A reply that would not fit into a message of NATS comes in parts.
		big := strings.Repeat("\x01", 60_000)
		for range 20 {
			want = append(want, h.enqueue("orders", big, nil))
		}
		got, n = pages(`{"limit":1000,"payload_bytes":65536,"after":%d}`)
		require.Equal(t, want, got)
		require.Greater(t, n, 10)
	})
}

// TestPeekGoesOnlySoFar: one request reads a bounded part of a queue, and the reply says where
// to continue.
func TestPeekGoesOnlySoFar(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.must(api.VerbQueueCreate, "orders", `{"fairness_header":"tenant"}`, nil)
		for range peekPieces {
			h.enqueue("orders", "x", nil)
		}
		rare := h.enqueue("orders", "rare", nats.Header{"tenant": {"rare"}})
		h.piece = 1
		reply := h.peek("orders", `{"key":"rare"}`)
		require.Empty(t, reply.Messages)
		require.NotZero(t, reply.Next)
		reply = h.peek("orders", fmt.Sprintf(`{"key":"rare","after":%d}`, reply.Next))
		require.Equal(t, rare, reply.Messages[0].ID)
		require.Zero(t, reply.Next)
	})
}
