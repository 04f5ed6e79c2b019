package bench

import (
	"slices"
	"strconv"

	"github.com/filaq/fila/client"
)

// workload is a group of measurements that belong together.
type workload struct {
	name, about string
	columns     []column
	// ownServer: it stops servers, or looks at their processes and files.
	ownServer bool
	// onlyNamed workloads are not part of a run of all.
	onlyNamed bool
	// base says what column "ratio" of a lane relates to; nil is no such column.
	base     func(l *lane) (caseName string, sys system)
	baseText string
	lanes    func(o *Options) []lane
	goals    []goal
}

// lane is one measurement, repeated in every round.
type lane struct {
	Case string
	sys  system
	// quick lanes are part of a quick run.
	quick bool
	spec  loadSpec
	// restart: kill the server after the phases, and see how long it takes to
	// get ready again.
	restart bool
	// ownGC leaves the garbage collector to the server's defaults.
	ownGC bool
}

// Sizes of loads.
const (
	window     = 1024
	fewWindow  = 256
	hookScript = `function on_enqueue(msg)
  return { fairness_key = msg.headers["key"], weight = 1, cost = 1 }
end`
	// enoughBytes ends a measurement of large messages before the disk is full.
	enoughBytes = 1 << 30
)

var (
	allSystems     = []system{sysFila, sysFIFO, sysHops, sysHopsWire, sysJS, sysJSSynced}
	withoutFIFO    = []system{sysFila, sysHops, sysHopsWire, sysJS, sysJSSynced}
	enqueueSystems = []system{sysFila, sysHops, sysJS, sysJSSynced} // nothing is delivered
)

// Info describes a workload.
type Info struct{ Name, About string }

// Workloads returns all workloads, in the order in which they run.
func Workloads() []Info {
	infos := make([]Info, 0, len(workloads))
	for i := range workloads {
		infos = append(infos, Info{workloads[i].name, workloads[i].about})
	}
	return infos
}

// selected returns the workloads to run.
func (o *Options) selected() []*workload {
	var list []*workload
	for i := range workloads {
		w := &workloads[i]
		switch {
		case len(o.Workloads) > 0 && !slices.Contains(o.Workloads, w.name):
		case o.Target != nil && w.ownServer:
		case len(o.Workloads) == 0 && w.onlyNamed:
		default:
			list = append(list, w)
		}
	}
	return list
}

// lanesOf returns what of a workload is to be measured. A quick run has few
// lanes of each; a workload without quick lanes has all when it is named.
func (o *Options) lanesOf(w *workload) []lane {
	var all, quick []lane
	for _, l := range w.lanes(o) {
		if !o.wants(l.sys) {
			continue
		}
		all = append(all, l)
		if l.quick {
			quick = append(quick, l)
		}
	}
	if !o.Quick || len(quick) == 0 && len(o.Workloads) > 0 {
		return all
	}
	return quick
}

// load returns what a lane starts from: messages of the chosen size with one of
// ten keys, phases as given.
func (o *Options) load(sys system, phases ...phase) loadSpec {
	settings := client.DefaultQueueSettings("")
	if sys != sysFIFO {
		settings.FairnessHeader = keyHeader
	}
	return loadSpec{System: sys, Payload: o.Payload, Keys: 10, Settings: settings, Phases: phases}
}

// life is a whole life with as many producers as consumers.
func (o *Options) life(pairs, inFlight int) phase {
	return phase{
		Mode: modeLife, Producers: pairs, Consumers: pairs, Window: inFlight,
		Count: o.Count, DurationMs: o.Duration.Milliseconds(),
	}
}

func (o *Options) enqueue(inFlight int) phase {
	p := o.life(1, inFlight)
	p.Mode, p.Consumers, p.MaxBytes = modeEnqueue, 0, enoughBytes
	return p
}

// fill puts n messages into the queue.
func (o *Options) fill(name string, n int64) phase {
	return phase{Name: name, Mode: modeFill, Producers: 1, Window: window, Count: n}
}

func pairsCase(pairs, inFlight int) string {
	return strconv.Itoa(pairs) + "+" + strconv.Itoa(pairs) + ", " + thousands(float64(inFlight)) + " in flight"
}

// sameCase relates a lane to another system in the same case.
func sameCase(sys system) func(*lane) (string, system) {
	return func(l *lane) (string, system) { return l.Case, sys }
}

// firstCase relates a lane to another case of the same system.
func firstCase(name string) func(*lane) (string, system) {
	return func(l *lane) (string, system) { return name, l.sys }
}

func lifeLanes(systems []system, confirmed bool) func(o *Options) []lane {
	return func(o *Options) []lane {
		var lanes []lane
		for _, pairs := range []int{1, 8} {
			for _, inFlight := range []int{fewWindow, window} {
				for _, sys := range systems {
					p := o.life(pairs, inFlight)
					p.AckConfirmed = confirmed
					lanes = append(lanes, lane{
						Case: pairsCase(pairs, inFlight), sys: sys, spec: o.load(sys, p),
						quick: pairs == 1 && inFlight == fewWindow && (!confirmed || sys == sysFila || sys == sysHops),
					})
				}
			}
		}
		return lanes
	}
}

func enqueueLanes(o *Options) []lane {
	var lanes []lane
	for _, c := range []struct {
		name     string
		bytes    int
		inFlight int
	}{{"64 B", 64, window}, {"1 KB", 1 << 10, window}, {"64 KB", 64 << 10, fewWindow}} {
		for _, sys := range enqueueSystems {
			l := lane{Case: c.name, sys: sys, spec: o.load(sys, o.enqueue(c.inFlight)), quick: c.bytes == 1<<10 && sys != sysJSSynced}
			l.spec.Payload = c.bytes
			lanes = append(lanes, l)
		}
	}
	return lanes
}

func latencyLanes(o *Options) []lane {
	var lanes []lane
	for _, rate := range []float64{200, 5000} {
		for _, sys := range withoutFIFO {
			if rate > 1000 && sys == sysJSSynced {
				continue // it cannot keep up where a sync takes a millisecond
			}
			p := o.life(1, window)
			p.Rate = rate
			if o.Quick {
				p.Count = min(p.Count, int64(rate/20))
			}
			lanes = append(lanes, lane{Case: thousands(rate) + "/s", sys: sys, spec: o.load(sys, p), quick: rate > 1000})
		}
	}
	return lanes
}
