package inspect

import (
	"cmp"
	"container/heap"
	"math"
	"slices"

	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/throttle"
)

// filling shares what gates admit among the messages that wait for them, as the schedule does:
// all demands rise together in proportion to their weights (progressive filling) until a demand
// has all its messages or one of its gates is used up. So a gate that one demand cannot use,
// because another gate holds it back, is left to the others.
type filling struct {
	*Demand
	gates    []*throttle.Gate
	circuits []gates.Circuit

	filled   []filled // of limited
	order    []int32  // demands by the level at which they have all their messages
	supplies []supply // two for each gate, for its messages and its cost, then one for each circuit and each of choices
	shared   supplyHeap
	total    float64
}

// filled is a demand that gets rate * level messages until it is settled.
type filled struct {
	most, rate float64
	uses       []use
	settled    bool
}

// use is what each message of a demand takes from a supply.
type use struct {
	supply int32
	unit   float64
}

// supply is what a limit of a gate or a circuit admits.
type supply struct {
	users    int     // demands with a use of it
	min, max float64 // of their units
	demands  []int32 // these demands, if there are several

	left   float64 // without what settled demands take
	rate   float64 // what the others take in each level
	active int     // how many others there are
	level  float64 // at which it is used up, as known last
}

// filling prepares to fill the demand for several times.
func (d *Demand) filling() *filling {
	f := &filling{Demand: d, filled: make([]filled, len(d.limited)), order: make([]int32, len(d.limited))}
	ofGate, ofCircuit := make(map[*throttle.Gate]int32), make(map[gates.Circuit]int32)
	n := 0
	for i := range d.limited {
		l := &d.limited[i]
		for _, gate := range l.set.Gates() {
			n += 2
			if _, known := ofGate[gate]; !known {
				ofGate[gate] = int32(2 * len(f.gates))
				f.gates = append(f.gates, gate)
			}
		}
		if l.choice != 0 {
			n++
		}
		if l.circuit != nil {
			n++
			if _, known := ofCircuit[l.circuit]; !known {
				ofCircuit[l.circuit] = int32(len(f.circuits))
				f.circuits = append(f.circuits, l.circuit)
			}
		}
	}
	f.supplies = make([]supply, f.firstChoice()+len(d.choices))
	for i := range f.supplies {
		f.supplies[i].min = math.Inf(1)
	}
	uses := make([]use, 0, n)
	for i := range d.limited {
		l, first := &d.limited[i], len(uses)
		for _, gate := range l.set.Gates() {
			uses = append(uses, use{ofGate[gate], 1}, use{ofGate[gate] + 1, float64(l.cost)})
		}
		if l.circuit != nil {
			uses = append(uses, use{int32(2*len(f.gates)) + ofCircuit[l.circuit], 1})
		}
		if l.choice != 0 {
			uses = append(uses, use{int32(f.firstChoice() + l.choice - 1), 1})
		}
		f.filled[i] = filled{rate: float64(l.weight) / float64(l.cost), uses: uses[first:]}
		for _, u := range uses[first:] {
			s := &f.supplies[u.supply]
			s.users++
			s.min, s.max = min(s.min, u.unit), max(s.max, u.unit)
		}
	}
	for i := range f.filled {
		for _, u := range f.filled[i].uses {
			if s := &f.supplies[u.supply]; s.users > 1 {
				s.demands = append(s.demands, int32(i))
			}
		}
	}
	return f
}

// firstChoice is the index of the supply of the first of choices.
func (f *filling) firstChoice() int { return 2*len(f.gates) + len(f.circuits) }

// admitted returns how many of the limited messages the gates admit until a time.
func (f *filling) admitted(until int64) int64 {
	for i, gate := range f.gates {
		c := gate.Capacity(f.at, f.at, until)
		f.supplies[2*i].supply(c.Messages, 0)
		f.supplies[2*i+1].supply(c.Cost, float64(c.Burst))
	}
	for i, circuit := range f.circuits {
		f.supplies[2*len(f.gates)+i].supply(circuit.AdmitsBy(f.at, until), 0)
	}
	for i, n := range f.choices {
		f.supplies[f.firstChoice()+i].supply(n, 0)
	}
	for i := range f.filled {
		d := &f.filled[i]
		d.most, d.settled, f.order[i] = f.limited[i].most(f.at, until), false, int32(i)
		for _, u := range d.uses {
			s := &f.supplies[u.supply]
			if s.users == 1 { // nobody shares it
				d.most = min(d.most, s.left/u.unit)
				continue
			}
			s.rate += d.rate * u.unit
			s.active++
		}
	}
	f.fill()
	const almost = 1e-6 // what additions of parts of messages lose
	return int64(math.Floor(f.total + almost))
}

// most returns how many of the messages there are until a time, and if they are paused before
// how many of them their gates admit afterwards.
func (l *limitedDemand) most(now, until int64) float64 {
	switch {
	case l.from > until:
		return 0
	case l.from <= now:
		return float64(l.messages)
	}
	n := l.messages
	for _, gate := range l.set.Gates() {
		c := gate.Capacity(now, l.from, until)
		n = min(n, c.Messages, c.Cost/l.cost)
	}
	return float64(n)
}

// supply sets what the limit admits in all. A message that costs more than the burst needs a
// full bucket. If all messages cost the same, only whole ones are left.
func (s *supply) supply(n int64, burst float64) {
	s.rate, s.active = 0, 0
	switch s.left = float64(n); {
	case n == throttle.Unlimited:
		s.left = math.Inf(1)
		return
	case burst > 0 && s.left < min(s.min, burst):
		s.left = 0
	case burst > 0:
		s.left += max(s.max-burst, 0)
	}
	if s.min == s.max {
		s.left = math.Floor(s.left/s.min) * s.min
	}
}

// fill raises the level until all demands are settled.
func (f *filling) fill() {
	slices.SortFunc(f.order, func(a, b int32) int { return cmp.Compare(f.filled[a].full(), f.filled[b].full()) })
	f.shared, f.total = f.shared[:0], 0
	for i := range f.supplies {
		if s := &f.supplies[i]; s.users > 1 && !math.IsInf(s.left, 1) {
			s.level = s.usedUp()
			f.shared = append(f.shared, s)
		}
	}
	heap.Init(&f.shared)
	for _, i := range f.order {
		level := f.filled[i].full()
		for len(f.shared) > 0 && f.shared[0].level <= level {
			f.exhaust(f.shared[0])
		}
		f.settle(i, f.filled[i].most)
	}
}

// full is the level at which a demand has all its messages.
func (d *filled) full() float64 { return d.most / d.rate }

// usedUp is the level at which a supply is used up.
func (s *supply) usedUp() float64 {
	if s.active == 0 {
		return math.Inf(1)
	}
	return max(s.left, 0) / s.rate
}

// exhaust settles the demands on the first supply of the heap, unless it lasts longer than known
// last because other demands have been settled.
func (f *filling) exhaust(s *supply) {
	if level := s.usedUp(); level > s.level {
		s.level = level
		heap.Fix(&f.shared, 0)
		return
	}
	for _, i := range s.demands {
		f.settle(i, f.filled[i].rate*s.level)
	}
	heap.Pop(&f.shared)
}

// settle gives a demand its messages, unless it has them.
func (f *filling) settle(i int32, messages float64) {
	d := &f.filled[i]
	if d.settled {
		return
	}
	d.settled = true
	f.total += messages
	for _, u := range d.uses {
		s := &f.supplies[u.supply]
		s.active--
		s.left -= messages * u.unit
		s.rate -= d.rate * u.unit
	}
}

// supplyHeap is a heap by level.
type supplyHeap []*supply

func (h supplyHeap) Len() int           { return len(h) }
func (h supplyHeap) Less(i, j int) bool { return h[i].level < h[j].level }
func (h supplyHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *supplyHeap) Push(x any)        { *h = append(*h, x.(*supply)) }
func (h *supplyHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
