package sidecar

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/filaq/fila/hooks"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// machine drives a queue and its dead letter queue at random and knows what
// must have become of every message.
type machine struct {
	*rig
	rt *rapid.T

	messages map[store.ID]*expected
	open     []sent // deliveries that have not been answered, stale ones among them
	attempts map[string]bool
	redrives []redriveInFlight
	inboxes  int
}

// expected is what is known of a message.
type expected struct {
	older    bool // from before the last restart
	finished int  // 1: done; -1: done before the last restart; 0: not finished
}

// redriveInFlight is a chunk of dead letters taken out of the scheduler.
type redriveInFlight struct {
	items []redriveItem
	moved bool // submitted to the store
}

// TestLoopMachine is the loop against a model: after every step its parts agree
// with each other, no token but the current one acts, and what the disk has
// confirmed survives restarts and crashes.
func TestLoopMachine(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &machine{rt: rt, messages: make(map[store.ID]*expected), attempts: make(map[string]bool)}
		hook := rapid.Bool().Draw(rt, "on_failure")
		m.rig = newRig(rt, func(s *wire.QueueSettings) {
			s.VisibilityTimeoutMs = 1000
			s.Quantum = rapid.Int64Range(1, 3).Draw(rt, "quantum")
			if n := rapid.Int64Range(-1, 3).Draw(rt, "max_deliveries"); n >= 0 {
				s.MaxDeliveries = &n
			}
			if hook {
				s.OnFailure = "function on_failure(msg) end" // the test decides itself
			}
		})
		if rapid.Bool().Draw(rt, "hold") {
			m.paced = defaultPacing
			m.paced.load = rapid.SampledFrom([]int{1, 16}).Draw(rt, "load")
			m.core.pacing = m.paced
		}
		if hook {
			p := *m.q.policy.Load()
			p.onFailure = &guard{}
			m.q.policy.Store(&p)
		}
		m.run()
		rt.Repeat(map[string]func(*rapid.T){
			"enqueue":    m.enqueueOne,
			"enqueue2":   m.enqueueOne,
			"commit":     func(rt *rapid.T) { m.st.commit(rapid.IntRange(1, 5).Draw(rt, "batches")); m.run() },
			"answer":     m.answer,
			"answer2":    m.answer,
			"answerMany": m.answerMany,
			"decide":     m.decide,
			"consume":    m.consumeOne,
			"leave":      m.leave,
			"fetch":      m.fetchOne,
			"undeliver":  m.undeliver,
			"time":       func(rt *rapid.T) { m.pass(time.Duration(rapid.IntRange(1, 3000).Draw(rt, "ms")) * time.Millisecond) },
			"offline":    m.offline,
			"weight":     m.weigh,
			"redrive":    m.redriveStep,
			"restart":    m.restartOne,
			"":           func(*rapid.T) { m.check() },
		})
		m.drain()
	})
}

func (m *machine) committed() int { return m.st.mu.committed }

func (m *machine) anyQueue(rt *rapid.T) *queue {
	if rapid.IntRange(0, 3).Draw(rt, "dlq") == 0 {
		return m.dlq
	}
	return m.q
}

func (m *machine) enqueueOne(rt *rapid.T) {
	key := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "key")
	id := m.enqueue(key, func(msg *store.Message) {
		msg.Weight = rapid.SampledFrom([]uint32{1000, 2500, 3000}).Draw(rt, "weight")
		msg.Cost = rapid.SampledFrom([]uint32{1, 1000, 7000}).Draw(rt, "cost")
		if d := rapid.IntRange(-1000, 2000).Draw(rt, "delay"); d > 0 {
			msg.NotBefore = m.now + int64(d)*1e6
		}
		if d := rapid.IntRange(-4000, 4000).Draw(rt, "ttl"); d > 0 {
			msg.ExpiresAt = m.now + int64(d)*1e6
		}
	})
	m.messages[id] = &expected{}
}

// answer says something about a delivery, current or not.
func (m *machine) answer(rt *rapid.T) {
	m.gather()
	if len(m.open) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.open)-1).Draw(rt, "delivery")
	d := m.open[i]
	a := wire.Ack{Kind: rapid.SampledFrom([]wire.AckKind{
		wire.AckDone, wire.AckDone, wire.AckNack, wire.AckNack, wire.AckProgress, wire.AckTerm, wire.AckNoResponders,
	}).Draw(rt, "kind")}
	if a.Kind == wire.AckNack && rapid.Bool().Draw(rt, "explicit") {
		a.HasDelay, a.Delay = true, time.Duration(rapid.IntRange(0, 1500).Draw(rt, "delay"))*time.Millisecond
	}
	m.tell(d, a)
	if rapid.Bool().Draw(rt, "forget") { // otherwise it may be answered again
		m.open = append(m.open[:i], m.open[i+1:]...)
	}
}

// tell answers d and checks that only a current lease lets it act.
func (m *machine) tell(d sent, a wire.Ack) {
	s := m.loop(d.q).leased(d.token())
	current := s != nil
	before := *m.shape(d.q)
	m.ack(d, a, "reply")
	if !current {
		require.Equal(m.rt, before, *m.shape(d.q), "a stale %s changed something", a.Kind)
		return
	}
	if a.Kind == wire.AckDone || (a.Kind == wire.AckTerm && d.q.isDLQ()) {
		m.messages[d.id].finished = 1
	}
}

// shape is what a stale token must not change.
func (m *machine) shape(q *queue) *[5]int64 {
	l := m.loop(q)
	return &[5]int64{
		l.slots.live, int64(l.leases.live), int64(l.sched.Len()), int64(l.failing),
		int64(len(l.delays.items)),
	}
}

// answerMany answers all that is open in one turn.
func (m *machine) answerMany(rt *rapid.T) {
	m.gather()
	kind := rapid.SampledFrom([]wire.AckKind{wire.AckDone, wire.AckNoResponders, wire.AckNack}).Draw(rt, "kind")
	for _, d := range m.open {
		m.tell(d, wire.Ack{Kind: kind})
	}
	m.open = nil
}

func (m *machine) decide(rt *rapid.T) {
	m.decideAll(func() hooks.FailureDecision {
		d := hooks.FailureDecision{Decided: rapid.Bool().Draw(rt, "decided")}
		if d.Decided && rapid.Bool().Draw(rt, "dlq") {
			d.Action = hooks.DeadLetter
		}
		d.Delay = time.Duration(rapid.IntRange(0, 1500).Draw(rt, "delay")) * time.Millisecond
		return d
	})
}

// decideAll answers for on_failure.
func (m *machine) decideAll(decide func() hooks.FailureDecision) {
	jobs := m.jobs
	m.jobs = nil
	for _, job := range jobs {
		m.post(m.q, event{kind: evDecided, decided: &decidedFailure{failureJob: job, decision: decide()}})
	}
}

func (m *machine) consumeOne(rt *rapid.T) {
	name := rapid.SampledFrom([]string{"w1", "w2", "w3"}).Draw(rt, "consumer")
	ttl := time.Duration(rapid.SampledFrom([]int{0, 500, 5000}).Draw(rt, "ttl")) * time.Millisecond
	m.consume(m.anyQueue(rt), name, rapid.IntRange(1, 4).Draw(rt, "credit"), ttl)
}

func (m *machine) leave(rt *rapid.T) {
	name := rapid.SampledFrom([]string{"w1", "w2", "w3"}).Draw(rt, "consumer")
	m.post(m.anyQueue(rt), event{kind: evCall, call: func(l *loop) {
		l.leave(name, "reply", func(bool) []byte { return nil })
	}})
}

func (m *machine) fetchOne(rt *rapid.T) {
	m.inboxes++
	expires := time.Duration(rapid.SampledFrom([]int{0, 200, 5000}).Draw(rt, "expires")) * time.Millisecond
	m.fetch(m.anyQueue(rt), fmt.Sprint("_INBOX.", m.inboxes), rapid.IntRange(1, 5).Draw(rt, "batch"), expires)
}

// undeliver is a publish that failed.
func (m *machine) undeliver(rt *rapid.T) {
	m.gather()
	if len(m.open) == 0 {
		return
	}
	d := rapid.SampledFrom(m.open).Draw(rt, "delivery")
	m.post(d.q, event{kind: evUndelivered, token: d.token()})
}

func (m *machine) offline(rt *rapid.T) {
	m.core.offline.Store(rapid.Bool().Draw(rt, "offline"))
	m.q.mail.poke()
	m.dlq.mail.poke()
	m.run()
}

func (m *machine) weigh(rt *rapid.T) {
	weight := rapid.SampledFrom([]uint32{0, 1000, 5000}).Draw(rt, "weight")
	key := rapid.SampledFrom([]string{"a", "b", "none"}).Draw(rt, "key")
	m.post(m.q, event{kind: evCall, call: func(l *loop) { l.overrideWeight(key, weight) }})
}

// redriveStep goes one step on with a redrive: pick, move, put back.
func (m *machine) redriveStep(rt *rapid.T) {
	if len(m.redrives) == 0 {
		var items []redriveItem
		n := rapid.IntRange(1, 3).Draw(rt, "count")
		m.post(m.dlq, event{kind: evCall, call: func(l *loop) { items, _ = l.pick(0, m.dlq.seq.Load(), n) }})
		if len(items) > 0 {
			m.redrives = append(m.redrives, redriveInFlight{items: items})
		}
		return
	}
	r := &m.redrives[0]
	switch {
	case r.moved: // its commit decides
	case rapid.Bool().Draw(rt, "full"):
		m.redriven(nil, r.items)
		m.redrives = nil
	default:
		m.moveBack(r)
	}
}

// moveBack is what Server.moveBack does, without waiting.
func (m *machine) moveBack(r *redriveInFlight) {
	r.moved = true
	b := &store.Batch{}
	for i := range r.items {
		it := &r.items[i]
		it.arrival.msg.Ref = store.Ref{Queue: m.q.id, Seq: m.q.nextSeq()}
		m.q.depth.Add(1)
		m.q.bytes.Add(int64(it.arrival.size))
		b.Move = append(b.Move, store.Move{From: store.Ref{Queue: m.dlq.id, Seq: it.from}, To: it.arrival.msg})
	}
	items := r.items
	b.Done = func(err error) {
		require.NoError(m.rt, err)
		m.redrives = nil
		m.redriven(items, nil)
		m.q.tell(func(l *loop) {
			for i := range items {
				l.arrive(&items[i].arrival, m.now)
			}
		})
	}
	m.st.Submit(b)
}

func (m *machine) redriven(gone, staying []redriveItem) {
	m.dlq.tell(func(l *loop) { l.redriven(gone, staying) })
	m.run()
}

func (m *machine) restartOne(rt *rapid.T) {
	if len(m.redrives) > 0 {
		return // operators' calls end before a restart in order; a crash is tested elsewhere
	}
	crash := rapid.Bool().Draw(rt, "crash")
	m.core.offline.Store(false)
	if !crash {
		m.run()
	}
	committed := m.committed()
	added, finished := m.st.mu.added, m.st.mu.finished
	onDisk := func(at map[store.ID]int, id store.ID, before bool) bool {
		if n, ok := at[id]; ok {
			return n <= committed
		}
		return before
	}
	m.rig.restart(crash)
	for i := range m.open {
		m.open[i].q = m.same(m.open[i].q)
	}
	for id, e := range m.messages {
		// added and finished know this process only; older is before it.
		there := onDisk(added, id, e.older)
		switch {
		case e.finished < 0:
		case !crash && e.finished != 0:
			e.finished = -1 // for good
		case !crash:
		case !there && e.finished != 0:
			e.finished = -1 // never written, or finished as well
		case !there:
			delete(m.messages, id)
		case e.finished != 0 && onDisk(finished, id, false):
			e.finished = -1
		default:
			e.finished = 0
		}
		e.older = true
	}
}
