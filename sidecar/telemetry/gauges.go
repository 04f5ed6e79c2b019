package telemetry

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/sidecar/queue/inspect"
)

// Gauges is the state of one queue when it is scraped.
type Gauges struct {
	Queue     string
	Depth     int64 // all messages: pending, delayed and in flight
	Bytes     int64 // payloads and headers of all messages
	Schedules int
	NextRun   int64 // Unix ns of the next run of a schedule; 0 if there is none
	inspect.Stats
	Noise  inspect.NoiseView
	Totals inspect.Cumulative
	Hooks  []HookState

	Counters *Queue
}

// HookState is the state of a hook's circuit.
type HookState struct {
	Hook  string
	State string // closed, half-open or open; other values are not exported
}

// add adds another queue. States of hooks have no sum.
func (g *Gauges) add(o *Gauges) {
	g.Depth += o.Depth
	g.Bytes += o.Bytes
	g.Schedules += o.Schedules
	if o.NextRun != 0 && (g.NextRun == 0 || o.NextRun < g.NextRun) {
		g.NextRun = o.NextRun
	}
	g.Pending += o.Pending
	g.Delayed += o.Delayed
	g.InFlight += o.InFlight
	g.Moving += o.Moving
	g.OldestAge = max(g.OldestAge, o.OldestAge)
	g.Consumers += o.Consumers
	g.Flows += o.Flows
	for kind := range o.BlockedBy {
		g.BlockedBy[kind] += o.BlockedBy[kind]
	}
	g.Noise.Noisy = append(g.Noise.Noisy, o.Noise.Noisy...)
	g.Noise.Starving += o.Noise.Starving
	g.Noise.QuietPending += o.Noise.QuietPending
	g.Noise.QuietOldest = max(g.Noise.QuietOldest, o.Noise.QuietOldest)
	addTotals(&g.Totals, &o.Totals)
}

// addTotals adds the totals of another queue.
func addTotals(t, o *inspect.Cumulative) {
	for kind := range o.Blocked {
		t.Blocked[kind] += o.Blocked[kind]
	}
	for outcome := range o.Attempts {
		a, b := &t.Attempts[outcome], &o.Attempts[outcome]
		for i := range b.Count {
			a.Count[i] += b.Count[i]
		}
		a.Took += b.Took
	}
}

// gaugeSpecs lists the gauges whose only label is the queue.
var gaugeSpecs = []struct {
	spec
	value func(*Gauges) float64
}{
	{gauge("queue_depth", "Messages in the queue: pending, delayed, in flight and moving."), func(g *Gauges) float64 { return float64(g.Depth) }},
	{gauge("queue_pending", "Messages waiting for a consumer or a gate."), func(g *Gauges) float64 { return float64(g.Pending) }},
	{gauge("queue_delayed", "Messages waiting for their time, or for a verdict on their last attempt."), func(g *Gauges) float64 { return float64(g.Delayed) }},
	{gauge("queue_in_flight", "Messages leased to consumers."), func(g *Gauges) float64 { return float64(g.InFlight) }},
	{gauge("queue_moving", "Messages that a job has claimed, or that wait until another queue has them."), func(g *Gauges) float64 { return float64(g.Moving) }},
	{gauge("queue_bytes", "Bytes of payloads and headers in the queue."), func(g *Gauges) float64 { return float64(g.Bytes) }},
	{gauge("queue_oldest_age_seconds", "Age of the oldest message in the queue; 0 if it is empty."), func(g *Gauges) float64 { return float64(g.OldestAge) / 1e9 }},
	{gauge("queue_consumers", "Registered consumers and waiting fetches."), func(g *Gauges) float64 { return float64(g.Consumers) }},
	{gauge("queue_flows", "Fairness keys with pending messages."), func(g *Gauges) float64 { return float64(g.Flows) }},
	{gauge("noisy_flows", "Fairness keys that keep the consumers busy while a message of another key is ready, as fila noisy shows them."), func(g *Gauges) float64 { return float64(len(g.Noise.Noisy)) }},
	{gauge("starved_flows", "Fairness keys that starve by the queue's starve_after_ms; 0 if that is not set."), func(g *Gauges) float64 { return float64(g.Noise.Starving) }},
	{gauge("quiet_pending", "Ready messages of fairness keys that are not noisy."), func(g *Gauges) float64 { return float64(g.Noise.QuietPending) }},
	{gauge("quiet_oldest_age_seconds", "Longest time that the first message of a fairness key that is not noisy has been ready."), func(g *Gauges) float64 { return float64(g.Noise.QuietOldest) / 1e9 }},
}

const depthGauge = 0 // in gaugeSpecs

var (
	parkedSpec = gauge("queue_parked",
		"Messages that a pause, a gate or the order of their key blocks, by its kind: rate, window, concurrency, reserved, turn, circuit, paused or order.", labelBlockedBy)
	hookCircuitSpec = gauge("hook_circuit_state",
		"State of the circuit of a Lua hook: 0 closed, 1 half-open, 2 open (messages go on with the defaults).", labelHook)
	schedulesSpec = gauge("queue_schedules", "Schedules of the queue, paused ones included; only if there are some.")
	nextRunSpec   = gauge("queue_next_run_timestamp_seconds", "Unix time of the next run of a schedule of the queue, if there is one. In the past: the run is late.")
	blockedSpec   = spec{
		"fila_blocked_seconds_total",
		"Time that messages were blocked, added up over messages, by the kinds of fila_queue_parked, as found at their last try: behind a gate nothing tries while no consumer has credit.",
		dto.MetricType_COUNTER, labelBlockedBy,
	}
	attemptSpec = spec{
		"fila_attempt_duration_seconds",
		"Time from a delivery to the end of the attempt, by outcome: ack, nack, term or expired.",
		dto.MetricType_HISTOGRAM, labelOutcome,
	}
)

// gauge describes a gauge of a queue.
func gauge(name, help string, label ...string) spec {
	return spec{"fila_" + name, help, dto.MetricType_GAUGE, strings.Join(label, "")}
}

// Bits of Queue.exported: gauges of gaugeSpecs, then kinds of gates, then hooks.
var (
	blockedBit = len(gaugeSpecs)
	hookBit    = blockedBit + int(gates.BlockKinds)
)

// attemptBounds is inspect.AttemptBounds in seconds.
var attemptBounds = func() (list []float64) {
	for _, b := range inspect.AttemptBounds {
		list = append(list, float64(b)/1e9)
	}
	return list
}()

// Node is the state that all queues share when it is scraped.
type Node struct {
	Connected  bool // to NATS
	StoreBytes int64
	Permits    int // live permits of the guard
}

var (
	connectedDesc  = prometheus.NewDesc("fila_nats_connected", "1 while fila is connected to NATS, otherwise 0.", nil, nil)
	storeBytesDesc = prometheus.NewDesc("fila_store_bytes", "Size of the store's file; in a cluster of the files of all shards.", nil, nil)
	permitsDesc    = prometheus.NewDesc("fila_guard_permits", "Live permits of the guard.", nil, nil)
)

type nodeCollector func() Node

func (nodeCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- connectedDesc
	ch <- storeBytesDesc
	ch <- permitsDesc
}

func (read nodeCollector) Collect(ch chan<- prometheus.Metric) {
	n := read()
	ch <- prometheus.MustNewConstMetric(connectedDesc, prometheus.GaugeValue, boolean(n.Connected))
	ch <- prometheus.MustNewConstMetric(storeBytesDesc, prometheus.GaugeValue, float64(n.StoreBytes))
	ch <- prometheus.MustNewConstMetric(permitsDesc, prometheus.GaugeValue, float64(n.Permits))
}

// boolean returns 1 or 0, as Prometheus represents a boolean.
func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Limit is the use of one of the configured limits on names that producers and consumers
// choose.
type Limit struct {
	Name      string
	Used, Max int64
}

var (
	limitUsedDesc = prometheus.NewDesc("fila_limit_used", "Number of what a key of limits bounds, by that key: max_throttle_keys, max_circuits, max_guard_permits, max_rate_keys, max_dedupe_ids, max_consumers, max_fetches, max_schedules or max_enqueued_schedules. The last six are of the queue that has most.", []string{labelLimit}, nil)
	limitMaxDesc  = prometheus.NewDesc("fila_limit_max", "The bound of fila_limit_used.", []string{labelLimit}, nil)
)

type limitCollector func() []Limit

func (limitCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- limitUsedDesc
	ch <- limitMaxDesc
}

func (read limitCollector) Collect(ch chan<- prometheus.Metric) {
	for _, l := range read() {
		ch <- prometheus.MustNewConstMetric(limitUsedDesc, prometheus.GaugeValue, float64(l.Used), l.Name)
		ch <- prometheus.MustNewConstMetric(limitMaxDesc, prometheus.GaugeValue, float64(l.Max), l.Name)
	}
}

var (
	diskFreeDesc = prometheus.NewDesc("fila_disk_free_bytes", "Bytes free on the disk of the store.", nil, nil)
	diskLowDesc  = prometheus.NewDesc("fila_disk_low", "1 while fila refuses messages because the disk is nearly full, otherwise 0.", nil, nil)
)

// diskCollector reads how full the disk is. It exports nothing if the space is unknown.
type diskCollector func() (free int64, low, known bool)

func (diskCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- diskFreeDesc
	ch <- diskLowDesc
}

func (read diskCollector) Collect(ch chan<- prometheus.Metric) {
	free, low, known := read()
	if !known {
		return
	}
	ch <- prometheus.MustNewConstMetric(diskFreeDesc, prometheus.GaugeValue, float64(free))
	ch <- prometheus.MustNewConstMetric(diskLowDesc, prometheus.GaugeValue, boolean(low))
}

// Shared is the state of the bucket that several filas share when it is scraped.
type Shared struct {
	Degraded                 bool // the bucket is unreachable and this fila decides alone
	Written, Refused, Failed int64
	Age                      float64 // seconds since the watch last returned a beat of this fila
	Instances                int     // live filas
}

var (
	degradedDesc  = prometheus.NewDesc("fila_shared_degraded", "1 while the shared bucket is unreachable and this fila decides alone, otherwise 0.", nil, nil)
	swapsDesc     = prometheus.NewDesc("fila_shared_swaps_total", "Writes of shared records, by result: written, conflict (another fila was faster; fila retries) or failed.", []string{"result"}, nil)
	cacheAgeDesc  = prometheus.NewDesc("fila_shared_cache_age_seconds", "Time since the watch of the bucket returned a beat of this fila, which sends one every two seconds.", nil, nil)
	instancesDesc = prometheus.NewDesc("fila_shared_instances", "Live filas that share the bucket.", nil, nil)
)

type sharedCollector func() Shared

func (sharedCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- degradedDesc
	ch <- swapsDesc
	ch <- cacheAgeDesc
	ch <- instancesDesc
}

func (read sharedCollector) Collect(ch chan<- prometheus.Metric) {
	s := read()
	ch <- prometheus.MustNewConstMetric(degradedDesc, prometheus.GaugeValue, boolean(s.Degraded))
	ch <- prometheus.MustNewConstMetric(swapsDesc, prometheus.CounterValue, float64(s.Written), "written")
	ch <- prometheus.MustNewConstMetric(swapsDesc, prometheus.CounterValue, float64(s.Refused), "conflict")
	ch <- prometheus.MustNewConstMetric(swapsDesc, prometheus.CounterValue, float64(s.Failed), "failed")
	ch <- prometheus.MustNewConstMetric(cacheAgeDesc, prometheus.GaugeValue, s.Age)
	ch <- prometheus.MustNewConstMetric(instancesDesc, prometheus.GaugeValue, float64(s.Instances))
}

// Circuits is the state of all circuits when it is scraped.
type Circuits struct {
	States []CircuitState // of the circuits that may be named
	Turns  []CircuitTurn

	Open, HalfOpen int           // counts of all circuits
	Longest        time.Duration // longest time that one of them has not been closed
}

// CircuitState is the state of one circuit.
type CircuitState struct {
	Key   string // in the form shown to users
	State string
	Held  int64 // messages that began to wait, and calls that were refused
	Turns []CircuitTurn
}

// stateValues are the values of circuit states; a worse state has a higher value.
var stateValues = map[string]float64{"closed": 0, "half-open": 1, "open": 2}

// CircuitTurn counts the transitions between two states.
type CircuitTurn struct {
	From, To string
	N        int64
}

var (
	circuitStateDesc  = prometheus.NewDesc("fila_circuit_state", "State of a circuit: 0 closed, 1 half-open, 2 open.", []string{"circuit"}, nil)
	circuitsDesc      = prometheus.NewDesc("fila_circuits", "Circuits that are not closed, by state: open or half-open. A circuit whose time is over counts as half-open, but without traffic for at most a quarter of an hour.", []string{"state"}, nil)
	circuitUnwellDesc = prometheus.NewDesc("fila_circuit_longest_open_seconds", "Longest time that one of these circuits has not been closed, failed probes included; 0 if all are closed.", nil, nil)
	circuitTurnsDesc  = prometheus.NewDesc("fila_circuit_transitions_total", "Transitions of all circuits that this fila saw, by the states before and after.", []string{"from", "to"}, nil)
	keyTurnsDesc      = prometheus.NewDesc("fila_circuit_key_transitions_total", "Transitions of the circuits that fila_circuit_state names.", []string{"circuit", "from", "to"}, nil)
	circuitHeldDesc   = prometheus.NewDesc("fila_circuit_rejections_total", "Times that a circuit that fila_circuit_state names blocked: messages that began to wait for it, and calls that the guard refused.", []string{"circuit"}, nil)
	throttleHeldDesc  = prometheus.NewDesc("fila_throttle_rejections_total", "Times that a throttle key blocked, by cause: rate, window, concurrency, reserved, turn or paused. Counts messages that began to wait for it, and calls that the guard refused; for the first 1,000 such keys by name.", []string{"throttle", "blocked_by"}, nil)
)

type circuitCollector func() Circuits

func (circuitCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{circuitStateDesc, circuitsDesc, circuitUnwellDesc, circuitTurnsDesc, keyTurnsDesc, circuitHeldDesc} {
		ch <- d
	}
}

func (read circuitCollector) Collect(ch chan<- prometheus.Metric) {
	c := read()
	for _, s := range c.States {
		ch <- prometheus.MustNewConstMetric(circuitStateDesc, prometheus.GaugeValue, stateValues[s.State], s.Key)
		ch <- prometheus.MustNewConstMetric(circuitHeldDesc, prometheus.CounterValue, float64(s.Held), s.Key)
		for _, t := range s.Turns {
			ch <- prometheus.MustNewConstMetric(keyTurnsDesc, prometheus.CounterValue, float64(t.N), s.Key, t.From, t.To)
		}
	}
	ch <- prometheus.MustNewConstMetric(circuitsDesc, prometheus.GaugeValue, float64(c.Open), "open")
	ch <- prometheus.MustNewConstMetric(circuitsDesc, prometheus.GaugeValue, float64(c.HalfOpen), "half-open")
	ch <- prometheus.MustNewConstMetric(circuitUnwellDesc, prometheus.GaugeValue, c.Longest.Seconds())
	for _, t := range c.Turns {
		ch <- prometheus.MustNewConstMetric(circuitTurnsDesc, prometheus.CounterValue, float64(t.N), t.From, t.To)
	}
}
