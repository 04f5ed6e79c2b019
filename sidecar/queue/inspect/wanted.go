package inspect

import (
	"math"

	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// Wanted is how many messages could be worked on within each of wire.WantedHorizons: messages in
// flight, and messages that wait as far as their gates admit them, if consumers had credit
// without end and no message in flight ended. It is never more than both together.
//
// It differs from the backlog where gates limit what consumers can do: of a million messages
// behind concurrency = 5, five are wanted. The gates are read as if this queue used them alone.
type Wanted [len(wire.WantedHorizons)]int64

// Bounds of a reading.
const (
	// wantedStep bounds the flows and subqueues that one call of ReadDemand reads.
	wantedStep = 1024
	// costSample is how many messages of a subqueue say what its messages cost.
	costSample = 16
)

// Demand is what Wanted is computed from. ReadDemand reads it between steps of the queue, in
// bounded pieces; Wanted needs the queue no more. Messages that move in the queue meanwhile may
// be missed or counted twice.
type Demand struct {
	next     int // flows read, and then subqueues
	at       int64
	pending  int64
	inFlight int64
	free     int64 // messages that nothing limits
	limited  []limitedDemand
	choices  []int64 // how many messages go by one route each
}

// limitedDemand is messages of a flow that pass the same gates. Messages with several routes
// have one for each.
type limitedDemand struct {
	set      *throttle.Set
	circuit  gates.Circuit // nil: none
	choice   int           // index of the messages in Demand.choices + 1; 0: they have one route
	from     int64         // when their pause ends
	messages int64
	weight   int64 // of the flow, thousandths
	cost     int64 // of one, thousandths
}

// Reset prepares for another reading, of any queue.
func (d *Demand) Reset() { *d = Demand{limited: d.limited[:0], choices: d.choices[:0]} }

// ReadDemand reads the next piece, and reports whether there are more.
func (r *Reader) ReadDemand(d *Demand, now int64) (more bool) {
	flows, subs := r.t.Keys.Entries, r.g.Subs.Items
	all := len(flows) + len(subs)
	if r.t.Order.On {
		all = len(flows)
	}
	last := min(d.next+wantedStep, all)
	for ; d.next < last; d.next++ {
		switch f := drr.Flow(d.next); {
		case d.next >= len(flows):
			sub := &subs[d.next-len(flows)]
			r.demand(d, sub.Flow, sub, int64(r.t.Links.Count(&sub.List)), now)
		case r.t.Order.On:
			r.demandInOrder(d, f, now)
		default:
			r.demand(d, f, nil, int64(r.t.Links.Count(&flows[f].Flow.Plain)), now)
		}
	}
	d.at, d.pending, d.inFlight = now, r.t.Links.Len(), int64(r.t.Leases.Live)
	return d.next < all
}

// demand adds n messages of a flow, in a subqueue or, if that is nil, without gates.
func (r *Reader) demand(d *Demand, f drr.Flow, sub *gates.Subqueue, n, now int64) {
	if n == 0 {
		return
	}
	l := limitedDemand{messages: n, cost: throttle.One, weight: r.t.Weight(f)}
	if p := &r.t.Pauses; p.Until > now {
		l.from = p.Until
	}
	if p := r.t.Pauses.Keys; len(p) > 0 && p[r.t.Name(f)] > now {
		l.from = max(l.from, p[r.t.Name(f)])
	}
	routes := 1
	if sub != nil {
		l.cost, routes = r.costOf(sub), sub.Routes()
	}
	if routes > 1 {
		d.choices = append(d.choices, n)
		l.choice = len(d.choices)
	}
	before := len(d.limited)
	for i := range routes {
		if sub != nil {
			l.set, l.circuit = sub.RouteAt(i).Set, sub.RouteAt(i).Circuit
		}
		if l.set == nil && l.circuit == nil && l.from == 0 {
			d.free += n
			d.limited = d.limited[:before]
			return
		}
		d.limited = append(d.limited, l)
	}
}

// costOf returns the mean cost of the first messages of a subqueue.
func (r *Reader) costOf(sub *gates.Subqueue) int64 {
	n := min(int64(r.t.Links.Count(&sub.List)), costSample)
	if n == 0 || r.t.Costly == 0 {
		return throttle.One
	}
	var sum int64
	walk := r.t.Links.Walk(&sub.List)
	for range n {
		sum += r.t.Cost(walk.First())
		walk.Next()
	}
	return sum / n
}

// demandInOrder adds the message of a flow that its order admits next, if no other one of the
// flow is in flight. With on_blocked = "skip" several may be next; then it is one without gates,
// if there is one.
func (r *Reader) demandInOrder(d *Demand, f drr.Flow, now int64) {
	if r.t.KeyTaken(f) {
		return
	}
	o := r.t.Order.Keys[f]
	if r.t.Links.Count(&r.t.Flow(f).Plain) > 0 || r.t.Order.Skip && o != nil && o.Plain > 0 {
		r.demand(d, f, nil, 1, now)
		return
	}
	for sub := range r.g.Subs.Of(f) {
		if r.t.Links.Count(&sub.List) > 0 {
			r.demand(d, f, sub, 1, now)
			return
		}
	}
	if o == nil || o.Waiting.Len() == 0 {
		return
	}
	var sub *gates.Subqueue
	if id := r.t.Slots.Get(r.t.Links.Seq(o.Waiting.Head())).Sub; id != 0 {
		sub = r.g.Subs.At(id)
	}
	r.demand(d, f, sub, 1, now)
}

// Wanted computes the result. It asks the gates, which have locks of their own.
func (d *Demand) Wanted() (w Wanted) {
	f := d.filling()
	for i, h := range wire.WantedHorizons {
		w[i] = min(d.inFlight+d.free+f.admitted(d.at+int64(h)), d.inFlight+d.pending)
	}
	return w
}

// MeanAttempt is how long (ns) the deliveries took that ended lately; 0: none has.
func (r *Reader) MeanAttempt(now int64) int64 {
	w := &r.monitor.work
	waits := w.lastWaits([2]*Waits{&w.waits[0], &w.waits[1]}, now)
	n := int64(0)
	for _, c := range waits.Count {
		n += int64(c)
	}
	return w.total(now) / max(n, 1)
}

// Pending counts the messages that wait, and the messages in flight.
func (r *Reader) Pending() (pending, inFlight int64) {
	return r.t.Links.Len(), int64(r.t.Leases.Live)
}

// WantedMeter smooths Wanted: it rises at once and falls exponentially, since a worker that is
// missing delays messages and a worker too many for half a minute costs little. Otherwise a
// queue whose gate opens in bursts would start and stop workers with each burst.
type WantedMeter struct {
	at     int64 // of the last reading; 0: none
	values [len(wire.WantedHorizons)]float64
}

// wantedFall is the time (ns) in which a value falls by 63 % of a drop.
const wantedFall = 30e9

// Add adds a reading.
func (m *WantedMeter) Add(w Wanted, now int64) {
	rest := 0.
	if m.at != 0 {
		rest = math.Exp(-float64(max(now-m.at, 0)) / wantedFall)
	}
	for i := range w {
		v := float64(w[i])
		m.values[i] = max(v, v+(m.values[i]-v)*rest)
	}
	m.at = now
}

// Wanted returns the smoothed value for a horizon by its index, of a queue with these messages
// now: at least what is in flight, and at most what there is.
func (m *WantedMeter) Wanted(horizon int, pending, inFlight int64) int64 {
	const almost = 1e-6 // a value that falls towards a whole number reaches it
	v := int64(math.Ceil(m.values[horizon] - almost))
	return min(max(v, inFlight), pending+inFlight)
}
