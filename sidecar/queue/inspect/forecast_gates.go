package inspect

import (
	"math"
	"slices"

	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/sidecar/queue/backlog"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/throttle"
)

// listCast is a wait list.
type listCast struct {
	gates.Place
	line      *drr.Line // nil: not copied yet
	real      *drr.Line // what to copy; nil: there is no such wait list yet
	probing   int
	budget    int64
	notBefore int64 // an earlier try is useless
	shut      gates.BlockKind
	opens     int64 // as known when its gate was found shut; 0: ask again
	ended     int   // messages in flight whose end was assumed
	byEnd     bool  // the last of them has opened the gate
}

// waiters is the copy of the line, which it makes if need be.
func (l *listCast) waiters() *drr.Line {
	if l.line == nil {
		if l.line = new(drr.Line); l.real != nil {
			l.line = l.real.Clone(forecastLanes)
		}
	}
	return l.line
}

func (l *listCast) len() int {
	if l.line == nil && l.real != nil {
		return l.real.Len()
	}
	return l.waiters().Len()
}

// circuitCast is what a circuit admits.
type circuitCast struct{ left, opens int64 }

// readLists notes the wait lists at gates, up to readLines.
func (c *forecast) readLists() {
	items := c.g.Waits.Items
	for i := 1; i < len(items) && len(c.order) < readLines; i++ {
		if wl := items[i]; wl.Used() && !wl.Place().Paused && wl.Waiters.Len() > 0 {
			l := c.list(wl.Place())
			l.real, l.notBefore = &wl.Waiters, wl.NotBefore()
			c.left += max(l.real.Len()-forecastLanes, 0)
		}
	}
}

// list returns the wait list of a place.
func (c *forecast) list(at gates.Place) *listCast {
	l := c.lists[at]
	if l == nil {
		l = &listCast{Place: at}
		c.lists[at] = l
		c.order = append(c.order, l)
	}
	return l
}

// listOf returns a wait list of the queue; 0 is none.
func (c *forecast) listOf(id gates.WaitID) *listCast {
	if id == 0 || c.g.Waits.At(id).Place().Paused {
		return nil
	}
	return c.list(c.g.Waits.At(id).Place())
}

// listsOf returns the wait lists of a subqueue, for any of its routes.
func (c *forecast) listsOf(sub *gates.Subqueue) (lists []*listCast) {
	for i := range sub.Routes() {
		if l := c.listOf(sub.RouteAt(i).Wait); l != nil && !slices.Contains(lists, l) {
			lists = append(lists, l)
		}
	}
	return lists
}

// obstacleCast is why a message has to wait, and where; ByNothing: it need not.
type obstacleCast struct {
	list *listCast // nil: its key is paused
	kind gates.BlockKind
	at   int64
	dead bool // it does not wait, but becomes a dead letter
}

// admit takes a message through the gates of one of its routes, or returns for each where and
// for what it has to wait. With dead it becomes a dead letter instead, since every route says so.
func (c *forecast) admit(src *sourceCast, s *backlog.Slot) (why []obstacleCast, dead bool) {
	if until := c.t.KeyPaused(src.flow, c.at); until != 0 {
		return []obstacleCast{{kind: gates.ByPause, at: until}}, false
	}
	if src.id == 0 {
		return nil, false
	}
	dead = true
	sub := c.g.Subs.At(src.id)
	for _, i := range c.g.Order(src.id, src.walk.First()) {
		r := sub.RouteAt(int(i))
		first := c.t.Links.Stamp(src.walk.First()) < 0 || src.probes != nil && r.Passes(src.probes.Place)
		o := c.admitBy(src, r, int64(s.Cost), first)
		if o.kind == gates.ByNothing {
			return nil, false
		}
		why, dead = append(why, o), dead && o.dead
	}
	return why, dead
}

// admitBy takes a message through the gates of one route.
func (c *forecast) admitBy(src *sourceCast, r *gates.Route, cost int64, first bool) (o obstacleCast) {
	if !first {
		if l, kind := c.crowded(src, r); l != nil {
			return obstacleCast{list: l, kind: kind, at: math.MaxInt64}
		}
	}
	if r.Circuit != nil {
		if circuit := c.circuit(r.Circuit); circuit.left <= 0 {
			return obstacleCast{list: c.list(gates.Place{Circuit: r.Circuit}), kind: gates.ByCircuit, at: circuit.opens}
		}
	}
	for _, gate := range r.Set.Gates() {
		why, opens := c.trial(gate).Admits(c.at, cost)
		if why != throttle.Open && (o.list == nil || opens >= o.at) {
			o = obstacleCast{c.list(gates.Place{Throttle: gate}), gates.BlockOf(why), opens, c.trial(gate).DeadLetters(c.at, cost)}
		}
	}
	if o.list != nil {
		return o
	}
	for _, gate := range r.Set.Gates() {
		c.trial(gate).Take(c.at, cost)
	}
	if r.Circuit != nil {
		c.circuit(r.Circuit).left--
	}
	return obstacleCast{}
}

// crowded finds a gate at which others wait.
func (c *forecast) crowded(src *sourceCast, r *gates.Route) (*listCast, gates.BlockKind) {
	others := func(at gates.Place) *listCast {
		l := c.lists[at]
		if l == nil || l.len() == 0 || l.len() == 1 && l.waiters().Has(uint32(src.id)) && c.g.Subs.At(src.id).HasChoice() {
			return nil
		}
		return l
	}
	if r.Circuit != nil {
		if l := others(gates.Place{Circuit: r.Circuit}); l != nil {
			return l, gates.ByCircuit
		}
	}
	for _, gate := range r.Set.Gates() {
		if l := others(gates.Place{Throttle: gate}); l != nil {
			return l, gates.ByTurn
		}
	}
	return nil, gates.ByNothing
}

func (c *forecast) trial(gate *throttle.Gate) *throttle.Trial {
	t := c.trials[gate]
	if t == nil {
		t = gate.Trial(c.from)
		c.trials[gate] = t
	}
	return t
}

func (c *forecast) circuit(circuit gates.Circuit) *circuitCast {
	p := c.circuits[circuit]
	if p == nil {
		n, at := circuit.Peek(c.from)
		p = &circuitCast{left: n, opens: at}
		c.circuits[circuit] = p
	}
	if p.left <= 0 && p.opens <= c.at {
		p.left, p.opens = 1, math.MaxInt64 // a probe; what follows depends on its end
	}
	return p
}

// block makes a source wait whose first message has tried its gates in vain, as gates.block.
func (c *forecast) block(src *sourceCast, why []obstacleCast) {
	probed := src.probes
	if probed != nil && src.waited.By == gates.ByInFlight {
		probed.byEnd = true // for the next that tries
	}
	src.probes, src.retry, src.waited, src.opens = nil, false, WaitReason{}, 0
	cost, weight, lane := c.t.Cost(src.walk.First()), c.t.Weight(src.flow), uint32(src.id)
	old := src.at
	if probed != nil && (len(old) == 0 || slices.Contains(old, probed)) {
		probed.waiters().PutBack(src.flow, weight, lane, cost)
		if len(old) == 0 {
			old = []*listCast{probed}
		}
	}
	src.at = nil
	for _, o := range why {
		l := o.list
		if l == nil {
			src.left = 0 // the forecast does not wait for the end of a pause
			break
		}
		if !slices.Contains(src.at, l) {
			src.at = append(src.at, l)
		}
		if l.waiters().Has(lane) {
			l.waiters().SetCost(lane, cost)
		} else {
			l.waiters().Add(src.flow, weight, lane, cost)
			l.opens, l.shut = 0, o.kind
		}
	}
	for _, l := range old {
		if !slices.Contains(src.at, l) {
			l.waiters().Remove(src.flow, lane)
		}
	}
	c.changed(src.flow)
	if probed != nil {
		for _, o := range why {
			if probed == o.list {
				probed.budget, probed.notBefore, probed.opens, probed.shut = 0, o.at, 0, o.kind
			}
		}
		c.endProbe(probed)
	}
}

// endProbe notes that a probe has passed, or is blocked again.
func (c *forecast) endProbe(l *listCast) {
	if l == nil {
		return
	}
	l.probing--
	if l.budget > 0 && l.len() > 0 {
		c.probe(l)
	}
}

// probe lets up to l.budget sources try the gate of a wait list, as gates.probe.
func (c *forecast) probe(l *listCast) {
	for l.budget > 0 {
		lane, f, ok := l.waiters().Peek()
		if !ok {
			return
		}
		src := c.source(gates.ID(lane))
		if src.eligible() {
			return
		}
		cost, more := int64(0), src.left > 1
		if more {
			second := src.walk
			second.Next()
			cost = c.t.Cost(second.First())
		}
		l.waiters().Take(cost, more)
		for _, o := range src.at {
			if o != l {
				o.waiters().Remove(src.flow, lane)
			}
		}
		if !more {
			src.at = nil
		}
		src.probes = l
		switch {
		case l.byEnd:
			src.waited, l.byEnd = WaitReason{By: gates.ByInFlight, At: l.Place}, false
		case c.at > c.from:
			src.waited = WaitReason{By: l.shut, At: l.Place}
			if !c.ended {
				src.opens = c.at
			}
		}
		l.probing++
		l.budget--
		c.changed(f)
	}
}

// open lets messages try the gates that are open now, and reports whether any does.
func (c *forecast) open() (any bool) {
	for _, l := range c.order {
		if l.probing > 0 || l.notBefore > c.at || l.opens > c.at || l.len() == 0 {
			continue
		}
		c.tries++
		if l.budget = c.room(l); l.budget <= 0 {
			continue
		}
		l.opens = 0
		c.probe(l)
		any = any || l.probing > 0
	}
	return any
}

// room returns how many messages the gate of a wait list admits now. If it admits none, it
// notes what shuts the gate and when it opens.
func (c *forecast) room(l *listCast) int64 {
	if l.Circuit != nil {
		circuit := c.circuit(l.Circuit)
		if circuit.left <= 0 {
			l.shut, l.opens = gates.ByCircuit, circuit.opens
		}
		return circuit.left
	}
	t := c.trial(l.Throttle)
	if t.DeadLetters(c.at, 1) {
		return forecastBlocked // nobody needs a turn
	}
	kind, opens := t.Admits(c.at, throttle.One)
	if kind != throttle.Open {
		l.shut, l.opens = gates.BlockOf(kind), opens
		return 0
	}
	return t.Room(c.at)
}

// pass lets the time pass until the next gate opens, or a message in flight end, and reports
// false if nothing opens a gate any more.
func (c *forecast) pass() bool {
	at, ends := int64(math.MaxInt64), (*listCast)(nil)
	for _, l := range c.order {
		if l.len() == 0 || l.probing > 0 {
			continue
		}
		if opens := max(l.opens, l.notBefore); opens > c.at {
			at = min(at, opens)
		}
		if l.shut == gates.ByInFlight && l.opens == math.MaxInt64 && (ends == nil || l.ended < ends.ended) {
			ends = l
		}
	}
	if at != math.MaxInt64 {
		c.at = at
		return true
	}
	if ends == nil || ends.ended >= c.most {
		return false
	}
	c.ended = true
	ends.ended++
	ends.opens, ends.notBefore, ends.byEnd = 0, 0, true
	c.trial(ends.Throttle).Release()
	return true
}
