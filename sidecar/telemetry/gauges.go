package telemetry

import (
	"strings"

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
	Wanted    int64 // messages that could be worked on within a minute
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
	g.Wanted += o.Wanted
	g.OldestAge = max(g.OldestAge, o.OldestAge)
	g.Consumers += o.Consumers
	g.Flows += o.Flows
	for kind := range o.BlockedBy {
		g.BlockedBy[kind] += o.BlockedBy[kind]
	}
	g.Noise.Noisy = append(g.Noise.Noisy, o.Noise.Noisy...)
	g.Noise.Starving += o.Noise.Starving
	g.Noise.QuietReady += o.Noise.QuietReady
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
	{gauge("queue_pending", "Messages that are ready or blocked: their time has come, and no consumer has them."), func(g *Gauges) float64 { return float64(g.Pending) }},
	{gauge("queue_delayed", "Messages whose time has not come, or whose failure is being judged."), func(g *Gauges) float64 { return float64(g.Delayed) }},
	{gauge("queue_in_flight", "Messages leased to consumers."), func(g *Gauges) float64 { return float64(g.InFlight) }},
	{gauge("queue_moving", "Messages that a job has claimed, or that wait until another queue has them."), func(g *Gauges) float64 { return float64(g.Moving) }},
	{gauge("queue_wanted", "Messages that could be worked on within a minute: in flight, and as many of the pending ones as their gates admit. For autoscaling."), func(g *Gauges) float64 { return float64(g.Wanted) }},
	{gauge("queue_bytes", "Bytes of payloads and headers in the queue."), func(g *Gauges) float64 { return float64(g.Bytes) }},
	{gauge("queue_oldest_age_seconds", "Age of the oldest message in the queue; 0 if it is empty."), func(g *Gauges) float64 { return float64(g.OldestAge) / 1e9 }},
	{gauge("queue_consumers", "Registered consumers and waiting fetches."), func(g *Gauges) float64 { return float64(g.Consumers) }},
	{gauge("queue_flows", "Fairness keys with pending messages."), func(g *Gauges) float64 { return float64(g.Flows) }},
	{gauge("noisy_flows", "Fairness keys that keep the consumers busy while a message of another key is ready, as fila noisy shows them."), func(g *Gauges) float64 { return float64(len(g.Noise.Noisy)) }},
	{gauge("starved_flows", "Fairness keys that starve by the queue's starve_after_ms; 0 if that is not set."), func(g *Gauges) float64 { return float64(g.Noise.Starving) }},
	{gauge("quiet_ready", "Ready messages of fairness keys that are not noisy."), quietReady},
	{gauge("quiet_pending", "The old name of fila_quiet_ready, for one version."), quietReady},
	{gauge("quiet_oldest_age_seconds", "Longest time for which the first message of a fairness key that is not noisy has been ready."), func(g *Gauges) float64 { return float64(g.Noise.QuietOldest) / 1e9 }},
}

const depthGauge = 0 // in gaugeSpecs

func quietReady(g *Gauges) float64 { return float64(g.Noise.QuietReady) }

var (
	blockedNowSpec = gauge("queue_blocked",
		"Messages that a pause, a gate or the order of their key blocks, by its kind: rate, window, concurrency, reserved, turn, circuit, paused, order or budget.", labelBlockedBy)
	parkedSpec      = gauge("queue_parked", "The old name of fila_queue_blocked, for one version.", labelBlockedBy)
	hookCircuitSpec = gauge("hook_circuit_state",
		"State of the circuit of a Lua hook: 0 closed, 1 half-open, 2 open (messages continue with the defaults).", labelHook)
	schedulesSpec = gauge("queue_schedules", "Schedules of the queue, paused ones included; absent without schedules.")
	nextRunSpec   = gauge("queue_next_run_timestamp_seconds", "Unix time of the next run of a schedule of the queue. A time in the past means that the run is late.")
	blockedSpec   = spec{
		"fila_blocked_seconds_total",
		"Time that messages were blocked, summed over messages, by the kinds of fila_queue_blocked. The kind is of the last try; messages do not try while no consumer has credit.",
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
