package queuetest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// Sim is a fleet that is let loose from a seed, with a book about it that is kept
// slowly and simply: whatever a machine does is held to it. Producers, consumers that
// answer, fail, freeze, vanish and come back, operators, the clock and the disk are
// all drawn from one random source, and nothing else decides anything.
type Sim struct {
	*Fleet
	// Inspect is called at rest with each machine, to look into it; loose is set when
	// messages may wait at a gate that would admit one.
	Inspect func(m *queue.Queue, loose bool)
	// Trace is called with the effects of each step; nil: it is not.
	Trace func(r *Rig, out *queue.Effects)

	rnd      *rand.Rand
	nodes    []*node
	byRig    map[*Rig]*node
	byID     map[store.ID]*message
	all      []*message // those that are not gone, in the order of their enqueues
	arrivals int
	flights  map[uint64]*flight // all that there have ever been, by lease
	open     []queue.Delivery   // deliveries that may be answered, stale ones among them
	asks     map[string]*ask    // by subject
	asked    int
	inboxes  int
	vanished map[string]bool // subjects that nobody listens to
	gates    map[string]*gateBook
	circuits map[string]*circuitBook
	pauses   map[string]int64 // of circuits, until when
	clock    gateClock

	largest int64 // cost
	plain   bool  // all costs are 1
	back    bool  // the clock may be set back
	exact   bool  // it has not been yet
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

func throttleKey(i int) string { return fmt.Sprint("t", i) }

// NewSim returns a simulation of that seed with one to three queues.
func NewSim(t T, seed uint64) *Sim {
	s := &Sim{
		Inspect: func(*queue.Queue, bool) {},
		rnd:     rand.New(rand.NewPCG(seed, 12)), byRig: make(map[*Rig]*node), byID: make(map[store.ID]*message),
		flights: make(map[uint64]*flight), asks: make(map[string]*ask), vanished: make(map[string]bool),
		gates: make(map[string]*gateBook), circuits: make(map[string]*circuitBook), pauses: make(map[string]int64),
		largest: 1000, exact: true,
	}
	s.plain, s.back = s.chance(2), s.chance(4)
	s.Fleet = NewFleet(t)
	s.clock.last = s.Now
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
		s.setLimit(throttleKey(i), s.drawLimits())
	}
	s.Run()
	return s
}

func (s *Sim) chance(n int) bool { return s.rnd.IntN(n) == 0 }

func pick[E any](s *Sim, from []E) E { return from[s.rnd.IntN(len(from))] }

func (s *Sim) anyNode() *node { return pick(s, s.nodes) }

func (s *Sim) anySide() queue.Side {
	if s.chance(4) {
		return queue.Dead
	}
	return queue.Main
}

func (s *Sim) gate(key string) *gateBook {
	if s.gates[key] == nil {
		s.gates[key] = &gateBook{}
	}
	return s.gates[key]
}

func (s *Sim) circuit(key string) *circuitBook {
	if s.circuits[key] == nil {
		s.circuits[key] = &circuitBook{cfg: s.cfg, gen: 1}
	}
	return s.circuits[key]
}

// showTime shows the time to the gates and to the book.
func (s *Sim) showTime() {
	s.PauseThrottle("nothing", 0)
	s.clock.tick(s.Now)
	for _, m := range s.all {
		if m.place == waiting && m.ready <= s.Now {
			m.ready = 0
		}
	}
	// What is over is over for good, also if the clock is set back.
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

func (s *Sim) create() {
	set := queue.Settings{QueueSettings: wire.DefaultQueueSettings(fmt.Sprint("q", s.Fleet.queues))}
	s.drawSettings(&set)
	n := &node{s: s, settings: set, failures: make(map[string]*failureBook), grace: s.Now + 60e9}
	for i := range n.sides {
		n.sides[i] = newSideBook()
	}
	n.later(func() { n.dispatching = true })
	n.Rig = s.Create(set)
	s.nodes = append(s.nodes, n)
	s.byRig[n.Rig] = n
	s.register(n, queue.Main, "w1", 1+s.rnd.IntN(4), 0)
}

// drawSettings draws what may change of a queue's settings.
func (s *Sim) drawSettings(q *queue.Settings) {
	q.VisibilityTimeoutMs = pick(s, []int64{700, 5000, 60_000})
	q.Quantum = 1 + s.rnd.Int64N(3)
	q.MaxDeliveries = nil
	if n := s.rnd.Int64N(8) - 3; n >= 0 {
		q.MaxDeliveries = &n
	}
	q.Ordering, q.OnBlocked = "", ""
	switch s.rnd.IntN(6) {
	case 0:
		q.Ordering, q.OnBlocked = wire.OrderingKey, wire.OnBlockedWait
	case 1:
		q.Ordering, q.OnBlocked = wire.OrderingKey, wire.OnBlockedSkip
	}
	q.MaxFailuresPerKey, q.FailureHoldMs, q.FailureWindowMs = 0, 0, 0
	if s.chance(4) {
		q.MaxFailuresPerKey, q.FailureHoldMs, q.FailureWindowMs = 1+s.rnd.Int64N(3), s.rnd.Int64N(2000), pick(s, []int64{0, 1000})
	}
	q.Judge, q.OnFailure = s.chance(2), ""
	if q.Judge && s.chance(2) {
		q.OnFailure = "function on_failure(msg) end" // the simulation decides itself
	}
	switch s.rnd.IntN(3) {
	case 0:
		q.PerKey = nil
	case 1:
		q.PerKey = newKeyCount()
	}
}

// drawLimits draws limits such that a simulation runs into them.
func (s *Sim) drawLimits() (l throttle.Limits) {
	kinds := s.rnd.IntN(8)
	if kinds&1 != 0 {
		l.Rate = pick(s, []throttle.Rate{
			throttle.PerSecond(500), throttle.PerSecond(2000), throttle.PerSecond(10_000), {Cost: 1000, Per: 3e9}, {Cost: 7000, Per: 999_999_937},
		})
		l.Burst = pick(s, []int64{0, 500, 1000, 3000})
	}
	if kinds&2 != 0 {
		l.Limit, l.Window = 1+s.rnd.Int64N(4), pick(s, []int64{1e8, 1e9, 5e9})
	}
	if kinds&4 != 0 {
		l.Concurrency = 1 + s.rnd.Int64N(3)
	}
	return l
}

func (s *Sim) setLimit(key string, l throttle.Limits) {
	s.gate(key).limit(l)
	s.Limit(key, l)
}

// action is something that may happen, with how often it does.
type action struct {
	often int
	do    func(s *Sim)
}

var actions = []action{
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
	{4, (*Sim).redrive},
	{1, (*Sim).refuseMoves},
	{1, (*Sim).restart},
	{1, (*Sim).replaceQueue},
}

// Play lets so many things happen, and checks everything after each.
func (s *Sim) Play(steps int) {
	s.T.Helper()
	total := 0
	for _, a := range actions {
		total += a.often
	}
	for range steps {
		at := s.rnd.IntN(total)
		for _, a := range actions {
			if at -= a.often; at < 0 {
				a.do(s)
				break
			}
		}
		if s.chance(4) {
			continue // what was posted is found together with what comes next
		}
		s.First = s.rnd.IntN(len(s.nodes))
		s.Run()
		s.answerForTheVanished()
		s.check()
	}
}

// ask notes that somebody waits for an answer and returns where.
func (s *Sim) ask(a ask) string {
	s.asked++
	subject := fmt.Sprint("ask.", s.asked)
	s.asks[subject] = &a
	return subject
}

func (s *Sim) enqueue() {
	n := s.anyNode()
	keys := []string{"a", "b", "c", plainKeys[0], plainKeys[1], plainKeys[2]}
	proto := message{node: n, key: pick(s, keys), cost: 1000, weight: pick(s, []uint32{1000, 1000, 2500, 500})}
	if plainKey(proto.key) < 0 {
		for _, i := range s.rnd.Perm(throttleKeys)[:s.rnd.IntN(4)] {
			proto.keys = append(proto.keys, throttleKey(i))
		}
		if s.chance(4) {
			proto.circuit = pick(s, []string{"c0", "c1"})
		}
	}
	if !s.plain {
		proto.cost = pick(s, []int64{1, 500, 1000, 2000, 5000})
		s.largest = max(s.largest, proto.cost)
	}
	for range 1 + s.rnd.IntN(4) {
		m := proto
		m.id, m.enqueued, m.size = s.NewID(), s.Now, int64(s.rnd.IntN(30))
		in := &queue.Message{Size: m.size, Message: store.Message{
			Ref: store.Ref{Queue: n.IDs[queue.Main]}, ID: m.id, EnqueuedAt: s.Now, Weight: m.weight, Cost: uint32(m.cost),
			Key: m.key, ThrottleKeys: slices.Clone(m.keys), CircuitKey: m.circuit, Payload: make([]byte, m.size),
		}}
		if s.chance(5) {
			in.NotBefore = s.Now + s.rnd.Int64N(2e9)
			if in.NotBefore > s.Now {
				m.ready, m.own = in.NotBefore, true
			}
		}
		if s.chance(5) && !s.back {
			in.ExpiresAt = s.Now + 1 + s.rnd.Int64N(4e9)
			m.expires = in.ExpiresAt
		}
		if s.chance(5) {
			in.DedupeID, in.DedupeUntil, m.dedupe = fmt.Sprintf("dedupe-%x", m.id), s.Now+1e12, true
		}
		if counts, ok := n.settings.PerKey.(*keyCount); ok && s.chance(2) {
			counts.Add(m.key, 1)
			in.Counted, m.counted = counts, counts
		}
		slices.Sort(m.keys)
		s.accept(&m, in)
	}
}

func (s *Sim) accept(m *message, in *queue.Message) {
	s.byID[m.id] = m
	s.all = append(s.all, m)
	if !s.chance(8) {
		in.Reply = s.ask(ask{kind: askEnqueue, node: m.node, m: m})
	}
	m.node.Accept(in)
	m.node.later(func() {
		m.node.sides[queue.Main].seq++
		if m.ready <= s.Now {
			m.ready = 0
		}
		m.node.arrive(m, queue.Main, m.node.sides[queue.Main].seq)
		if m.expires != 0 && m.expires <= s.Now {
			m.own = true // it goes at once
		}
	})
}

// duplicate is a message whose dedupe id is known.
func (s *Sim) duplicate() {
	if len(s.all) == 0 {
		return
	}
	m := pick(s, s.all)
	if !m.dedupe || m.place == stuck {
		return
	}
	reply := s.ask(ask{kind: askDuplicate, node: m.node, m: m})
	m.node.Post(queue.Input{Kind: queue.Duplicate, ID: m.id, Reply: reply})
	m.node.later(func() {})
}

func (s *Sim) nodeOf(d *queue.Delivery) *node {
	m := s.byID[d.ID]
	if !slices.Contains(s.nodes, m.node) {
		return nil
	}
	return m.node
}

// answer says something about a delivery, current or not.
func (s *Sim) answer() {
	if len(s.open) == 0 {
		return
	}
	i := s.rnd.IntN(len(s.open))
	d := s.open[i]
	if !s.chance(3) { // otherwise it may be answered again
		s.open = slices.Delete(s.open, i, i+1)
	}
	s.say(&d, s.drawAck())
}

func (s *Sim) drawAck() wire.Ack {
	a := wire.Ack{Kind: pick(s, []wire.AckKind{
		wire.AckDone, wire.AckDone, wire.AckNack, wire.AckNack, wire.AckProgress, wire.AckTerm, wire.AckNoResponders,
	})}
	if a.Kind == wire.AckNack {
		a.Error = pick(s, []string{"", "boom"})
		if s.chance(2) {
			a.HasDelay, a.Delay = true, time.Duration(s.rnd.IntN(1500))*time.Millisecond
		}
		if s.chance(3) {
			a.RetryAfter = time.Duration(s.rnd.IntN(2000)) * time.Millisecond
		}
	}
	return a
}

// answerMany answers all that is open in one step of each machine.
func (s *Sim) answerMany() {
	kind := pick(s, []wire.AckKind{wire.AckDone, wire.AckDone, wire.AckNoResponders, wire.AckNack})
	open := s.open
	s.open = nil
	for i := range open {
		s.say(&open[i], wire.Ack{Kind: kind})
	}
}

// say answers a delivery.
func (s *Sim) say(d *queue.Delivery, a wire.Ack) {
	n := s.nodeOf(d)
	if n == nil {
		return
	}
	if a.Kind == wire.AckNoResponders && s.chance(2) {
		n.Post(queue.Input{Kind: queue.Undelivered, Side: d.Side, Token: d.Token})
		n.later(func() {
			if f := n.current(d.Side, d.Token); f != nil {
				n.takeBack(f)
			}
		})
		return
	}
	reply, q := "", ask{node: n}
	if a.Kind != wire.AckNoResponders && !s.chance(4) {
		reply = s.ask(q)
	}
	n.Post(queue.Input{Kind: queue.Acked, Side: d.Side, Token: d.Token, Ack: a, Reply: reply})
	n.later(func() { n.heard(d.Side, d.Token, a, reply) })
}

// heard does to the book what an answer does to a machine.
func (n *node) heard(side queue.Side, token wire.Token, a wire.Ack, reply string) {
	f := n.current(side, token)
	q := n.s.asks[reply]
	if q == nil {
		q = &ask{}
	}
	if f == nil {
		if a.Kind != wire.AckNoResponders {
			q.refused = true
			n.want.refused = append(n.want.refused, reply)
		}
		return
	}
	m := f.m
	q.m, q.f = m, f
	switch a.Kind {
	case wire.AckDone:
		n.tally(side).Acked++
		q.kind = askFinish
		n.complete(f, breaker.Success)
	case wire.AckProgress:
		f.deadline = n.Now + n.visibility()
		f.extended = append(f.extended, f.deadline)
		q.kind, q.value = askProgress, int64(len(f.extended))
	case wire.AckNack:
		n.tally(side).Nacked++
		q.kind, q.value = askFail, int64(m.attempts)+1
		n.fail(f, queue.Failure{
			Error: a.Error, Code: a.ErrorCode, HasDelay: a.HasDelay, Delay: int64(a.Delay), Reply: reply,
		}, int64(a.RetryAfter))
	case wire.AckTerm:
		if side == queue.Dead {
			q.kind = askFinish
			n.complete(f, breaker.Neutral)
			return
		}
		q.kind = askMove
		m.attempts++
		n.land(f, false)
		n.circuitDone(m, f.pass, breaker.Neutral)
		n.bury(m, wire.ReasonTerm)
	case wire.AckNoResponders:
		n.takeBack(f)
		n.unreachable(side, f)
	}
}

// unreachable is told that nobody received a delivery.
func (n *node) unreachable(side queue.Side, f *flight) {
	c := n.sides[side].clients[f.consumer]
	switch {
	case c == nil || c.reg != f.reg:
	case c.fetch:
		delete(n.sides[side].clients, c.name)
	case !c.restored || n.Now >= n.grace:
		n.lose(side, c, "no responders")
	case c.away == 0:
		c.away = n.Now + 250e6
	}
}

// wrongToken answers under a token that is not, or no longer, good: nothing happens.
func (s *Sim) wrongToken() {
	s.Run()
	n, side := s.anyNode(), s.anySide()
	token := wire.Token{Seq: s.rnd.Uint64N(n.sides[side].seq + 2), Attempt: 1, Lease: s.rnd.Uint64()}
	if len(s.open) > 0 && !s.chance(4) {
		d := pick(s, s.open)
		if n = s.nodeOf(&d); n == nil {
			return
		}
		side, token = d.Side, d.Token
		switch s.rnd.IntN(5) {
		case 0:
			token.Lease ^= 1 << s.rnd.IntN(64)
		case 1:
			token.Attempt += pick(s, []uint32{1, ^uint32(0)})
		case 2:
			token.Seq += pick(s, []uint64{1, ^uint64(0)})
		case 3:
			side = 1 - side
		case 4: // as it was
		}
	}
	if n.current(side, token) != nil {
		return
	}
	before := n.dump()
	steps := n.Steps
	a := s.drawAck()
	if a.Kind == wire.AckNoResponders {
		n.Post(queue.Input{Kind: queue.Undelivered, Side: side, Token: token})
		n.later(func() {})
	} else {
		reply := s.ask(ask{node: n})
		n.Post(queue.Input{Kind: queue.Acked, Side: side, Token: token, Ack: a, Reply: reply})
		n.later(func() { n.heard(side, token, a, reply) })
	}
	n.Step()
	require.Equal(s.T, steps+1, n.Steps)
	if out := &n.out; len(out.Commits)+len(out.Publish)+len(out.Judge)+len(out.Wake)+len(out.Circuits)+len(out.Notes) > 0 ||
		out.Tally != [queue.Sides]queue.Tally{} {
		require.Fail(s.T, "a wrong token has an effect", "%+v", *out)
	}
	require.Equal(s.T, before, n.dump(), "a wrong token changes something")
}

// dump is all that a machine shows of itself.
func (n *node) dump() string {
	var b strings.Builder
	for side := range queue.Sides {
		fmt.Fprintf(&b, "%+v\n%+v\n%+v\n", n.M.State(side, 100, n.Now), n.M.Consumers(side), n.M.Flows(side, 100))
		for _, v := range n.Peek(side) {
			fmt.Fprintf(&b, "%+v\n", v)
		}
	}
	return b.String()
}

// judgeSome answers failures, in any order.
func (s *Sim) judgeSome() {
	n := s.anyNode()
	for range 1 + s.rnd.IntN(3) {
		if len(n.Judge) > 0 {
			s.judge(n, s.rnd.IntN(len(n.Judge)), s.drawVerdict())
		}
	}
}

func (s *Sim) drawVerdict() queue.Verdict {
	v := queue.Verdict{Outcome: pick(s, []breaker.Outcome{breaker.Failure, breaker.Failure, breaker.Neutral}), ByHook: s.chance(2)}
	if s.chance(2) {
		v.Delay = s.rnd.Int64N(2e9)
	}
	if s.chance(5) {
		v.Reason = pick(s, []string{wire.ReasonOnFailure, wire.ReasonCritical})
	}
	return v
}

func (s *Sim) judge(n *node, i int, v queue.Verdict) {
	v.Failure = n.Judge[i]
	n.Judge = slices.Delete(n.Judge, i, i+1)
	n.Post(queue.Input{Kind: queue.Judged, Side: v.Side, Verdict: &v})
	n.later(func() {
		m := s.byID[v.ID]
		if m.place != judged || m.attempts != v.Attempts {
			require.Fail(s.T, "a verdict for nobody", "%s", m)
		}
		n.circuitDone(m, m.pass, v.Outcome)
		m.pass = 0
		n.conclude(m, v.Reason, v.Delay, v.ByHook)
	})
}

func (s *Sim) consume() {
	ttl := pick(s, []int64{0, 0, 500e6, 5e9})
	s.register(s.anyNode(), s.anySide(), pick(s, []string{"w1", "w2"}), 1+s.rnd.IntN(5), ttl)
}

func (s *Sim) register(n *node, side queue.Side, name string, credit int, ttl int64) {
	subject := "deliver." + name
	delete(s.vanished, fmt.Sprint(n.Name, side, subject))
	c := queue.Register{Consumer: name, Subject: subject, MaxInFlight: credit, TTL: ttl}
	if !s.chance(4) {
		c.Reply, c.Answer = s.ask(ask{kind: askData, node: n, data: "hello"}), []byte("hello")
	}
	n.tell(side, c, func() {
		s.arrivals++
		c := &client{name: name, limit: credit, reg: s.arrivals}
		if ttl > 0 {
			c.expires = s.Now + ttl
		}
		if n.sides[side].clients[name] == nil {
			n.want.notes = append(n.want.notes, fmt.Sprint("joined ", side, " ", name, " ", credit))
		}
		n.sides[side].clients[name] = c
	})
}

func (s *Sim) leave() {
	n, side, name := s.anyNode(), s.anySide(), pick(s, []string{"w1", "w2"})
	q := ask{kind: askData, node: n}
	reply := s.ask(q)
	n.tell(side, queue.Leave{Consumer: name, Reply: reply, Left: []byte("left"), NotThere: []byte("not there")}, func() {
		answer := "not there"
		if n.sides[side].clients[name] != nil {
			answer = "left"
			delete(n.sides[side].clients, name)
		}
		s.asks[reply].data = answer
	})
}

func (s *Sim) fetch() {
	n, side := s.anyNode(), s.anySide()
	s.inboxes++
	f := queue.Fetch{
		Inbox: fmt.Sprint("_INBOX.", s.inboxes), Batch: 1 + s.rnd.IntN(5), Expires: pick(s, []int64{0, 200e6, 5e9}),
	}
	n.tell(side, f, func() {
		s.arrivals++
		c := &client{name: f.Inbox, fetch: true, limit: f.Batch, reg: s.arrivals, noWait: f.Expires == 0}
		if f.Expires > 0 {
			c.expires = s.Now + f.Expires
		}
		n.sides[side].clients[f.Inbox] = c
	})
}

// vanish takes a consumer away without a word: the server says that nobody receives
// what is sent to it.
func (s *Sim) vanish() {
	n, side := s.anyNode(), s.anySide()
	clients := sortedClients(n.sides[side].clients)
	if len(clients) == 0 {
		return
	}
	c := pick(s, clients)
	subject := c.name
	if !c.fetch {
		subject = "deliver." + c.name
	}
	s.vanished[fmt.Sprint(n.Name, side, subject)] = true
}

// answerForTheVanished has the server answer what nobody receives.
func (s *Sim) answerForTheVanished() {
	s.open = slices.DeleteFunc(s.open, func(d queue.Delivery) bool {
		n := s.nodeOf(&d)
		if n == nil {
			return true
		}
		if !s.vanished[fmt.Sprint(n.Name, d.Side, d.Subject)] || s.chance(3) {
			return false
		}
		n.Post(queue.Input{Kind: queue.Acked, Side: d.Side, Token: d.Token, Ack: wire.Ack{Kind: wire.AckNoResponders}})
		n.later(func() { n.heard(d.Side, d.Token, wire.Ack{Kind: wire.AckNoResponders}, "") })
		return true
	})
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

// toNextTimer goes to the time that a machine waits for, and reports whether there is
// any.
func (s *Sim) toNextTimer() bool {
	s.Run()
	next := s.Next()
	if next >= time.Hour {
		return false // a machine looks up once an hour, with nothing to look for
	}
	s.goOn(int64(next))
	return true
}

func (s *Sim) changeLimit() {
	key := throttleKey(s.rnd.IntN(throttleKeys))
	l := s.drawLimits()
	if s.chance(3) { // what is kept goes on
		old := s.gate(key).limits
		l.Rate, l.Burst = old.Rate, old.Burst
	}
	s.setLimit(key, l)
}

// pause holds something for a while, or until it is resumed.
func (s *Sim) pause() {
	until := int64(queue.Forever)
	if !s.chance(4) {
		until = s.Now + pick(s, []int64{1, 500e6, 3e9})
	}
	s.hold(until)
}

func (s *Sim) resume() { s.hold(0) }

func (s *Sim) hold(until int64) {
	switch s.rnd.IntN(6) {
	case 0:
		s.pauseQueue(s.anyNode(), s.anySide(), until)
	case 1, 2:
		s.pauseKey(s.anyNode(), s.anySide(), pick(s, []string{"a", "b", "c", plainKeys[0]}), until)
	case 3, 4:
		s.pauseThrottle(throttleKey(s.rnd.IntN(throttleKeys)), until)
	default:
		s.pauseCircuit(pick(s, []string{"c0", "c1"}), until)
	}
}

func (s *Sim) pauseQueue(n *node, side queue.Side, until int64) {
	n.tell(side, queue.PauseQueue{Until: until}, func() { n.sides[side].paused = until })
}

func (s *Sim) pauseKey(n *node, side queue.Side, key string, until int64) {
	n.tell(side, queue.PauseKey{Key: key, Until: until}, func() { n.holdKey(side, key, until) })
}

func (n *node) holdKey(side queue.Side, key string, until int64) {
	if until == 0 {
		delete(n.sides[side].keys, key)
		return
	}
	n.sides[side].keys[key] = until
	n.sides[side].fair.spoil(key)
}

func (s *Sim) pauseThrottle(key string, until int64) {
	s.gate(key).paused = until
	if until <= s.clock.last {
		s.gate(key).paused = 0
	}
	s.PauseThrottle(key, until)
}

func (s *Sim) pauseCircuit(key string, until int64) {
	if c := s.circuit(key); until == 0 {
		delete(s.pauses, key)
		c.release(s.Now)
	} else {
		s.pauses[key] = until
		c.open(s.Now, until)
	}
	s.PauseCircuit(key, until)
}

func (s *Sim) weigh() {
	n, side, key := s.anyNode(), s.anySide(), pick(s, []string{"a", plainKeys[0], plainKeys[1]})
	weight := pick(s, []uint32{0, 1000, 5000})
	n.tell(side, queue.Weigh{Key: key, Weight: weight}, func() { n.weighed(side, key, weight) })
}

func (n *node) weighed(side queue.Side, key string, weight uint32) {
	book := n.sides[side]
	if weight != 0 {
		book.overrides[key] = weight
		book.fair.weigh(key, int64(weight))
		return
	}
	delete(book.overrides, key)
	book.fair.weigh(key, int64(book.latest[key]))
}

func (s *Sim) changeSettings() {
	n := s.anyNode()
	set := n.Rig.Settings
	s.drawSettings(&set)
	n.Rig.Settings = set
	n.tell(queue.Main, set, func() {
		if n.settings.Ordering != set.Ordering || n.settings.OnBlocked != set.OnBlocked {
			for _, m := range s.all {
				m.exempt = m.exempt || m.node == n
			}
		}
		if n.settings.Quantum != set.Quantum {
			n.sides[queue.Main].fair.resetAll()
			n.sides[queue.Dead].fair.resetAll()
		}
		n.settings = set
	})
}

// switchDispatch is a connection that is lost, or found again.
func (s *Sim) switchDispatch() {
	n, on := s.anyNode(), !s.chance(3)
	n.tell(queue.Main, queue.Dispatch{On: on}, func() { n.dispatching = on })
}

// redrive goes one step on with a redrive: pick, move or put back.
func (s *Sim) redrive() {
	n := s.anyNode()
	if len(n.picks) == 0 || s.chance(3) {
		if n.picking {
			return // one pick at a time has an answer
		}
		n.picking = true
		p := queue.Pick{From: s.rnd.Uint64N(3), Last: n.M.LastSeq(queue.Dead), Max: 1 + s.rnd.IntN(3)}
		n.tell(queue.Dead, p, func() { n.picked(p) })
		return
	}
	letters := n.picks[0]
	n.picks = n.picks[1:]
	s.decide(n, letters, func() bool { return !s.chance(4) })
}

// picked expects the oldest dead letters that wait.
func (n *node) picked(p queue.Pick) {
	var found []*message
	for _, m := range n.s.all {
		if m.node == n && m.side == queue.Dead && m.isReady() && m.seq >= p.From && m.seq <= p.Last {
			found = append(found, m)
		}
	}
	slices.SortFunc(found, func(a, b *message) int { return int(a.seq) - int(b.seq) })
	n.picking, n.want.pick = false, true
	for _, m := range found[:min(p.Max, len(found))] {
		m.place = picked
		n.sides[queue.Dead].fair.reset(m.key)
		n.want.letters = append(n.want.letters, m.seq)
	}
}

// decide lets letters go back to their queue that may, and the others stay.
func (s *Sim) decide(n *node, letters []queue.Letter, may func() bool) {
	c := queue.Redrive{Ticket: n}
	var going, staying []*message
	for _, l := range letters {
		m := s.byID[l.Message.ID]
		if !may() {
			c.Stay = append(c.Stay, l.Seq)
			staying = append(staying, m)
			continue
		}
		g := queue.Redriven{From: l.Seq, Message: l.Message, Size: l.Size}
		to := message{key: pick(s, []string{m.key, "a"})}
		if plainKey(to.key) < 0 && s.chance(2) {
			to.keys = []string{throttleKey(s.rnd.IntN(throttleKeys))}
		}
		g.Message.Key, g.Message.ThrottleKeys = to.key, slices.Clone(to.keys)
		if counts, ok := n.settings.PerKey.(*keyCount); ok {
			counts.Add(to.key, 1)
			g.Counted, m.counted = counts, counts
		}
		c.Go = append(c.Go, g)
		going = append(going, m)
	}
	n.tell(queue.Dead, c, func() {
		for _, m := range staying {
			m.place, m.own = waiting, true // at the head, also of older ones that were not picked
			m.back++
			n.sides[queue.Dead].fair.putBack(m.key, m.cost)
		}
		for i, m := range going {
			m.place = moving
			n.sides[queue.Main].seq++
			c.Go[i].Message.Ref = store.Ref{Queue: n.IDs[queue.Main], Seq: n.sides[queue.Main].seq}
			t := n.tally(queue.Main)
			t.Messages++
			t.Bytes += m.size
		}
	})
}

// refuseMoves has the disk refuse what is moved, since it cannot be read, or take it
// again.
func (s *Sim) refuseMoves() {
	if s.Disk.Refuse != nil || !s.chance(3) {
		s.Disk.Refuse = nil
		return
	}
	s.Disk.Refuse = func(b *store.Batch) error {
		if len(b.Move) > 0 {
			return &store.CorruptError{File: "fila.db", Part: "segment", Reason: "checksum does not match"}
		}
		return nil
	}
}

// replaceQueue deletes a queue and makes another one.
func (s *Sim) replaceQueue() {
	if !s.chance(3) {
		return
	}
	n := s.anyNode()
	n.finishing = true
	s.Delete(n.Rig)
	for _, m := range s.all {
		if m.node == n {
			for _, k := range m.keys {
				if m.place == leased {
					s.gate(k).inFlight--
				}
			}
			switch {
			case m.place == leased:
				n.circuitDone(m, m.flight.pass, breaker.Neutral)
			case m.place == judged:
				n.circuitDone(m, m.pass, breaker.Neutral)
			}
			m.place = gone
		}
	}
	s.nodes = slices.DeleteFunc(s.nodes, func(o *node) bool { return o == n })
	s.forgetAsks(n)
	s.create()
	s.Run()
}

func (s *Sim) forgetAsks(n *node) {
	for subject, a := range s.asks {
		if a.node == n {
			delete(s.asks, subject)
		}
	}
}
