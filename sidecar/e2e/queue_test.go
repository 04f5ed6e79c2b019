package e2e

import (
	"fmt"
	"sort"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

func TestQueueCreate(t *testing.T) {
	c := shared(t).client(t)
	queue := unique(t)
	created := c.events("queue-created." + queue)
	var full m
	c.call("fila.admin.queue-create."+queue, m{"visibility_timeout_ms": 5000, "max_depth": 9}, &full)
	require.Equal(t, queue, full["name"])
	require.EqualValues(t, 5000, full["visibility_timeout_ms"])
	require.EqualValues(t, 9, full["max_depth"])
	require.EqualValues(t, 120_000, full["dedupe_window_ms"])
	require.EqualValues(t, 1, full["quantum"])
	require.EqualValues(t, 0, full["max_bytes"])
	require.Equal(t, queue, nextEvent(t, created).Queue)
	// With the same settings again: fine. With others: 409, and nothing changes.
	c.createQueue(queue, m{"max_depth": 9, "visibility_timeout_ms": 5000})
	c.refused(409, "fila.admin.queue-create."+queue, m{"visibility_timeout_ms": 6000, "max_depth": 9})
	c.refused(409, "fila.admin.queue-create."+queue, m{})
	require.EqualValues(t, 5000, c.inspect(queue).Settings["visibility_timeout_ms"])
	require.Equal(t, queue+".dlq", c.inspect(queue+".dlq").Name, "made with its queue")
}

// TestQueueCreateReplyMeansReady: it can be published to when the reply is there.
func TestQueueCreateReplyMeansReady(t *testing.T) {
	p := shared(t)
	c, producer := p.client(t), p.client(t)
	for range 30 {
		queue := c.newQueue(nil)
		producer.enqueue(queue, "at once")
	}
}

func TestQueueNames(t *testing.T) {
	c := shared(t).client(t)
	for _, queue := range []string{unique(t) + ".with.dots", "A-Z_" + unique(t), "9" + unique(t), unique(t) + strings.Repeat("x", 60)} {
		c.createQueue(queue, nil)
		c.enqueue(queue, "x")
		d := c.consume(queue, 1).next()
		require.Equal(t, queue, d.Header.Get("Fila-Queue"))
		c.accepted(d, "+TERM")
		dead := c.consume(queue+".dlq", 1).next()
		c.accepted(dead, "")
		require.Zero(t, c.depth(queue+".dlq"))
	}
	for _, queue := range []string{"a/b", "ü", "a,b", "a:b", "$x", "dlq.dlq", unique(t) + ".dlq.dlq", strings.Repeat("q", 129)} {
		c.refused(400, "fila.admin.queue-create."+queue, m{})
	}
}

func TestBadSettingsAreRefused(t *testing.T) {
	c := shared(t).client(t)
	queue := unique(t)
	existing := c.newQueue(nil)
	for _, body := range []any{
		"{", "[]", `{} {}`,
		m{"unknown": 1},
		m{"visibility_timeout": 5},
		m{"name": "another"},
		m{"visibility_timeout_ms": 0},
		m{"visibility_timeout_ms": -1},
		m{"visibility_timeout_ms": "30s"},
		m{"visibility_timeout_ms": 1e15},
		m{"max_deliveries": -1},
		m{"max_depth": -1},
		m{"max_bytes": -1},
		m{"dedupe_window_ms": -1},
		m{"quantum": 0},
		m{"quantum": -1},
		m{"quantum": 1.5},
		m{"lua_timeout_ms": -1},
		m{"lua_memory_limit_bytes": -1},
		m{"lua_circuit_breaker_threshold": -1},
		m{"lua_circuit_breaker_cooldown_ms": -1},
		m{"fairness_header": "a b"},
		m{"weight_header": "Fila-Weight"},
		m{"throttle_headers": "x"},
		m{"throttle_headers": []string{""}},
		m{"on_enqueue": 5},
		m{"on_enqueue_file": "/etc/passwd"},
		m{"on_failure_file": "x.lua"},
		m{"on_enqueue": "function on_enqueue(msg)"},
		m{"on_failure": "x = 1"},
	} {
		c.refused(400, "fila.admin.queue-create."+queue, body)
		c.refused(400, "fila.admin.queue-update."+existing, body)
	}
	c.refused(404, "fila.admin.queue-inspect."+queue, nil)
}

func TestQueueUpdate(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(m{"visibility_timeout_ms": 5000, "max_depth": 2})
	k := c.consume(queue, 1)
	var full m
	c.call("fila.admin.queue-update."+queue, m{"visibility_timeout_ms": 3_600_000, "max_depth": 3}, &full)
	require.EqualValues(t, 3_600_000, full["visibility_timeout_ms"])
	require.EqualValues(t, 3, full["max_depth"])
	for range 3 {
		c.enqueue(queue, "x")
	}
	c.refusedMsg(429, message(queue, "x"))
	d := k.next()
	require.Greater(t, d.timeHeader(t, "Fila-Deadline").Sub(d.at).Minutes(), 30.0)
	require.EqualValues(t, 3_600_000, k.register(1).VisibilityTimeoutMs)
	require.EqualValues(t, 3_600_000, c.inspect(queue + ".dlq").Settings["visibility_timeout_ms"], "the DLQ inherits it")
	c.refused(404, "fila.admin.queue-update."+unique(t), m{"max_depth": 1})
	c.refused(400, "fila.admin.queue-update."+queue+".dlq", m{"max_depth": 1})
}

func TestQueueDelete(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(nil)
	c.enqueue(queue, "dead")
	k := c.consume(queue, 1)
	c.accepted(k.next(), "+TERM")
	c.refused(409, "fila.admin.queue-delete."+queue, nil) // the DLQ's messages count
	c.enqueue(queue, "leased")
	held := k.next()
	c.enqueue(queue, "pending")
	c.enqueue(queue, "delayed", "Fila-Delay", "1h")
	c.refused(409, "fila.admin.queue-delete."+queue, m{})
	c.refused(409, "fila.admin.queue-delete."+queue, m{"force": false})
	c.refused(400, "fila.admin.queue-delete."+queue, m{"force": "yes"})
	c.refused(400, "fila.admin.queue-delete."+queue, m{"unknown": 1})
	require.EqualValues(t, 3, c.depth(queue))

	deleted := c.events("queue-deleted." + queue)
	var reply struct {
		Deleted int64 `json:"deleted"`
	}
	c.call("fila.admin.queue-delete."+queue, m{"force": true}, &reply)
	require.EqualValues(t, 4, reply.Deleted, "those of the DLQ included")
	require.Equal(t, queue, nextEvent(t, deleted).Queue)
	c.lost(404, held, "")
	c.refused(404, "fila.admin.queue-inspect."+queue, nil)
	c.refused(404, "fila.admin.queue-inspect."+queue+".dlq", nil)
	c.refused(404, "fila.admin.queue-delete."+queue, nil)
	c.refused(404, "fila.consume."+queue, m{"consumer": "x"})
	c.refused(404, "fila.fetch."+queue, nil)
	requireUnanswered(t, c, message(queue, "x"), 404)

	// A new queue of that name knows nothing of the old one.
	c.createQueue(queue, nil)
	require.Zero(t, c.depth(queue))
	require.Zero(t, c.inspect(queue).Consumers)
	require.NotNil(t, c.answer(held, ""), "a token of the old queue")
	c.enqueue(queue, "new")
	require.EqualValues(t, 1, c.depth(queue))
}

func TestEmptyQueueIsDeletedWithoutForce(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(nil)
	c.enqueue(queue, "x")
	c.accepted(c.consume(queue, 1).next(), "")
	c.call("fila.admin.queue-delete."+queue, nil, nil)
	c.refused(404, "fila.admin.queue-inspect."+queue, nil)
}

func TestQueueList(t *testing.T) {
	c := shared(t).client(t)
	prefix := unique(t)
	for i := range 5 {
		c.createQueue(fmt.Sprint(prefix, "_", i), nil)
	}
	c.enqueue(prefix+"_3", "x")
	type summary struct {
		Name      string `json:"name"`
		Pending   *int64 `json:"pending"`
		InFlight  *int64 `json:"in_flight"`
		Consumers *int64 `json:"consumers"`
	}
	page := func(offset, limit int) (int, []summary) {
		var reply struct {
			Total  int       `json:"total"`
			Queues []summary `json:"queues"`
		}
		c.call("fila.admin.queue-list", m{"offset": offset, "limit": limit}, &reply)
		require.LessOrEqual(t, len(reply.Queues), limit)
		return reply.Total, reply.Queues
	}
	// Other tests create and delete queues meanwhile, so pages may shift: only
	// this test's own are looked at, on large pages.
	total, all := page(0, 1000)
	for more := all; len(all) < total && len(more) > 0; {
		_, more = page(len(all), 1000)
		all = append(all, more...)
	}
	var mine []string
	for _, q := range all {
		require.NotNil(t, q.Pending)
		require.NotNil(t, q.InFlight)
		require.NotNil(t, q.Consumers)
		if strings.HasPrefix(q.Name, prefix) && !strings.HasSuffix(q.Name, ".dlq") {
			mine = append(mine, q.Name)
			require.EqualValues(t, map[bool]int{true: 1}[q.Name == prefix+"_3"], *q.Pending)
		}
	}
	require.Len(t, mine, 5)
	require.True(t, sort.StringsAreSorted(mine))
	_, one := page(0, 1)
	require.Len(t, one, 1)
	total, none := page(1_000_000, 10)
	require.Empty(t, none)
	require.Positive(t, total)
	for _, body := range []any{m{"offset": -1}, m{"limit": -1}, m{"limit": 0}, m{"limit": 100_000}, m{"page": 1}, "["} {
		c.refused(400, "fila.admin.queue-list", body)
	}
	c.call("fila.admin.queue-list", nil, nil)
}

func TestQueueInspect(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(m{
		"fairness_header": "tenant", "weight_header": "weight", "quantum": 2,
		"on_failure": `function on_failure(msg) return { action = "retry", delay_ms = 3600000 } end`,
	})
	c.enqueueAll(backlog(queue, "big", 3, 30))
	c.enqueueAll(backlog(queue, "small", 1, 10))
	c.enqueue(queue, "delayed", "Fila-Delay", "1h")
	k := c.consume(queue, 4)
	held := k.take(4)
	c.accepted(held[0], "-NAK")
	k.next()
	var info m
	c.call("fila.admin.queue-inspect."+queue, nil, &info)
	require.EqualValues(t, 35, info["pending"])
	require.EqualValues(t, 2, info["delayed"])
	require.EqualValues(t, 4, info["in_flight"])
	require.EqualValues(t, 1, info["consumers"])
	require.EqualValues(t, 2, info["quantum"])
	require.GreaterOrEqual(t, number(t, info["oldest_age_ms"]), 0.0)
	require.Positive(t, number(t, info["bytes"]))
	flows, ok := info["top_flows"].([]any)
	require.True(t, ok)
	require.Len(t, flows, 2)
	first, second := flows[0].(m), flows[1].(m)
	require.Equal(t, "big", first["key"])
	require.EqualValues(t, 3, first["weight"])
	require.InDelta(t, 0.75, number(t, first["share"]), 0.001)
	require.InDelta(t, 0.25, number(t, second["share"]), 0.001)
	require.EqualValues(t, 35, number(t, first["pending"])+number(t, second["pending"]))
	require.Contains(t, first, "deficit")
	consumers, ok := info["consumer_list"].([]any)
	require.True(t, ok)
	require.Len(t, consumers, 1)
	require.Equal(t, k.name, consumers[0].(m)["name"])
	require.EqualValues(t, 4, consumers[0].(m)["max_in_flight"])
	require.EqualValues(t, 0, consumers[0].(m)["credit"])
	hooks, ok := info["hooks"].([]any)
	require.True(t, ok)
	require.Len(t, hooks, 1)
	require.Equal(t, "on_failure", hooks[0].(m)["hook"])
	require.EqualValues(t, 1, hooks[0].(m)["runs"])

	c.call("fila.admin.queue-inspect."+queue, m{"flows": 1}, &info)
	require.Len(t, info["top_flows"], 1)
	for _, body := range []any{m{"flows": -1}, m{"flows": 1001}, m{"flows": "x"}, m{"all": true}, "{"} {
		c.refused(400, "fila.admin.queue-inspect."+queue, body)
	}
	c.refused(404, "fila.admin.queue-inspect."+unique(t), nil)
}

// TestUnknownVerb: NATS or fila says that there is no such thing.
func TestUnknownVerb(t *testing.T) {
	c := shared(t).client(t)
	requireUnanswered(t, c, &nats.Msg{Subject: "fila.admin.queue-explode.x"}, 404)
}
