package gates

import (
	"cmp"
	"fmt"
	"math"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/throttle"
)

// Permits are what a delivery holds of the gates that its message passed. They are
// returned when the lease ends.
type Permits struct {
	grant   throttle.Grant
	circuit breaker.Pass // 0: none
}

// obstacle is why a message is blocked, and where it waits.
type obstacle struct {
	wait WaitID
	kind BlockKind
	at   int64 // when to try again, as far as is known
}

// Admit takes the first message of a subqueue through its gates, all or none, or
// makes the subqueue wait. It returns nil permits for a bare subqueue.
func (g *Gates) Admit(id ID, link, cost uint32, now int64) (*Permits, bool) {
	p, why := g.try(id, link, cost, now)
	if why.wait != 0 {
		g.block(id, why, now)
		return nil, false
	}
	return p, true
}

func (g *Gates) try(id ID, link, cost uint32, now int64) (*Permits, obstacle) {
	sub := g.Subs.At(id)
	if until := g.backlog.KeyPaused(sub.Flow, now); until != 0 {
		g.cancelReservationOf(id) // a pause must not keep permits from others
		return nil, obstacle{wait: g.atPause(sub.Flow), kind: ByPause, at: until}
	}
	if sub.bare() {
		return nil, obstacle{}
	}
	// A probe, or a redelivered message, does not queue behind the wait list.
	first := sub.probe.at != 0 || g.links.Stamp(link) < 0
	var owner any
	if !first {
		owner = g.Owner
		if b := g.crowded(sub); b.wait != 0 {
			return nil, b
		}
	}
	if sub.Circuit != nil {
		if n, at := sub.Circuit.Admits(now); n <= 0 {
			g.cancelReservationOf(id) // nor must an open circuit
			return nil, obstacle{wait: g.atCircuit(sub.Circuit), kind: ByCircuit, at: at}
		}
	}
	grant, why, ok := g.acquire(id, cost, first, now, owner)
	if !ok {
		return nil, obstacle{wait: g.atThrottle(why.Gate), kind: BlockOf(why.Kind), at: why.At}
	}
	p := g.newPermits()
	p.grant = grant
	if sub.Circuit != nil {
		var pending bool
		p.circuit, pending = sub.Circuit.Allow(now)
		g.Out.Announce(sub.Circuit, pending)
		if p.circuit == 0 {
			g.notifyWaiters(sub.Set.Undo(&p.grant, now, g.wakes[:0]))
			g.freePermits(p)
			_, at := sub.Circuit.Admits(now) // another queue was faster
			return nil, obstacle{wait: g.atCircuit(sub.Circuit), kind: ByCircuit, at: at}
		}
	}
	return p, obstacle{}
}

// crowded finds a gate at which other subqueues of this queue wait: the subqueue
// goes behind them.
func (g *Gates) crowded(sub *Subqueue) obstacle {
	waiting := func(id WaitID) bool { return id != 0 && g.Waits.At(id).Waiters.Len() > 0 }
	if sub.Circuit != nil && len(g.Waits.byCircuit) > 0 {
		if id := g.Waits.byCircuit[sub.Circuit]; waiting(id) {
			return obstacle{wait: id, kind: ByCircuit, at: math.MaxInt64}
		}
	}
	if len(g.Waits.byGate) == 0 {
		return obstacle{}
	}
	for _, gate := range sub.Set.Gates() {
		if id := g.Waits.byGate[gate]; waiting(id) {
			return obstacle{wait: id, kind: ByTurn, at: math.MaxInt64}
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

// Adopt returns the permits of a delivery from before a restart: it counts as in
// flight, and nothing else.
func (g *Gates) Adopt(id ID) *Permits {
	p := g.newPermits()
	p.grant = g.Subs.At(id).Set.Adopt()
	return p
}

// Ending is how a delivery ended, for its gates.
type Ending struct {
	Outcome breaker.Outcome
	Failed  *FailedCall // of a failure; else nil
	Undo    bool        // nobody received the delivery
	Later   bool        // the failure is being judged: ReturnJudged tells the circuit
	Delta   int64       // how much more (thousandths) the message cost than estimated
}

// Return returns the permits of a delivery; nil is none. If the circuit is to be told
// later, Return returns its permission.
func (g *Gates) Return(p *Permits, id ID, e Ending, now int64) (later breaker.Pass) {
	if p == nil {
		return 0
	}
	sub := g.Subs.At(id)
	if e.Outcome == breaker.Success && sub.Set.Learns() {
		g.notifyWaiters(sub.Set.Succeeded(&p.grant, now, g.wakes[:0]))
	}
	if e.Undo {
		g.notifyWaiters(sub.Set.Undo(&p.grant, now, g.wakes[:0]))
	} else {
		g.notifyWaiters(sub.Set.ReleaseCorrected(&p.grant, e.Delta, now, g.wakes[:0]))
	}
	switch pass := p.circuit; {
	case pass == 0:
	case e.Later:
		later = pass
		sub.Circuit.AwaitVerdict(pass, now)
	case e.Outcome == breaker.Failure:
		g.Out.Announce(sub.Circuit, sub.Circuit.Failed(pass, now, *e.Failed, false))
	default:
		g.Out.Announce(sub.Circuit, sub.Circuit.Done(pass, now, e.Outcome))
	}
	g.freePermits(p)
	return later
}

// ReturnJudged returns a permission whose delivery has been judged; 0 is none. f is the call if
// the outcome is a failure.
func (g *Gates) ReturnJudged(id ID, pass breaker.Pass, o breaker.Outcome, f FailedCall, now int64) {
	if pass == 0 {
		return
	}
	c := g.Subs.At(id).Circuit
	if o == breaker.Failure {
		g.Out.Announce(c, c.Failed(pass, now, f, true))
	} else {
		g.Out.Announce(c, c.Decided(pass, now, o))
	}
}

// RetryAfter opens the circuit of subqueue id for everybody for d ns, as its
// destination asked.
func (g *Gates) RetryAfter(id ID, d, now int64) {
	if d <= 0 || id == 0 {
		return
	}
	if c := g.Subs.At(id).Circuit; c != nil {
		g.Out.Announce(c, c.RetryAfter(now, now+d))
	}
}

// Overloaded cuts the limits of subqueue id that learn, after the overload of a message that
// was delivered at a time (Unix ns; 0: not known). expired says that its lease has expired,
// instead of a failure with the code or the rule of call.
func (g *Gates) Overloaded(id ID, delivered int64, call FailedCall, rule string, expired bool, now int64) {
	if id == 0 || delivered == 0 || !g.Subs.At(id).Set.Learns() {
		return
	}
	cause := cmp.Or(call.Code, rule, "overload")
	if expired {
		cause = "lease expired"
	}
	m := call.ID
	g.Subs.At(id).Set.Overloaded(throttle.Overload{
		Delivered: delivered, Expired: expired, Cause: fmt.Sprintf("%s of message %x-%x-%x-%x-%x", cause, m[:4], m[4:6], m[6:8], m[8:10], m[10:]),
	}, now)
}

// Feedback lowers the buckets of subqueue id whose limits learn to what the destination has
// said.
func (g *Gates) Feedback(id ID, f throttle.Feedback, now int64) {
	if id != 0 {
		g.Subs.At(id).Set.Feedback(f, now)
	}
}

// reserveAfter is how long (ns) a subqueue with several throttle keys is blocked
// before it may collect its gates one by one. Otherwise subqueues with fewer keys
// would starve it. A reservation lasts at most as long as the subqueue has been blocked
// before: the missing gate may never open, and others wait for the collected ones. Afterwards
// the subqueue tries again when that gate opens, and collects it first. Each reservation may
// last longer than the one before.
const reserveAfter = int64(1e9)

// acquire takes the first message of a subqueue through its throttle keys.
func (g *Gates) acquire(id ID, cost uint32, first bool, now int64, owner any) (throttle.Grant, throttle.Block, bool) {
	sub := g.Subs.At(id)
	if sub.reserved == nil {
		grant, why, ok := sub.Set.Acquire(now, int64(cost), owner)
		starving := first && len(sub.Set.Gates()) > 1 && sub.Since != 0 && now-sub.Since > reserveAfter
		if ok || !starving || g.reserving != 0 || why.Kind == throttle.ByPause {
			return grant, why, ok
		}
		r, got := g.Throttles.Reserve(sub.Set, int64(cost))
		if !got {
			return grant, why, false
		}
		sub.reserved, sub.cost, g.reserving = r, cost, id
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

// Check asks the throttle keys of a subqueue whether they would admit a message of
// that cost now. A subqueue with a reservation asks for what it has collected.
func (sub *Subqueue) Check(cost, now int64) (throttle.Block, bool) {
	if sub.reserved != nil {
		return sub.reserved.Check(now)
	}
	return sub.Set.Check(now, cost, nil)
}

// Reserved reports whether the subqueue has a reservation.
func (sub *Subqueue) Reserved() bool { return sub.reserved != nil }
