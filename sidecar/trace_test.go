package sidecar

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/sidecar/otlp/otlptest"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

const (
	testTrace  = "0af7651916cd43dd8448eb211c80319c"
	testSpan   = "b7ad6b7169203331"
	sampled    = "00-" + testTrace + "-" + testSpan + "-01"
	notSampled = "00-" + testTrace + "-" + testSpan + "-00"
)

// startTraced runs a server with a collector.
func startTraced(t testing.TB, change func(*config.Config)) (*testSite, *otlptest.Collector) {
	c := otlptest.New(t)
	return startSite(t, t.TempDir(), func(cfg *config.Config) {
		cfg.OTel.Endpoint = c.URL
		change(cfg)
	}), c
}

func eventNames(s *tracepb.Span) (names []string) {
	for _, e := range s.GetEvents() {
		names = append(names, e.GetName())
	}
	return names
}

// TestTheSpansOfAMessage: for each attempt a span shows how long the message waited, what blocked it and
// what was decided, and one shows that it was dead-lettered, all below the span of its producer. The
// header is delivered unchanged.
func TestTheSpansOfAMessage(t *testing.T) {
	x, c := startTraced(t, func(c *config.Config) {
		c.OTel.MetricsIntervalMs = 10
		c.Throttles = []config.ThrottleTable{{Key: "stripe", Concurrency: 1}}
		c.Queues = []wire.QueueSettings{wire.DefaultQueueSettings("orders")}
		c.Queues[0].OnEnqueue = `function on_enqueue(m) return {fairness_key = m.headers.tenant, weight = 2, throttle_keys = {"stripe"}} end`
	})
	var call api.GuardAnswer
	require.Nil(t, x.request("fila.guard.check.stripe", "", nats.Header{"Traceparent": {sampled}}, &call))
	deliveries, _ := x.consumer("w", "orders", `{"consumer":"w"}`)
	id := x.enqueue("hello", nats.Header{"tenant": {"acme"}, "TraceParent": {sampled}})
	require.Eventually(t, func() bool {
		for _, g := range x.s.parts.admin.Gauges() {
			if g.Queue == "orders" {
				return g.OldestAge > int64(20*time.Millisecond) // long enough for a blocked interval
			}
		}
		return false
	}, time.Minute, time.Millisecond)
	require.Nil(t, x.request("fila.guard.done.stripe", `{"permit":"`+call.Permit+`","outcome":"ok"}`, nats.Header{"traceparent": {sampled}}, nil))
	first := <-deliveries
	require.Equal(t, []string{sampled}, first.Header["TraceParent"], "untouched")
	require.Nil(t, x.ack(first, `-NAK {"delay":1000000,"error":"busy","code":"E7"}`))
	require.Nil(t, x.ack(<-deliveries, "+TERM broken"))
	dead, _ := x.consumer("w", "orders.dlq", `{"consumer":"w"}`)
	require.Nil(t, x.ack(<-dead, "+ACK"))
	// Messages without a trace have no spans.
	for _, h := range []nats.Header{{"traceparent": {notSampled}}, {"tenant": {"b"}}, {"traceparent": {"nonsense"}}} {
		x.enqueue("x", h)
		require.Nil(t, x.ack(<-deliveries, "+ACK"))
	}
	// The last metrics are exported after the queue has ended.
	require.Eventually(t, func() bool { return len(exemplars(t, c)) == 4 }, time.Minute, time.Millisecond)
	require.Equal(t, map[string]bool{
		"fila_delivery_latency_seconds": true, "fila_attempt_duration_seconds nack": true,
		"fila_attempt_duration_seconds term": true, "fila_guard_check_duration_seconds": true,
	}, exemplars(t, c), "acks are of the dead letter, which nobody watches")
	x.end()

	spans := c.Spans()
	names := map[string]int{}
	for name, list := range spans {
		names[name] = len(list)
		for _, s := range list {
			require.Equal(t, testTrace, otlptest.Hex(s.GetTraceId()), name)
			require.Equal(t, testSpan, otlptest.Hex(s.GetParentSpanId()), name)
			require.LessOrEqual(t, s.GetStartTimeUnixNano(), s.GetEndTimeUnixNano(), name)
		}
	}
	require.Equal(t, map[string]int{"wait orders": 2, "dead_letter orders": 1, "wait orders.dlq": 1, "guard check": 1, "guard done": 1}, names)
	one, two := spans["wait orders"][0], spans["wait orders"][1]
	require.Equal(t, map[string]string{
		"messaging.system": "fila", "messaging.operation.name": "wait", "messaging.destination.name": "orders", "messaging.message.id": id,
		"fila.attempt": "1", "fila.key": "acme", "fila.shard": "0",
	}, otlptest.Attrs(one.GetAttributes()))
	require.Equal(t, []string{"enqueued", "held by throttle:stripe"}, eventNames(one))
	require.Equal(t, map[string]string{
		"fila.decided_by": "on_enqueue", "fila.key": "acme", "fila.weight": "2", "fila.cost": "1", "fila.priority": "0", "fila.throttle_keys": "stripe;",
	}, otlptest.Attrs(one.GetEvents()[0].GetAttributes()))
	held := one.GetEvents()[1]
	require.Equal(t, "concurrency", otlptest.Attrs(held.GetAttributes())["fila.blocked_by"])
	require.GreaterOrEqual(t, held.GetTimeUnixNano(), one.GetStartTimeUnixNano())
	require.Less(t, held.GetTimeUnixNano(), one.GetEndTimeUnixNano())
	require.GreaterOrEqual(t, one.GetEndTimeUnixNano()-one.GetStartTimeUnixNano(), uint64(20*time.Millisecond))
	require.Equal(t, "2", otlptest.Attrs(two.GetAttributes())["fila.attempt"])
	require.Equal(t, []string{"attempt failed"}, eventNames(two))
	require.Equal(t, map[string]string{
		"fila.attempt": "1", "fila.decided_by": "consumer", "fila.delay": "0.001", "exception.message": "busy", "error.type": "E7",
	}, otlptest.Attrs(two.GetEvents()[0].GetAttributes()))
	require.GreaterOrEqual(t, two.GetStartTimeUnixNano(), one.GetEndTimeUnixNano())
	aside := spans["dead_letter orders"][0]
	require.Equal(t, "term", otlptest.Attrs(aside.GetAttributes())["fila.reason"])
	require.Equal(t, "broken", otlptest.Attrs(aside.GetAttributes())["exception.message"])
	require.Equal(t, tracepb.Status_STATUS_CODE_ERROR, aside.GetStatus().GetCode())
	check := spans["guard check"][0]
	require.Equal(t, tracepb.Span_SPAN_KIND_SERVER, check.GetKind())
	require.Equal(t, map[string]string{"fila.verb": "check", "fila.key": "stripe", "fila.allowed": "true"}, otlptest.Attrs(check.GetAttributes()))

	require.Equal(t, "1.0.0", c.Resource()["service.version"])
}

// exemplars returns the metrics with exemplars, with their outcome if they have one.
func exemplars(t *testing.T, c *otlptest.Collector) map[string]bool {
	found := make(map[string]bool)
	for name, of := range c.Metrics() {
		for _, p := range of.GetHistogram().GetDataPoints() {
			for _, e := range p.GetExemplars() {
				require.Equal(t, testTrace, otlptest.Hex(e.GetTraceId()), name)
				require.Equal(t, testSpan, otlptest.Hex(e.GetSpanId()), name)
				require.LessOrEqual(t, e.GetAsDouble(), p.GetSum(), name)
				found[strings.TrimSpace(name+" "+otlptest.Attrs(p.GetAttributes())["outcome"])] = true
			}
		}
	}
	return found
}

// TestASpanOfAMessageFromTheStore: a message that is read from the store, also after a restart, is traced.
func TestASpanOfAMessageFromTheStore(t *testing.T) {
	dir := t.TempDir()
	c := otlptest.New(t)
	traced := func(cfg *config.Config) {
		cfg.OTel.Endpoint = c.URL
		cfg.Queues = []wire.QueueSettings{wire.DefaultQueueSettings("orders")}
	}
	x := startSite(t, dir, traced)
	x.enqueue("hello", nats.Header{"TRACEPARENT": {sampled}})
	x.enqueue("hello", nats.Header{"traceparent": {notSampled}})
	x.end()
	x = startSite(t, dir, traced)
	deliveries, _ := x.consumer("w", "orders", `{"consumer":"w"}`)
	for range 2 {
		require.Nil(t, x.ack(<-deliveries, "+ACK"))
	}
	x.end()
	require.Len(t, c.Spans()["wait orders"], 1)
	require.Equal(t, testSpan, otlptest.Hex(c.Spans()["wait orders"][0].GetParentSpanId()))
}

func TestTheSpanOfAJob(t *testing.T) {
	x, c := startTraced(t, func(c *config.Config) {
		c.Queues, c.DrainTimeoutMs = []wire.QueueSettings{wire.DefaultQueueSettings("orders")}, 100 // the consumer answers nothing then
	})
	deliveries, _ := x.consumer("w", "orders", `{"consumer":"w"}`)
	for range 3 {
		x.enqueue("hello", nil)
		require.Nil(t, x.ack(<-deliveries, "+TERM"))
	}
	x.must("fila.admin.redrive.orders.dlq", "", nil)
	x.end()
	spans := c.Spans()
	require.Len(t, spans, 1)
	require.Len(t, spans["job redrive orders.dlq"], 1)
	job := spans["job redrive orders.dlq"][0]
	require.Empty(t, job.GetParentSpanId())
	attrs := otlptest.Attrs(job.GetAttributes())
	require.Equal(t, "3", attrs["fila.done"])
	require.Equal(t, "done", attrs["fila.state"])
	require.LessOrEqual(t, job.GetStartTimeUnixNano(), job.GetEndTimeUnixNano())
}

// TestMetricsWithoutSpans: without sampling fila exports metrics only.
func TestMetricsWithoutSpans(t *testing.T) {
	x, c := startTraced(t, func(c *config.Config) {
		c.OTel.Sampling = config.SamplingOff
		c.Queues = []wire.QueueSettings{wire.DefaultQueueSettings("orders")}
	})
	require.Nil(t, x.s.parts.shards.Tracer)
	x.enqueue("hello", nats.Header{"traceparent": {sampled}})
	x.end()
	require.Empty(t, c.Spans())
	points := c.Metrics()["fila_enqueued_total"].GetSum().GetDataPoints()
	found := 0
	for _, p := range points {
		if otlptest.Attrs(p.GetAttributes())["queue"] == "orders" {
			require.InDelta(t, 1, p.GetAsDouble(), 0)
			found++
		}
	}
	require.Equal(t, 1, found)
}

// TestTraceIDsInTheLog: a line about a traced message has its trace.
func TestTraceIDsInTheLog(t *testing.T) {
	x, _ := startTraced(t, func(c *config.Config) { c.Queues = []wire.QueueSettings{wire.DefaultQueueSettings("orders")} })
	deliveries, _ := x.consumer("w", "orders", `{"consumer":"w"}`)
	x.enqueue("hello", nats.Header{"traceparent": {sampled}})
	require.Nil(t, x.ack(<-deliveries, `-NAK {"error":"boom"}`))
	line := fmt.Sprintf("trace_id=%s span_id=%s", testTrace, testSpan)
	require.Eventually(t, func() bool { return x.log.count(line) == 1 }, time.Minute, time.Millisecond, "the line of the failure")
	x.end()
}

// BenchmarkLifeTraced is BenchmarkLife with or without a collector, with a share of the messages
// sampled; half of the others have a traceparent that is not sampled.
func BenchmarkLifeTraced(b *testing.B) {
	benchmark := func(percent int, collected bool) {
		b.Run(fmt.Sprintf("sampled=%d%%/collected=%t", percent, collected), func(b *testing.B) {
			c := otlptest.New(b)
			n := 0
			benchmarkLife(b, func(cfg *config.Config) {
				if collected {
					cfg.OTel.Endpoint = c.URL
				}
			}, ``, func() nats.Header {
				n++
				switch {
				case n%100 < percent:
					return nats.Header{"traceparent": {sampled}}
				case n%2 == 0:
					return nats.Header{"traceparent": {notSampled}}
				}
				return nats.Header{"tenant": {"acme"}}
			})
		})
	}
	benchmark(1, false)
	benchmark(0, true)
	benchmark(1, true)
	benchmark(100, true)
}
