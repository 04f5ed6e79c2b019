// Package provider simulates a provider of calls that refuses calls beyond its capacity,
// which changes with time, and its clients with several kinds of limits. Everything happens
// in simulated time, from one seed.
package provider

import (
	"container/heap"
	"math"
	"math/rand/v2"
)

const second = 1_000_000_000

// Phase is a time with one capacity: calls at once, or cost per second if the scenario has
// costs.
type Phase struct {
	For      int64 // ns
	Capacity float64
}

// Scenario is a provider and how long it is called. Clients always have messages.
type Scenario struct {
	Name    string
	Phases  []Phase
	Latency int64   // ns: median of an accepted call
	Spread  float64 // standard deviation of its logarithm
	Refusal int64   // ns: until a refused call returns

	// Cost is the mean cost of a call, known when it returns, and CostSpread the standard
	// deviation of its logarithm. The provider has a bucket of a second's capacity. 0: the
	// capacity is of calls at once.
	Cost, CostSpread float64
	// Noise is the part of the calls that is refused although there is capacity.
	Noise float64
	// Slope is by how much the calls at once may grow in a second; 0: at once. The provider
	// admits up to that many more than are in flight.
	Slope float64

	// Ceiling, GrowPerS and Start (0: the ceiling) are settings of the limits that learn.
	Ceiling, GrowPerS, Start float64
}

// Result is what a run has measured.
type Result struct {
	Calls, Refused int
	// All is the part of the capacity that accepted calls use, from the first second on. Mean is
	// the same outside of settling: three latencies after each cut, and the time until more
	// capacity is used. Lowest is the lowest mean of a second of it; 0: there is no such second.
	All, Mean, Lowest float64
	// Recovered is how long (ns) after the begin, or after more capacity, the use was Enough
	// first, or the length of the phase if it never was. The longest counts.
	Recovered int64
	Cuts      uint64
}

// RefusedPart is the part of the calls that was refused.
func (r *Result) RefusedPart() float64 { return float64(r.Refused) / float64(max(r.Calls, 1)) }

// settling is how many latencies after a cut count as settling.
const settling = 3

// Enough is the use from which the provider counts as used.
const Enough = 0.85

type event struct {
	at     int64
	seq    int
	caller int
	call   *Call // returns; nil: the caller asks again
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	*e = (*e)[:last]
	return x
}

// server is the provider: what it admits.
type server struct {
	sc       *Scenario
	rnd      *rand.Rand
	capacity float64
	inFlight int
	tokens   float64 // of the bucket, if there are costs
	slope    float64 // calls at once that Slope admits
	now      int64
}

func (p *server) advance(to int64) {
	gone := float64(to-p.now) / second
	p.tokens = min(p.tokens+p.capacity*gone, p.capacity)
	p.slope = min(p.slope+p.sc.Slope*gone, float64(p.inFlight)+p.sc.Slope)
	p.now = to
}

func (p *server) admit(cost float64) bool {
	switch {
	case p.sc.Noise > 0 && p.rnd.Float64() < p.sc.Noise:
		return false
	case p.sc.Cost > 0:
		if p.tokens < cost {
			return false
		}
		p.tokens -= cost
	case float64(p.inFlight) >= p.capacity || p.sc.Slope > 0 && float64(p.inFlight) >= p.slope:
		return false
	}
	p.inFlight++
	return true
}

// logNormal returns a random number with a median.
func (p *server) logNormal(median, spread float64) float64 {
	return median * math.Exp(spread*p.rnd.NormFloat64())
}

// Point is a second of a run.
type Point struct {
	At       int64   // ns: its end
	Capacity float64 // during the second
	Limit    float64 // of all clients, at its end
	Refused  int     // calls in the second
}

// Trace returns the seconds of the run of a scenario with seed 0.
func Trace(sc Scenario, way Way) (points []Point) {
	limits := way.Limits(&sc)
	refused := 0
	run(sc, 0, clients(&sc, limits), func(now int64, capacity float64, r *Result) {
		p := Point{At: now, Capacity: capacity, Refused: r.Refused - refused}
		refused = r.Refused
		for _, l := range limits {
			p.Limit += l.Value(now)
		}
		points = append(points, p)
	})
	return points
}

// Run runs a scenario with a client for each limit.
func Run(sc Scenario, seed uint64, limits ...Limit) Result {
	return RunCallers(sc, seed, clients(&sc, limits)...)
}

// RunCallers is Run for callers of any kind.
func RunCallers(sc Scenario, seed uint64, callers ...Caller) Result {
	return run(sc, seed, callers, func(int64, float64, *Result) {})
}

func clients(sc *Scenario, limits []Limit) (callers []Caller) {
	for _, limit := range limits {
		callers = append(callers, &client{Limit: limit, estimate: sc.Cost})
	}
	return callers
}

// run calls each at the end of every second.
func run(sc Scenario, seed uint64, callers []Caller, each func(now int64, capacity float64, r *Result)) (r Result) {
	var queue events
	seq := 0
	push := func(e event) {
		seq++
		e.seq = seq
		heap.Push(&queue, e)
	}
	for i := range callers {
		push(event{at: 1, caller: i})
	}
	end, ends, phase := int64(0), make([]int64, len(sc.Phases)), 0
	for i, p := range sc.Phases {
		end += p.For
		ends[i] = end
	}
	p := server{sc: &sc, rnd: rand.New(rand.NewPCG(seed, 1)), capacity: sc.Phases[0].Capacity, slope: sc.Slope}
	m := meter{sc: &sc, began: 1, calm: math.MaxInt64}
	tick := int64(second)
	advance := func(to int64) {
		for ; tick <= to; tick += second {
			each(tick, p.capacity, &r)
		}
		m.advance(to, float64(p.inFlight), p.capacity)
		p.advance(to)
	}
	var cuts uint64
	asked := make([]int64, len(callers))
	for queue.Len() > 0 && queue[0].at < end {
		e := heap.Pop(&queue).(event)
		for e.at >= ends[phase] { // the capacity changes between
			advance(ends[phase])
			phase++
			m.change(p.capacity, sc.Phases[phase].Capacity)
			p.capacity = sc.Phases[phase].Capacity
		}
		advance(e.at)
		if e.call != nil {
			if !e.call.Refused {
				p.inFlight--
			}
			callers[e.caller].Done(e.call, e.at)
			if n := total(callers); n != cuts {
				cuts = n
				m.settle(e.at)
			}
		}
		// The caller whose call has returned asks first, and then the others, one call each
		// in turn.
		for idle := 0; idle < len(callers); {
			i := (e.caller + idle) % len(callers)
			ok, again := callers[i].Begin(r.Calls, e.at)
			if !ok {
				if again > 0 && again != asked[i] {
					asked[i] = again
					push(event{at: again, caller: i})
				}
				idle++
				continue
			}
			call := &Call{Number: r.Calls, Began: e.at}
			r.Calls++
			if sc.Cost > 0 { // the mean of a log-normal number is its median times exp(spread²/2)
				call.Cost = p.logNormal(sc.Cost*math.Exp(-sc.CostSpread*sc.CostSpread/2), sc.CostSpread)
			}
			if p.admit(call.Cost) {
				m.add(call.Cost, p.capacity)
				push(event{at: e.at + max(1, int64(p.logNormal(float64(sc.Latency), sc.Spread))), caller: i, call: call})
			} else {
				r.Refused++
				call.Refused = true
				push(event{at: e.at + sc.Refusal, caller: i, call: call})
			}
		}
	}
	advance(end)
	m.recover()
	r.All, r.Mean, r.Lowest, r.Recovered, r.Cuts = m.all/float64(end), m.area/max(m.span, 1), m.lowest, m.recovered, cuts
	return r
}

func total(callers []Caller) (n uint64) {
	for _, c := range callers {
		n += c.Cuts()
	}
	return n
}

// meter measures the use outside of settling times.
type meter struct {
	sc        *Scenario
	now       int64
	use       float64 // of costs: a mean over about a second
	calm      int64   // from when on it counts
	all       float64 // use, summed over time
	area      float64 // the same outside of settling
	span      float64
	part      [2]float64 // area and span of the present window
	lowest    float64
	began     int64 // of a phase with more capacity, until it is used; 0: none
	recovered int64
}

func (m *meter) settle(now int64) {
	if m.began == 0 {
		m.calm = now + settling*m.sc.Latency
	}
}

// change begins a phase. Less capacity shows with the first refusal, more with growth.
func (m *meter) change(from, to float64) {
	m.recover()
	if to > from {
		m.began, m.calm = m.now, math.MaxInt64
	} else {
		m.settle(m.now)
	}
	m.use *= from / to
}

// recover ends the time until more capacity is used, if it has not ended.
func (m *meter) recover() {
	if m.began != 0 {
		m.recovered = max(m.recovered, m.now-m.began)
		m.began = 0
	}
}

// add counts the cost of an admitted call.
func (m *meter) add(cost, capacity float64) { m.use += cost / capacity }

func (m *meter) advance(to int64, inFlight, capacity float64) {
	gone := float64(to - m.now)
	use := min(1, inFlight/capacity)
	if m.sc.Cost > 0 {
		left := math.Exp(-gone / second)
		use = m.use * (1 - left) * second / max(gone, 1) // the mean of the time
		m.use *= left
	}
	if m.began != 0 && use >= Enough {
		m.recover()
		m.settle(m.now)
	}
	m.all += gone * use
	if from := max(m.now, m.calm); from < to {
		d := float64(to - from)
		m.area, m.span = m.area+d*use, m.span+d
		m.part[0], m.part[1] = m.part[0]+d*use, m.part[1]+d
		if m.part[1] >= second {
			if low := m.part[0] / m.part[1]; m.lowest == 0 || low < m.lowest {
				m.lowest = low
			}
			m.part = [2]float64{}
		}
	}
	m.now = to
}
