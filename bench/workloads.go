package bench

import (
	"slices"

	"github.com/filaq/fila/bench/report"
	"github.com/filaq/fila/bench/system"
)

// workload is a group of measurements that belong together.
type workload struct {
	report.Workload
	lanes func(o *Options) []lane
	// ownServer: it stops servers, or looks at their processes and files.
	ownServer bool
	// onlyNamed workloads are not part of a run of all.
	onlyNamed bool
}

// Workloads returns all workloads, in the order in which they run.
func Workloads() []report.Workload {
	var all []report.Workload
	for i := range workloads {
		all = append(all, workloads[i].Workload)
	}
	return all
}

// selected returns the workloads to run.
func (o *Options) selected() []*workload {
	var list []*workload
	for i := range workloads {
		w := &workloads[i]
		named := slices.Contains(o.Workloads, w.Name)
		if (named || len(o.Workloads) == 0 && !w.onlyNamed) && (o.Target == nil || !w.ownServer) {
			list = append(list, w)
		}
	}
	return list
}

// Shared columns, bases and goals of workloads.
var (
	lifeGoals = []report.Goal{
		{Text: "fila / hops", Metric: "rate", To: system.Hops, Fits: "1,024 in flight", AtLeast: 0.8},
		{Text: "fila / hops", Metric: "rate", To: system.Hops, Fits: " 256 in flight", AtLeast: 0.65},
		{Text: "fila / hops-wire", Metric: "rate", To: system.HopsWire},
		{Text: "fila-min / hops", Metric: "rate", Of: system.FilaMin, To: system.Hops},
		{Text: "fila / jetstream", Metric: "rate", To: system.JetStream, AtLeast: 2},
		{Text: "fila / jetstream-sync", Metric: "rate", To: system.JetStreamSync, AtLeast: 25},
	}
	keyGoals = []report.Goal{
		{Text: "1,000,000 keys / 10 keys", Metric: "rate", To: system.Fila, ToCase: "10", Fits: "1,000,000", AtLeast: 0.7},
	}

	shortColumns = slices.Concat(report.RateColumn, report.DeliverColumns, report.CostColumns)
	lifeColumns  = slices.Concat(report.RateColumn, report.ConfirmColumns, report.DeliverColumns, report.CostColumns)

	ofHops    = report.Base{Text: "hops", System: system.Hops}
	ofTenKeys = report.Base{Text: "10 keys", Case: "10", System: system.Fila}
)

// workloads is everything that can be run, in this order.
var workloads = []workload{
	{lanes: enqueueLanes, Workload: report.Workload{
		Name: "enqueue", About: "confirmed enqueue of 64 B, 1 KB and 64 KB, nobody consumes",
		Columns: slices.Concat(report.RateColumn, report.ConfirmColumns, report.CostColumns), Base: ofHops,
	}},
	{lanes: func(o *Options) []lane { return lifeLanes(o, allSystems, false) }, Workload: report.Workload{
		Name: "life", About: "publish, confirmation, delivery, ack: 1 and 8 producers and consumers, 64 to 1,024 in flight",
		Columns: lifeColumns, Base: ofHops, Goals: lifeGoals,
	}},
	{lanes: func(o *Options) []lane { return lifeLanes(o, withoutFIFO, true) }, Workload: report.Workload{
		Name: "life-confirmed", About: "the same with confirmed acks: five legs per message",
		Columns: lifeColumns, Base: ofHops, Goals: lifeGoals,
	}},
	{lanes: latencyLanes, Workload: report.Workload{
		Name: "latency", About: "latencies at 200 and 5,000 messages a second",
		Columns: lifeColumns, Charted: report.LatencyChart, Base: ofHops,
		Goals: []report.Goal{
			{Text: "publish to delivery p50, fila / hops", Metric: "deliver_p50_us", To: system.Hops, AtMost: 1.15},
			{Text: "publish to delivery p99, fila / hops", Metric: "deliver_p99_us", To: system.Hops, AtMost: 1.5},
			{Text: "confirmation p50 in µs, fila - hops (at most two commits)", Metric: "confirm_p50_us", To: system.Hops, Subtract: true},
		},
	}},
	{lanes: func(o *Options) []lane { return keyLanes(o, false) }, Workload: report.Workload{
		Name: "keys", About: "10 to 1,000,000 fairness keys in turn, 1,024 messages in flight; fila-fifo has one line for all",
		Columns: shortColumns, Base: ofTenKeys, Goals: keyGoals,
	}},
	{lanes: func(o *Options) []lane { return keyLanes(o, true) }, Workload: report.Workload{
		Name: "keys-backlog", About: "the same on top of a backlog with as many keys",
		Columns: slices.Concat(report.RateColumn, report.FillColumn, report.CostColumns), Base: ofTenKeys, Goals: keyGoals,
	}},
	{lanes: hookLanes, Workload: report.Workload{
		Name: "hook", About: "a typical on_enqueue, and the same by fairness_header",
		Columns: lifeColumns, Base: report.Base{Text: "off", Case: "off"},
	}},
	{lanes: throttleLanes, Workload: report.Workload{
		Name: "throttle", About: "0, 1 and 3 throttle keys per message, with limits out of reach",
		Columns: lifeColumns, Base: report.Base{Text: "0 keys", Case: "0 keys"},
	}},
	{lanes: consumerLanes, Workload: report.Workload{
		Name: "consumers", About: "1 to 1,000 consumers that share a credit of 1,024",
		Columns: shortColumns, Base: report.Base{Text: "1 consumer", Case: "1"},
	}},
	{lanes: slowLanes, Workload: report.Workload{
		Name: "slow", About: "8 consumers, without and with one more that takes 5 ms per message",
		Columns: shortColumns, Base: report.Base{Text: "without", Case: "8 fast"},
	}},
	{lanes: quietLanes, Workload: report.Workload{
		Name: "quiet", About: "100 messages a second in one queue beside a flood of 64 KB messages in another one",
		Columns: slices.Concat(report.RateColumn, report.ConfirmColumns, report.DeliverColumns, report.QuietColumns),
		Charted: report.LatencyChart,
		Goals: []report.Goal{
			{Text: "confirmation p99 / writing and syncing 4 MiB", Metric: "confirm_p99_commits", Fits: "unacked", AtMost: 4},
			{Text: "flood beside / alone", Metric: "flood_rate", To: system.Fila, ToCase: "flood alone", ToMetric: "rate", Fits: "beside", AtLeast: 0.9},
		},
	}},
	{lanes: clusterLanes, ownServer: true, onlyNamed: true, Workload: report.Workload{
		Name: "cluster", About: "a fila alone, a cluster of three with one shard, and a stream with three replicas",
		Columns: slices.Concat(report.RateColumn, report.ConfirmColumns, report.DeliverColumns), Base: report.Base{Text: "fila", System: system.Fila},
		Goals: []report.Goal{
			{Text: "lives, fila-r3 / fila", Metric: "rate", Of: system.FilaR3, To: system.Fila, Fits: "lives", AtLeast: 0.8},
			{Text: "lives, fila-r3-sync / fila", Metric: "rate", Of: system.FilaR3Sync, To: system.Fila, Fits: "lives", AtLeast: 0.7},
			{Text: "enqueues, fila-r3 / fila", Metric: "rate", Of: system.FilaR3, To: system.Fila, Fits: "enqueues, 1,024", AtLeast: 0.5},
			{Text: "enqueues, fila-r3-sync / fila", Metric: "rate", Of: system.FilaR3Sync, To: system.Fila, Fits: "enqueues, 1,024", AtLeast: 0.4},
			{Text: "enqueues of random bytes, fila-r3-batch / fila-batch", Metric: "rate", Of: system.FilaR3Batch, To: system.FilaBatch, Fits: "random bytes", AtLeast: 0.5},
			{Text: "light confirmation p50, fila-r3 / jetstream-r3", Metric: "confirm_p50_us", Of: system.FilaR3, To: system.JetStreamR3, Fits: "200/s", AtMost: 2},
			{Text: "light confirmation p50, fila-r3-sync / jetstream-r3-sync", Metric: "confirm_p50_us", Of: system.FilaR3Sync, To: system.JetStreamR3Sync, Fits: "200/s", AtMost: 2},
		},
	}},
	{lanes: peerLanes, ownServer: true, onlyNamed: true, Workload: report.Workload{
		Name: "peers", About: "whole lives and confirmed enqueues beside other queues",
		Columns: lifeColumns, Base: report.Base{Text: "fila", System: system.Fila},
	}},
	{lanes: backlogLanes, Workload: report.Workload{
		Name: "backlog", About: "whole lives in an empty queue, then on top of a backlog, then draining it",
		Columns: report.BacklogColumns, Charted: report.BacklogColumns[:4],
		Goals: []report.Goal{{Text: "with the backlog / without", Metric: "backlog_rate", To: system.Fila, ToMetric: "empty_rate", AtLeast: 0.8}},
	}},
	{lanes: memoryLanes, ownServer: true, Workload: report.Workload{
		Name: "memory", About: "memory of the server: idle, with a tenth of the backlog, with all of it",
		Columns: report.MemoryColumns, Charted: report.MemoryColumns[:4],
		Goals: []report.Goal{
			{Text: "idle, MiB", Metric: "idle_rss_mb", AtMost: 60},
			{Text: "bytes per pending message", Metric: "per_message_bytes", AtMost: 120},
		},
	}},
	{lanes: recoveryLanes, ownServer: true, Workload: report.Workload{
		Name: "recovery", About: "from the start of the server until it is ready, after it was killed with a backlog",
		Columns: report.RecoveryColumns, Charted: report.RecoveryColumns[1:2],
		Goals: []report.Goal{{Text: "ms until ready", Metric: "recovery_ms", AtMost: 5000}},
	}},
	{lanes: soakLanes, ownServer: true, onlyNamed: true, Workload: report.Workload{
		Name: soakName, About: "whole lives at 70 % of the maximum rate for 30 minutes, the last third against the first",
		Columns: report.SoakColumns, Goals: report.SoakGoals(),
	}},
	{lanes: adaptLanes, onlyNamed: true, Workload: report.Workload{
		Name: adaptName, About: "limits that learn, at a simulated provider whose capacity falls and comes back",
		Columns: report.AdaptColumns, Goals: adaptGoals(),
	}},
}
