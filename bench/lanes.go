package bench

import (
	"slices"
	"strconv"

	"github.com/filaq/fila/bench/load"
	"github.com/filaq/fila/bench/measure"
	"github.com/filaq/fila/bench/report"
	"github.com/filaq/fila/bench/system"
	"github.com/filaq/fila/client"
)

// lane is one measurement, repeated in every round.
type lane struct {
	Case string
	// quick lanes are part of a quick run.
	quick bool
	spec  load.Spec
	// beside is a second load on the same server, in its own queue, whose figures start with
	// quietFlood; nil is none.
	beside *load.Spec
	// syncs also measures the time to write and sync a commit.
	syncs bool
	// restart kills the server after the phases and measures the time until it is ready again.
	restart bool
	// ownGC leaves GOGC to the server's default.
	ownGC bool
	// simulate computes the figures in place of servers and a load.
	simulate func() measure.Sample
}

// Sizes of loads.
const (
	window      = 1024
	fewWindow   = 256
	leastWindow = 64
	hookScript  = `function on_enqueue(msg)
  return { fairness_key = msg.headers["key"], weight = 1, cost = 1 }
end`
	// enoughBytes ends a measurement of large messages before the disk is full.
	enoughBytes = 1 << 30
	// settleMs is the time for a server to return memory.
	settleMs = 2000
)

var (
	allSystems  = []system.Name{system.Fila, system.FilaMin, system.FilaBatch, system.FIFO, system.Hops, system.HopsWire, system.JetStream, system.JetStreamSync}
	withoutFIFO = []system.Name{system.Fila, system.FilaMin, system.FilaBatch, system.Hops, system.HopsWire, system.JetStream, system.JetStreamSync}
	// Systems of workloads without a bare middle.
	filaAndJetStream = []system.Name{system.Fila, system.JetStream}
)

// lanesOf returns the lanes of a workload. A quick run has a few; a workload without quick
// lanes has all if it is named.
func (o *Options) lanesOf(w *workload) []lane {
	all := slices.DeleteFunc(w.lanes(o), func(l lane) bool { return !o.wants(l.spec.System) })
	quick := slices.DeleteFunc(slices.Clone(all), func(l lane) bool { return !l.quick })
	if !o.Quick || len(quick) == 0 && len(o.Workloads) > 0 {
		return all
	}
	return quick
}

// each returns a lane for each case and system.
func each[C any](cases []C, systems []system.Name, of func(C, system.Name) lane) []lane {
	var lanes []lane
	for _, c := range cases {
		for _, sys := range systems {
			lanes = append(lanes, of(c, sys))
		}
	}
	return lanes
}

// load returns the base load of a lane: messages of the chosen size with one of ten keys.
func (o *Options) load(sys system.Name, phases ...load.Phase) load.Spec {
	settings := client.QueueSettings{}
	if sys != system.FIFO {
		settings.FairnessHeader = load.KeyHeader
	}
	return load.Spec{System: sys, Payload: o.Payload, Keys: 10, Queue: system.Queue{Settings: settings, Batch: o.Batch}, Phases: slices.Clone(phases)}
}

// life returns a phase of whole lives with as many producers as consumers.
func (o *Options) life(pairs, inFlight int) load.Phase {
	return load.Phase{
		Mode: load.ModeLife, Producers: pairs, Consumers: pairs, Window: inFlight,
		Count: o.Count, DurationMs: o.Duration.Milliseconds(),
	}
}

// fill returns a phase that puts n messages into the queue.
func (o *Options) fill(name string, n int64) load.Phase {
	return load.Phase{Name: name, Mode: load.ModeFill, Producers: 1, Window: window, Count: n}
}

func number(n int) string { return report.Thousands(float64(n)) }

func lifeLanes(o *Options, systems []system.Name, confirmed bool) []lane {
	return each([][2]int{{1, leastWindow}, {1, fewWindow}, {1, window}, {8, fewWindow}, {8, window}}, systems, func(c [2]int, sys system.Name) lane {
		pairs, inFlight := c[0], c[1]
		p := o.life(pairs, inFlight)
		p.AckConfirmed = confirmed
		return lane{
			Case: strconv.Itoa(pairs) + "+" + strconv.Itoa(pairs) + ", " + number(inFlight) + " in flight", spec: o.load(sys, p),
			quick: pairs == 1 && inFlight == fewWindow && (!confirmed || sys == system.Fila || sys == system.Hops),
		}
	})
}

func enqueueLanes(o *Options) []lane {
	type size struct {
		name            string
		bytes, inFlight int
	}
	sizes := []size{{"64 B", 64, window}, {"1 KB", 1 << 10, window}, {"64 KB", 64 << 10, fewWindow}}
	systems := []system.Name{system.Fila, system.FilaBatch, system.Hops, system.JetStream, system.JetStreamSync, system.JetStreamBatch, system.JetStreamBatchSync} // nothing is delivered
	return each(sizes, systems, func(s size, sys system.Name) lane {
		p := o.life(1, s.inFlight)
		p.Mode, p.Consumers, p.MaxBytes = load.ModeEnqueue, 0, enoughBytes
		l := lane{Case: s.name, spec: o.load(sys, p), quick: s.bytes == 1<<10 && !sys.Synced()}
		l.spec.Payload = s.bytes
		return l
	})
}

// peerSystems are fila, JetStream with each kind of publish and sync, and the peers.
var peerSystems = []system.Name{
	system.Fila, system.FilaBatch, system.JetStream, system.JetStreamSync, system.JetStreamFast, system.JetStreamBatch, system.JetStreamBatchSync,
	system.RabbitMQ, system.RabbitMQClassic, system.Asynq, system.AsynqSync, system.River, system.Beanstalkd, system.BeanstalkdSync,
}

// peerLanes measure what all queues can do.
func peerLanes(o *Options) []lane {
	lives := each([]int{fewWindow}, peerSystems, func(inFlight int, sys system.Name) lane {
		return lane{Case: "lives, " + number(inFlight) + " in flight", spec: o.load(sys, o.life(1, inFlight)), quick: true}
	})
	return append(lives, each([]int{window}, peerSystems, func(inFlight int, sys system.Name) lane {
		p := o.life(1, inFlight)
		p.Mode, p.Consumers, p.MaxBytes = load.ModeEnqueue, 0, enoughBytes
		return lane{Case: "enqueues, " + number(inFlight) + " in flight", spec: o.load(sys, p), quick: true}
	})...)
}

func latencyLanes(o *Options) []lane {
	at := func(rate int, sys system.Name) lane {
		p := o.life(1, window)
		p.Rate = float64(rate)
		if o.Quick {
			p.Count = min(p.Count, int64(rate/20))
		}
		return lane{Case: number(rate) + "/s", spec: o.load(sys, p), quick: rate > 1000}
	}
	// A synced JetStream cannot keep up where a sync takes a millisecond.
	// A batch that waits until it is full says nothing about latencies.
	systems := slices.DeleteFunc(slices.Clone(withoutFIFO), func(sys system.Name) bool { return sys == system.FilaBatch })
	fast := systems[:len(systems)-1]
	return append(each([]int{200}, systems, at), each([]int{5000}, fast, at)...)
}

// The load beside a quiet queue.
const (
	quietRate  = 100 // messages a second
	quietFlood = "flood"
	floodBytes = 64 << 10
)

// quietLanes measure a queue with few messages alone and beside one with many large messages
// without consumers, and the latter alone. Confirmations are also measured without acks: a
// message that is acked before it is written is confirmed without the disk.
func quietLanes(o *Options) []lane {
	p := o.life(1, fewWindow)
	p.Rate = quietRate
	if o.Quick {
		p.Count = min(p.Count, quietRate/10)
	}
	quiet := o.load(system.Fila, p)
	p.Mode, p.Consumers = load.ModeEnqueue, 0
	kept := o.load(system.Fila, p)
	p = o.life(1, fewWindow)
	p.Mode, p.Consumers = load.ModeEnqueue, 0
	flood := o.load(system.Fila, p)
	flood.Payload = floodBytes
	beside := flood
	beside.Phases = slices.Clone(flood.Phases)
	beside.Phases[0].Name = quietFlood
	return []lane{
		{Case: "quiet alone", spec: quiet},
		{Case: "flood alone", spec: flood},
		{Case: "quiet beside the flood", quick: true, spec: quiet, beside: &beside},
		{Case: "unacked beside the flood", quick: true, spec: kept, beside: &beside, syncs: true},
	}
}

func keyLanes(o *Options, backlog bool) []lane {
	at := func(keys int, sys system.Name) lane {
		l := lane{Case: number(keys), quick: keys <= 1000 && !backlog, spec: o.load(sys, o.life(1, window))}
		if backlog {
			l.spec.Phases = slices.Insert(l.spec.Phases, 0, o.fill("fill", o.Backlog))
		}
		l.spec.Keys = keys
		return l
	}
	return append(each([]int{10, 1000, 10_000, 100_000, 1_000_000}, []system.Name{system.Fila}, at), at(10, system.FIFO))
}

func hookLanes(o *Options) []lane {
	off := lane{Case: "off", quick: true, spec: o.load(system.Fila, o.life(1, window))}
	on := lane{Case: "on", quick: true, spec: o.load(system.Fila, o.life(1, window))}
	on.spec.Queue.Settings.FairnessHeader, on.spec.Queue.Settings.OnEnqueue = "", hookScript
	return []lane{off, on}
}

// throttleLanes send the same headers in all cases; only queue settings make throttle keys of
// them. No limit is reached.
func throttleLanes(o *Options) []lane {
	const most = 3
	return each([]int{0, 1, most}, []system.Name{system.Fila}, func(gates int, sys system.Name) lane {
		l := lane{Case: report.Counted(int64(gates), "key"), quick: gates < most, spec: o.load(sys, o.life(1, window))}
		l.spec.Gates = most
		l.spec.Queue.Config = map[string]string{}
		for n := 1; n <= gates; n++ {
			l.spec.Queue.Settings.ThrottleHeaders = append(l.spec.Queue.Settings.ThrottleHeaders, load.GateHeader(n))
			for _, limit := range []string{"rate", "burst"} {
				l.spec.Queue.Config["throttle:"+load.Gate("%s", n)+":"+limit] = "1000000"
			}
		}
		return l
	})
}

func consumerLanes(o *Options) []lane {
	return each([]int{1, 10, 100, 1000}, filaAndJetStream, func(n int, sys system.Name) lane {
		p := o.life(1, window)
		p.Consumers = n
		return lane{Case: number(n), quick: n == 10, spec: o.load(sys, p)}
	})
}

func slowLanes(o *Options) []lane {
	return each([]int{0, 1}, filaAndJetStream, func(slow int, sys system.Name) lane {
		p := o.life(1, window)
		p.Consumers, p.Slow = 8, slow
		return lane{Case: []string{"8 fast", "8 fast, 1 slow"}[slow], quick: sys == system.Fila, spec: o.load(sys, p)}
	})
}

// ofBacklog returns a backlog lane for each system.
func (o *Options) ofBacklog(systems []system.Name, phases ...load.Phase) []lane {
	return each([]string{number(int(o.Backlog))}, systems, func(name string, sys system.Name) lane {
		return lane{Case: name, quick: sys == system.Fila, spec: o.load(sys, phases...)}
	})
}

func backlogLanes(o *Options) []lane {
	empty, full := o.life(1, window), o.life(1, window)
	empty.Name, full.Name, full.Drain = "empty", "backlog", true
	return o.ofBacklog([]system.Name{system.Fila, system.FIFO, system.JetStream}, empty, o.fill("fill", o.Backlog), full)
}

func memoryLanes(o *Options) []lane {
	tenth, rest := o.fill("tenth", o.Backlog/10), o.fill("full", o.Backlog-o.Backlog/10)
	tenth.SettleMs, rest.SettleMs = settleMs, settleMs
	if o.Quick {
		tenth.SettleMs, rest.SettleMs = 1, 1
	}
	lanes := o.ofBacklog(filaAndJetStream, tenth, rest)
	for i := range lanes {
		lanes[i].ownGC = true
	}
	return lanes
}

func recoveryLanes(o *Options) []lane {
	lanes := o.ofBacklog(filaAndJetStream, o.fill("fill", o.Backlog))
	for i := range lanes {
		lanes[i].ownGC, lanes[i].restart = true, true
	}
	return lanes
}
