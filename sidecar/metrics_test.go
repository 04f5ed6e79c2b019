package sidecar

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

// gather returns the families of fila by name.
func gather(t *testing.T, m *metrics) map[string]*dto.MetricFamily {
	t.Helper()
	families, err := m.registry.Gather()
	require.NoError(t, err)
	found := map[string]*dto.MetricFamily{}
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "fila_") {
			found[f.GetName()] = f
		}
	}
	return found
}

// sample returns the value of the sample with exactly these labels, given as
// name=value in the order of their names, and whether there is one.
func sample(f *dto.MetricFamily, labels ...string) (float64, bool) {
	for _, s := range f.GetMetric() {
		var got []string
		for _, l := range s.GetLabel() {
			got = append(got, l.GetName()+"="+l.GetValue())
		}
		if slices.Equal(got, labels) {
			switch {
			case s.Counter != nil:
				return s.Counter.GetValue(), true
			case s.Gauge != nil:
				return s.Gauge.GetValue(), true
			default:
				return float64(s.Histogram.GetSampleCount()), true
			}
		}
	}
	return 0, false
}

func fullMetrics() *metrics {
	m := newMetrics()
	q := m.queue("orders")
	q.refused(10429)
	m.setDepth(func() []QueueGauges {
		return []QueueGauges{{
			Queue: "orders", Depth: 1, Pending: 2, Delayed: 3, InFlight: 4, Bytes: 5,
			OldestAgeSeconds: 6.5, Consumers: 7, Flows: 8,
		}}
	})
	return m
}

// docs/metrics.md and the registry name the same metrics.
func TestMetricsDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/metrics.md")
	require.NoError(t, err)
	documented := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(fila_[a-z_]+)` \\|.*\\| ([^|]+) \\|$").FindAllStringSubmatch(string(text), -1) {
		documented[row[1]] = row[2]
	}
	registered := map[string]string{}
	for name, f := range gather(t, fullMetrics()) {
		registered[name] = f.GetHelp()
	}
	require.Equal(t, slices.Sorted(maps.Keys(registered)), slices.Sorted(maps.Keys(documented)))
	require.Equal(t, registered, documented, "the meaning in the document is the help text")
}

func TestMetricsCount(t *testing.T) {
	m := newMetrics()
	q := m.queue("orders")
	require.Same(t, q, m.queue("orders"))

	q.delivered.Inc()
	q.delivered.Inc()
	q.deliveryLatency.Observe(.01)
	q.onEnqueue.runs.Inc()
	q.onFailure.bypassed.Inc()
	q.refused(10413)
	m.queue("other").delivered.Inc()
	m.refused(10404)
	m.commitBatch.Observe(3)

	got := gather(t, m)
	for _, want := range []struct {
		name   string
		labels []string
		value  float64
	}{
		{"fila_delivered_total", []string{"queue=orders"}, 2},
		{"fila_delivered_total", []string{"queue=other"}, 1},
		{"fila_acked_total", []string{"queue=orders"}, 0},
		{"fila_delivery_latency_seconds", []string{"queue=orders"}, 1},
		{"fila_hook_runs_total", []string{"hook=on_enqueue", "queue=orders"}, 1},
		{"fila_hook_runs_total", []string{"hook=on_failure", "queue=orders"}, 0},
		{"fila_hook_bypassed_total", []string{"hook=on_failure", "queue=orders"}, 1},
		{"fila_refused_total", []string{"code=10413", "queue=orders"}, 1},
		{"fila_refused_total", []string{"code=10404", "queue="}, 1},
		{"fila_commit_batch_size", nil, 1},
	} {
		value, ok := sample(got[want.name], want.labels...)
		require.True(t, ok, "%s %v is missing", want.name, want.labels)
		require.Equal(t, want.value, value, "%s %v", want.name, want.labels)
	}
}

func TestMetricsDropQueue(t *testing.T) {
	m := newMetrics()
	q := m.queue("orders")
	q.refused(10429)
	m.queue("other")
	m.dropQueue("orders")
	q.enqueued.Inc() // a handle that somebody still holds
	for name, f := range gather(t, m) {
		for _, s := range f.GetMetric() {
			for _, l := range s.GetLabel() {
				require.NotEqual(t, "orders", l.GetValue(), name)
			}
		}
	}
	value, ok := sample(gather(t, m)["fila_enqueued_total"], "queue=other")
	require.True(t, ok)
	require.Zero(t, value)

	m.queue("orders").enqueued.Inc()
	value, _ = sample(gather(t, m)["fila_enqueued_total"], "queue=orders")
	require.Equal(t, 1., value, "a queue made anew counts from 0")
}

// A queue that is refused leaves no series, whatever its name.
func TestMetricsOfARefusedQueue(t *testing.T) {
	bubble(t, func(t *testing.T, x *testSite) {
		err := x.request("fila.admin.queue-create.orders",
			`{"on_enqueue":"function on_enqueue(msg) return {} end","on_failure":"function on_failure(msg"}`, nil, nil)
		require.NotNil(t, err)
		require.Equal(t, wire.CodeHookLoad, err.ErrCode)
		m := x.s.core.metrics
		m.mu.Lock()
		defer m.mu.Unlock()
		require.Empty(t, m.mu.queues)
	})
}

func TestMetricsGauges(t *testing.T) {
	m := newMetrics()
	require.NotContains(t, gather(t, m), "fila_queue_depth", "nothing to read yet")
	m = fullMetrics()
	got := gather(t, m)
	for name, want := range map[string]float64{
		"fila_queue_depth": 1, "fila_queue_pending": 2, "fila_queue_delayed": 3, "fila_queue_in_flight": 4,
		"fila_queue_bytes": 5, "fila_queue_oldest_age_seconds": 6.5, "fila_queue_consumers": 7, "fila_queue_flows": 8,
	} {
		value, ok := sample(got[name], "queue=orders")
		require.True(t, ok, name)
		require.Equal(t, want, value, name)
	}
}

// Queues come and go while they are counted and scraped.
func TestMetricsConcurrent(t *testing.T) {
	m := fullMetrics()
	var wg sync.WaitGroup
	for _, name := range []string{"a", "b", "c"} {
		wg.Go(func() {
			for range 200 {
				q := m.queue(name)
				q.delivered.Inc()
				q.refused(10400)
				m.dropQueue(name)
			}
		})
	}
	for range 20 {
		_, err := m.registry.Gather()
		require.NoError(t, err)
	}
	wg.Wait()
	require.NotContains(t, gather(t, m)["fila_delivered_total"].String(), `"a"`)
}

func BenchmarkMetricsDelivery(b *testing.B) {
	q := newMetrics().queue("orders")
	b.ReportAllocs()
	for b.Loop() {
		q.delivered.Inc()
		q.deliveryLatency.Observe(.003)
	}
}
