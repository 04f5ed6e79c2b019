package queuetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/throttle/adapt"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

func (s *Sim) create() {
	set := queue.Settings{QueueSettings: wire.DefaultQueueSettings(fmt.Sprint("q", s.Fleet.queues))}
	s.drawSettings(&set)
	set.PriorityAgeMs = pick(s, []int64{1, 300, 2000})
	if s.chance(4) {
		set.PriorityReserved = 5
	}
	n := &node{s: s, settings: set, priorities: s.chance(2), failures: make(map[string]*failureModel), grace: s.Now + 60e9}
	for i := range n.sides {
		n.sides[i] = newRoleModel()
	}
	n.later(func() { n.dispatching = true })
	n.Rig = s.Create(set)
	s.nodes = append(s.nodes, n)
	s.byRig[n.Rig] = n
	credit := 1 + s.rnd.IntN(4)
	if s.learns {
		credit += 4
	}
	s.register(n, queue.Main, "w1", credit, 0)
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
	if q.StarveAfterMs = 0; s.chance(2) {
		q.StarveAfterMs = wire.MinStarveAfterMs
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

// drawLimits draws limits of a throttle key such that a simulation runs into them.
func (s *Sim) drawLimits(key string) (l throttle.Limits) {
	kinds := s.rnd.IntN(8)
	switch {
	case s.learns && key == learning:
		kinds = pick(s, []int{1, 4, 4, 5})
	case s.spends && key == spending && !s.chance(4):
		kinds = 0
	}
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
	if s.learns && (key == learning || s.chance(2)) {
		s.learnSome(&l)
	}
	if s.spends && (key == spending || s.chance(4)) {
		s.spendSome(&l)
	}
	return l
}

func (s *Sim) setLimit(key string, l throttle.Limits) {
	if l.Budget.Amount != 0 && s.gate(key).limits.Budget.Amount == 0 {
		s.goOn(1) // deliveries of the very moment are not told from later ones
	}
	s.gate(key).limit(l)
	s.Limit(key, l)
	s.seeLimits()
}

func (s *Sim) changeLimit() {
	key := throttleKey(s.rnd.IntN(throttleKeys))
	l := s.drawLimits(key)
	if s.chance(3) { // what is kept goes on
		old := s.gate(key).limits
		l.Rate, l.Burst = old.Rate, old.Burst
	}
	if l.Rate.Per == 0 && l.Concurrency == 0 { // nothing can learn
		l.Adapt, l.Level = adapt.Settings{}, 0
	}
	s.setLimit(key, l)
}

// pause pauses something for a while, or until it is resumed.
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

func (s *Sim) pauseQueue(n *node, side queue.Role, until int64) {
	n.tell(side, queue.PauseQueue{Until: until}, func() { n.sides[side].paused = until })
}

func (s *Sim) pauseKey(n *node, side queue.Role, key string, until int64) {
	n.tell(side, queue.PauseKey{Key: key, Until: until}, func() { n.holdKey(side, key, until) })
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

func (s *Sim) changeSettings() {
	n := s.anyNode()
	set := n.Rig.Settings
	s.drawSettings(&set)
	s.setSettings(n, set)
}

func (s *Sim) setSettings(n *node, set queue.Settings) {
	n.Rig.Settings = set
	n.tell(queue.Main, set, func() {
		if n.settings.Ordering != set.Ordering || n.settings.OnBlocked != set.OnBlocked {
			for _, m := range s.all {
				m.exempt = m.exempt || m.node == n
			}
			n.reordered = true
		}
		if n.settings.Quantum != set.Quantum {
			n.sides[queue.Main].fair.resetAll()
			n.sides[queue.Dead].fair.resetAll()
		}
		n.settings = set
	})
}

// switchDispatch models a connection that is lost, or comes back.
func (s *Sim) switchDispatch() {
	n, on := s.anyNode(), !s.chance(3)
	n.tell(queue.Main, queue.Dispatch{On: on}, func() { n.dispatching = on })
}

// job makes one step of a job about dead letters: claim, or move, remove or unclaim.
func (s *Sim) job() {
	n := s.anyNode()
	if len(n.picks) == 0 || s.chance(3) {
		if n.picking {
			return // one claim at a time has an answer
		}
		n.picking = true
		var p queue.Claim
		for _, m := range s.all { // in the order of their enqueues, in which they did not die
			if m.node == n && m.side == queue.Dead && len(p.Messages) < 3 && !s.chance(3) {
				p.Messages = append(p.Messages, queue.MessageRef{Seq: m.seq, ID: m.id})
			}
		}
		if s.chance(5) {
			p.Messages = append(p.Messages, queue.MessageRef{Seq: 1 + s.rnd.Uint64N(9)})
		}
		n.tell(queue.Dead, p, func() { n.claimed(queue.Dead, p) })
		return
	}
	claimed := n.picks[0]
	n.picks = n.picks[1:]
	end := goesBack
	if s.chance(4) {
		end = isRemoved
	}
	s.decide(n, claimed, func() fate {
		if s.chance(4) {
			return stays
		}
		return end
	})
}

// liveJob is a batch of a job about messages of Main: those that wait are
// canceled, made ready, or go to the end of their queue with another time, another key and
// gates, or another content. As in jobs, nothing else happens between the claim and its
// completion.
func (s *Sim) liveJob() {
	s.Run()
	n := s.anyNode()
	if n.picking || len(n.picks) > 0 {
		return
	}
	op := pick(s, []string{api.JobCancel, api.JobRunNow, api.JobDelay, api.JobReprioritise, api.JobEdit})
	p := queue.Claim{Delayed: op == api.JobRunNow}
	for _, m := range s.all {
		if m.node != n || m.side != queue.Main || len(p.Messages) == 3 || s.chance(3) || op == api.JobEdit && !s.editable(m) {
			continue
		}
		p.Messages = append(p.Messages, queue.MessageRef{Seq: m.seq, ID: m.id})
	}
	if s.chance(5) {
		p.Messages = append(p.Messages, queue.MessageRef{Seq: 1 + s.rnd.Uint64N(9)})
	}
	n.picking = true
	n.tell(queue.Main, p, func() { n.claimed(queue.Main, p) })
	n.Step()
	if len(n.picks) == 0 {
		return
	}
	claimed := n.picks[0]
	n.picks = nil
	s.completeLive(n, op, claimed)
}

// editable reports whether everything about a message is on disk, which an
// edit needs.
func (s *Sim) editable(m *message) bool {
	b := &m.past
	return len(b.expected) == 0 && b.kept == len(b.records) && len(bounded(b.records)) < store.MaxHistory && s.Disk.ids[m.ref()] == m.id
}

func (m *message) ref() store.Ref { return store.Ref{Queue: m.node.IDs[m.side], Seq: m.seq} }

// completeLive completes claimed messages.
func (s *Sim) completeLive(n *node, op string, claimed []queue.ClaimedMessage) {
	c := n.completion(queue.Main)
	for _, l := range claimed {
		m := s.byID[l.Message.ID]
		switch {
		case s.chance(5):
			c.unclaim(m)
		case op == api.JobCancel:
			c.finish(m)
		case op == api.JobRunNow:
			c.Ready = append(c.Ready, m.seq)
			c.then = append(c.then, func() { m.place, m.ready = waiting, 0 })
		default:
			m.going = &going{Moved: s.changed(n, m, op, &l)}
			if counts, ok := m.going.Counted.(*keyCount); ok {
				m.going.counted = counts
			}
			c.move(m, m.going.Moved)
		}
	}
	c.post()
}

// completion is a Complete of a job, with what it does to the model.
type completion struct {
	queue.Complete
	n    *node
	side queue.Role // of the messages
	then []func()
}

func (n *node) completion(side queue.Role) *completion {
	return &completion{n: n, side: side, Complete: queue.Complete{Ticket: n, Put: []store.Entry{{Key: "job", Value: "so far"}}}}
}

func (c *completion) unclaim(m *message) {
	c.Unclaim = append(c.Unclaim, m.seq)
	c.then = append(c.then, func() { c.n.stays(m) })
}

func (c *completion) finish(m *message) {
	c.Finish = append(c.Finish, m.seq)
	c.then = append(c.then, func() {
		c.n.counters(c.side).Removed++
		c.n.drop(m)
	})
}

// move moves m to the end of Main.
func (c *completion) move(m *message, g queue.Moved) {
	c.Move = append(c.Move, g)
	c.then = append(c.then, func() {
		m.place = moving
		c.n.sides[queue.Main].seq++
		if m.going != nil {
			m.going.Message.Seq = c.n.sides[queue.Main].seq
		}
		t := c.n.counters(queue.Main)
		t.Messages++
		t.Bytes += m.size
	})
}

func (c *completion) post() {
	c.n.tell(c.side, c.Complete, func() {
		for _, fn := range c.then {
			fn()
		}
	})
}

// changed is a message after an edit.
func (s *Sim) changed(n *node, m *message, op string, l *queue.ClaimedMessage) queue.Moved {
	g := queue.Moved{From: l.Seq, Message: l.Message, Size: l.Size}
	to := &g.Message
	to.Ref = store.Ref{Queue: n.IDs[queue.Main]}
	to.ThrottleKeys, to.CircuitKey, to.Priority = slices.Clone(m.ThrottleKeys), m.CircuitKey, m.Priority
	switch op {
	case api.JobDelay:
		to.NotBefore, to.Delayed = s.Now+s.rnd.Int64N(2e9), false
	case api.JobReprioritise:
		to.Weight = pick(s, []uint32{1000, 2500})
		if n.priorities {
			to.Priority = pick(s, []uint8{0, 5, 9})
		}
		if plainKey(m.Key) < 0 {
			to.Key = pick(s, []string{"a", "b", "c"})
			to.ThrottleKeys = []string{throttleKey(s.rnd.IntN(throttleKeys))}
			if s.chance(2) {
				to.Routes = s.drawRoutes()
			}
		}
		if counts, ok := n.settings.PerKey.(*keyCount); ok {
			counts.Add(to.Key, 1)
			g.Counted = counts
		}
	case api.JobEdit:
		to.Payload = make([]byte, m.size)
		g.Edited = true
		if err := s.Disk.History([]store.Ref{m.ref()}, func(_ int, records [][]byte) { g.History = slices.Clone(records) }); err != nil {
			panic(err) // it is there, and a model in memory does not fail
		}
	}
	return g
}

// lands adds a message to the end of its role, where a job has moved it.
func (n *node) lands(m *message) {
	to := &m.going.Message
	n.drop(m)
	m.going = nil
	m.classify(to.Class)
	if m.ready = 0; to.NotBefore > n.Now {
		m.ready = to.NotBefore
	}
	m.own, m.redriven, m.exempt, m.back, m.hurried = true, true, false, 0, hurry{}
	n.arrive(m, queue.Main, to.Seq)
}

// fate is the end of a claimed dead letter.
type fate uint8

const (
	stays fate = iota
	goesBack
	isRemoved
)

// byHand is a request of an operator, with its expected result.
type byHand struct {
	queue.Handled
	m        *message // nil: it is a purge
	hurrying bool     // the message is to be made ready
	hurry    hurry    // as of then
	picks    int      // of m, as of then
	removed  []*message
}

// purge removes some of the waiting messages of a role.
func (s *Sim) purge() {
	n, side := s.anyNode(), s.anySide()
	h := &byHand{}
	last := n.M.LastSeq(side)
	p := queue.Purge{From: s.rnd.Uint64N(last + 1), Last: last, Max: 1 + s.rnd.IntN(8), Ticket: h}
	n.byHand(side, p, h, func() {
		var there []*message
		for _, m := range s.all {
			if m.node == n && m.side == side && m.placed() && m.seq >= p.From && m.seq <= p.Last {
				there = append(there, m)
			}
		}
		slices.SortFunc(there, func(a, b *message) int { return int(a.seq) - int(b.seq) })
		if len(there) > p.Max {
			h.Next = there[p.Max].seq
			there = there[:p.Max]
		}
		n.remove(h, there)
	})
}

// removeOne removes a message, if it waits.
func (s *Sim) removeOne() {
	if len(s.all) == 0 {
		return
	}
	h := &byHand{m: pick(s, s.all)}
	n, side, seq := h.m.node, h.m.side, h.m.seq
	n.byHand(side, queue.Remove{Seq: seq, ID: h.m.id, Ticket: h}, h, func() {
		if h.find(side, seq) {
			n.remove(h, []*message{h.m})
		}
	})
}

// runNow ends the delay of a message, if it has one: more often of one that has.
func (s *Sim) runNow() {
	var delayed []*message
	for _, m := range s.all {
		if m.place == waiting && m.ready > 0 {
			delayed = append(delayed, m)
		}
	}
	if len(delayed) == 0 || s.chance(4) {
		delayed = s.all
	}
	if len(delayed) == 0 {
		return
	}
	h := &byHand{m: pick(s, delayed), hurrying: true}
	side, seq := h.m.side, h.m.seq
	h.m.node.byHand(side, queue.RunNow{Seq: seq, ID: h.m.id, Ticket: h}, h, func() {
		if h.find(side, seq) && h.m.place == waiting {
			h.m.ready, h.hurry, h.picks = 0, hurry{attempts: h.m.attempts, at: s.Now}, h.m.picks
		}
	})
}

// byHand posts a request of an operator. A step has one answer.
func (n *node) byHand(side queue.Role, c queue.Change, h *byHand, fn func()) {
	if n.handling {
		return
	}
	n.handling = true
	n.tell(side, c, func() {
		n.handling, n.want.handled = false, h
		fn()
	})
}

// find expects the message to be found if it is there.
func (h *byHand) find(side queue.Role, seq uint64) bool {
	m := h.m
	if h.Found = m.placed() && m.side == side && m.seq == seq; !h.Found {
		return false
	}
	switch {
	case m.place == leased:
		h.State = inspect.StateLeased
	case m.place == judged:
		h.State = inspect.StateFailing
	case m.place != waiting:
		h.State = inspect.StateMoving
	case m.ready > 0:
		h.State = inspect.StateDelayed
	default:
		h.State = inspect.StatePending
	}
	return true
}

// remove drops those that wait.
func (n *node) remove(h *byHand, from []*message) {
	for _, m := range from {
		if m.place != waiting {
			continue
		}
		h.removed = append(h.removed, m)
		h.Done++
		n.counters(m.side).Removed++
		n.sides[m.side].fair.reset(m.Key)
		n.drop(m)
	}
}

// decide redrives, removes or unclaims dead letters.
func (s *Sim) decide(n *node, claimed []queue.ClaimedMessage, of func() fate) {
	c := n.completion(queue.Dead)
	for _, l := range claimed {
		m := s.byID[l.Message.ID]
		switch of() {
		case stays:
			c.unclaim(m)
		case isRemoved:
			c.finish(m)
		case goesBack:
			g := queue.Moved{From: l.Seq, Message: l.Message, Size: l.Size}
			to := &g.Message
			to.Ref = store.Ref{Queue: n.IDs[queue.Main]}
			if to.Key = pick(s, []string{m.Key, "a"}); plainKey(to.Key) < 0 && s.chance(2) {
				to.ThrottleKeys = []string{throttleKey(s.rnd.IntN(throttleKeys))}
			}
			if counts, ok := n.settings.PerKey.(*keyCount); ok {
				counts.Add(to.Key, 1)
				g.Counted, m.counted = counts, counts
			}
			c.move(m, g)
		}
	}
	c.post()
}

// refuseMoves makes the disk refuse moves, as if it could not read the record, and bookings, or
// accept them again.
func (s *Sim) refuseMoves() {
	if s.Disk.Refuse != nil || !s.chance(3) {
		s.Disk.Refuse = nil
		return
	}
	s.Disk.Refuse = func(b *store.Batch) error {
		if len(b.Move) > 0 || len(b.PutConfig) == 1 && strings.HasPrefix(b.PutConfig[0].Key, keptBudget) {
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
			switch {
			case m.place == leased:
				for _, k := range m.flight.by.throttles {
					s.gate(k).inFlight--
				}
				n.circuitDone(m.flight, breaker.Neutral)
			case m.place == judged:
				n.circuitDecided(m, breaker.Neutral)
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

func (n *node) holdKey(side queue.Role, key string, until int64) {
	if until == 0 {
		delete(n.sides[side].keys, key)
		return
	}
	n.sides[side].keys[key] = until
	n.sides[side].fair.spoil(key)
}

func (n *node) weighed(side queue.Role, key string, weight uint32) {
	model := n.sides[side]
	if weight != 0 {
		model.overrides[key] = weight
		model.fair.weigh(key, int64(weight))
		return
	}
	delete(model.overrides, key)
	model.fair.weigh(key, int64(model.latest[key]))
}

// stays unclaims a message: it returns to the head of its flow, before older ones that were not
// claimed, unless it is delayed.
func (n *node) stays(m *message) {
	m.place = waiting
	if m.ready > n.Now {
		return
	}
	m.ready, m.own, m.hurried = 0, true, hurry{} // it is ready since now
	m.back++
	n.sides[m.side].fair.putBack(m.Key, int64(m.Cost))
}

// claimed expects the named messages that wait to be claimed.
func (n *node) claimed(side queue.Role, p queue.Claim) {
	n.picking, n.want.pick = false, true
	for _, named := range p.Messages {
		m := n.s.byID[named.ID]
		if m == nil || m.node != n || m.side != side || m.seq != named.Seq || m.place != waiting || p.Delayed && m.ready == 0 {
			continue
		}
		m.place = claimed
		m.picks++
		n.sides[side].fair.reset(m.Key)
		n.want.claimed = append(n.want.claimed, m.seq)
	}
}
