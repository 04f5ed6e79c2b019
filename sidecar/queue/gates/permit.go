package gates

import (
	"cmp"
	"fmt"
	"math"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/throttle"
)

// Permits are what a delivery holds of the gates that its message passed. They are
// returned when the lease ends.
type Permits struct {
	grant   throttle.Grant
	circuit breaker.Pass // 0: none
	route   uint8        // which way the message went
}

// Route is the number of the route by which the message went; 0 for nil permits.
func (p *Permits) Route() int {
	if p == nil {
		return 0
	}
	return int(p.route)
}

// obstacle is why a message is blocked, and by what: a throttle key, a circuit, or the pause
// of its key. ByNothing: it is not.
type obstacle struct {
	gate    *throttle.Gate
	circuit Circuit
	kind    BlockKind
	at      int64 // when to try again, as far as is known
	turn    bool  // the gate was not asked, since others wait for it
	bury    bool  // the message does not wait, but becomes a dead letter: see throttle.OnEmpty
}

// waitFor returns the list in which a message of a flow waits for an obstacle to go.
func (g *Gates) waitFor(o *obstacle, f drr.Flow) WaitID {
	switch {
	case o.gate != nil:
		return g.atThrottle(o.gate)
	case o.circuit != nil:
		return g.atCircuit(o.circuit)
	}
	return g.atPause(f)
}

// Admit takes the first message of a subqueue through its gates, all or none, or
// makes the subqueue wait. It returns nil permits for a bare subqueue. If empty is not nil, the
// message must not wait: the caller removes it and makes it a dead letter, since the budget
// of this throttle key is empty.
func (g *Gates) Admit(id ID, link, cost uint32, now int64) (p *Permits, ok bool, empty *throttle.Gate) {
	p, why := g.try(id, link, cost, now)
	switch {
	case why.kind == ByNothing:
		return p, true, nil
	case why.bury:
		return nil, false, why.gate
	}
	g.block(id, why, now)
	return nil, false, nil
}

func (g *Gates) try(id ID, link, cost uint32, now int64) (*Permits, obstacle) {
	sub := g.Subs.At(id)
	if until := g.backlog.KeyPaused(sub.Flow, now); until != 0 {
		g.cancelReservationOf(id) // a pause must not keep permits from others
		pause := obstacle{kind: ByPause, at: until}
		for i := range g.obstacles {
			g.obstacles[i] = pause
		}
		return nil, pause
	}
	if sub.bare() {
		return nil, obstacle{}
	}
	if sub.choice != nil {
		return g.tryRoutes(id, link, cost, now)
	}
	// A probe, or a redelivered message, does not queue behind the wait list.
	first := sub.probe.at != 0 || g.links.Stamp(link) < 0
	return g.tryRoute(id, 0, cost, first, first, now)
}

// tryRoute takes the first message of a subqueue through the gates of one route. first
// says that it does not queue behind others, reserve that it may make a reservation.
func (g *Gates) tryRoute(id ID, route int, cost uint32, first, reserve bool, now int64) (*Permits, obstacle) {
	sub := g.Subs.At(id)
	r := sub.RouteAt(route)
	var owner any
	if !first {
		owner = g.Owner
		if b := g.crowded(id, sub, r); b.kind != ByNothing {
			return nil, b
		}
	}
	if r.Circuit != nil {
		if n, at := r.Circuit.Admits(now); n <= 0 {
			g.cancelReservationAt(id, route) // nor must an open circuit
			return nil, obstacle{circuit: r.Circuit, kind: ByCircuit, at: at}
		}
	}
	grant, why, ok := g.acquire(id, route, cost, reserve, now, owner)
	if !ok {
		return nil, obstacle{gate: why.Gate, kind: BlockOf(why.Kind), at: why.At, bury: why.DeadLetter}
	}
	p := g.newPermits()
	p.grant = grant
	if r.Circuit != nil {
		var pending bool
		p.circuit, pending = r.Circuit.Allow(now)
		g.Out.Announce(r.Circuit, pending)
		if p.circuit == 0 {
			g.notifyWaiters(r.Set.Undo(&p.grant, now, g.wakes[:0]))
			g.freePermits(p)
			_, at := r.Circuit.Admits(now) // another queue was faster
			return nil, obstacle{circuit: r.Circuit, kind: ByCircuit, at: at}
		}
	}
	return p, obstacle{}
}

// crowded finds a gate of a route at which other subqueues of this queue wait: the
// subqueue goes behind them.
func (g *Gates) crowded(id ID, sub *Subqueue, r *Route) obstacle {
	waiting := func(at WaitID) bool {
		if at == 0 {
			return false
		}
		wl := &g.Waits.At(at).Waiters
		return wl.Len() > 1 || wl.Len() == 1 && !(sub.choice != nil && wl.Has(uint32(id)))
	}
	if r.Circuit != nil && len(g.Waits.byCircuit) > 0 {
		if at := g.Waits.byCircuit[r.Circuit]; waiting(at) {
			return obstacle{circuit: r.Circuit, kind: ByCircuit, at: math.MaxInt64, turn: true}
		}
	}
	if len(g.Waits.byGate) == 0 {
		return obstacle{}
	}
	for _, gate := range r.Set.Gates() {
		if at := g.Waits.byGate[gate]; waiting(at) {
			return obstacle{gate: gate, kind: ByTurn, at: math.MaxInt64, turn: true}
		}
	}
	return obstacle{}
}

func (g *Gates) newPermits() *Permits {
	if n := len(g.spare); n > 0 {
		p := g.spare[n-1]
		g.spare = g.spare[:n-1]
		return p
	}
	return new(Permits)
}

func (g *Gates) freePermits(p *Permits) {
	*p = Permits{}
	g.spare = append(g.spare, p)
}

// Adopt returns the permits of a delivery from before a restart, by a route: it counts as
// in flight there, and nothing else.
func (g *Gates) Adopt(id ID, route int) *Permits {
	p, sub := g.newPermits(), g.Subs.At(id)
	route = min(route, sub.Routes()-1)
	p.grant, p.route = sub.RouteAt(route).Set.Adopt(), uint8(route)
	return p
}

// Ending is how a delivery ended, for its gates.
type Ending struct {
	Outcome breaker.Outcome
	Failed  *FailedCall // of a failure; else nil
	Undo    bool        // nobody received the delivery
	Later   bool        // the failure is being judged: ReturnJudged tells the circuit
	Delta   int64       // how much more (thousandths) the message cost than estimated
	// Feedback is what the destination has said about its limit; nil: nothing. It counts after
	// Delta, since a refund would raise the bucket above it.
	Feedback *throttle.Feedback
}

// Permission is the permission of the circuit of a route, for a delivery whose failure is
// being judged. The zero value is none.
type Permission struct {
	pass  breaker.Pass // 0: the route has no circuit
	route uint8
}

// Route is the number of the route.
func (p Permission) Route() int { return int(p.route) }

// Return returns the permits of a delivery; nil is none. If the circuit is to be told
// later, Return returns its permission.
func (g *Gates) Return(p *Permits, id ID, e Ending, now int64) (later Permission) {
	if p == nil {
		return Permission{}
	}
	r := g.Subs.At(id).RouteAt(int(p.route))
	later.route = p.route
	if e.Outcome == breaker.Success && r.Set.Learns() {
		g.notifyWaiters(r.Set.Succeeded(&p.grant, e.Delta, now, g.wakes[:0]))
	}
	if e.Undo {
		g.notifyWaiters(r.Set.Undo(&p.grant, now, g.wakes[:0]))
	} else {
		g.notifyWaiters(r.Set.ReleaseCorrected(&p.grant, e.Delta, now, g.wakes[:0]))
	}
	if e.Feedback != nil {
		r.Set.Feedback(*e.Feedback, now)
	}
	switch pass := p.circuit; {
	case pass == 0:
	case e.Later:
		later.pass = pass
		r.Circuit.AwaitVerdict(pass, now)
	case e.Outcome == breaker.Failure:
		g.Out.Announce(r.Circuit, r.Circuit.Failed(pass, now, *e.Failed, false))
	default:
		g.Out.Announce(r.Circuit, r.Circuit.Done(pass, now, e.Outcome))
	}
	g.freePermits(p)
	return later
}

// ReturnJudged returns a permission whose delivery has been judged. f is the call if the
// outcome is a failure.
func (g *Gates) ReturnJudged(id ID, p Permission, o breaker.Outcome, f FailedCall, now int64) {
	if p.pass == 0 {
		return
	}
	c := g.Subs.At(id).RouteAt(int(p.route)).Circuit
	if o == breaker.Failure {
		g.Out.Announce(c, c.Failed(p.pass, now, f, true))
	} else {
		g.Out.Announce(c, c.Decided(p.pass, now, o))
	}
}

// RetryAfter opens the circuit of a route of subqueue id for everybody for d ns, as its
// destination asked.
func (g *Gates) RetryAfter(id ID, route int, d, now int64) {
	if d <= 0 || id == 0 {
		return
	}
	if c := g.Subs.At(id).RouteAt(route).Circuit; c != nil {
		g.Out.Announce(c, c.RetryAfter(now, now+d))
	}
}

// Overloaded cuts the limits of a route of subqueue id that learn, after the overload of a message that
// was delivered at a time (Unix ns; 0: not known). expired says that its lease has expired,
// instead of a failure with the code or the rule of call.
func (g *Gates) Overloaded(id ID, route int, delivered int64, call FailedCall, rule string, expired bool, now int64) {
	if id == 0 || delivered == 0 {
		return
	}
	set := g.Subs.At(id).RouteAt(route).Set
	if !set.Learns() {
		return
	}
	cause := cmp.Or(call.Code, rule, "overload")
	if expired {
		cause = "lease expired"
	}
	m := call.ID
	set.Overloaded(throttle.Overload{
		Delivered: delivered, Expired: expired, Cause: fmt.Sprintf("%s of message %x-%x-%x-%x-%x", cause, m[:4], m[4:6], m[6:8], m[8:10], m[10:]),
	}, now)
}

// reserveAfter is how long (ns) a subqueue with several throttle keys is blocked
// before it may collect its gates one by one. Otherwise subqueues with fewer keys
// would starve it. A reservation lasts at most as long as the subqueue has been blocked
// before: the missing gate may never open, and others wait for the collected ones. Afterwards
// the subqueue tries again when that gate opens, and collects it first. Each reservation may
// last longer than the one before.
const reserveAfter = int64(1e9)

// starving reports whether a subqueue has been blocked for long enough to reserve.
func (g *Gates) starving(sub *Subqueue, now int64) bool {
	return sub.Since != 0 && now-sub.Since > reserveAfter
}

// acquire takes the first message of a subqueue through the throttle keys of a route.
func (g *Gates) acquire(id ID, route int, cost uint32, reserve bool, now int64, owner any) (throttle.Grant, throttle.Block, bool) {
	sub := g.Subs.At(id)
	if !sub.reservedFor(route) {
		set := sub.RouteAt(route).Set
		grant, why, ok := set.Acquire(now, int64(cost), owner)
		starving := reserve && len(set.Gates()) > 1 && g.starving(sub, now)
		if ok || !starving || g.reserving != 0 || why.Kind == throttle.ByPause || why.DeadLetter {
			return grant, why, ok
		}
		r, got := g.Throttles.Reserve(set, int64(cost))
		if !got {
			return grant, why, false
		}
		sub.reserved, sub.cost, g.reserving = r, cost, id
		if sub.choice != nil {
			sub.choice.reserved = uint8(route)
		}
		g.reserveBy = now + now - sub.Since
	}
	grant, why, wakes := sub.reserved.Acquire(now, nil, g.wakes[:0])
	g.notifyWaiters(wakes)
	switch {
	case grant.Active():
		sub.reserved, g.reserving = nil, 0
	case why.Kind == throttle.ByPause:
		g.cancelReservationOf(id)
	}
	return grant, why, grant.Active()
}

// WatchReservation cancels the reservation if its time is over, or its message cannot be
// delivered: the process delivers nothing, or no consumer has had credit for a while. Busy
// consumers have none most of the time.
func (g *Gates) WatchReservation(credit, dispatching bool, now int64) {
	switch {
	case g.reserving == 0 || credit:
		g.noCredit = 0
	case g.noCredit == 0:
		g.noCredit = now
	}
	if g.reserving != 0 && (!dispatching || now >= g.Next()) {
		g.noCredit = 0
		g.CancelReservation()
	}
}

// Next is when WatchReservation is due; math.MaxInt64 is never.
func (g *Gates) Next() int64 {
	switch {
	case g.reserving == 0:
		return math.MaxInt64
	case g.noCredit != 0:
		return min(g.reserveBy, g.noCredit+reserveAfter)
	}
	return g.reserveBy
}

// CancelReservation returns what a subqueue has collected, if one has a reservation.
func (g *Gates) CancelReservation() {
	if g.reserving == 0 {
		return
	}
	sub := g.Subs.At(g.reserving)
	g.reserving = 0
	r := sub.reserved
	sub.reserved = nil
	g.notifyWaiters(r.Cancel(g.Now, g.wakes[:0]))
}

func (g *Gates) cancelReservationOf(id ID) {
	if g.reserving == id {
		g.CancelReservation()
	}
}

// cancelReservationAt cancels the reservation if it is for this route of subqueue id.
func (g *Gates) cancelReservationAt(id ID, route int) {
	if g.reserving == id && g.Subs.At(id).reservedFor(route) {
		g.CancelReservation()
	}
}

// reservedFor reports whether the subqueue has a reservation for a route.
func (sub *Subqueue) reservedFor(route int) bool {
	return sub.reserved != nil && (sub.choice == nil || int(sub.choice.reserved) == route)
}

// Check asks the throttle keys of a route of a subqueue whether they would admit a message
// of that cost now. A route with a reservation asks for what it has collected.
func (sub *Subqueue) Check(route int, cost, now int64) (throttle.Block, bool) {
	if sub.reservedFor(route) {
		return sub.reserved.Check(now)
	}
	return sub.RouteAt(route).Set.Check(now, cost, nil)
}

// Reserved reports whether the subqueue has a reservation.
func (sub *Subqueue) Reserved() bool { return sub.reserved != nil }
