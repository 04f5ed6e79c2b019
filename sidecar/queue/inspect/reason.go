package inspect

import (
	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/throttle"
)

// WaitReason is why a message that is ready has not been delivered: the first of these
// that applies, in this order.
//
//  1. a pause of its queue, or of its key
//  2. a gate that is shut: its circuit, then its throttle keys. With several routes, the
//     gate that opens first as far as is known, if one is shut on each of them
//  3. the order of its key
//  4. no consumer
//  5. no consumer with credit
//  6. its turn: others have waited longer at a gate (ByTurn), or are before it in the
//     schedule (ByNothing)
//
// The gates are read at the time of the request. The queue itself only keeps what a
// message found when it last tried, and while no consumer has credit none tries.
type WaitReason struct {
	By gates.BlockKind
	At gates.Place
	// DeadLetter says that the message does not wait for the gate, but becomes a dead letter when its turn
	// comes; see throttle.OnEmpty.
	DeadLetter bool
	// Unbooked says that it waits for a commit alone, which gives it its part of a budget.
	Unbooked bool
}

// Blocks reports whether the message is blocked, and not just waiting for a consumer
// or for its turn in the schedule.
func (w WaitReason) Blocks() bool { return w.By != gates.ByNothing && w.By < gates.BlockKinds }

// evaluator evaluates wait reasons for one request.
type evaluator struct {
	*Reader
	now   int64
	ready gates.BlockKind      // what messages wait for that nothing blocks
	known map[gatesOf]shutGate // answers of gates, up to maxKnown
}

// maxKnown bounds the answers of gates that are remembered. If there are more, few
// subqueues share one, and asking again costs less than remembering.
const maxKnown = 256

// gatesOf is what subqueues with the same gates have in common.
type gatesOf struct {
	set     *throttle.Set
	circuit gates.Circuit
	cost    int64
}

// shutGate is a gate that is shut, or ByNothing, and when it opens as far as is known.
type shutGate struct {
	WaitReason
	opens int64 // Unix ns; math.MaxInt64: not known
}

func (r *Reader) evaluator(now int64) *evaluator {
	e := &evaluator{Reader: r, now: now}
	switch {
	case r.consumers() == 0:
		e.ready = gates.ByNoConsumer
	case !r.t.Consumers.HasCredit():
		e.ready = gates.ByNoCredit
	}
	return e
}

// reason is the one place that decides what messages wait for: the messages of a flow in the list
// of sub, or in the plain list if it is nil. With ordered it decides for the ones that wait for
// their predecessors.
func (e *evaluator) reason(f drr.Flow, sub *gates.Subqueue, ordered bool) WaitReason {
	if w := e.paused(f); w.By != gates.ByNothing {
		return w
	}
	open := 0
	if sub != nil {
		var w WaitReason
		if w, open = e.gates(sub); w.By != gates.ByNothing {
			return w
		}
	}
	switch {
	case ordered || e.t.KeyTaken(f):
		return WaitReason{By: gates.ByOrder}
	case e.ready != gates.ByNothing:
		return WaitReason{By: e.ready}
	case sub != nil && sub.Wait != 0 && !e.g.Eligible(sub):
		if at := e.place(e.g.Root(sub.RouteAt(open).Wait)); !at.Paused {
			return WaitReason{By: gates.ByTurn, At: at}
		}
	}
	return WaitReason{}
}

// paused is the pause of the queue, or of a key.
func (e *evaluator) paused(f drr.Flow) (w WaitReason) {
	p := &e.t.Pauses
	if p.Until > e.now {
		return WaitReason{By: gates.ByPause, At: gates.Place{Paused: true, Queue: true, Until: p.Until}}
	}
	if len(p.Keys) > 0 {
		if until := p.Keys[e.t.Name(f)]; until > e.now {
			return WaitReason{By: gates.ByPause, At: gates.Place{Paused: true, Until: until}}
		}
	}
	return w
}

// gates asks the gates of a subqueue whether they would admit its first message, by any
// route. It returns what does not, or else the route that is open.
func (e *evaluator) gates(sub *gates.Subqueue) (w WaitReason, open int) {
	var first shutGate
	dead := true
	for i := range sub.Routes() {
		s := e.route(sub, i)
		if s.By == gates.ByNothing {
			return WaitReason{}, i
		}
		dead = dead && s.DeadLetter
		if i == 0 || s.opens < first.opens {
			first = s
		}
	}
	first.DeadLetter = dead
	return first.WaitReason, 0
}

// route asks the gates of one route of a subqueue. If all its messages wait for their
// predecessors, it asks whether they would admit anything: which message comes first, and
// what that costs, is not known.
func (e *evaluator) route(sub *gates.Subqueue, i int) (w shutGate) {
	r := sub.RouteAt(i)
	if r.Set == nil && r.Circuit == nil {
		return w
	}
	k := gatesOf{r.Set, r.Circuit, throttle.One}
	switch head := e.t.Links.First(&sub.List); {
	case head != 0:
		k.cost = e.t.Cost(head)
	case e.t.Costly > 0:
		k.cost = 1
	}
	known := false
	if !sub.Reserved() { // what a reservation has collected is shut for others alone
		w, known = e.known[k]
	}
	if !known {
		w = e.ask(sub, i, k.cost)
		if e.known == nil {
			e.known = make(map[gatesOf]shutGate)
		}
		if len(e.known) < maxKnown && !sub.Reserved() {
			e.known[k] = w
		}
	}
	if w.By == gates.ByNothing && k.cost < throttle.One && sub.Wait != 0 && !e.g.Eligible(sub) {
		// A waiting message that costs less than 1 tries when its gate admits a cost of 1.
		if gate := e.g.Waits.At(e.g.Root(r.Wait)).Gate(); gate != nil {
			if i := gate.Info(e.now); i.Kind != throttle.Open {
				return shutGate{WaitReason{By: gates.BlockOf(i.Kind), At: gates.Place{Throttle: gate}}, i.At}
			}
		}
	}
	return w
}

// ask asks the circuit of a route, and then its throttle keys.
func (e *evaluator) ask(sub *gates.Subqueue, route int, cost int64) (w shutGate) {
	if c := sub.RouteAt(route).Circuit; c != nil {
		if n, at := c.Peek(e.now); n <= 0 {
			return shutGate{WaitReason{By: gates.ByCircuit, At: gates.Place{Circuit: c}}, at}
		}
	}
	if b, ok := sub.Check(route, cost, e.now); !ok {
		return shutGate{WaitReason{By: gates.BlockOf(b.Kind), At: gates.Place{Throttle: b.Gate}, DeadLetter: b.DeadLetter, Unbooked: b.Unbooked}, b.At}
	}
	return w
}
