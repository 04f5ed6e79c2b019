package queuetest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
)

// Sim is a random history of a fleet from a seed. It compares everything that a machine does with a
// slow, simple model. One random source draws producers, consumers that answer, fail, freeze,
// vanish and come back, operators, the clock and the disk; nothing else decides anything.
type Sim struct {
	*Fleet
	// Inspect is called at rest with each machine, to look into it; loose is set when
	// messages may wait at a gate that would admit one.
	Inspect func(m *queue.Queue, loose bool)
	// Trace is called with the effects of each step; nil: it is not.
	Trace func(r *Rig, out *queue.Effects)

	Seen SimSeen

	rnd      *rand.Rand
	nodes    []*node
	byRig    map[*Rig]*node
	byID     map[store.ID]*message
	refs     map[store.Ref]*message // who had a number last
	all      []*message             // those that are not gone, in the order of their enqueues
	arrivals int
	flights  map[uint64]*flight // all that there have ever been, by lease
	open     []queue.Delivery   // deliveries that may be answered, stale ones among them
	asks     map[string]*ask    // by subject
	asked    int
	inboxes  int
	batches  int             // atomic ones
	vanished map[string]bool // subjects that nobody listens to
	gates    map[string]*gateModel
	circuits map[string]*circuitModel
	pauses   map[string]int64 // of circuits, until when
	clock    gateClock

	largest   int64 // cost
	plain     bool  // all costs are 1
	corrects  bool  // acks say what messages have cost
	schedules bool  // some messages are of schedules
	routes    bool  // some messages have several routes
	learns    bool  // some limits learn
	spends    bool  // some throttle keys have budgets
	back      bool  // the clock may be set back
	exact     bool  // it has not been yet
}

// SimSeen counts what has happened to limits that learn and budgets, so that a test sees that
// they were not idle. Crowded is how often more was in flight than a level allows, after a cut, and
// UsedUp how many deliveries left less of a budget than a message of cost 1.
type SimSeen struct{ Cuts, Grown, Crowded, UsedUp, TopUps, Resets int }

func (a *SimSeen) add(b SimSeen) {
	a.Cuts += b.Cuts
	a.Grown += b.Grown
	a.Crowded += b.Crowded
	a.UsedUp += b.UsedUp
	a.TopUps += b.TopUps
	a.Resets += b.Resets
}

// gateClock is the time that limits count by: it stands still when the clock is set
// back by more than ten seconds, and until the clock has caught up otherwise.
type gateClock struct{ at, last int64 }

func (c *gateClock) tick(now int64) {
	switch {
	case now > c.last:
		c.at += now - c.last
		c.last = now
	case c.last-now > 10e9:
		c.last = now
	}
}

const throttleKeys = 4

// learning is the throttle key that always learns, if any limits do, and spending the one that
// always has a budget, if any has one. Many of the messages have no other keys.
var learning, spending = throttleKey(0), throttleKey(1)

func throttleKey(i int) string { return fmt.Sprint("t", i) }

// NewSim returns a simulation of that seed with one to three queues.
func NewSim(t T, seed uint64) *Sim {
	s := &Sim{
		Inspect: func(*queue.Queue, bool) {},
		rnd:     rand.New(rand.NewPCG(seed, 12)), byRig: make(map[*Rig]*node), byID: make(map[store.ID]*message), refs: make(map[store.Ref]*message),
		flights: make(map[uint64]*flight), asks: make(map[string]*ask), vanished: make(map[string]bool),
		gates: make(map[string]*gateModel), circuits: make(map[string]*circuitModel), pauses: make(map[string]int64),
		largest: 1000, exact: true,
	}
	s.plain, s.back = s.chance(2), s.chance(4)
	s.corrects = seed/2%2 == 0
	s.schedules = seed/4%3 == 0
	s.routes = seed/3%2 == 0
	s.learns, s.spends = seed/5%2 == 0, seed/7%2 == 0
	s.Fleet = NewFleet(t)
	s.clock.last = s.Now
	if seed%2 == 0 {
		s.Disk.Turn = rand.New(rand.NewPCG(seed, 13)).IntN
	}
	s.Before = func(r *Rig) { s.byRig[r].expect() }
	s.After = s.after
	s.Done = s.done
	s.Answered = s.answered
	if s.chance(2) {
		s.Pacing = queue.DefaultPacing
		s.Pacing.Load = pick(s, []int{1, 16})
	}
	cfg := breaker.Config{
		Threshold: 1 + s.rnd.IntN(3), Cooldown: time.Duration(1+s.rnd.IntN(3000)) * time.Millisecond,
		HalfOpenMaxCalls: 1 + s.rnd.IntN(3), HalfOpenSuccesses: 1 + s.rnd.IntN(3),
	}
	s.Breaker(cfg)
	for range 1 + s.rnd.IntN(3) {
		s.create()
	}
	s.showTime()
	for i := range throttleKeys {
		s.setLimit(throttleKey(i), s.drawLimits(throttleKey(i)))
	}
	s.Run()
	return s
}

func (s *Sim) chance(n int) bool { return s.rnd.IntN(n) == 0 }

func pick[E any](s *Sim, from []E) E { return from[s.rnd.IntN(len(from))] }

func (s *Sim) anyNode() *node { return pick(s, s.nodes) }

func (s *Sim) anySide() queue.Role {
	if s.chance(4) {
		return queue.Dead
	}
	return queue.Main
}

func (s *Sim) gate(key string) *gateModel {
	if s.gates[key] == nil {
		s.gates[key] = &gateModel{}
	}
	return s.gates[key]
}

func (s *Sim) circuit(key string) *circuitModel {
	if s.circuits[key] == nil {
		s.circuits[key] = &circuitModel{cfg: s.cfg, gen: 1}
	}
	return s.circuits[key]
}

// showTime shows the time to the gates and to the model.
func (s *Sim) showTime() {
	s.PauseThrottle("nothing", 0)
	s.clock.tick(s.Now)
	for _, m := range s.all {
		if m.place == waiting && m.ready <= s.Now {
			m.ready = 0
		}
	}
	// Pauses that are over stay over, also if the clock is set back.
	for _, g := range s.gates {
		if g.paused <= s.clock.last {
			g.paused = 0
		}
	}
	for _, n := range s.nodes {
		for _, side := range n.sides {
			if side.paused <= s.Now {
				side.paused = 0
			}
			maps.DeleteFunc(side.keys, func(_ string, until int64) bool { return until <= s.Now })
		}
	}
}

// action is something that may happen, with how often it does.
type action[S any] struct {
	often int
	do    func(s S)
}

// oneOf picks an action.
func oneOf[S any](rnd *rand.Rand, actions []action[S]) action[S] {
	total := 0
	for _, a := range actions {
		total += a.often
	}
	at, i := rnd.IntN(total), 0
	for ; at >= actions[i].often; i++ {
		at -= actions[i].often
	}
	return actions[i]
}

var actions = []action[*Sim]{
	{14, (*Sim).enqueue},
	{2, (*Sim).duplicate},
	{12, (*Sim).answer},
	{3, (*Sim).answerMany},
	{4, (*Sim).wrongToken},
	{6, (*Sim).judgeSome},
	{5, (*Sim).consume},
	{1, (*Sim).leave},
	{3, (*Sim).fetch},
	{2, (*Sim).vanish},
	{10, (*Sim).time},
	{4, func(s *Sim) { s.toNextTimer() }},
	{8, func(s *Sim) { s.CommitN(1 + s.rnd.IntN(5)) }},
	{4, func(s *Sim) { s.Commit() }},
	{3, (*Sim).changeLimit},
	{3, (*Sim).pause},
	{4, (*Sim).resume},
	{1, (*Sim).weigh},
	{1, (*Sim).changeSettings},
	{1, (*Sim).switchDispatch},
	{4, (*Sim).job},
	{4, (*Sim).liveJob},
	{1, (*Sim).refuseMoves},
	{1, (*Sim).purge},
	{2, (*Sim).removeOne},
	{4, (*Sim).runNow},
	{1, (*Sim).restart},
	{1, (*Sim).replaceQueue},
	{4, (*Sim).spend},
}

// Play makes n random actions, and checks everything after each.
func (s *Sim) Play(steps int) {
	s.T.Helper()
	for range steps {
		oneOf(s.rnd, actions).do(s)
		if s.chance(4) {
			continue // what was posted is found together with what comes next
		}
		s.First = s.rnd.IntN(len(s.nodes))
		s.Run()
		s.answerForTheVanished()
		s.check()
	}
}

// dump is all that a machine shows of itself.
func (n *node) dump() string {
	var b strings.Builder
	for side := range queue.Roles {
		fmt.Fprintf(&b, "%+v\n%+v\n%+v\n", n.M.Inspect(side).State(100, n.Now), n.M.Inspect(side).Consumers(), n.M.Inspect(side).Flows(100))
		for _, v := range n.Peek(side) {
			fmt.Fprintf(&b, "%+v\n", v)
		}
	}
	return b.String()
}

func (s *Sim) time() {
	d := pick(s, []int64{1, 1e6, 1e6, 50e6, 100e6, 300e6, 1e9, 3e9, 20e9})
	if s.back && s.chance(4) {
		d = -d
		s.exact = false
	}
	s.goOn(d)
}

// goOn lets time go by, or sets the clock back.
func (s *Sim) goOn(d int64) {
	s.Run()
	s.Now += d
	s.showTime()
	s.Now -= d
	s.Pass(time.Duration(d))
}

// toNextTimer sets the clock to the next time that a machine waits for. It reports whether there is
// one.
func (s *Sim) toNextTimer() bool {
	s.Run()
	next := s.Next()
	if next >= time.Hour && (s.exact || !s.spends) { // a clock that was set back may be over an hour before the end of a period
		return false // a machine looks up once an hour, with nothing to look for
	}
	s.goOn(int64(next))
	return true
}
