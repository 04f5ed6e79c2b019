package guard

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
	"time"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// A check waits so long for what a fleet has to lend, and then names so short a time: what
// is lent ends before long, with nobody there to use it.
const (
	lendWait       = 200 * time.Millisecond
	lendRetryAfter = 50 * time.Millisecond
)

// maxLends is how many requests may wait for what a fleet has to lend.
const maxLends = 1000

// Check asks for calls, each by itself, in their order, and waits for the disk where it
// has to. If one of them cannot be decided, it is as if nobody had asked for any.
func (g *Guard) Check(caller string, asks ...wire.GuardAsk) ([]wire.GuardAnswer, *wire.Error) {
	who := asker{caller: caller}
	d, err := g.decide(who, asks)
	if err == nil && d.lacks != "" {
		d, err = g.lent(d, who, asks)
	}
	if err == nil {
		err = g.onDisk(d)
	}
	if err != nil {
		return nil, err
	}
	g.count(d, wire.TraceParent{})
	return d.answers, nil
}

// decision is what becomes of the calls that somebody asks for at once.
type decision struct {
	began   int64 // Unix ns
	answers []wire.GuardAnswer
	given   []*permit            // for the calls that are allowed, in their order
	lacks   string               // a key of which a fleet has to lend what a call was refused for
	onDisk  []func() *wire.Error // what given has to wait for
}

// decide decides about calls. The permits are live, but nobody is to be told of them
// before what they wait for is on disk.
func (g *Guard) decide(who asker, asks []wire.GuardAsk) (*decision, *wire.Error) {
	d := &decision{began: g.opt.Now(), answers: make([]wire.GuardAnswer, len(asks))}
	var err *wire.Error
	for i := range asks {
		if err = g.check(&asks[i], who, d, &d.answers[i]); err != nil {
			break
		}
	}
	if err == nil && !g.keep(d) {
		err = wire.Draining()
	}
	if err != nil {
		for _, p := range d.given {
			g.undo(&p.held, d.began)
		}
		return nil, err
	}
	return d, nil
}

// lent decides again as soon as a fleet has lent what was lacking, or after a while.
func (g *Guard) lent(d *decision, who asker, asks []wire.GuardAsk) (*decision, *wire.Error) {
	select {
	case g.lends <- struct{}{}:
		defer func() { <-g.lends }()
	default:
		return d, nil
	}
	began := d.began
	over := time.NewTimer(lendWait)
	defer over.Stop()
	for waits := true; waits && d.lacks != ""; {
		g.cancel(d.given, g.opt.Now())
		answered := g.opt.Fleet.Answered(d.lacks) // before it is asked
		var err *wire.Error
		if d, err = g.decide(who, asks); err != nil {
			return nil, err
		}
		if d.lacks == "" {
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

// check asks for a call, and makes a permit if it is allowed.
func (g *Guard) check(ask *wire.GuardAsk, who asker, d *decision, a *wire.GuardAnswer) *wire.Error {
	if err := g.pairs(ask); err != nil {
		return err
	}
	keys := ask.Keys()
	if full := g.room(keys, who.holder(), d.given, d.began); full != nil {
		g.opt.Metrics.GuardCapped(full.name)
		return full.refusal()
	}
	h, lacks, err := g.take(ask, keys, d.began, a)
	d.lacks = cmp.Or(d.lacks, lacks)
	if err != nil || !a.Allowed {
		return err
	}
	p := &permit{asker: who, given: d.began, until: d.began + ask.TTLMs*int64(time.Millisecond), key: ask.Key, held: h, probe: a.Probe}
	d.given = append(d.given, p)
	if keys := h.set.Concurrent(); keys != nil {
		var wait func() *wire.Error
		if p.held.ended, wait = g.opt.Keep(keys, p.until); wait != nil {
			d.onDisk = append(d.onDisk, wait)
		}
	}
	return nil
}

// onDisk waits until what the permits need is on disk, or takes all of them back.
func (g *Guard) onDisk(d *decision) *wire.Error {
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
				p.untold = false
				heap.Fix(&g.mu.ends, p.place)
			}
		}
	})
	if err != nil {
		g.cancel(d.given, now)
	}
	return err
}

// count counts calls whose answers can be told.
func (g *Guard) count(d *decision, trace wire.TraceParent) {
	for i := range d.answers {
		a := &d.answers[i]
		g.opt.Metrics.GuardChecked(a.Gate)
		if a.Gate != "" { // it counts nothing for a circuit, which pass has counted
			g.opt.Gates.CountBlocked(a.Key, a.Gate)
		}
	}
	g.opt.Metrics.GuardTook(g.opt.Now()-d.began, trace)
}

// pairs refuses keys that no table of the configuration lets come together.
func (g *Guard) pairs(ask *wire.GuardAsk) *wire.Error {
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

// cancel takes back permits of which nobody has been told: what they took of the gates
// is there again.
func (g *Guard) cancel(given []*permit, now int64) {
	var undone []held
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

// undo gives back what is held for a call that is not made.
func (g *Guard) undo(h *held, now int64) {
	g.opt.Tell(h.set.Undo(&h.ticket, now, nil))
	g.giveBack(h, breaker.Neutral, 0, now)
}

// take takes all that the call needs, or nothing and says what refuses it, and for which
// key a fleet is asked.
func (g *Guard) take(ask *wire.GuardAsk, keys []string, now int64, a *wire.GuardAnswer) (h held, lacks string, failed *wire.Error) {
	set, err := g.opt.Gates.Set(keys, now)
	if err != nil { // there are fewer keys than it takes
		return held{}, "", wire.Internal(err.Error())
	}
	h = held{set: set, circuit: g.opt.Circuits.Use(ask.Key, now)}
	if *a, lacks = g.pass(&h, ask, now); !a.Allowed {
		g.giveBack(&h, breaker.Neutral, 0, now)
	}
	return h, lacks, nil
}

// pass goes through the circuit and the limits, all or none.
func (g *Guard) pass(h *held, ask *wire.GuardAsk, now int64) (a wire.GuardAnswer, lacks string) {
	// Not Peek: the permit for a probe of a circuit that a fleet shares has to be asked for.
	n, at := h.circuit.Admits(now)
	if n <= 0 {
		h.circuit.CountBlocked()
		return g.byCircuit(ask.Key, at, now), ""
	}
	ticket, block, ok := h.set.Acquire(now, ask.Thousandths(), throttle.Guest)
	if !ok {
		return g.byThrottle(block, ask.Thousandths(), now)
	}
	h.ticket = ticket
	pass, pending := h.circuit.Allow(now)
	if pending {
		h.circuit.Announce()
	}
	if pass == 0 { // somebody else was faster
		g.opt.Tell(h.set.Undo(&h.ticket, now, nil))
		h.circuit.CountBlocked()
		_, at := h.circuit.Peek(now)
		return g.byCircuit(ask.Key, at, now), ""
	}
	h.pass = pass
	return wire.GuardAnswer{Allowed: true, Probe: n < math.MaxInt64}, ""
}

// keep makes the permits of a decision live, unless the guard has stopped.
func (g *Guard) keep(d *decision) (kept bool) {
	g.atTime(d.began, func() {
		if kept = g.mu.timer != nil || len(d.given) == 0; !kept {
			return
		}
		for _, p := range d.given {
			p.untold = len(d.onDisk) > 0
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
