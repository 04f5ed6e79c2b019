package telemetry

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/sidecar/rules"
	"github.com/filaq/fila/wire"
)

// gather returns the families of fila by name.
func gather(t *testing.T, m *Metrics) map[string]*dto.MetricFamily {
	t.Helper()
	families, err := m.Gather()
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

func fullMetrics() *Metrics {
	m := New()
	q := m.Queue("orders")
	q.Refused(10429)
	q.Latency(.01, wire.TraceParent{})
	for i := range q.counts {
		q.counts[i].Add(1)
	}
	m.SetGauges(func() []Gauges {
		return []Gauges{{
			Counters: q, Queue: "orders", Depth: 1, Bytes: 5, Wanted: 14, Schedules: 13, NextRun: 1_700_000_000_500_000_000,
			Stats: inspect.Stats{
				Pending: 2, Delayed: 3, InFlight: 4, Moving: 5, OldestAge: 6_500_000_000, Consumers: 7, Flows: 8,
				BlockedBy: [gates.BlockKinds]int64{gates.ByNothing: 99, gates.ByRate: 9, gates.ByOrder: 10},
			},
			Noise: inspect.NoiseView{Noisy: make([]inspect.NoisyFlow, 2), Starving: 3, QuietReady: 11, QuietOldest: 12_500_000_000},
			Totals: inspect.Cumulative{
				Attempts: [inspect.Outcomes]inspect.Attempts{inspect.OutcomeNack: {Count: [len(inspect.AttemptBounds) + 1]uint64{1: 3, len(inspect.AttemptBounds): 1}, Took: 4000}},
				Blocked:  [gates.BlockKinds]float64{gates.ByNothing: 99, gates.ByCircuit: 1.5},
			},
			Hooks: []HookState{{"on_enqueue", "half-open"}, {"on_failure", "not loaded"}},
		}}
	})
	m.SetBuild("v1.2.3")
	m.SetReady(func() bool { return true })
	m.SetExports()("traces", true)
	m.SetNode(func() Node { return Node{Connected: true, StoreBytes: 12} })
	m.SetStuck(func() int { return 0 })
	m.ClientCut("pending")
	m.SetDisk(func() (free int64, low, known bool) { return 11, true, true })
	m.SetLimits(func() []Limit { return []Limit{{Name: "max_circuits", Used: 3, Max: 20}} })
	m.SetCircuits(func() Circuits {
		return Circuits{States: []CircuitState{{"stripe", "open", 7, []CircuitTurn{{"closed", "open", 2}}}}, Turns: []CircuitTurn{{"closed", "open", 3}}, Open: 4, HalfOpen: 5, Longest: time.Minute}
	})
	m.SetThrottles(func() []ThrottleHeld { return []ThrottleHeld{{"vendor:mail", "rate", 8}} })
	m.SetLevels(func() []ThrottleLevel { return []ThrottleLevel{{"vendor:llm", 12.5, 3}} })
	m.SetBudgets(func() []ThrottleBudget { return []ThrottleBudget{{"tenant:a", 100, 12.5}} })
	m.SetShared(func() Shared { return Shared{Degraded: true, Written: 1, Refused: 2, Failed: 3, Age: 4, Instances: 5} })
	m.SetCluster(func() Cluster {
		return Cluster{
			Shards: []ClusterShard{
				{Shard: 0, Owner: true, Epoch: 3, Last: 9, LogBytes: 11, Snapshot: time.Minute},
				{Shard: 1, Epoch: 4, Last: 8, Lag: 5, Behind: 6 * time.Second, LogBytes: 12, Snapshot: time.Minute},
			},
			ServersOK: 2, ServersDegraded: 1, Takeovers: 1, Planned: 2, Fenced: 3, Handovers: 4, HandoverTime: 5 * time.Second,
		}
	})(100, time.Second)
	return m
}

// docs/metrics.md and a scrape name the same metrics and labels.
func TestMetricsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/metrics.md")
	require.NoError(t, err)
	documented, told := map[string]string{}, map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^- `(fila_[a-z_]+)`(?: \\(([^)]+)\\))?: (.+)$").FindAllStringSubmatch(string(text), -1) {
		labels := regexp.MustCompile("[a-z_]+").FindAllString(row[2], -1)
		slices.Sort(labels)
		documented[row[1]] = strings.Join(labels, " ") + ": " + row[3]
	}
	for name, f := range gather(t, fullMetrics()) {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		told[name] = strings.Join(labels, " ") + ": " + f.GetHelp()
	}
	require.Equal(t, told, documented, "the meaning in the document is the help text")
}

// Values that other packages keep are exported as a scrape reads them.
func TestMetricsThatAScrapeReads(t *testing.T) {
	w := httptest.NewRecorder()
	fullMetrics().Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	text := w.Body.String()
	for _, line := range []string{
		`fila_circuit_state{circuit="stripe"} 2`, `fila_circuit_transitions_total{from="closed",to="open"} 3`,
		`fila_circuit_key_transitions_total{circuit="stripe",from="closed",to="open"} 2`, `fila_circuit_rejections_total{circuit="stripe"} 7`,
		`fila_throttle_level{throttle="vendor:llm"} 12.5`,
		`fila_throttle_cuts_total{throttle="vendor:llm"} 3`,
		`fila_throttle_budget{throttle="tenant:a"} 100`, `fila_throttle_budget_used{throttle="tenant:a"} 12.5`,
		`fila_throttle_rejections_total{blocked_by="rate",throttle="vendor:mail"} 8`,
		`fila_circuits{state="open"} 4`, `fila_circuits{state="half-open"} 5`, "fila_circuit_longest_open_seconds 60",

		"fila_shared_degraded 1", `fila_shared_swaps_total{result="written"} 1`, `fila_shared_swaps_total{result="conflict"} 2`,
		`fila_shared_swaps_total{result="failed"} 3`, "fila_shared_cache_age_seconds 4", "fila_shared_instances 5",

		`fila_cluster_owner{shard="0"} 1`, `fila_cluster_owner{shard="1"} 0`, `fila_cluster_epoch{shard="1"} 4`,
		`fila_cluster_last_sequence{shard="0"} 9`, `fila_cluster_lag_records{shard="1"} 5`, `fila_cluster_lag_seconds{shard="1"} 6`,
		`fila_cluster_log_bytes{shard="0"} 11`, `fila_cluster_snapshot_age_seconds{shard="0"} 60`,
		`fila_cluster_servers{state="ok"} 2`, `fila_cluster_servers{state="degraded"} 1`,
		`fila_cluster_takeovers_total{kind="failure"} 1`, `fila_cluster_takeovers_total{kind="handover"} 2`, "fila_cluster_fenced_total 3",
		"fila_cluster_handovers_total 4", "fila_cluster_handover_seconds_total 5", "fila_cluster_record_bytes_count 1", "fila_cluster_append_duration_seconds_sum 1",

		// The state machine's cumulative counts: a histogram for each outcome that occurred, and
		// a counter for each kind of gate.
		`fila_attempt_duration_seconds_bucket{outcome="nack",queue="orders",le="0.001"} 0`,
		`fila_attempt_duration_seconds_bucket{outcome="nack",queue="orders",le="0.005"} 3`,
		`fila_attempt_duration_seconds_bucket{outcome="nack",queue="orders",le="3600"} 3`,
		`fila_attempt_duration_seconds_bucket{outcome="nack",queue="orders",le="+Inf"} 4`,
		`fila_attempt_duration_seconds_sum{outcome="nack",queue="orders"} 4000`,
		`fila_attempt_duration_seconds_count{outcome="nack",queue="orders"} 4`,
		`fila_blocked_seconds_total{blocked_by="circuit",queue="orders"} 1.5`,
		`fila_hook_circuit_state{hook="on_enqueue",queue="orders"} 1`,
		"fila_ready 1",
	} {
		require.Contains(t, text, line+"\n")
	}
	for _, part := range []string{
		`fila_cluster_log_bytes{shard="1"}`, // its owner has it
		`fila_attempt_duration_seconds_count{outcome="expired"`, `fila_attempt_duration_seconds_count{outcome="ack"`, `blocked_by="order",queue="orders"} 0`,
		`fila_hook_circuit_state{hook="on_failure"`, // a hook that does not load has no circuit
		`blocked_by="open"`,
	} {
		require.False(t, strings.Contains(text, part), part)
	}
}

func TestMetricsCount(t *testing.T) {
	m := New()
	q := m.Queue("orders")
	require.Same(t, q, m.Queue("orders"))

	q.Add(queue.Counters{Delivered: 2, Nacked: 0, Failed: 1})
	q.Add(queue.Counters{Delivered: 3, Messages: 7, Bytes: 8})
	q.Enqueued()
	q.Latency(.01, wire.TraceParent{})
	q.Hook("on_enqueue").Add(3, 2, 0, 1)
	q.Hook("on_failure").Add(0, 0, 4, 5)
	q.Refused(10413)
	q.Failure("")
	q.Failure(rules.Critical)
	m.Queue("other").Add(queue.Counters{Delivered: 1})
	m.Refused(10404)
	m.Commit(3*time.Millisecond, 3)

	got := gather(t, m)
	for _, want := range []struct {
		name   string
		labels []string
		value  float64
	}{
		{"fila_delivered_total", []string{"queue=orders"}, 5},
		{"fila_delivered_total", []string{"queue=other"}, 1},
		{"fila_acked_total", []string{"queue=orders"}, 0},
		{"fila_delivery_latency_seconds", []string{"queue=orders"}, 1},
		{"fila_hook_runs_total", []string{"hook=on_enqueue", "queue=orders"}, 3},
		{"fila_hook_failures_total", []string{"hook=on_enqueue", "queue=orders"}, 2},
		{"fila_hook_bypassed_total", []string{"hook=on_enqueue", "queue=orders"}, 0},
		{"fila_hook_runs_total", []string{"hook=on_failure", "queue=orders"}, 0},
		{"fila_hook_bypassed_total", []string{"hook=on_failure", "queue=orders"}, 4},
		{"fila_hook_warnings_total", []string{"queue=orders"}, 6},
		{"fila_failures_total", []string{"queue=orders", "severity=medium"}, 2},
		{"fila_failures_total", []string{"queue=orders", "severity=critical"}, 1},
		{"fila_failures_total", []string{"queue=orders", "severity=low"}, 0},
		{"fila_refused_total", []string{"code=10413", "queue=orders"}, 1},
		{"fila_refused_total", []string{"code=10404", "queue="}, 1},
		{"fila_commit_batch_size", nil, 1},
		{"fila_commit_duration_seconds", nil, 1},
	} {
		value, ok := sample(got[want.name], want.labels...)
		require.Equal(t, want.value != 0, ok, "%s %v is exported once it has moved", want.name, want.labels)
		require.Equal(t, want.value, value, "%s %v", want.name, want.labels)
	}
}

// Each field of queue.Counters has a counter, and so does each count of the intake.
func TestSnapshot(t *testing.T) {
	m := New()
	q := m.Queue("orders")
	q.Add(queue.Counters{
		Delivered: 3, Acked: 4, Nacked: 5, Expired: 6, TTLExpired: 7, Redriven: 9, TakenBack: 10, Failed: 11, Removed: 12,
	})
	q.Enqueued()
	q.Duplicate()
	q.Duplicate()
	for range 7 {
		q.DeadLettered(wire.ReasonTerm)
	}
	q.DeadLettered("a producer's own words")
	want := map[string]int64{
		"enqueued": 1, "duplicates": 2, "delivered": 3, "acked": 4, "nacked": 5, "expired": 6,
		"ttl_expired": 7, "dead_lettered": 8, "redriven": 9, "taken_back": 10, "removed": 12, "terminated": 7,
	}
	require.Equal(t, want, q.Snapshot())
	got := gather(t, m)
	for name, n := range want {
		if name == "terminated" {
			continue // a part of dead_lettered
		}
		value := 0.0
		for _, reason := range map[bool][]string{
			false: {""}, true: {"term", "other"},
		}[name == "dead_lettered"] {
			labels := []string{"queue=orders"}
			if reason != "" {
				labels = append(labels, "reason="+reason)
			}
			one, ok := sample(got["fila_"+name+"_total"], labels...)
			require.True(t, ok, "%s %s", name, labels)
			value += one
		}
		require.EqualValues(t, n, value, name)
	}
}

func TestMetricsDrop(t *testing.T) {
	m := New()
	q := m.Queue("orders")
	q.Refused(10429)
	m.Queue("other")
	m.Drop("orders")
	q.Enqueued() // a counter handle kept after the deletion
	for name, f := range gather(t, m) {
		for _, s := range f.GetMetric() {
			for _, l := range s.GetLabel() {
				require.NotEqual(t, "orders", l.GetValue(), name)
			}
		}
	}
	require.Empty(t, gather(t, m)["fila_enqueued_total"])

	m.Queue("orders").Enqueued()
	value, _ := sample(gather(t, m)["fila_enqueued_total"], "queue=orders")
	require.Equal(t, 1., value, "a queue that is created again counts from 0")
}

func TestMetricsGauges(t *testing.T) {
	m := New()
	require.NotContains(t, gather(t, m), "fila_queue_depth", "nothing to read yet")
	m = fullMetrics()
	got := gather(t, m)
	for name, want := range map[string]float64{
		"fila_queue_depth": 1, "fila_queue_pending": 2, "fila_queue_delayed": 3, "fila_queue_in_flight": 4,
		"fila_queue_bytes": 5, "fila_queue_oldest_age_seconds": 6.5, "fila_queue_consumers": 7, "fila_queue_flows": 8,
		"fila_noisy_flows": 2, "fila_starved_flows": 3, "fila_quiet_pending": 11, "fila_quiet_oldest_age_seconds": 12.5,
	} {
		value, ok := sample(got[name], "queue=orders")
		require.True(t, ok, name)
		require.Equal(t, want, value, name)
	}
	blocked := got["fila_queue_blocked"]
	require.Len(t, blocked.GetMetric(), 2, "only kinds of gates that block messages")
	for kind, want := range map[string]float64{"rate": 9, "order": 10} {
		value, ok := sample(blocked, "blocked_by="+kind, "queue=orders")
		require.True(t, ok, kind)
		require.Equal(t, want, value, kind)
	}
}

// The node is exported once SetNode is called, the build always.
func TestMetricsOfTheNode(t *testing.T) {
	m := New()
	m.SetBuild("v1.2.3")
	node := Node{Connected: true, StoreBytes: 12}
	m.SetNode(func() Node { return node })
	got := gather(t, m)
	value, ok := sample(got["fila_build_info"], "go="+runtime.Version(), "version=v1.2.3")
	require.True(t, ok)
	require.Equal(t, 1., value)
	for _, want := range []float64{1, 0} {
		got = gather(t, m)
		value, _ = sample(got["fila_nats_connected"])
		require.Equal(t, want, value)
		value, _ = sample(got["fila_store_bytes"])
		require.EqualValues(t, node.StoreBytes, value)
		node = Node{StoreBytes: 13}
	}
}

// A client that asks for OpenMetrics gets it.
func TestOpenMetrics(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	w := httptest.NewRecorder()
	fullMetrics().Handler().ServeHTTP(w, r)
	require.Contains(t, w.Header().Get("Content-Type"), "application/openmetrics-text")
	require.Contains(t, w.Body.String(), "# EOF\n")
}

// The last traced attempt is the exemplar of its bucket, for each outcome.
func TestExemplarsOfAttempts(t *testing.T) {
	m := New()
	q := m.Queue("orders")
	var totals inspect.Cumulative
	for _, o := range []inspect.Outcome{inspect.OutcomeAck, inspect.OutcomeNack} {
		totals.Attempts[o] = inspect.Attempts{Took: 1}
		for i := range totals.Attempts[o].Count {
			totals.Attempts[o].Count[i] = 1
		}
	}
	m.SetGauges(func() []Gauges { return []Gauges{{Queue: "orders", Totals: totals, Counters: q}} })
	q.Attempt(inspect.OutcomeAck, 2e6, wire.TraceParent{Trace: [16]byte{1}})
	text := func() string {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
		w := httptest.NewRecorder()
		m.Handler().ServeHTTP(w, r)
		return w.Body.String()
	}
	require.NotContains(t, text(), "trace_id", "it is not sampled")
	for i, took := range []int64{3e6, 2e6, 1e9, 7e12} { // in the second bucket, there again, at a bound, beyond all
		q.Attempt(inspect.OutcomeAck, took, wire.TraceParent{Trace: [16]byte{byte(i + 1)}, Span: [8]byte{9}, Sampled: true})
	}
	got := regexp.MustCompile(`(?m)^fila_attempt_duration_seconds_bucket\{outcome="(\w+)",queue="orders",le="(\S+)"\} \d+ # \{(\S+)\} (\S+) `).FindAllStringSubmatch(text(), -1)
	for i := range got {
		got[i] = got[i][1:]
		require.Contains(t, got[i][2], `span_id="0900000000000000"`)
		got[i][2] = regexp.MustCompile(`trace_id="(..)`).FindStringSubmatch(got[i][2])[1]
	}
	require.Equal(t, [][]string{{"ack", "0.005", "02", "0.002"}, {"ack", "1.0", "03", "1.0"}, {"ack", "+Inf", "04", "7000.0"}}, got)
}

// A series is exported from its first change on and then for good. The depth of each queue
// except dead letter queues is always exported.
func TestSeriesThatNeverMovedAreLeftOut(t *testing.T) {
	m := New()
	now := []Gauges{{Queue: "orders", Counters: m.Queue("orders")}, {Queue: "orders.dlq", Counters: m.Queue("orders.dlq")}}
	m.SetGauges(func() []Gauges { return now })
	require.Equal(t, []string{`fila_queue_depth{queue="orders"} 0`}, ofQueues(m))

	now[0].InFlight, now[0].BlockedBy[gates.ByRate], now[1].Depth = 3, 2, 1
	now[0].Hooks = []HookState{{"on_enqueue", "closed"}, {"on_failure", "open"}}
	m.Queue("orders").Enqueued()
	require.Equal(t, []string{
		`fila_enqueued_total{queue="orders"} 1`,
		`fila_hook_circuit_state{hook="on_failure",queue="orders"} 2`,
		`fila_queue_blocked{blocked_by="rate",queue="orders"} 2`,
		`fila_queue_depth{queue="orders"} 0`,
		`fila_queue_depth{queue="orders.dlq"} 1`,
		`fila_queue_in_flight{queue="orders"} 3`,
		`fila_queue_parked{blocked_by="rate",queue="orders"} 2`,
	}, ofQueues(m))

	now[0].InFlight, now[0].BlockedBy[gates.ByRate], now[1].Depth = 0, 0, 0
	now[0].Hooks[1].State = "closed"
	require.Equal(t, []string{
		`fila_enqueued_total{queue="orders"} 1`,
		`fila_hook_circuit_state{hook="on_failure",queue="orders"} 0`,
		`fila_queue_blocked{blocked_by="rate",queue="orders"} 0`,
		`fila_queue_depth{queue="orders"} 0`,
		`fila_queue_depth{queue="orders.dlq"} 0`,
		`fila_queue_in_flight{queue="orders"} 0`,
		`fila_queue_parked{blocked_by="rate",queue="orders"} 0`,
	}, ofQueues(m))
	m.Drop("orders")
	now = []Gauges{{Queue: "orders", Counters: m.Queue("orders")}}
	require.Equal(t, []string{`fila_queue_depth{queue="orders"} 0`}, ofQueues(m), "a queue that is created again has not moved")
}

// ofQueues returns the lines about queues, except buckets.
func ofQueues(m *Metrics) (lines []string) {
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if strings.Contains(line, `queue="`) && !strings.Contains(line, "_bucket{") {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	return lines
}

// Queues that are not exported by name are summed up, and the sums do not decrease when one is
// deleted.
func TestQueuesThatAreNotNamed(t *testing.T) {
	m := New()
	m.NameQueues(func(name string) bool { return name == "orders" })
	var now []Gauges
	for i, name := range []string{"orders", "orders.dlq", "a", "a.dlq", "b"} {
		q := m.Queue(name)
		q.Enqueued()
		q.Refused(10413)
		q.Latency(float64(i), wire.TraceParent{})
		g := Gauges{Queue: name, Counters: q, Depth: 1, Schedules: 1, NextRun: int64(i+1) * 1e9}
		g.Pending, g.OldestAge, g.BlockedBy[gates.ByRate] = 2, int64(i+1)*1e9, 3
		g.Noise = inspect.NoiseView{Noisy: make([]inspect.NoisyFlow, 1), QuietOldest: int64(i+1) * 1e9}
		g.Totals.Blocked[gates.ByRate] = .5
		g.Totals.Attempts[inspect.OutcomeAck] = inspect.Attempts{Count: [len(inspect.AttemptBounds) + 1]uint64{2: 2}, Took: 1}
		now = append(now, g)
	}
	m.SetGauges(func() []Gauges { return now })
	others := func() (lines []string) {
		for _, line := range ofQueues(m) {
			require.NotContains(t, line, `queue="a`)
			if strings.Contains(line, `queue="(others)"`) {
				lines = append(lines, line)
			}
		}
		return lines
	}
	require.Equal(t, []string{
		`fila_attempt_duration_seconds_sum{outcome="ack",queue="(others)"} 2`,
		`fila_attempt_duration_seconds_count{outcome="ack",queue="(others)"} 4`,
		`fila_blocked_seconds_total{blocked_by="rate",queue="(others)"} 1`,
		`fila_delivery_latency_seconds_sum{queue="(others)"} 6`,
		`fila_delivery_latency_seconds_count{queue="(others)"} 2`,
		`fila_enqueued_total{queue="(others)"} 2`,
		`fila_noisy_flows{queue="(others)"} 2`,
		`fila_queue_blocked{blocked_by="rate",queue="(others)"} 6`,
		`fila_queue_depth{queue="(others)"} 2`,
		`fila_queue_next_run_timestamp_seconds{queue="(others)"} 3`,
		`fila_queue_oldest_age_seconds{queue="(others)"} 5`,
		`fila_queue_parked{blocked_by="rate",queue="(others)"} 6`,
		`fila_queue_pending{queue="(others)"} 4`,
		`fila_queue_schedules{queue="(others)"} 2`,
		`fila_quiet_oldest_age_seconds{queue="(others)"} 5`,
		`fila_refused_total{code="10413",queue="(others)"} 2`,
	}, others())
	text := strings.Join(ofQueues(m), "\n")
	for _, line := range []string{
		`fila_enqueued_total{queue="orders"} 1`, `fila_enqueued_total{queue="orders.dlq"} 1`, `fila_enqueued_total{queue="(others).dlq"} 1`,
		`fila_queue_depth{queue="(others).dlq"} 1`,
	} {
		require.Contains(t, text, line)
	}

	m.Drop("a")
	m.Drop("a.dlq")
	m.Drop("orders")
	m.Queue("a").Enqueued()
	// The scrape read the gauges of a before its deletion.
	require.Equal(t, []string{
		`fila_attempt_duration_seconds_sum{outcome="ack",queue="(others)"} 2`,
		`fila_attempt_duration_seconds_count{outcome="ack",queue="(others)"} 4`,
		`fila_blocked_seconds_total{blocked_by="rate",queue="(others)"} 1`,
	}, others()[:3])
	m.Drop("b")
	now = nil
	require.Equal(t, []string{
		`fila_attempt_duration_seconds_sum{outcome="ack",queue="(others)"} 2`,
		`fila_attempt_duration_seconds_count{outcome="ack",queue="(others)"} 4`,
		`fila_blocked_seconds_total{blocked_by="rate",queue="(others)"} 1`,
		`fila_delivery_latency_seconds_sum{queue="(others)"} 6`,
		`fila_delivery_latency_seconds_count{queue="(others)"} 2`,
		`fila_enqueued_total{queue="(others)"} 3`,
		`fila_noisy_flows{queue="(others)"} 0`,
		`fila_queue_blocked{blocked_by="rate",queue="(others)"} 0`,
		`fila_queue_depth{queue="(others)"} 0`,
		`fila_queue_oldest_age_seconds{queue="(others)"} 0`,
		`fila_queue_parked{blocked_by="rate",queue="(others)"} 0`,
		`fila_queue_pending{queue="(others)"} 0`,
		`fila_quiet_oldest_age_seconds{queue="(others)"} 0`,
		`fila_refused_total{code="10413",queue="(others)"} 2`,
	}, others())
}

// The number of series is bounded for any number of queues: only maxNamedQueues are named at a
// time.
func TestNamedQueuesAreBounded(t *testing.T) {
	m := New()
	name := func(i int) string { return "queue-" + strconv.Itoa(i) }
	for i := range maxNamedQueues + 5 {
		require.Equal(t, i < maxNamedQueues, m.Queue(name(i)).named)
		require.Equal(t, i < maxNamedQueues, m.Queue(name(i)+".dlq").named, "it goes with its queue")
	}
	for _, i := range []int{maxNamedQueues + 1, 7} { // only the deletion of a named queue makes room for another name
		m.Drop(name(i))
		m.Drop(name(i) + ".dlq")
		m.Drop(name(i))
	}
	require.True(t, m.Queue("new").named)
	require.False(t, m.Queue("newer").named)
}

// A scrape of 2,000 queues with their dead letter queues has one line for each unused queue, and
// needs little memory even if all are in use.
func TestScrapeOfManyQueues(t *testing.T) {
	m := New()
	var now []Gauges
	for i := range maxNamedQueues {
		for _, name := range []string{"queue-" + strconv.Itoa(i), "queue-" + strconv.Itoa(i) + ".dlq"} {
			now = append(now, Gauges{Queue: name, Counters: m.Queue(name)})
		}
	}
	m.SetGauges(func() []Gauges { return now })
	scrape := func() (lines int, allocated uint64) {
		var before, after runtime.MemStats
		w := &lineCounter{header: http.Header{}}
		runtime.ReadMemStats(&before)
		m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		runtime.ReadMemStats(&after)
		return w.lines, after.TotalAlloc - before.TotalAlloc
	}
	lines, allocated := scrape()
	require.Less(t, lines, maxNamedQueues+500)
	require.Less(t, allocated, uint64(10_000_000))

	for i := range now {
		g := &now[i]
		g.Counters.Enqueued()
		g.Counters.Add(queue.Counters{Delivered: 1, Acked: 1})
		g.Counters.Latency(.1, wire.TraceParent{})
		g.Depth, g.Bytes, g.Pending, g.OldestAge, g.Consumers, g.Flows = 1, 1, 1, 1, 1, 1
		g.Totals.Attempts[inspect.OutcomeAck] = inspect.Attempts{Count: [len(inspect.AttemptBounds) + 1]uint64{2: 1}, Took: 1}
	}
	lines, allocated = scrape()
	require.Greater(t, lines, 40*maxNamedQueues)
	require.Less(t, allocated, uint64(50_000_000))
}

// lineCounter is a reply that only counts lines.
type lineCounter struct {
	header http.Header
	lines  int
}

func (c *lineCounter) Header() http.Header { return c.header }

func (*lineCounter) WriteHeader(int) {}

func (c *lineCounter) Write(p []byte) (int, error) {
	c.lines += bytes.Count(p, []byte("\n"))
	return len(p), nil
}

func BenchmarkScrapeOfManyQueues(b *testing.B) {
	m := New()
	var now []Gauges
	for i := range maxNamedQueues {
		q := m.Queue("queue-" + strconv.Itoa(i))
		g := Gauges{Queue: q.name, Counters: q, Depth: 1, Bytes: 1}
		q.Enqueued()
		q.Add(queue.Counters{Delivered: 1, Acked: 1})
		q.Latency(.1, wire.TraceParent{})
		g.Totals.Attempts[inspect.OutcomeAck] = inspect.Attempts{Count: [len(inspect.AttemptBounds) + 1]uint64{2: 1}, Took: 1}
		now = append(now, g)
	}
	m.SetGauges(func() []Gauges { return now })
	b.ReportAllocs()
	for b.Loop() {
		m.Handler().ServeHTTP(&lineCounter{header: http.Header{}}, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	}
}

// Queues come and go while they are counted and scraped.
func TestMetricsConcurrent(t *testing.T) {
	m := fullMetrics()
	var wg sync.WaitGroup
	for _, name := range []string{"a", "b", "c"} {
		wg.Go(func() {
			for range 200 {
				q := m.Queue(name)
				q.Add(queue.Counters{Delivered: 1})
				q.Refused(10400)
				m.Drop(name)
			}
		})
	}
	for range 20 {
		_, err := m.Gather()
		require.NoError(t, err)
	}
	wg.Wait()
	require.NotContains(t, gather(t, m)["fila_delivered_total"].String(), `"a"`)
}

// A step that delivers and acks costs an addition for each.
func TestAddAllocatesNothing(t *testing.T) {
	q := New().Queue("orders")
	require.Zero(t, testing.AllocsPerRun(100, func() {
		q.Add(queue.Counters{Delivered: 1, Acked: 1, Messages: -1})
		q.Latency(.003, wire.TraceParent{})
		q.Attempt(inspect.OutcomeAck, 3e6, wire.TraceParent{})
	}))
}

func BenchmarkDelivery(b *testing.B) {
	q := New().Queue("orders")
	b.ReportAllocs()
	for b.Loop() {
		q.Add(queue.Counters{Delivered: 1})
		q.Latency(.003, wire.TraceParent{})
	}
}
