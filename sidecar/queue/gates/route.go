package gates

import (
	"slices"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
)

// A message may have several routes, each with gates of its own, and goes by one that
// admits it: by the first in its order, or in the order of a draw by weight. A blocked
// subqueue with routes waits for all of them at once: in the wait list of one gate of
// each, the one that blocked its first message there.
//
//   - Whichever of these gates opens first lets the message probe. The probe may pass
//     that gate before others that wait there, because its turn has come. At the gates of
//     other routes it has no such right: it passes them only if nobody else waits there.
//   - While its first message probes one gate, the subqueue is in no other line: the
//     ones behind it there must not wait for it, however long this route stays open. It
//     joins these lines again, at their end, when the probe is over. So it never waits
//     longer than one that has only the route by which it goes in the end.
//   - The delivery holds permits of one route. Its outcome counts there and nowhere else.
//   - Only one route at a time has a reservation, as every subqueue has (see reserveAfter):
//     the first in the order of the message that has several throttle keys and is blocked
//     by one of them. If the reservation does not let the message go, the other routes are
//     tried without it, and it is made anew: they may share a throttle key with it.

// Route is a way through gates, and where the subqueue waits for it.
type Route struct {
	Set     *throttle.Set // throttle keys; nil: none
	Circuit Circuit       // nil: none
	Wait    WaitID        // the list where the subqueue waits for this route; 0: nowhere. A blocked one waits for all routes
}

// choice is what only subqueues with several routes have.
type choice struct {
	more     []Route // the routes behind the first
	names    []string
	weights  []uint32 // thousandths; nil: the routes are tried in their order
	reserved uint8    // the route of Subqueue.reserved
}

// HasChoice reports whether the messages of a subqueue name routes.
func (sub *Subqueue) HasChoice() bool { return sub.choice != nil }

// Routes is how many routes a subqueue has; one, if its messages have no choice.
func (sub *Subqueue) Routes() int {
	if sub.choice == nil {
		return 1
	}
	return 1 + len(sub.choice.more)
}

// RouteAt returns a route by its number, from 0.
func (sub *Subqueue) RouteAt(i int) *Route {
	if i == 0 {
		return &sub.Route
	}
	return &sub.choice.more[i-1]
}

// RouteName is the name of a route; empty if messages have no choice.
func (sub *Subqueue) RouteName(i int) string {
	if sub.choice == nil {
		return ""
	}
	return sub.choice.names[i]
}

// RouteWeight is the weight of a route in thousandths; 0: routes are tried in their order.
func (sub *Subqueue) RouteWeight(i int) uint32 {
	if sub.choice == nil || sub.choice.weights == nil {
		return 0
	}
	return sub.choice.weights[i]
}

// passesGate reports whether the route has the gate of a wait list.
func (r *Route) passesGate(wl *WaitList) bool {
	switch wl.kind {
	case waitThrottle:
		return slices.Contains(r.Set.Gates(), wl.gate)
	case waitCircuit:
		return r.Circuit == wl.circuit
	}
	return true
}

// routeList is the numbers of routes.
type routeList [store.MaxRoutes]uint8

// order returns the numbers of the routes of a subqueue in the order in which the message
// at link tries them. Without weights it is their own order; with weights each place is
// drawn among the rest in proportion to them. The draw is the same for all tries of an
// attempt: a message that waits does not change its mind.
func (g *Gates) order(sub *Subqueue, link uint32) (order routeList) {
	n := sub.Routes()
	for i := range n {
		order[i] = uint8(i)
	}
	weights := sub.choice.weights
	if weights == nil {
		return order
	}
	total := uint64(0)
	for _, w := range weights {
		total += uint64(w)
	}
	draw := mix(g.backlog.Draw(link))
	for at := range n - 1 {
		left := draw % total
		draw = mix(draw)
		i := at
		for ; left >= uint64(weights[order[i]]); i++ {
			left -= uint64(weights[order[i]])
		}
		order[at], order[i] = order[i], order[at]
		total -= uint64(weights[order[at]])
	}
	return order
}

// Order returns the numbers of the routes of a subqueue in the order in which the message at
// link tries them.
func (g *Gates) Order(id ID, link uint32) []uint8 {
	sub := g.Subs.At(id)
	if sub.choice == nil {
		return onlyRoute
	}
	order := g.order(sub, link)
	return order[:sub.Routes()]
}

var onlyRoute = []uint8{0}

// Passes reports whether a message that goes by the route passes the gate of a place.
func (r *Route) Passes(at Place) bool {
	if at.Circuit != nil {
		return r.Circuit == at.Circuit
	}
	return slices.Contains(r.Set.Gates(), at.Throttle)
}

// mix is the finaliser of SplitMix64, after a step of it.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// tryRoutes takes the first message of a subqueue with several routes through the gates of
// one of them. If all are blocked, g.obstacles says by what, by the number of the route.
func (g *Gates) tryRoutes(id ID, link, cost uint32, now int64) (*Permits, obstacle) {
	sub := g.Subs.At(id)
	order := g.order(sub, link)
	inOrder := order[:sub.Routes()]
	until := int64(0)
	if sub.reserved != nil {
		i := int(sub.choice.reserved)
		if p, why := g.tryRoute(id, i, cost, true, false, now); why.kind == ByNothing {
			return g.passed(id, i, cost, p), obstacle{}
		}
		until = g.reserveBy
		g.cancelReservationOf(id)
	}
	starving := g.starving(sub, now)
	for _, i := range inOrder {
		first := g.links.Stamp(link) < 0 || sub.probe.at != 0 && sub.RouteAt(int(i)).passesGate(g.Waits.At(sub.probe.at))
		p, why := g.tryRoute(id, int(i), cost, first, false, now)
		if why.kind == ByNothing {
			return g.passed(id, int(i), cost, p), obstacle{}
		}
		g.obstacles[i] = why
	}
	if empty := g.allBury(sub, cost, now); empty != nil {
		return nil, obstacle{gate: empty, kind: ByBudget, bury: true}
	}
	for _, i := range inOrder {
		if kind := g.obstacles[i].kind; !starving || g.reserving != 0 || kind == ByTurn || kind == ByCircuit || kind == ByPause {
			continue
		}
		p, why := g.tryRoute(id, int(i), cost, true, true, now)
		if why.kind == ByNothing {
			return g.passed(id, int(i), cost, p), obstacle{}
		}
		if g.obstacles[i] = why; g.reserving == id && until != 0 {
			g.reserveBy = until
		}
	}
	why := g.obstacles[0]
	why.bury = false
	return nil, why
}

// allBury returns the throttle key of the first route whose budget is empty, if every route makes the
// first message of a subqueue a dead letter, and otherwise nil. It asks the gates where others wait,
// too: the message must not wait for its turn there.
func (g *Gates) allBury(sub *Subqueue, cost uint32, now int64) (empty *throttle.Gate) {
	for i := range sub.Routes() {
		o := g.obstacles[i]
		if o.turn && o.gate != nil {
			block, _ := sub.RouteAt(i).Set.Check(now, int64(cost), nil)
			o.gate, o.bury = block.Gate, block.DeadLetter
		}
		if !o.bury {
			return nil
		}
		if i == 0 {
			empty = o.gate
		}
	}
	return empty
}

// passed notes by which route the first message of a subqueue goes. A reservation for
// another route is over, and if another gate was probed, its line has charged the message
// for nothing.
func (g *Gates) passed(id ID, route int, cost uint32, p *Permits) *Permits {
	g.cancelReservationOf(id)
	p.route = uint8(route)
	sub := g.Subs.At(id)
	if at := sub.probe.at; at != 0 && !sub.probe.prepaid {
		if wl := g.Waits.At(at); !sub.RouteAt(route).passesGate(wl) {
			waits := wl.Waiters.Has(uint32(id))
			wl.Waiters.PutBack(sub.Flow, g.backlog.Weight(sub.Flow), uint32(id), int64(cost))
			if waits {
				wl.Waiters.SetCost(uint32(id), g.backlog.Cost(g.links.Second(&sub.List)))
			} else {
				wl.Waiters.Remove(sub.Flow, uint32(id))
			}
		}
	}
	return p
}

// lists returns the wait lists of a subqueue, each once.
func (sub *Subqueue) lists() (list [store.MaxRoutes]WaitID, n int) {
	for i := range sub.Routes() {
		if w := sub.RouteAt(i).Wait; w != 0 && !slices.Contains(list[:n], w) {
			list[n] = w
			n++
		}
	}
	return list, n
}

// waitsAt reports whether a subqueue waits in a wait list, for any route.
func (sub *Subqueue) waitsAt(id WaitID) bool {
	for i := range sub.Routes() {
		if sub.RouteAt(i).Wait == id {
			return true
		}
	}
	return false
}

// reservedAt is the list where a subqueue waits for what its reservation misses.
func (sub *Subqueue) reservedAt() WaitID {
	if sub.choice == nil {
		return sub.Wait
	}
	return sub.RouteAt(int(sub.choice.reserved)).Wait
}

// leaveLine takes a subqueue out of the line of a wait list, where others may be the first
// now.
func (g *Gates) leaveLine(id ID, sub *Subqueue, at WaitID) {
	wl := g.Waits.At(at)
	first, _, _ := wl.Waiters.Peek()
	if !wl.Waiters.Remove(sub.Flow, uint32(id)) {
		return
	}
	if first == uint32(id) {
		wl.notBefore = 0
	}
	g.recheckLater(at)
}

// stepAside takes a subqueue whose first message probes a gate out of all other lines.
func (g *Gates) stepAside(id ID, sub *Subqueue) {
	list, n := sub.lists()
	for _, w := range list[:n] {
		if w != sub.probe.at {
			g.Waits.At(w).aside++
			g.leaveLine(id, sub, w)
		}
	}
}

// stepBack puts a subqueue whose probe of a gate is over into the other lines again, with
// the message at link as its first.
func (g *Gates) stepBack(id ID, sub *Subqueue, probed WaitID, link uint32) {
	list, n := sub.lists()
	for _, w := range list[:n] {
		if w != probed {
			wl := g.Waits.At(w)
			wl.aside--
			wl.Waiters.Add(sub.Flow, g.backlog.Weight(sub.Flow), uint32(id), g.backlog.Cost(link))
			wl.noteGates(sub)
			g.recheckLater(w)
		}
	}
}

// stopWaiting takes a subqueue with several routes, of which nothing is blocked any more,
// out of its wait lists.
func (g *Gates) stopWaiting(id ID, sub *Subqueue) {
	list, n := sub.lists()
	for _, w := range list[:n] {
		if sub.probe.at != 0 && w != sub.probe.at {
			g.Waits.At(w).aside--
			g.recheckLater(w)
		} else {
			g.leaveLine(id, sub, w)
		}
	}
	for i := range sub.Routes() {
		sub.RouteAt(i).Wait = 0
	}
}

// recheckWaits rechecks all lists where a subqueue waits. now is set if a recheck that was
// expected later is to be made, too.
func (g *Gates) recheckWaits(sub *Subqueue, now bool) {
	for i := range sub.Routes() {
		switch w := sub.RouteAt(i).Wait; {
		case w == 0:
		case now:
			g.recheckNow(w)
		default:
			g.recheckLater(w)
		}
	}
}

// joinRoutes puts a subqueue into the wait lists of g.obstacles. gate is the one that its
// first message has probed; 0: none.
func (g *Gates) joinRoutes(id ID, sub *Subqueue, gate WaitID, prepaid bool) {
	weight, cost := g.backlog.Weight(sub.Flow), g.backlog.Cost(g.links.First(&sub.List))
	g.count(sub, -sub.Counted)
	old, n := sub.lists()
	if gate != 0 {
		for _, w := range old[:n] {
			if w != gate {
				g.Waits.At(w).aside--
			}
		}
		if wl := &g.Waits.At(gate).Waiters; !prepaid {
			wl.PutBack(sub.Flow, weight, uint32(id), cost) // it has not gone after all
		} else if !wl.Has(uint32(id)) {
			wl.Add(sub.Flow, weight, uint32(id), cost)
		}
	}
	for i := range sub.Routes() {
		at := g.waitFor(&g.obstacles[i], sub.Flow)
		sub.RouteAt(i).Wait = at
		if wl := g.Waits.At(at); wl.Waiters.Has(uint32(id)) {
			wl.Waiters.SetCost(uint32(id), cost)
		} else {
			wl.Waiters.Add(sub.Flow, weight, uint32(id), cost)
		}
		g.Waits.At(at).noteGates(sub)
		g.recheckLater(at) // a recheck may have stopped at this subqueue while it tried
	}
	for i := range sub.Routes() { // the gates have been asked for this message: they need not be asked again before
		o := &g.obstacles[i]
		if wl := g.Waits.At(sub.RouteAt(i).Wait); wl.kind == waitThrottle && !o.turn {
			if first, _, _ := wl.Waiters.Peek(); first == uint32(id) {
				wl.notBefore = o.at
			}
		}
	}
	for _, w := range append(old[:n:n], gate) {
		if w != 0 && !sub.waitsAt(w) {
			g.leaveLine(id, sub, w)
			g.recheckLater(w)
		}
	}
	sub.Kind = g.obstacles[0].kind
}
