package e2e

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

// TestMetrics follows one queue through everything that is counted.
func TestMetrics(t *testing.T) {
	p := shared(t)
	c := p.client(t)
	tenant := unique(t)
	queue := c.newQueue(m{
		"fairness_header": "tenant", "visibility_timeout_ms": 2000,
		"on_failure": `function on_failure(msg)
			if msg.error == "lease expired" then return { action = "dlq" } end
			if msg.error == "bug" then error("in the hook") end
			return { action = "retry" }
		end`,
	})
	for _, payload := range []string{"acked", "nacked", "bug", "expires"} {
		c.enqueue(queue, payload, "tenant", tenant, "Nats-Msg-Id", payload)
	}
	c.enqueue(queue, "x", "Nats-Msg-Id", "acked")
	c.enqueue(queue, "delayed", "tenant", tenant, "Fila-Delay", "1h")
	c.refusedMsg(400, message(queue, "x", "Fila-Delay", "x"))
	k := c.consume(queue, 1)
	c.accepted(k.next(), "")
	c.accepted(k.next(), `-NAK {"error":"again"}`)
	c.accepted(k.next(), `-NAK {"error":"bug"}`)
	k.next() // the one that expires goes to the DLQ
	c.accepted(k.next(), "")
	c.accepted(k.next(), "")
	require.EqualValues(t, 1, c.redrive(queue+".dlq", nil))
	c.accepted(k.next(), "")

	for name, want := range map[string]float64{
		"fila_duplicates_total": 1,
		"fila_acked_total":      4,
		"fila_nacked_total":     2,
		"fila_expired_total":    1,
		"fila_delivered_total":  7,
		"fila_redriven_total":   1,
		"fila_refused_total":    1,
		"fila_queue_depth":      1,
		"fila_queue_delayed":    1,
		"fila_queue_pending":    0,
		"fila_queue_in_flight":  0,
		"fila_queue_consumers":  1,
		"fila_queue_flows":      0,
	} {
		require.Equal(t, want, p.metric(t, name, "queue", queue), name)
	}
	require.EqualValues(t, 1, p.metric(t, "fila_dead_lettered_total", "queue", queue, "reason", wire.ReasonOnFailure))
	require.GreaterOrEqual(t, p.metric(t, "fila_enqueued_total", "queue", queue), 5.0)
	require.EqualValues(t, 3, p.metric(t, "fila_hook_runs_total", "queue", queue, "hook", "on_failure"))
	require.EqualValues(t, 1, p.metric(t, "fila_hook_failures_total", "queue", queue, "hook", "on_failure"))
	require.EqualValues(t, 7, p.metric(t, "fila_delivery_latency_seconds_count", "queue", queue))
	require.Positive(t, p.metric(t, "fila_commit_duration_seconds_count"))
	require.Positive(t, p.metric(t, "fila_queue_oldest_age_seconds", "queue", queue))
	require.Positive(t, p.metric(t, "fila_queue_bytes", "queue", queue))
	require.Positive(t, p.metric(t, "go_goroutines"))

	_, text := p.get("/metrics")
	require.NotContains(t, text, tenant, "labels never hold fairness keys")
	require.NotContains(t, text, k.name, "nor consumers")
	c.call("fila.admin.queue-delete."+queue, m{"force": true}, nil)
	_, text = p.get("/metrics")
	require.NotContains(t, text, `queue="`+queue+`"`, "the metrics of a queue go with it")
}

func TestHealth(t *testing.T) {
	p := shared(t)
	for _, path := range []string{"/healthz", "/readyz"} {
		status, body := p.get(path)
		require.Equal(t, http.StatusOK, status, "%s: %s", path, body)
	}
	status, _ := p.get("/no-such-page")
	require.Equal(t, http.StatusNotFound, status)
}

func TestEvents(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(nil)
	dead := c.events("dead-lettered." + queue)
	all := c.events("*." + queue)
	c.enqueue(queue, "x")
	c.accepted(c.consume(queue, 1).next(), "+TERM why not")
	e := nextEvent(t, dead)
	require.Equal(t, queue, e.Queue)
	require.NotEmpty(t, e.Data)
	for e = nextEvent(t, all); e.Type != "dead-lettered"; e = nextEvent(t, all) {
		require.Equal(t, queue, e.Queue, "every event names its queue")
	}
	changed := c.events("hook-circuit-changed." + queue)
	c.call("fila.admin.queue-update."+queue, m{"on_enqueue": `function on_enqueue(msg) error("no") end`}, nil)
	for range 3 { // the default threshold
		c.enqueue(queue, "x")
	}
	require.Equal(t, queue, nextEvent(t, changed).Queue)
	require.Equal(t, "open", object(t, []byte(c.dump(queue)))["hooks"].([]any)[0].(m)["state"])
}
