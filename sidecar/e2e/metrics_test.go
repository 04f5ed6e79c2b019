package e2e

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

// TestMetrics checks all counters of one queue.
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

// TestMetricsOfGates checks all counters of circuits, limits, guarded calls and sharing.
func TestMetricsOfGates(t *testing.T) {
	t.Parallel()
	p := startFila(t, options{
		embedded: "jetstream = true",
		tail: `metrics_circuits = ["vendor:*"]
[shared]
enabled = true
keys = ["circuit:vendor:*"]
[circuit_defaults]
threshold = 1
cooldown_ms = 600000
[[circuit]]
key = "named"
threshold = 3
max_failures = 1
[[throttle]]
key = "slow"
limit = 1
window_ms = 3600000
`,
	})
	c := p.client(t)
	queue := c.newQueue(byHeaders(m{"max_deliveries": 0}))
	require.Zero(t, p.metric(t, "fila_circuit_state", "circuit", "named"))
	for _, limit := range []string{"window", "max_failures", "max_failures_per_key"} {
		require.Zero(t, p.metric(t, "fila_limits_exceeded_total", "limit", limit))
	}
	// One message opens a circuit, the next one waits for it.
	k := c.consume(queue, 10)
	for _, dest := range []string{"vendor:a", "vendor:b", "tenant:secret"} {
		c.toDest(queue, dest, 1)
		k.nackAll(1)
		c.toDest(queue, dest, 1)
	}
	eventually(t, func() bool { return p.metric(t, "fila_held_total", "queue", queue, "blocked_by", "circuit") == 3 })
	_, text := p.get("/metrics")
	require.Contains(t, text, `fila_circuit_state{circuit="vendor:a"} 2`)
	require.Contains(t, text, `fila_circuit_state{circuit="vendor:b"} 2`)
	require.Contains(t, text, `fila_circuit_state{circuit="named"} 0`)
	require.NotContains(t, text, "secret", "a key that no setting names is no label")
	require.EqualValues(t, 3, p.metric(t, "fila_circuits", "state", "open"), "but it counts")
	require.Positive(t, p.metric(t, "fila_circuit_longest_open_seconds"))
	require.EqualValues(t, 3, p.metric(t, "fila_circuit_transitions_total", "from", "closed", "to", "open"))

	c.call("fila.admin.circuit-close.vendor:a", nil, nil)
	c.accepted(k.next(), "")
	require.EqualValues(t, 1, p.metric(t, "fila_circuit_transitions_total", "from", "open", "to", "closed"))
	require.Zero(t, p.metric(t, "fila_circuit_state", "circuit", "vendor:a"))
	require.GreaterOrEqual(t, p.metric(t, "fila_shared_swaps_total", "result", "written"), 3.)
	require.Zero(t, p.metric(t, "fila_shared_swaps_total", "result", "failed"))
	require.Less(t, p.metric(t, "fila_shared_cache_age_seconds"), 60.)
	require.EqualValues(t, 1, p.metric(t, "fila_shared_instances"))

	// Two calls under a window of one, one behind an open circuit.
	for _, call := range []struct{ key, outcome string }{{"slow", "allowed"}, {"slow", "window"}, {"vendor:b", "circuit"}} {
		checks := p.metric(t, "fila_guard_checks_total", "outcome", call.outcome)
		c.call("fila.guard.check."+call.key, nil, nil)
		require.Equal(t, checks+1, p.metric(t, "fila_guard_checks_total", "outcome", call.outcome))
	}
	require.EqualValues(t, 3, p.metric(t, "fila_guard_check_duration_seconds_count"))
	require.EqualValues(t, 3, p.metric(t, "fila_guard_check_duration_seconds_bucket", "le", "+Inf"))
	require.EqualValues(t, 1, p.metric(t, "fila_limits_exceeded_total", "limit", "window"))
	c.enqueue(queue, "x", "gate", "slow")
	eventually(t, func() bool { return p.metric(t, "fila_held_total", "queue", queue, "blocked_by", "window") == 1 })
	require.EqualValues(t, 2, p.metric(t, "fila_limits_exceeded_total", "limit", "window"))

	// One failure too many of a circuit and of a fairness key.
	c.toDest(queue, "named", 2)
	k.nackAll(2)
	eventually(t, func() bool { return p.metric(t, "fila_limits_exceeded_total", "limit", "max_failures") == 1 })
	require.EqualValues(t, 2, p.metric(t, "fila_circuit_state", "circuit", "named"))
	queue = c.newQueue(m{"max_failures_per_key": 1})
	c.enqueue(queue, "x")
	c.enqueue(queue, "x")
	c.consume(queue, 10).nackAll(2)
	eventually(t, func() bool { return p.metric(t, "fila_limits_exceeded_total", "limit", "max_failures_per_key") == 1 })
}
