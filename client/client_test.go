package client

import (
	"context"
	"encoding/json"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

func TestNewRefusesAPrefix(t *testing.T) {
	_, err := New(nil, WithPrefix("a.*"))
	require.Error(t, err)
}

func TestPublish(t *testing.T) {
	f, c := setup(t)
	got := make(chan *nats.Msg, 1)
	f.handle("fila.enqueue.orders", func(msg *nats.Msg) {
		got <- msg
		if msg.Reply == "" {
			return
		}
		f.reply(msg, wire.EnqueueReply{ID: "id-1", Queue: "orders", Duplicate: true})
	})
	at := time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC)
	receipt, err := c.Publish(t.Context(), "orders", []byte("hello"),
		Header("tenant", "acme"), Header("tenant", "other"), DedupeID("d1"), Delay(90*time.Second), NotBefore(at), TTL(time.Minute))
	require.NoError(t, err)
	require.Equal(t, Receipt{ID: "id-1", Queue: "orders", Duplicate: true}, receipt)
	msg := next(t, got)
	require.Equal(t, "hello", string(msg.Data))
	require.Equal(t, nats.Header{
		"tenant": {"acme", "other"}, "Nats-Msg-Id": {"d1"}, "Fila-Delay": {"1m30s"},
		"Fila-Not-Before": {"2030-01-02T03:04:05.000000006Z"}, "Nats-TTL": {"1m0s"},
	}, msg.Header)

	require.NoError(t, c.Send("orders", []byte("quiet")))
	msg = next(t, got)
	require.Equal(t, "quiet", string(msg.Data))
	require.Empty(t, msg.Reply)
}

func TestRefusals(t *testing.T) {
	f, c := setup(t, WithTimeout(50*time.Millisecond))
	f.failingQueues()

	_, err := c.Publish(t.Context(), "full", nil)
	refused := refusal(t, err)
	require.Equal(t, 429, refused.Code)
	require.Equal(t, wire.CodeBacklogMessages, refused.ErrCode)
	require.Equal(t, 1500*time.Millisecond, refused.RetryAfter)

	_, err = c.Publish(t.Context(), "nobody", nil)
	require.ErrorIs(t, err, ErrNoFila)
	_, err = c.Publish(t.Context(), "silent", nil)
	require.ErrorIs(t, err, ErrNoReply)
	_, err = c.Publish(t.Context(), "odd", nil)
	require.ErrorContains(t, err, "not what fila sends")
	_, err = c.Publish(t.Context(), "bad name", nil)
	require.Equal(t, wire.CodeBadQueueName, refusal(t, err).ErrCode)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Publish(ctx, "silent", nil)
	require.ErrorIs(t, err, context.Canceled)
}

func TestAdmin(t *testing.T) {
	f, c := setup(t)
	previous := "4"
	settings := wire.DefaultQueueSettings("orders")
	testRequests(t, f, []adminRequest{
		{"create", "fila.admin.queue-create.orders", `{}`, api.QueueReply{QueueSettings: settings}, func() (any, error) {
			return c.QueueCreate(t.Context(), "orders", QueueSettings{})
		}},
		{"create with settings", "fila.admin.queue-create.orders", `{"fairness_header":"tenant","max_deliveries":0}`, api.QueueReply{QueueSettings: settings}, func() (any, error) {
			return c.QueueCreate(t.Context(), "orders", QueueSettings{FairnessHeader: "tenant", MaxDeliveries: new(int64(0))})
		}},
		{"update", "fila.admin.queue-update.orders", `{"max_depth":5,"on_failure":""}`, api.QueueReply{QueueSettings: settings}, func() (any, error) {
			return c.QueueUpdate(t.Context(), "orders", QueueChanges{"max_depth": 5, "on_failure": ""})
		}},
		{"update nothing", "fila.admin.queue-update.orders", `{}`, api.QueueReply{QueueSettings: settings}, func() (any, error) {
			return c.QueueUpdate(t.Context(), "orders", nil)
		}},
		{"delete", "fila.admin.queue-delete.orders", `{"force":true}`, api.QueueDeleteReply{Deleted: 7}, func() (any, error) {
			return c.QueueDelete(t.Context(), "orders", true)
		}},
		{"purge", "fila.admin.queue-purge.orders", `{}`, api.QueuePurgeReply{Purged: 3}, func() (any, error) {
			n, err := c.QueuePurge(t.Context(), "orders")
			return api.QueuePurgeReply{Purged: n}, err
		}},
		{"message show", "fila.admin.message-show", `{"id":"x","queue":"orders","payload_bytes":7}`, api.MessageInfo{Queue: "orders", Reason: "so"}, func() (any, error) {
			return c.MessageShow(t.Context(), "orders", "x", 7)
		}},
		{"message delete", "fila.admin.message-delete", `{"id":"x"}`, api.MessageReply{ID: "x", Queue: "orders", State: "dead", Done: true}, func() (any, error) {
			return c.MessageDelete(t.Context(), "", "x")
		}},
		{"message run-now", "fila.admin.message-run-now", `{"id":"x","queue":"orders"}`, api.MessageReply{ID: "x", State: "delayed"}, func() (any, error) {
			return c.MessageRunNow(t.Context(), "orders", "x")
		}},
		{"list page", "fila.admin.queue-list", `{"offset":3,"limit":2}`, api.QueueList{Total: 9, Queues: []api.QueueSummary{{Name: "a"}}}, func() (any, error) {
			return c.QueueListPage(t.Context(), 3, 2)
		}},
		{"inspect", "fila.admin.queue-inspect.orders", `{"flows":0}`, api.QueueInfo{Flows: 3}, func() (any, error) {
			return c.QueueInspect(t.Context(), "orders", 0)
		}},
		{"config set", "fila.admin.config-set.throttle:a:rate", `{"value":"5","if_value":"4"}`, api.ConfigSetReply{Key: "throttle:a:rate", Value: "5", Previous: &previous}, func() (any, error) {
			return c.ConfigSet(t.Context(), "throttle:a:rate", "5", &previous)
		}},
		{"config get", "fila.admin.config-get.a", "", api.ConfigEntry{Key: "a", Value: "1"}, func() (any, error) {
			return c.ConfigGet(t.Context(), "a")
		}},
		{"config delete", "fila.admin.config-delete.a", "", api.ConfigEntry{Key: "a", Value: "1"}, func() (any, error) {
			return c.ConfigDelete(t.Context(), "a")
		}},
		{"redrive", "fila.admin.redrive.orders.dlq", `{"count":10}`, api.RedriveReply{Redriven: 4}, func() (any, error) {
			return c.Redrive(t.Context(), "orders.dlq", 10)
		}},
		{"store backup", "fila.admin.store-backup", "", api.StoreBackupReply{Path: "/data/backups/x.db", Bytes: 5, DurationMs: 6}, func() (any, error) {
			return c.StoreBackup(t.Context())
		}},
		{"hook reset", "fila.admin.hook-reset.orders", `{"hook":"on_failure"}`, api.HookResetReply{Queue: "orders"}, func() (any, error) {
			return c.HookReset(t.Context(), "orders", "on_failure")
		}},
	})
	_, err := c.ConfigGet(t.Context(), "no spaces")
	require.Equal(t, wire.CodeBadConfigKey, refusal(t, err).ErrCode)
	f.handle("fila.admin.store-backup", func(msg *nats.Msg) { f.reply(msg, wire.BackupFailed("no room")) })
	_, err = c.StoreBackup(t.Context())
	require.Equal(t, wire.CodeBackupFailed, refusal(t, err).ErrCode)
}

// A purge continues until nothing is left, and returns the number of removed messages, also with
// an error.
func TestPurgeGoesOn(t *testing.T) {
	f, c := setup(t)
	replies := map[string]any{
		`{}`:               api.QueuePurgeReply{Purged: 5, Next: "6-20"},
		`{"after":"6-20"}`: api.QueuePurgeReply{Next: "9-20"},
		`{"after":"9-20"}`: api.QueuePurgeReply{Purged: 2},
	}
	f.handle("fila.admin.queue-purge.orders", func(msg *nats.Msg) { f.reply(msg, replies[string(msg.Data)]) })
	n, err := c.QueuePurge(t.Context(), "orders")
	require.NoError(t, err)
	require.EqualValues(t, 7, n)
	replies[`{"after":"9-20"}`] = wire.Draining()
	n, err = c.QueuePurge(t.Context(), "orders")
	require.Equal(t, wire.CodeDraining, refusal(t, err).ErrCode)
	require.EqualValues(t, 5, n)
}

func TestListsReadAllPages(t *testing.T) {
	f, c := setup(t)
	all := []string{"a", "b", "c", "d", "e"}
	f.handle("fila.admin.queue-list", func(msg *nats.Msg) {
		var request api.ListRequest
		require.NoError(t, json.Unmarshal(msg.Data, &request))
		list := api.QueueList{Total: len(all)}
		for _, name := range all[request.Offset:min(request.Offset+2, len(all))] {
			list.Queues = append(list.Queues, api.QueueSummary{Name: name})
		}
		f.reply(msg, list)
	})
	f.handle("fila.admin.config-list", func(msg *nats.Msg) { f.reply(msg, api.ConfigList{Total: 3}) }) // it shrank meanwhile
	queues, err := c.QueueList(t.Context())
	require.NoError(t, err)
	require.Len(t, queues, 5)
	require.Equal(t, "e", queues[4].Name)
	entries, err := c.ConfigList(t.Context(), "x")
	require.NoError(t, err)
	require.NotNil(t, entries)
	require.Empty(t, entries)
}

// TestAListWithoutSomeShards: the client returns the available entries and an error.
func TestAListWithoutSomeShards(t *testing.T) {
	f, c := setup(t)
	f.handle("fila.admin.queue-list", func(msg *nats.Msg) {
		f.reply(msg, api.QueueList{Total: 1, Queues: []api.QueueSummary{{Name: "a"}}, Missing: []int{2}})
	})
	queues, err := c.QueueList(t.Context())
	require.Len(t, queues, 1)
	require.Equal(t, wire.CodeNoOwner, refusal(t, err).ErrCode)
	require.ErrorContains(t, err, "[2]")
}

// TestListsGoOnByCursor if fila returns one: the list may change between two pages.
func TestListsGoOnByCursor(t *testing.T) {
	f, c := setup(t)
	page := func(msg *nats.Msg) (names []string, next string) {
		var request api.KeyListRequest
		require.NoError(t, json.Unmarshal(msg.Data, &request))
		require.Zero(t, request.Offset)
		switch request.After {
		case "":
			return []string{"a", "b"}, "b"
		case "b":
			return nil, "c" // all of this page are gone
		case "c":
			return []string{"d"}, "" // a new entry comes before it: the total is larger
		}
		require.Fail(t, "asked after "+request.After)
		return nil, ""
	}
	f.handle("fila.admin.throttle-list", func(msg *nats.Msg) {
		names, next := page(msg)
		list := api.ThrottleList{Total: 9, Next: next}
		for _, name := range names {
			list.Throttles = append(list.Throttles, api.ThrottleInfo{Key: name})
		}
		f.reply(msg, list)
	})
	f.handle("fila.admin.config-log", func(msg *nats.Msg) {
		names, next := page(msg)
		list := api.ConfigLog{Total: 9, Next: next}
		for _, name := range names {
			list.Entries = append(list.Entries, api.ConfigLogEntry{Key: name, Seq: uint64('z' - name[0])})
		}
		f.reply(msg, list)
	})
	throttles, err := c.ThrottleList(t.Context(), "")
	require.NoError(t, err)
	entries, err := c.ConfigLog(t.Context(), "", 0)
	require.NoError(t, err)
	for i, want := range []string{"a", "b", "d"} {
		require.Equal(t, want, throttles[i].Key)
		require.Equal(t, want, entries[i].Key)
	}
	require.Equal(t, []int{3, 3}, []int{len(throttles), len(entries)})
}

// The timeout of the client applies to a list as a whole, however many pages it has.
func TestTimeoutOfAList(t *testing.T) {
	f, c := setup(t, WithTimeout(50*time.Millisecond))
	pages := 0
	f.handle("fila.admin.circuit-list", func(msg *nats.Msg) {
		list := api.CircuitList{Total: 1 << 30, Circuits: []api.CircuitInfo{{Key: "x"}}}
		if pages++; pages < 100_000 {
			list.Next = strconv.Itoa(pages)
		}
		f.reply(msg, list)
	})
	_, err := c.CircuitList(t.Context(), "")
	require.ErrorIs(t, err, ErrNoReply)
}

func TestFetch(t *testing.T) {
	f, c := setup(t, WithTimeout(100*time.Millisecond))
	var script func(request wire.FetchRequest, reply string)
	f.handle(f.subjects.Wildcard(wire.KindFetch), func(msg *nats.Msg) {
		request, bad := wire.ParseFetch(msg.Data)
		require.Nil(t, bad)
		script(request, msg.Reply)
	})
	f.handle(f.subjects.Consumer("w1", "orders"), func(msg *nats.Msg) {
		named, bad := wire.ParseConsumer("w1", msg.Data)
		require.Nil(t, bad)
		request, bad := wire.ParseFetch(named.Fetch)
		require.Nil(t, bad)
		script(request, msg.Reply)
	})
	_, err := c.Fetch(t.Context(), "orders", 1, 0, FetchAs("a.b"))
	require.ErrorContains(t, err, `consumer name "a.b"`)
	status := func(to, code string) {
		msg := nats.NewMsg(to)
		msg.Header.Set("Status", code)
		require.NoError(t, f.nc.PublishMsg(msg))
	}

	headers := wire.HeadersMin
	script = func(request wire.FetchRequest, reply string) {
		require.Equal(t, wire.FetchRequest{Batch: 2, ExpiresMs: 3000, Headers: headers}, request)
		require.NoError(t, f.nc.PublishMsg(f.delivery(reply, "1", 1)))
		require.NoError(t, f.nc.PublishMsg(f.delivery(reply, "2", 3)))
	}
	messages, err := c.Fetch(t.Context(), "orders", 2, 3*time.Second, FetchAs("w1"), FetchMinHeaders())
	require.NoError(t, err)
	require.Len(t, messages, 2)
	headers = ""
	messages, err = c.Fetch(t.Context(), "orders", 2, 3*time.Second)
	require.NoError(t, err)
	require.Len(t, messages, 2)
	m := messages[1]
	require.Equal(t, "2", m.ID)
	require.Equal(t, "orders", m.Queue)
	require.Equal(t, "acme", m.Key)
	require.Equal(t, 3, m.Attempt)
	require.Equal(t, "payload 2", string(m.Data))
	require.Equal(t, "acme", m.Header.Get("tenant"))
	require.Equal(t, time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), m.EnqueuedAt)
	require.Equal(t, time.Date(2026, 1, 2, 3, 4, 35, 0, time.UTC), m.Deadline)

	for _, code := range []string{"404", "408"} {
		script = func(_ wire.FetchRequest, reply string) {
			require.NoError(t, f.nc.PublishMsg(f.delivery(reply, "1", 1)))
			status(reply, code)
		}
		messages, err = c.Fetch(t.Context(), "orders", 5, 0)
		require.NoError(t, err)
		require.Len(t, messages, 1)
	}

	script = func(_ wire.FetchRequest, reply string) {
		f.reply(&nats.Msg{Reply: reply}, wire.QueueNotFound("orders"))
	}
	_, err = c.Fetch(t.Context(), "orders", 5, 0)
	requireRefused(t, err, 404)

	script = func(_ wire.FetchRequest, reply string) {
		require.NoError(t, f.nc.PublishMsg(f.delivery(reply, "1", 1)))
	}
	messages, err = c.Fetch(t.Context(), "orders", 5, 0)
	require.ErrorIs(t, err, ErrNoReply)
	require.Len(t, messages, 1, "what came is not lost")

	other, err := New(c.nc, WithPrefix("other"))
	require.NoError(t, err)
	_, err = other.Fetch(t.Context(), "orders", 1, 0)
	require.ErrorIs(t, err, ErrNoFila)
}

func TestAckPayloads(t *testing.T) {
	f, c := setup(t)
	all := NackOptions{Error: "boom", Code: "E1", Delay: time.Second, RetryAfter: 1500 * time.Microsecond}
	for want, settle := range map[string]func(m *Message) error{
		"":                    func(m *Message) error { return m.Ack() },
		"-NAK":                func(m *Message) error { return m.Nack(NackOptions{}) },
		"+TERM":               func(m *Message) error { return m.Term("", "") },
		"+TERM gone":          func(m *Message) error { return m.Term("gone", "") },
		`+TERM {"code":"E1"}`: func(m *Message) error { return m.Term("", "E1") },
		`+TERM {"code":"E1","error":"two\nlines"}`: func(m *Message) error { return m.Term("two\nlines", "E1") },
		`+TERM {"error":" {\"status\":410}"}`:      func(m *Message) error { return m.Term(` {"status":410}`, "") },
		"+WPI":                                     func(m *Message) error { return m.Extend() },

		`+ACK {"cost":3120.5}`:  func(m *Message) error { return m.AckCost(3120.5) },
		`+ACK {"cost":0}`:       func(m *Message) error { return m.AckCost(math.Copysign(0, -1)) },
		`+ACK {"cost":1000000}`: func(m *Message) error { return m.AckCost(1e6) },
		`+ACK {"cost":5,"remaining":1200,"reset_ms":800}`: func(m *Message) error {
			return m.AckWith(AckOptions{Cost: new(5.0), Feedback: &Feedback{1200, 800 * time.Millisecond}})
		},
		`-NAK {"code":"429","cost":0,"remaining":0}`: func(m *Message) error {
			return m.Nack(NackOptions{Code: "429", Cost: new(0.0), Feedback: &Feedback{}})
		},
		`-NAK {"code":"E1","delay":1000000000,"error":"boom","retry_after_ms":2}`: func(m *Message) error { return m.Nack(all) },
	} {
		m := c.newMessage(f.delivery("x", "1", 1), "orders")
		require.NoError(t, settle(m))
		msg := next(t, f.acks)
		require.Equal(t, want, string(msg.Data))
		require.Equal(t, m.ackTo, msg.Subject)
		require.Empty(t, msg.Reply)
		_, bad := wire.ParseAck(msg.Data, msg.Header)
		require.Nil(t, bad, want)
	}
	for _, cost := range []float64{-1, 1e6 + 1, math.NaN(), math.Inf(1)} {
		m := c.newMessage(f.delivery("x", "1", 1), "orders")
		require.ErrorContains(t, m.AckCost(cost), "allowed is a number from 0 to 1000000")
		require.Error(t, m.AckCostSync(t.Context(), cost))
		require.Error(t, m.AckWith(AckOptions{Cost: &cost}))
		require.NoError(t, m.Ack(), "it is not settled")
		next(t, f.acks)
	}
	for want, settle := range map[string]func(m *Message) error{
		"":      func(m *Message) error { return m.AckSync(t.Context()) },
		"-NAK":  func(m *Message) error { return m.NackSync(t.Context(), NackOptions{}) },
		"+TERM": func(m *Message) error { return m.TermSync(t.Context(), "", "") },
		"+WPI":  func(m *Message) error { return m.ExtendSync(t.Context()) },

		`+ACK {"cost":7}`: func(m *Message) error { return m.AckCostSync(t.Context(), 7) },
	} {
		m := c.newMessage(f.delivery("x", "1", 1), "orders")
		f.refuseWith(nil)
		require.NoError(t, settle(m))
		require.Equal(t, want, string(next(t, f.acks).Data))
		if want != "+WPI" {
			require.ErrorIs(t, settle(m), ErrSettled)
		}
		f.refuseWith(wire.LeaseLost())
		require.ErrorIs(t, settle(c.newMessage(f.delivery("x", "1", 1), "orders")), ErrLeaseLost)
		next(t, f.acks)
	}
}
