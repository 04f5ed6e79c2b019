package inspect

import (
	"math"

	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/sidecar/queue/backlog"
	"github.com/filaq/fila/sidecar/queue/container"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
)

// NextDelivery is a delivery that Forecast expects.
type NextDelivery struct {
	Seq  uint64
	ID   store.ID
	Key  string
	Cost uint32 // thousandths

	// WaitReason is the gate that has to open first; ByNothing: a consumer with credit is
	// enough. Opens is when the gate opens, in Unix ns; 0: not known, because messages in
	// flight have to end before.
	WaitReason
	Opens int64
}

// Forecast returns up to most deliveries in the order in which they would follow if
// consumers took everything, and nothing else happened: no message came, ended or became
// due. It repeats the decisions of the schedule (side.deliver and gates.Admit) on copies of
// the scheduler, the wait lists and the gates, and lets the time pass until the next gate
// opens. Once only the end of other messages would open a gate, it assumes one at each of
// these gates in turn.
//
// It ignores a pause of the queue, reservations, and queues that wait at the same gates. The
// time at which a rate admits a message with a cost other than 1 is an estimate, and so is its
// place among messages of other gates: both depend on when the queue has tried the gate last.
//
// It copies up to forecastTries flows of the schedule and of each wait list, those that are next;
// left is how many it leaves out.
func (r *Reader) Forecast(most int, now int64) (next []NextDelivery, left int) {
	c := &forecast{
		Reader: r, most: most, from: now, at: now, deficits: r.t.Deficits.Clone(),
		numbers: make(map[drr.Flow]drr.Flow), flows: make(map[drr.Flow]*flowCast), sources: make(map[gates.ID]*sourceCast),
		lists: make(map[gates.Place]*listCast), trials: make(map[*throttle.Gate]*throttle.Trial),
		circuits: make(map[gates.Circuit]*circuitCast), next: []NextDelivery{},
	}
	c.sched, c.scheduled = r.t.Sched.Clone(forecastTries)
	for n, f := range c.scheduled {
		c.numbers[f] = drr.Flow(n)
	}
	c.left = r.t.Sched.Active() - len(c.scheduled)
	c.readLists()
	c.run()
	return c.next, c.left
}

// run fills next.
func (c *forecast) run() {
	for {
		c.deliver()
		for len(c.next) < c.most && !c.open() {
			if c.tries >= forecastTries || !c.pass() {
				return
			}
		}
		if len(c.next) >= c.most || c.tries >= forecastTries {
			return
		}
	}
}

const (
	// forecastTries bounds the messages and gates that one forecast tries, and so the flows
	// that it needs.
	forecastTries = readLines
	// forecastBlocked is as blockedInARow of the schedule.
	forecastBlocked = 64
)

// forecast is the state of one forecast: copies, made as far as they are needed.
type forecast struct {
	*Reader
	most     int
	from, at int64 // when it began; the time that it has reached
	ended    bool  // it has assumed the end of a message, whose time is not known
	tries    int
	left     int // flows and lanes that the copies leave out
	deficits backlog.Deficits

	sched     *drr.Scheduler        // has flows by numbers of its own
	scheduled []drr.Flow            // by these numbers
	numbers   map[drr.Flow]drr.Flow // the number of each flow of scheduled

	flows    map[drr.Flow]*flowCast
	sources  map[gates.ID]*sourceCast
	lists    map[gates.Place]*listCast
	order    []*listCast // the lists in a fixed order
	trials   map[*throttle.Gate]*throttle.Trial
	circuits map[gates.Circuit]*circuitCast
	next     []NextDelivery
}

// flowCast is a flow with the sources that may be eligible.
type flowCast struct {
	number  drr.Flow // in the copy of the schedule
	sources []*sourceCast
	active  bool // in the schedule
}

// sourceCast is a subqueue, or the messages of a flow without gates (id 0).
type sourceCast struct {
	id     gates.ID
	flow   drr.Flow
	walk   container.Walk
	left   int32
	at     *listCast // where it waits; nil: nowhere
	probes *listCast // whose gate its first message may try
	retry  bool      // its first message has come back

	waited WaitReason // what its first message waits for from the beginning of the forecast on
	opens  int64
}

func (s *sourceCast) eligible() bool {
	return s.left > 0 && (s.at == nil || s.probes != nil || s.retry)
}

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
			l.line = l.real.Clone(forecastTries)
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
			c.left += max(l.real.Len()-forecastTries, 0)
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

// flow returns a flow with its eligible sources.
func (c *forecast) flow(f drr.Flow) *flowCast {
	if fl := c.flows[f]; fl != nil {
		return fl
	}
	n, active := c.numbers[f]
	if !active {
		n = drr.Flow(len(c.scheduled))
		c.scheduled, c.numbers[f] = append(c.scheduled, f), n
	}
	fl := &flowCast{number: n, active: active}
	c.flows[f] = fl
	if plain := &c.t.Flow(f).Plain; c.t.Links.Count(plain) > 0 {
		fl.sources = append(fl.sources, &sourceCast{flow: f, walk: c.t.Links.Walk(plain), left: c.t.Links.Count(plain)})
	}
	for _, id := range c.g.EligibleOf(f) {
		c.source(id)
	}
	return fl
}

// source returns a subqueue, as one of its flow.
func (c *forecast) source(id gates.ID) *sourceCast {
	if s := c.sources[id]; s != nil {
		return s
	}
	sub := c.g.Subs.At(id)
	s := &sourceCast{
		id: id, flow: sub.Flow, walk: c.t.Links.Walk(&sub.List), left: c.t.Links.Count(&sub.List),
		at: c.listOf(sub.Wait), probes: c.listOf(sub.Probing()), retry: sub.Retrying(),
	}
	c.sources[id] = s
	fl := c.flow(sub.Flow)
	fl.sources = append(fl.sources, s)
	if s.probes != nil {
		s.probes.probing++
	}
	return s
}

// first returns the source of the message that a flow sends next; nil: none.
func (c *forecast) first(fl *flowCast) (first *sourceCast) {
	var stamp int64
	for _, s := range fl.sources {
		if !s.eligible() {
			continue
		}
		if t := c.t.Links.Stamp(s.walk.First()); first == nil || t < stamp {
			first, stamp = s, t
		}
	}
	return first
}

// head is the cost of the message that a flow sends next; 0: none.
func (c *forecast) head(fl *flowCast) int64 {
	if s := c.first(fl); s != nil {
		return c.t.Cost(s.walk.First())
	}
	return 0
}

// changed tells the schedule what a flow sends next, as schedule.FlowChanged.
func (c *forecast) changed(f drr.Flow) {
	fl := c.flow(f)
	cost, was := c.head(fl), fl.active
	fl.active = cost != 0
	switch {
	case fl.active && was:
		c.sched.SetHead(fl.number, cost)
	case fl.active:
		c.sched.Join(fl.number, c.t.Weight(f), cost)
		if c.deficits.Len() > 0 {
			c.sched.Correct(fl.number, c.deficits.Take(c.t.Name(f), c.sched.Round()))
		}
	case was:
		if d := c.sched.Leave(fl.number); d > 0 {
			c.deficits.Add(c.t.Name(f), d, c.t.Weight(f)*c.sched.Quantum(), c.sched.Round())
		}
		c.dropDeficits()
	}
}

func (c *forecast) dropDeficits() {
	if c.deficits.Len() > 0 && c.sched.Active() == 0 {
		c.deficits = backlog.Deficits{}
	}
}

// deliver serves the schedule until it is empty.
func (c *forecast) deliver() {
	blocked := 0
	for len(c.next) < c.most && c.tries < forecastTries {
		n, ok := c.sched.Peek()
		if !ok {
			return
		}
		f := c.scheduled[n]
		c.tries++
		src := c.first(c.flow(f))
		seq := c.t.Links.Seq(src.walk.First())
		s := c.t.Slots.Get(seq)
		if c.t.Expired(seq, s, c.at) {
			c.leave(src)
			c.changed(f)
			continue
		}
		if l, kind, at := c.admit(src, s); kind != gates.ByNothing {
			c.block(src, l, kind, at)
			if blocked++; blocked == forecastBlocked {
				blocked = 0
				c.sched.EndTurn()
			}
			continue
		}
		blocked = 0
		c.take(src, seq, s)
	}
}

// leave takes the first message out of a source.
func (c *forecast) leave(src *sourceCast) {
	src.walk.Next()
	src.left--
	if src.at == nil {
		return
	}
	src.retry = src.left > 0 && c.t.Links.Stamp(src.walk.First()) < 0
	blocked := src.left
	if src.eligible() {
		blocked--
	}
	if blocked <= 0 {
		src.at.waiters().Remove(src.flow, uint32(src.id))
		src.at, src.retry = nil, false
	}
}

// take notes the delivery of the message that the schedule serves next.
func (c *forecast) take(src *sourceCast, seq uint64, s *backlog.Slot) {
	c.next = append(c.next, NextDelivery{
		Seq: seq, ID: s.ID, Key: c.t.Name(src.flow), Cost: s.Cost, WaitReason: src.waited, Opens: src.opens,
	})
	probed := src.probes
	src.probes, src.retry, src.waited, src.opens = nil, false, WaitReason{}, 0
	c.leave(src)
	fl := c.flow(src.flow)
	if c.t.Order.On { // the next message of the key waits for this one
		fl.sources = nil
	}
	cost := c.head(fl)
	c.sched.Take(cost)
	if fl.active = cost != 0; !fl.active {
		c.dropDeficits()
	}
	c.endProbe(probed)
}

// admit takes a message through its gates, or returns where and for what it has to wait.
func (c *forecast) admit(src *sourceCast, s *backlog.Slot) (l *listCast, kind gates.BlockKind, at int64) {
	if until := c.t.KeyPaused(src.flow, c.at); until != 0 {
		return nil, gates.ByPause, until
	}
	if src.id == 0 {
		return nil, gates.ByNothing, 0
	}
	sub := c.g.Subs.At(src.id)
	if src.probes == nil && c.t.Links.Stamp(src.walk.First()) >= 0 {
		if l, kind = c.crowded(sub); l != nil {
			return l, kind, math.MaxInt64
		}
	}
	if sub.Circuit != nil {
		if circuit := c.circuit(sub.Circuit); circuit.left <= 0 {
			return c.list(gates.Place{Circuit: sub.Circuit}), gates.ByCircuit, circuit.opens
		}
	}
	cost := int64(s.Cost)
	for _, gate := range sub.Set.Gates() {
		why, opens := c.trial(gate).Admits(c.at, cost)
		if why != throttle.Open && (l == nil || opens >= at) {
			l, kind, at = c.list(gates.Place{Throttle: gate}), gates.BlockOf(why), opens
		}
	}
	if l != nil {
		return l, kind, at
	}
	for _, gate := range sub.Set.Gates() {
		c.trial(gate).Take(c.at, cost)
	}
	if sub.Circuit != nil {
		c.circuit(sub.Circuit).left--
	}
	return nil, gates.ByNothing, 0
}

// crowded finds a gate at which others wait.
func (c *forecast) crowded(sub *gates.Subqueue) (*listCast, gates.BlockKind) {
	if l := c.lists[gates.Place{Circuit: sub.Circuit}]; sub.Circuit != nil && l != nil && l.len() > 0 {
		return l, gates.ByCircuit
	}
	for _, gate := range sub.Set.Gates() {
		if l := c.lists[gates.Place{Throttle: gate}]; l != nil && l.len() > 0 {
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
func (c *forecast) block(src *sourceCast, l *listCast, kind gates.BlockKind, at int64) {
	probed := src.probes
	if probed != nil && src.waited.By == gates.ByInFlight {
		probed.byEnd = true // for the next that tries
	}
	src.probes, src.retry, src.waited, src.opens = nil, false, WaitReason{}, 0
	cost, weight, lane := c.t.Cost(src.walk.First()), c.t.Weight(src.flow), uint32(src.id)
	switch {
	case probed != nil && (src.at == probed || src.at == nil):
		probed.waiters().PutBack(src.flow, weight, lane, cost)
		src.at = probed
	case src.at != nil:
		src.at.waiters().SetCost(lane, cost)
	}
	switch {
	case kind == gates.ByPause && l == nil:
		if src.at != nil {
			src.at.waiters().Remove(src.flow, lane)
		}
		src.at, src.left = nil, 0 // the forecast does not wait for the end of a pause
	case src.at != l:
		if src.at != nil {
			src.at.waiters().Remove(src.flow, lane)
		}
		l.waiters().Add(src.flow, weight, lane, cost)
		src.at, l.opens, l.shut = l, 0, kind
	}
	c.changed(src.flow)
	if probed != nil {
		if probed == l {
			l.budget, l.notBefore, l.opens, l.shut = 0, at, 0, kind
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
