// Package provider simulates a provider of calls that refuses calls beyond a number at
// once, which changes with time, and its clients. Everything happens in simulated time, from
// one seed.
package provider

import (
	"container/heap"
	"math"
	"math/rand/v2"
)

// Phase is a time with one capacity.
type Phase struct {
	For      int64 // ns
	Capacity int   // calls at once
}

// Scenario is a provider and how long it is called. Clients always have messages.
type Scenario struct {
	Phases  []Phase
	Latency int64   // ns: median of an accepted call
	Spread  float64 // standard deviation of its logarithm
	Refusal int64   // ns: until a refused call returns
}

// Standard is a provider at 40 at once that falls to 15 and comes back.
func Standard() Scenario {
	const s = 1_000_000_000
	return Scenario{
		Phases:  []Phase{{60 * s, 40}, {60 * s, 15}, {60 * s, 40}},
		Latency: s / 2, Spread: 0.25, Refusal: s / 25,
	}
}

// Client limits its calls.
type Client interface {
	// Begin reports whether the client makes another call now; done is called when the call
	// returns. again is when to ask again without a call having returned; 0: then only.
	Begin(now int64) (done func(refused bool, now int64), again int64)
	// Cuts returns how often the client has cut its limit.
	Cuts() uint64
}

// Result is what a run has measured.
type Result struct {
	Calls, Refused int
	// All is the part of the capacity that accepted calls use, from the first second on. Mean is
	// the same outside of settling: three latencies after each cut, and the time until more
	// capacity is used. Lowest is the lowest mean of a second of it; 0: there is no such second.
	All, Mean, Lowest float64
	// Recovered is how long (ns) after the capacity has come back the use was 0.85 first.
	Recovered int64
	Cuts      uint64
	// ByClient is how many calls of each client were accepted.
	ByClient []int
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
	client int
	done   func(refused bool, now int64) // nil: the client asks again
	refuse bool
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

// Run runs a scenario.
func Run(sc Scenario, seed uint64, clients ...Client) Result {
	rnd := rand.New(rand.NewPCG(seed, 1))
	r := Result{ByClient: make([]int, len(clients))}
	var queue events
	seq, inFlight, phase, now := 0, 0, 0, int64(0)
	push := func(e event) {
		seq++
		e.seq = seq
		heap.Push(&queue, e)
	}
	for i := range clients {
		push(event{at: 1, client: i})
	}
	end, ends := int64(0), make([]int64, len(sc.Phases))
	for i, p := range sc.Phases {
		end += p.For
		ends[i] = end
	}
	m := meter{sc: &sc}
	var cuts uint64
	asked := make([]int64, len(clients))
	for queue.Len() > 0 && queue[0].at < end {
		e := heap.Pop(&queue).(event)
		for e.at >= ends[phase] { // the capacity changes between
			m.advance(ends[phase], inFlight, sc.Phases[phase].Capacity)
			phase++
			m.change(phase)
		}
		capacity := sc.Phases[phase].Capacity
		m.advance(e.at, inFlight, capacity)
		now = e.at
		if e.done != nil {
			if !e.refuse {
				inFlight--
			}
			e.done(e.refuse, now)
			if n := total(clients); n != cuts {
				cuts = n
				m.settle(now)
			}
		}
		// The client whose call has returned asks first, and then the others, one call each
		// in turn.
		for idle := 0; idle < len(clients); {
			i := (e.client + idle) % len(clients)
			done, again := clients[i].Begin(now)
			if done == nil {
				if again > now && again != asked[i] {
					asked[i] = again
					push(event{at: again, client: i})
				}
				idle++
				continue
			}
			r.Calls++
			if inFlight >= capacity {
				r.Refused++
				push(event{at: now + sc.Refusal, client: i, done: done, refuse: true})
				continue
			}
			inFlight++
			r.ByClient[i]++
			took := float64(sc.Latency) * math.Exp(sc.Spread*rnd.NormFloat64())
			push(event{at: now + max(1, int64(took)), client: i, done: done})
		}
	}
	m.advance(end, inFlight, sc.Phases[phase].Capacity)
	r.All, r.Mean, r.Lowest, r.Recovered, r.Cuts = m.all/float64(end), m.area/max(m.span, 1), m.lowest, m.recovered, total(clients)
	return r
}

func total(clients []Client) (n uint64) {
	for _, c := range clients {
		n += c.Cuts()
	}
	return n
}

// meter measures the use outside of settling times.
type meter struct {
	sc        *Scenario
	now       int64
	calm      int64   // from when on it counts
	all       float64 // use, summed over time
	area      float64 // the same outside of settling
	span      float64
	part      [2]float64 // area and span of the present second
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
func (m *meter) change(phase int) {
	if phase >= len(m.sc.Phases) {
		return
	}
	if m.sc.Phases[phase].Capacity > m.sc.Phases[phase-1].Capacity {
		m.began, m.calm = m.now, math.MaxInt64
	} else {
		m.settle(m.now)
	}
}

func (m *meter) advance(to int64, inFlight, capacity int) {
	use := min(1, float64(inFlight)/float64(capacity))
	if m.began != 0 && use >= Enough {
		m.recovered = max(m.recovered, m.now-m.began)
		m.began = 0
		m.settle(m.now)
	}
	m.all += float64(to-m.now) * use
	if from := max(m.now, m.calm); from < to {
		d := float64(to - from)
		m.area, m.span = m.area+d*use, m.span+d
		m.part[0], m.part[1] = m.part[0]+d*use, m.part[1]+d
		if m.part[1] >= 1e9 {
			if low := m.part[0] / m.part[1]; m.lowest == 0 || low < m.lowest {
				m.lowest = low
			}
			m.part = [2]float64{}
		}
	}
	m.now = to
}
