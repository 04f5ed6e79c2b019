package inspect

import (
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
// due. Messages that become dead letters meanwhile are left out. It repeats the decisions
// of the schedule (side.deliver and gates.Admit) on copies of the scheduler, the wait lists
// and the gates, and lets the time pass until the next gate opens. Once only the end of
// other messages would open a gate, it assumes one at each of these gates in turn.
//
// It ignores a pause of the queue, reservations, and queues that wait at the same gates. The
// time at which a rate admits a message with a cost other than 1 is an estimate, and so is its
// place among messages of other gates: both depend on when the queue has tried the gate last.
//
// It copies up to forecastTries flows of the schedule and forecastLanes of each wait list, the
// ones that go first; left is how many it leaves out.
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
	for c.deliver(); c.more(); c.deliver() {
		for !c.open() {
			if !c.pass() || !c.more() {
				return
			}
		}
	}
}

// more reports whether the forecast goes on.
func (c *forecast) more() bool { return len(c.next) < c.most && c.tries < forecastTries }

const (
	// forecastTries bounds the messages and gates that one forecast tries, and so the flows
	// that it needs.
	forecastTries = readLines
	// forecastLanes bounds the copy of a wait list: a forecast delivers far fewer messages.
	forecastLanes = forecastTries / 10
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
	at     []*listCast // where it waits, for any of its routes
	probes *listCast   // whose gate its first message may try
	retry  bool        // its first message has come back

	waited WaitReason // what its first message waits for from the beginning of the forecast on
	opens  int64
}

func (s *sourceCast) eligible() bool {
	return s.left > 0 && (len(s.at) == 0 || s.probes != nil || s.retry)
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
		at: c.listsOf(sub), probes: c.listOf(sub.Probing()), retry: sub.Retrying(),
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
	for c.more() {
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
			c.drop(src)
			continue
		}
		why, dead := c.admit(src, s)
		if dead {
			c.drop(src)
			continue
		}
		if len(why) > 0 {
			c.block(src, why)
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

// drop removes the first message of a source, which has expired or becomes a dead letter.
func (c *forecast) drop(src *sourceCast) {
	probed := src.probes
	src.probes, src.retry, src.waited, src.opens = nil, false, WaitReason{}, 0
	c.leave(src)
	c.changed(src.flow)
	c.endProbe(probed)
}

// leave takes the first message out of a source.
func (c *forecast) leave(src *sourceCast) {
	src.walk.Next()
	src.left--
	if len(src.at) == 0 {
		return
	}
	src.retry = src.left > 0 && c.t.Links.Stamp(src.walk.First()) < 0
	blocked := src.left
	if src.eligible() {
		blocked--
	}
	if blocked <= 0 {
		for _, l := range src.at {
			l.waiters().Remove(src.flow, uint32(src.id))
		}
		src.at, src.retry = nil, false
		return
	}
	for _, l := range src.at { // while it probed one gate it was in no other line
		c.join(src, l)
	}
}

// join puts a source that waits into the line of a list, with its first message, unless it is
// there.
func (c *forecast) join(src *sourceCast, l *listCast) {
	if l.waiters().Has(uint32(src.id)) {
		return
	}
	l.waiters().Add(src.flow, c.t.Weight(src.flow), uint32(src.id), c.t.Cost(src.walk.First()))
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
