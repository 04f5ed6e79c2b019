package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// reading is a metric whose value another package keeps and a scrape reads.
type reading struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func gaugeReading(name, help string, labels ...string) reading {
	return reading{prometheus.NewDesc("fila_"+name, help, labels, nil), prometheus.GaugeValue}
}

func counterReading(name, help string, labels ...string) reading {
	return reading{prometheus.NewDesc("fila_"+name, help, labels, nil), prometheus.CounterValue}
}

// exporter exports one value of a metric, with the values of its labels.
type exporter func(r reading, v float64, labels ...string)

// collector calls a function at each scrape. It describes no metrics, so the registry checks
// them at the scrape.
type collector func(export exporter)

func (collector) Describe(chan<- *prometheus.Desc) {}

func (read collector) Collect(ch chan<- prometheus.Metric) {
	read(func(r reading, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(r.desc, r.kind, v, labels...)
	})
}

// onScrape calls read at each scrape, from any goroutine, so it must return quickly.
func (m *Metrics) onScrape(read func(export exporter)) { m.registry.MustRegister(collector(read)) }

// boolean returns 1 or 0, as Prometheus represents a boolean.
func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// The functions below are called once. The functions that they set are called by each scrape,
// from any goroutine, so they must return quickly.

var (
	readyMetric = gaugeReading("ready", "1 while /readyz answers 200, otherwise 0.")
	stuckMetric = gaugeReading("stuck_queues", "Queues with a lock held for four seconds or more, a defect of fila: they accept or deliver no messages, and /readyz answers 503.")
)

// SetReady sets the function that returns the state of /readyz.
func (m *Metrics) SetReady(ready func() bool) {
	m.onScrape(func(export exporter) { export(readyMetric, boolean(ready())) })
}

// SetStuck sets the function that counts stuck queues.
func (m *Metrics) SetStuck(read func() int) {
	m.onScrape(func(export exporter) { export(stuckMetric, float64(read())) })
}

// Node is the state that all queues share when it is scraped.
type Node struct {
	Connected  bool // to NATS
	StoreBytes int64
	Permits    int // live permits of the guard
}

var (
	connectedMetric  = gaugeReading("nats_connected", "1 while fila is connected to NATS, otherwise 0.")
	storeBytesMetric = gaugeReading("store_bytes", "Size of the store's file; in a cluster, of the files of all shards.")
	permitsMetric    = gaugeReading("guard_permits", "Live permits of the guard.")
)

// SetNode sets the function that reads the state shared by all queues.
func (m *Metrics) SetNode(read func() Node) {
	m.onScrape(func(export exporter) {
		n := read()
		export(connectedMetric, boolean(n.Connected))
		export(storeBytesMetric, float64(n.StoreBytes))
		export(permitsMetric, float64(n.Permits))
	})
}

// Limit is the use of one of the configured limits on names that producers and consumers
// choose.
type Limit struct {
	Name      string
	Used, Max int64
}

var (
	limitUsedMetric = gaugeReading("limit_used", "Number of the objects that a key of [limits] bounds, by key: max_throttle_keys, max_circuits, max_guard_permits, max_rate_keys, max_dedupe_ids, max_consumers, max_fetches, max_schedules or max_enqueued_schedules. The last six count the queue with the most.", labelLimit)
	limitMaxMetric  = gaugeReading("limit_max", "The bound of fila_limit_used.", labelLimit)
)

// SetLimits sets the function that reads the use of limits.
func (m *Metrics) SetLimits(read func() []Limit) {
	m.onScrape(func(export exporter) {
		for _, l := range read() {
			export(limitUsedMetric, float64(l.Used), l.Name)
			export(limitMaxMetric, float64(l.Max), l.Name)
		}
	})
}

var (
	diskFreeMetric = gaugeReading("disk_free_bytes", "Bytes free on the disk of the store.")
	diskLowMetric  = gaugeReading("disk_low", "1 while fila refuses messages because the disk is nearly full, otherwise 0.")
)

// SetDisk sets the function that reads how full the store's disk is. Nothing is exported while
// that is not known.
func (m *Metrics) SetDisk(read func() (free int64, low, known bool)) {
	m.onScrape(func(export exporter) {
		if free, low, known := read(); known {
			export(diskFreeMetric, float64(free))
			export(diskLowMetric, boolean(low))
		}
	})
}

// Shared is the state of the bucket that several filas share when it is scraped.
type Shared struct {
	Degraded                 bool // the bucket is unreachable and this fila decides alone
	Written, Refused, Failed int64
	Age                      float64 // seconds since the watch last returned a beat of this fila
	Instances                int     // live filas
}

var (
	degradedMetric  = gaugeReading("shared_degraded", "1 while the shared bucket is unreachable and this fila decides alone, otherwise 0.")
	swapsMetric     = counterReading("shared_swaps_total", "Writes of shared records, by result: written, conflict (another fila was faster; fila retries) or failed.", "result")
	cacheAgeMetric  = gaugeReading("shared_cache_age_seconds", "Time since the watch of the bucket returned a beat of this fila, which sends one every two seconds.")
	instancesMetric = gaugeReading("shared_instances", "Live filas that share the bucket.")
)

// SetShared sets the function that reads the state of the shared bucket.
func (m *Metrics) SetShared(read func() Shared) {
	m.onScrape(func(export exporter) {
		s := read()
		export(degradedMetric, boolean(s.Degraded))
		export(swapsMetric, float64(s.Written), "written")
		export(swapsMetric, float64(s.Refused), "conflict")
		export(swapsMetric, float64(s.Failed), "failed")
		export(cacheAgeMetric, s.Age)
		export(instancesMetric, float64(s.Instances))
	})
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
	circuitStateMetric  = gaugeReading("circuit_state", "State of a circuit: 0 closed, 1 half-open, 2 open.", "circuit")
	circuitsMetric      = gaugeReading("circuits", "Circuits that are not closed, by state: open or half-open. A circuit whose cooldown is over counts as half-open, without traffic for at most 15 minutes.", "state")
	circuitUnwellMetric = gaugeReading("circuit_longest_open_seconds", "Longest time since a circuit that is not closed now was closed, failed probes included; 0 if all are closed.")
	circuitTurnsMetric  = counterReading("circuit_transitions_total", "Transitions of circuits that this fila saw, by the states before and after.", "from", "to")
	keyTurnsMetric      = counterReading("circuit_key_transitions_total", "Transitions of the circuits in fila_circuit_state.", "circuit", "from", "to")
	circuitHeldMetric   = counterReading("circuit_rejections_total", "Times that a circuit in fila_circuit_state blocked: messages that began to wait for it, and calls that the guard refused.", "circuit")
	throttleLevelMetric = gaugeReading("throttle_level", "Learned limit of a throttle key, in messages at once or cost per second, for the first 1,000 keys that learn by name.", "throttle")
	throttleCutsMetric  = counterReading("throttle_cuts_total", "Cuts of the learned limit of a throttle key in fila_throttle_level.", "throttle")
	budgetMetric        = gaugeReading("throttle_budget", "Budget of a throttle key in its present period, with top-ups, in cost. For the first 1,000 keys by name that were used in it.", "throttle")
	budgetUsedMetric    = gaugeReading("throttle_budget_used", "Cost that a throttle key in fila_throttle_budget has used in its present period: actual costs, and estimates of what is in flight.", "throttle")
	throttleHeldMetric  = counterReading("throttle_rejections_total", "Times that a throttle key blocked, by kind: rate, window, concurrency, reserved, turn, paused or budget. It counts messages that began to wait for it, and calls that the guard refused, for the first 1,000 such keys by name.", "throttle", "blocked_by")
)

// SetCircuits sets the function that reads the state of circuits.
func (m *Metrics) SetCircuits(read func() Circuits) {
	m.onScrape(func(export exporter) {
		c := read()
		for _, s := range c.States {
			export(circuitStateMetric, stateValues[s.State], s.Key)
			export(circuitHeldMetric, float64(s.Held), s.Key)
			for _, t := range s.Turns {
				export(keyTurnsMetric, float64(t.N), s.Key, t.From, t.To)
			}
		}
		export(circuitsMetric, float64(c.Open), "open")
		export(circuitsMetric, float64(c.HalfOpen), "half-open")
		export(circuitUnwellMetric, c.Longest.Seconds())
		for _, t := range c.Turns {
			export(circuitTurnsMetric, float64(t.N), t.From, t.To)
		}
	})
}

// ThrottleHeld counts how often a throttle key blocked messages or calls.
type ThrottleHeld struct {
	Key       string // in the form shown to users
	BlockedBy string
	N         int64
}

// ThrottleLevel is the learned limit of a throttle key.
type ThrottleLevel struct {
	Key   string // in the form shown to users
	Level float64
	Cuts  uint64
}

// SetLevels sets the function that reads the learned limits of throttle keys.
func (m *Metrics) SetLevels(read func() []ThrottleLevel) {
	m.onScrape(func(export exporter) {
		for _, l := range read() {
			export(throttleLevelMetric, l.Level, l.Key)
			export(throttleCutsMetric, float64(l.Cuts), l.Key)
		}
	})
}

// ThrottleBudget is the budget of a throttle key in its present period.
type ThrottleBudget struct {
	Key         string // in the form shown to users
	Total, Used float64
}

// SetBudgets sets the function that reads the budgets of throttle keys.
func (m *Metrics) SetBudgets(read func() []ThrottleBudget) {
	m.onScrape(func(export exporter) {
		for _, b := range read() {
			export(budgetMetric, b.Total, b.Key)
			export(budgetUsedMetric, b.Used, b.Key)
		}
	})
}

// SetThrottles sets the function that reads the counts of throttle keys with limits of their
// own.
func (m *Metrics) SetThrottles(read func() []ThrottleHeld) {
	m.onScrape(func(export exporter) {
		for _, h := range read() {
			export(throttleHeldMetric, float64(h.N), h.Key, h.BlockedBy)
		}
	})
}
