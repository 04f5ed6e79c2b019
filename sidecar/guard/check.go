package guard

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
	"time"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// A check waits for leases of the fleet for leaseWait, and its refusal then names
// leaseRetryAfter: short, since unused leases end soon.
const (
	leaseWait       = 200 * time.Millisecond
	leaseRetryAfter = 50 * time.Millisecond
)

// maxWaiting is how many requests may wait for leases of the fleet.
const maxWaiting = 1000

// decision is the result of one request.
type decision struct {
	began   int64 // Unix ns
	answers []api.GuardAnswer
	given   []*permit            // for the calls that are allowed, in their order
	missing string               // key of a refused call for which the fleet has to lease; empty: none
	onDisk  []func() *wire.Error // what given has to wait for
}

// decide decides about calls, each by itself and in their order. If one of them cannot be
// decided, none has an effect. Their permits are live, but must not be sent before awaitDisk.
func (g *Service) decide(from origin, asks []api.GuardAsk) (*decision, *wire.Error) {
	d := &decision{began: g.opt.Now(), answers: make([]api.GuardAnswer, len(asks))}
	var err *wire.Error
	for i := range asks {
		if err = g.check(&asks[i], from, d, &d.answers[i]); err != nil {
			break
		}
	}
	if err == nil && !g.keep(d) {
		err = wire.Draining()
	}
	if err != nil {
		for _, p := range d.given {
			g.undo(&p.resources, d.began)
		}
		return nil, err
	}
	return d, nil
}

// retryWithLeases decides again as soon as the fleet has answered, until nothing is missing or
// leaseWait is over.
func (g *Service) retryWithLeases(d *decision, from origin, asks []api.GuardAsk) (*decision, *wire.Error) {
	select {
	case g.waiting <- struct{}{}:
		defer func() { <-g.waiting }()
	default:
		return d, nil
	}
	began := d.began
	over := time.NewTimer(leaseWait)
	defer over.Stop()
	for waits := true; waits && d.missing != ""; {
		g.cancel(d.given, g.opt.Now())
		answered := g.opt.Fleet.Answered(d.missing) // before decide asks
		var err *wire.Error
		if d, err = g.decide(from, asks); err != nil {
			return nil, err
		}
		if d.missing == "" {
			break
		}
		select {
		case <-answered:
		case <-over.C:
			waits = false
		}
	}
	d.began = began
	return d, nil
}

// check decides about one call, and makes a permit if it is allowed.
func (g *Service) check(ask *api.GuardAsk, from origin, d *decision, a *api.GuardAnswer) *wire.Error {
	if err := g.pairs(ask); err != nil {
		return err
	}
	keys := ask.Keys()
	if full := g.room(keys, from.holder(), d.given, d.began); full != nil {
		g.opt.Metrics.GuardCapped(full.name)
		return full.refusal()
	}
	h, missing, err := g.take(ask, keys, d.began, a)
	d.missing = cmp.Or(d.missing, missing)
	if err != nil || !a.Allowed {
		return err
	}
	p := &permit{origin: from, given: d.began, until: d.began + ask.TTLMs*int64(time.Millisecond), key: ask.Key, resources: h, probe: a.Probe}
	d.given = append(d.given, p)
	if keys := h.set.Concurrent(); keys != nil {
		var wait func() *wire.Error
		if p.resources.ended, wait = g.opt.Keep(keys, p.until); wait != nil {
			d.onDisk = append(d.onDisk, wait)
		}
	}
	return nil
}

// awaitDisk waits until everything that the permits need is on disk. If that fails it cancels
// all of them.
func (g *Service) awaitDisk(d *decision) *wire.Error {
	if len(d.onDisk) == 0 {
		return nil
	}
	var err *wire.Error
	for _, wait := range d.onDisk {
		err = cmp.Or(err, wait())
	}
	now := g.opt.Now()
	g.atTime(now, func() {
		for _, p := range d.given {
			switch {
			case g.mu.timer == nil:
				err = cmp.Or(err, wire.Draining())
			case g.mu.permits[p.number] != p, p.until <= now: // an operator, or time, has ended it
				err = cmp.Or(err, wire.PermitNotFound(p.key))
			}
		}
		for _, p := range d.given {
			if err == nil {
				p.unanswered = false
				heap.Fix(&g.mu.ends, p.index)
			}
		}
	})
	if err != nil {
		g.cancel(d.given, now)
	}
	return err
}

// count counts calls whose answers can be sent.
func (g *Service) count(d *decision, trace wire.TraceParent) {
	for i := range d.answers {
		a := &d.answers[i]
		g.opt.Metrics.GuardChecked(a.Gate)
		if a.Gate != "" { // pass has counted circuits already
			g.opt.Gates.CountBlocked(a.Key, a.Gate)
		}
	}
	g.opt.Metrics.GuardTook(g.opt.Now()-d.began, trace)
}

// pairs refuses keys that no [[guard]] table allows together.
func (g *Service) pairs(ask *api.GuardAsk) *wire.Error {
	tables := g.opt.Tables()
	if !slices.ContainsFunc(tables, config.GuardTable.Pairs) {
		return nil
	}
	for _, key := range ask.With {
		if !slices.ContainsFunc(tables, func(t config.GuardTable) bool { return t.Allows(ask.Key, key) }) {
			return wire.GuardPair(ask.Key, key)
		}
	}
	return nil
}

// cancel ends permits that no caller has received, and returns what they took from the gates.
func (g *Service) cancel(given []*permit, now int64) {
	var undone []resources
	g.atTime(now, func() {
		for _, p := range given {
			if g.mu.permits[p.number] == p && !p.done {
				undone = append(undone, g.end(p))
			}
		}
	})
	for i := range undone {
		g.undo(&undone[i], now)
	}
}

// undo returns resources of a call that is not made.
func (g *Service) undo(h *resources, now int64) {
	g.opt.Notify(h.set.Undo(&h.grant, now, nil))
	g.giveBack(h, gates.Ending{Outcome: breaker.Neutral}, 0, now)
}

// take takes everything that the call needs, or nothing and fills a with the refusal. missing is
// the key for which the fleet has to lease.
func (g *Service) take(ask *api.GuardAsk, keys []string, now int64, a *api.GuardAnswer) (h resources, missing string, failed *wire.Error) {
	set, err := g.opt.Gates.Set(keys, now)
	if err != nil { // the request has fewer keys than Set allows
		return resources{}, "", wire.Internal(err.Error())
	}
	h = resources{set: set, circuit: g.opt.Circuits.Use(ask.Key, now)}
	if *a, missing = g.pass(&h, ask, now); !a.Allowed {
		g.giveBack(&h, gates.Ending{Outcome: breaker.Neutral}, 0, now)
	}
	return h, missing, nil
}

// pass passes the circuit and the limits: all or none.
func (g *Service) pass(h *resources, ask *api.GuardAsk, now int64) (a api.GuardAnswer, missing string) {
	// Not Peek: a probe of a shared circuit has to be requested.
	n, at := h.circuit.Admits(now)
	if n <= 0 {
		h.circuit.CountBlocked()
		return g.byCircuit(ask.Key, at, now), ""
	}
	grant, block, ok := h.set.Acquire(now, ask.Thousandths(), throttle.Guest)
	if !ok {
		return g.byThrottle(block, ask.Thousandths(), now)
	}
	h.grant = grant
	pass, pending := h.circuit.Allow(now)
	if pending {
		h.circuit.Announce()
	}
	if pass == 0 { // another call was faster
		g.opt.Notify(h.set.Undo(&h.grant, now, nil))
		h.circuit.CountBlocked()
		_, at := h.circuit.Peek(now)
		return g.byCircuit(ask.Key, at, now), ""
	}
	h.permission = pass
	return api.GuardAnswer{Allowed: true, Probe: n < math.MaxInt64}, ""
}

// keep makes the permits of a decision live, unless the guard has stopped.
func (g *Service) keep(d *decision) (kept bool) {
	g.atTime(d.began, func() {
		if kept = g.mu.timer != nil || len(d.given) == 0; !kept {
			return
		}
		for _, p := range d.given {
			p.unanswered = len(d.onDisk) > 0
			g.hold(p)
		}
	})
	if !kept {
		return false
	}
	next := 0
	for i := range d.answers {
		if a := &d.answers[i]; a.Allowed {
			p := d.given[next]
			a.Permit, a.ExpiresAt = g.sign(p), wire.Timestamp(p.until)
			next++
		}
	}
	return true
}
