package bench

import "strings"

// goal is a ratio (or a figure) that the project has set itself, for every case
// of a workload that it fits.
type goal struct {
	text string
	fits func(caseName string) bool // nil fits all
	of   figure
	// to is what the figure is divided by, in the same case unless toCase names
	// another; without a metric the figure itself counts.
	to     figure
	toCase string
	// One of both is set, or none: then it is only shown.
	atLeast, atMost float64
	// subtract shows the difference instead of the ratio.
	subtract bool
}

// figure names a figure of a system.
type figure struct {
	sys    system
	metric string
}

func ending(suffix string) func(string) bool {
	return func(name string) bool { return strings.HasSuffix(name, suffix) }
}

func starting(prefix string) func(string) bool {
	return func(name string) bool { return strings.HasPrefix(name, prefix) }
}

// lifeGoals are those of whole lives.
func lifeGoals() []goal {
	rate := func(sys system) figure { return figure{sys, "rate"} }
	return []goal{
		{text: "fila / hops", fits: ending("1,024 in flight"), of: rate(sysFila), to: rate(sysHops), atLeast: 0.8},
		{text: "fila / hops", fits: ending(" 256 in flight"), of: rate(sysFila), to: rate(sysHops), atLeast: 0.65},
		{text: "fila / hops-wire", of: rate(sysFila), to: rate(sysHopsWire)},
		{text: "fila / jetstream", of: rate(sysFila), to: rate(sysJS), atLeast: 2},
		{text: "fila / jetstream-sync", of: rate(sysFila), to: rate(sysJSSynced), atLeast: 25},
	}
}

// workloads is everything that can be run, in this order.
var workloads = []workload{
	{
		name:    "enqueue",
		about:   "confirmed enqueue of 64 B, 1 KB and 64 KB, nobody consumes",
		columns: join(rateColumn, confirmColumns, costColumns), lanes: enqueueLanes,
		base: sameCase(sysHops), baseText: "hops",
	},
	{
		name:    "life",
		about:   "publish, confirmation, delivery, ack: 1 and 8 producers and consumers, 256 and 1,024 in flight",
		columns: join(rateColumn, confirmColumns, deliverColumns, costColumns), lanes: lifeLanes(allSystems, false),
		base: sameCase(sysHops), baseText: "hops", goals: lifeGoals(),
	},
	{
		name:    "life-confirmed",
		about:   "the same with confirmed acks: five legs per message",
		columns: join(rateColumn, confirmColumns, deliverColumns, costColumns), lanes: lifeLanes(withoutFIFO, true),
		base: sameCase(sysHops), baseText: "hops", goals: lifeGoals(),
	},
	{
		name:    "latency",
		about:   "latencies at 200 and 5,000 messages a second",
		columns: join(rateColumn, confirmColumns, deliverColumns, costColumns), lanes: latencyLanes,
		base: sameCase(sysHops), baseText: "hops",
		goals: []goal{
			{text: "publish to delivery p50, fila / hops", of: figure{sysFila, "deliver_p50_us"}, to: figure{sysHops, "deliver_p50_us"}, atMost: 1.15},
			{text: "publish to delivery p99, fila / hops", of: figure{sysFila, "deliver_p99_us"}, to: figure{sysHops, "deliver_p99_us"}, atMost: 1.5},
			{text: "confirmation p50 in µs, fila - hops (at most two commits)", of: figure{sysFila, "confirm_p50_us"}, to: figure{sysHops, "confirm_p50_us"}, subtract: true},
		},
	},
	{
		name:    "keys",
		about:   "10 to 1,000,000 fairness keys in turn, 1,024 messages in flight; fila-fifo has one line for all",
		columns: join(rateColumn, deliverColumns, costColumns), lanes: keyLanes(false),
		base: func(*lane) (string, system) { return "10", sysFila }, baseText: "10 keys",
		goals: []goal{{text: "1,000,000 keys / 10 keys", fits: starting("1,000,000"), of: figure{sysFila, "rate"}, to: figure{sysFila, "rate"}, toCase: "10", atLeast: 0.7}},
	},
	{
		name:    "keys-backlog",
		about:   "the same on top of a backlog with as many keys",
		columns: join(rateColumn, fillColumn, costColumns), lanes: keyLanes(true),
		base: func(*lane) (string, system) { return "10", sysFila }, baseText: "10 keys",
		goals: []goal{{text: "1,000,000 keys / 10 keys", fits: starting("1,000,000"), of: figure{sysFila, "rate"}, to: figure{sysFila, "rate"}, toCase: "10", atLeast: 0.7}},
	},
	{
		name:    "hook",
		about:   "a typical on_enqueue, and the same by fairness_header",
		columns: join(rateColumn, confirmColumns, deliverColumns, costColumns), lanes: hookLanes,
		base: firstCase("off"), baseText: "off",
	},
	{
		name:    "throttle",
		about:   "0, 1 and 3 throttle keys per message, with limits out of reach",
		columns: join(rateColumn, confirmColumns, deliverColumns, costColumns), lanes: throttleLanes,
		base: firstCase("0 keys"), baseText: "0 keys",
	},
	{
		name:    "consumers",
		about:   "1 to 1,000 consumers that share a credit of 1,024",
		columns: join(rateColumn, deliverColumns, costColumns), lanes: consumerLanes,
		base: firstCase("1"), baseText: "1 consumer",
	},
	{
		name:    "slow",
		about:   "8 consumers, without and with one more that takes 5 ms per message",
		columns: join(rateColumn, deliverColumns, costColumns), lanes: slowLanes,
		base: firstCase("8 fast"), baseText: "without",
	},
	{
		name:    "backlog",
		about:   "whole lives in an empty queue, then on top of a backlog, then draining it",
		columns: backlogColumns, lanes: backlogLanes,
		goals: []goal{{text: "with the backlog / without", of: figure{sysFila, "backlog_rate"}, to: figure{sysFila, "empty_rate"}, atLeast: 0.8}},
	},
	{
		name:    "memory",
		about:   "memory of the server: idle, with a tenth of the backlog, with all of it",
		columns: memoryColumns, lanes: memoryLanes, ownServer: true,
		goals: []goal{
			{text: "idle, MiB", of: figure{sysFila, "idle_rss_mb"}, atMost: 60},
			{text: "bytes per pending message", of: figure{sysFila, "per_message_bytes"}, atMost: 120},
		},
	},
	{
		name:    "recovery",
		about:   "from the start of the server until it is ready, after it was killed with a backlog",
		columns: recoveryColumns, lanes: recoveryLanes, ownServer: true,
		goals: []goal{{text: "ms until ready", of: figure{sysFila, "recovery_ms"}, atMost: 5000}},
	},
	{
		name:    soakName,
		about:   "whole lives at 70 % of the maximum rate for 30 minutes, the last third against the first; runs only when named",
		columns: soakColumns, lanes: soakLanes, ownServer: true, onlyNamed: true,
		goals: soakGoals(),
	},
}
