package admin

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/control"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

const nowhere = "01981c2e-7b1c-7d3a-9b1e-2f4c5d6e7f80"

// about is a request about a message.
func about(id string) string { return `{"id":"` + id + `"}` }

// TestMessagesAreShown shows messages of any queue, by their state.
func TestMessagesAreShown(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.must(api.VerbQueueCreate, "other", `{}`, nil)
		h.must(api.VerbQueueCreate, "orders", `{"fairness_header":"tenant","throttle_headers":["gate"]}`, nil)
		h.must(api.VerbThrottleSet, "slow", `{"concurrency":1}`, nil)
		h.must(api.VerbPause, "", `{"kind":"throttle","name":"slow"}`, nil)
		id := h.enqueue("orders", "hello world", nats.Header{"tenant": {"acme"}, "gate": {"slow"}, "x": {"y"}})
		var m api.MessageInfo
		h.must(api.VerbMessageShow, "", `{"id":"`+id+`","payload_bytes":64}`, &m)
		require.Equal(t, "orders", m.Queue)
		require.Equal(t, id, m.ID)
		require.Equal(t, "blocked", m.State)
		require.Equal(t, "acme", m.Key)
		require.Equal(t, []string{"y"}, m.Headers["x"])
		require.Equal(t, "hello world", *m.Payload)
		require.Equal(t, "throttle:slow", m.BlockedBy.Gate)
		require.Len(t, m.Gates, 1)
		require.Contains(t, m.Reason, "slow")
		require.EqualValues(t, 1, m.Cost)

		late := h.enqueue("orders", "late", nats.Header{"tenant": {"acme"}, wire.HeaderDelay: {"1h"}})
		h.must(api.VerbMessageShow, "", `{"id":"`+late+`","queue":"orders"}`, &m)
		require.Equal(t, "delayed", m.State)
		require.Contains(t, m.Reason, "It is delayed until")

		for body, code := range map[string]int{
			about(nowhere): wire.CodeMessageNotFound, `{"id":"` + id + `","queue":"other"}`: wire.CodeMessageNotFound,
			about("x"): wire.CodeBadField, `{}`: wire.CodeBadField, `{"id":"` + id + `","queue":"nosuch"}`: wire.CodeQueueNotFound,
			`{"id":"` + id + `","queue":"a$b"}`: wire.CodeBadQueueName,
		} {
			for _, verb := range []api.AnyVerb{api.VerbMessageShow, api.VerbMessageDelete, api.VerbMessageRunNow} {
				werr := h.ask(verb, "", body, nil)
				require.NotNil(t, werr, "%s %s", verb, body)
				require.Equal(t, code, werr.ErrCode, "%s %s: %v", verb, body, werr)
			}
		}
		require.Equal(t, wire.CodeBadField, h.ask(api.VerbMessageShow, "", `{"id":"`+id+`","payload_bytes":-1}`, nil).ErrCode)
	})
}

// TestMessagesHaveAHistory: message-show, explain and a peek of dead letters show the history,
// and a redrive does not end it.
func TestMessagesHaveAHistory(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.must(api.VerbQueueCreate, "orders", `{"throttle_headers":["gate"],"retry_initial_ms":1000,"retry_max_ms":1000,"retry_jitter":0}`, nil)
		h.must(api.VerbThrottleSet, "slow", `{"concurrency":1}`, nil)
		h.must(api.VerbPause, "", `{"kind":"throttle","name":"slow"}`, nil)
		id := h.enqueue("orders", "1", nats.Header{"gate": {"slow"}})
		h.consume("orders", 1)
		time.Sleep(2 * time.Second)
		h.must(api.VerbResume, "", `{"kind":"throttle","name":"slow"}`, nil)
		h.ack(h.one(), `-NAK {"error":"boom","code":"E1"}`)
		var m api.MessageInfo
		h.must(api.VerbMessageShow, "", about(id), &m)
		require.Len(t, m.History, 1)
		first := m.History[0]
		at, err := time.Parse(time.RFC3339Nano, first.At)
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), at, 5*time.Second)
		require.GreaterOrEqual(t, first.WaitedMs, int64(2000))
		require.Len(t, first.Held, 1)
		require.Equal(t, "throttle:slow", first.Held[0].Gate)
		require.InDelta(t, first.WaitedMs, first.Held[0].Ms, 1000)
		first.At, first.WaitedMs, first.TookMs, first.Held = "", 0, 0, nil
		require.Equal(t, api.AttemptInfo{
			Outcome: wire.AttemptNack, Attempt: 1, Consumer: "w", Error: "boom", ErrorCode: "E1", DecidedBy: wire.DecidedByDefault, DelayMs: 1000,
		}, first)

		h.ack(h.one(), `+TERM {"error":"bad","code":"E2"}`)
		h.must(api.VerbMessageShow, "", about(id), &m)
		require.Equal(t, "orders.dlq", m.Queue)
		require.Len(t, m.History, 2)
		require.Equal(t, "term bad E2", m.History[1].Reason+" "+m.History[1].Error+" "+m.History[1].ErrorCode)
		var e api.ExplainMessage
		h.must(api.VerbExplain, "", `{"kind":"message","id":"`+id+`"}`, &e)
		require.Equal(t, m.History, e.History)
		var p api.PeekReply
		h.must(api.VerbPeek, "orders.dlq", `{}`, &p)
		require.Equal(t, m.History, p.Messages[0].History)

		h.must(api.VerbRedrive, "orders.dlq", `{}`, nil)
		h.ack(h.one(), "-NAK")
		h.must(api.VerbMessageShow, "", about(id), &e)
		require.Len(t, e.History, 4)
		require.Equal(t, m.History, e.History[:2])
		require.Equal(t, wire.AttemptRedriven, e.History[2].Outcome)
		require.EqualValues(t, 1, e.History[3].Attempt, "attempts count from 1 again")
	})
}

// TestMessagesAreDeleted: waiting messages are deleted, messages in flight are not.
func TestMessagesAreDeleted(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.must(api.VerbQueueCreate, "orders", `{}`, nil)
		first, second := h.enqueue("orders", "1", nil), h.enqueue("orders", "2", nil)
		h.consume("orders", 1)
		d := h.one()
		for _, verb := range []api.AnyVerb{api.VerbMessageDelete, api.VerbMessageRunNow} {
			werr := h.ask(verb, "", about(first), nil)
			require.NotNil(t, werr)
			require.Equal(t, wire.CodeMessageInFlight, werr.ErrCode)
			require.Contains(t, werr.Description, "it is in flight")
		}
		var reply api.MessageReply
		h.must(api.VerbMessageDelete, "", about(second), &reply)
		require.Equal(t, api.MessageReply{ID: second, Queue: "orders", State: "ready", Done: true}, reply)
		require.Equal(t, wire.CodeMessageNotFound, h.ask(api.VerbMessageDelete, "", about(second), nil).ErrCode)

		h.ack(d, "+TERM")
		h.must(api.VerbMessageDelete, "", `{"id":"`+first+`","queue":"orders"}`, &reply)
		require.Equal(t, api.MessageReply{ID: first, Queue: "orders.dlq", State: "dead", Done: true}, reply)
		require.Zero(t, h.shards.Queue("orders").Depth()+h.shards.Queue("orders.dlq").Depth())
	})
}

// TestMessagesRunNow: a delayed or retrying message becomes ready.
func TestMessagesRunNow(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.must(api.VerbQueueCreate, "orders", `{"retry_initial_ms":3600000,"retry_max_ms":3600000,"retry_jitter":0}`, nil)
		id := h.enqueue("orders", "1", nats.Header{wire.HeaderDelay: {"1h"}})
		var reply api.MessageReply
		h.must(api.VerbMessageRunNow, "", about(id), &reply)
		require.Equal(t, api.MessageReply{ID: id, Queue: "orders", State: "delayed", Done: true}, reply)
		h.must(api.VerbMessageRunNow, "", about(id), &reply)
		require.Equal(t, api.MessageReply{ID: id, Queue: "orders", State: "ready"}, reply)
		h.consume("orders", 1)
		h.ack(h.one(), "-NAK")
		var m api.MessageInfo
		h.must(api.VerbMessageShow, "", about(id), &m)
		require.Equal(t, "delayed", m.State)
		require.EqualValues(t, 2, m.Attempt)
		h.must(api.VerbMessageRunNow, "", about(id), &reply)
		require.Equal(t, "2", h.one().Header.Get(wire.HeaderAttempt))
	})
}

// TestPurgeEmptiesAQueue purges page by page the messages that exist when it begins. Dead letters
// are purged separately.
func TestPurgeEmptiesAQueue(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.must(api.VerbQueueCreate, "orders", `{}`, nil)
		h.enqueue("orders", "dead", nil)
		h.consume("orders", 1)
		h.ack(h.one(), "+TERM")
		h.enqueue("orders", "leased", nil)
		leased := h.one()
		for i := range 5 {
			h.enqueue("orders", fmt.Sprint(i), nats.Header{wire.HeaderDelay: {fmt.Sprint(i, "h")}})
		}
		var reply api.QueuePurgeReply
		h.must(api.VerbQueuePurge, "orders", `{"after":"6-6"}`, &reply)
		require.Equal(t, api.QueuePurgeReply{Purged: 1}, reply)
		h.must(api.VerbQueuePurge, "orders", ``, &reply)
		require.Equal(t, api.QueuePurgeReply{Purged: 4}, reply)
		var info api.QueueInfo
		h.must(api.VerbQueueInspect, "orders", ``, &info)
		require.EqualValues(t, 1, info.InFlight)
		require.Zero(t, info.Pending+info.Delayed)
		require.EqualValues(t, 5, info.Counters["removed"])
		h.ack(leased, "")

		require.EqualValues(t, 1, h.shards.Queue("orders.dlq").Depth())
		h.must(api.VerbQueuePurge, "orders.dlq", ``, &reply)
		require.Equal(t, api.QueuePurgeReply{Purged: 1}, reply)
		require.Zero(t, h.shards.Queue("orders").Depth()+h.shards.Queue("orders.dlq").Depth())
		for _, after := range []string{"x", "1", "1-", "-1", "1-2-3"} {
			require.Equal(t, wire.CodeBadField, h.ask(api.VerbQueuePurge, "orders", `{"after":"`+after+`"}`, nil).ErrCode, after)
		}
	})
}

// TestKeysThatNobodyKnowsAreNotExplained: a key without messages is explained only if something
// is set for it.
func TestKeysThatNobodyKnowsAreNotExplained(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.must(api.VerbQueueCreate, "orders", `{"fairness_header":"tenant"}`, nil)
		ask := func(key string) *wire.Error {
			return h.ask(api.VerbExplain, "", `{"kind":"key","queue":"orders","key":"`+key+`"}`, nil)
		}
		require.Equal(t, wire.CodeKeyNotFound, ask("acme").ErrCode)
		h.must(api.VerbPause, "", `{"kind":"queue","name":"orders"}`, nil)
		require.Equal(t, wire.CodeKeyNotFound, ask("acme").ErrCode)
		h.enqueue("orders", "1", nats.Header{"tenant": {"acme"}})
		require.Nil(t, ask("acme"))
		h.must(api.VerbPause, "", `{"kind":"key","queue":"orders","name":"paused"}`, nil)
		require.Nil(t, ask("paused"))
		h.must(api.VerbConfigSet, "weight:orders:heavy", `{"value":"2"}`, nil)
		require.Nil(t, ask("heavy"))
		require.Equal(t, wire.CodeKeyNotFound, ask("nobody").ErrCode)
	})
}

// TestAuditNamesActorAndChange: every change by a verb is in the audit log once, with the
// client. A verb that changes nothing is not.
func TestAuditNamesActorAndChange(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		twice := func(verb api.AnyVerb, tail, body string) { // the second time there is nothing to do
			h.must(verb, tail, body, nil)
			h.must(verb, tail, body, nil)
		}
		twice(api.VerbQueueCreate, "orders", `{"on_enqueue":"function on_enqueue(msg) error('x') end"}`)
		id := h.enqueue("orders", "1", nats.Header{wire.HeaderDelay: {"1h"}})
		twice(api.VerbQueueUpdate, "orders", `{"max_depth":5}`)
		twice(api.VerbMessageRunNow, "", about("urn:uuid:"+strings.ToUpper(id)))
		h.must(api.VerbMessageDelete, "", about(id), nil)
		h.enqueue("orders", "2", nats.Header{wire.HeaderDelay: {"1h"}})
		twice(api.VerbQueuePurge, "orders", ``)
		twice(api.VerbHookReset, "orders", ``)
		h.must(api.VerbRedrive, "orders.dlq", ``, nil)
		h.must(api.VerbCircuitOpen, "stripe", `{"for_ms":5}`, nil)
		h.must(api.VerbCircuitClose, "_", `{"key":"stripe"}`, nil)
		require.Equal(t, wire.CodeCircuitNotFound, h.ask(api.VerbCircuitClose, "stripe", ``, nil).ErrCode)
		twice(api.VerbCircuitOpen, "adyen", ``)
		twice(api.VerbThrottleSet, "k", `{"concurrency":1}`)
		twice(api.VerbConfigSet, "weight:orders:acme", `{"value":"2"}`)
		twice(api.VerbPause, "", `{"kind":"queue","name":"orders"}`)
		h.must(api.VerbResume, "", `{"kind":"queue","name":"orders"}`, nil)
		h.must(api.VerbQueueInspect, "orders", ``, nil)
		h.must(api.VerbQueueDelete, "orders", ``, nil)
		require.NotNil(t, h.ask(api.VerbQueueDelete, "orders", ``, nil))
		var log api.ConfigLog
		h.must(api.VerbConfigLog, "", ``, &log)
		var got []string
		for i := len(log.Entries) - 1; i >= 0; i-- {
			e := log.Entries[i]
			require.Equal(t, "tester", e.Client, "%+v", e)
			got = append(got, e.By+" "+e.Key)
		}
		require.Equal(t, []string{
			"queue-create queue:orders", "queue-update queue:orders", "message-run-now message:" + id, "message-delete message:" + id,
			"queue-purge queue:orders", "hook-reset queue:orders", "circuit-open circuit:stripe", "circuit-close circuit:stripe",
			"circuit-open circuit:adyen", "throttle-set throttle:k:concurrency", "config-set weight:orders:acme", "pause pause:queue:orders", "resume pause:queue:orders", "queue-delete queue:orders",
		}, got)
		require.Equal(t, `{"deleted":0}`, *log.Entries[0].New)
	})
}

// A request that changed messages before it failed is in the audit log, and its error says
// how many it changed.
func TestAFailedRequestIsAuditedIfItChangedMessages(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.must(api.VerbQueueCreate, "orders", ``, nil)
		for _, n := range []int64{0, 5} {
			err := h.auditMessages(control.Actor{By: "queue-purge", Sender: api.Sender{Client: "tester"}}, h.shards.Queue("orders"), n, api.QueuePurgeReply{Purged: n}, wire.OutcomeUnknown())
			require.ErrorIs(t, err, wire.OutcomeUnknown())
			require.Equal(t, n > 0, strings.HasSuffix(err.Description, "; 5 messages had been done before"), err.Description)
		}
		var log api.ConfigLog
		h.must(api.VerbConfigLog, "", ``, &log)
		require.Len(t, log.Entries, 2)
		require.Equal(t, "queue-purge queue:orders tester", log.Entries[0].By+" "+log.Entries[0].Key+" "+log.Entries[0].Client)
		require.Equal(t, `{"purged":5}`, *log.Entries[0].New)
	})
}
