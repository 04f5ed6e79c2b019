package sidecar

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

func (m *gateMachine) anyQueue(rt *rapid.T) *queue {
	return m.queues[rapid.IntRange(0, len(m.queues)/2-1).Draw(rt, "queue")]
}

// settle makes turns now or leaves what was posted to be found together with what
// comes next.
func (m *gateMachine) settle(rt *rapid.T) {
	if rapid.IntRange(0, 3).Draw(rt, "later") > 0 {
		m.run()
	}
}

func (m *gateMachine) enqueueSome(rt *rapid.T) {
	q := m.anyQueue(rt)
	msg := &booked{queue: q.name, key: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "key"), cost: 1000}
	all := rapid.Permutation([]string{"t0", "t1", "t2", "t3"}).Draw(rt, "throttle keys")
	msg.keys = all[:rapid.IntRange(0, 3).Draw(rt, "how many")]
	if rapid.IntRange(0, 3).Draw(rt, "circuit") == 0 {
		msg.circuit = rapid.SampledFrom([]string{"c0", "c1"}).Draw(rt, "circuit key")
	}
	if !m.plain {
		msg.cost = rapid.SampledFrom([]int64{1, 500, 1000, 2000, 5000}).Draw(rt, "cost")
	}
	delay, ttl := rapid.IntRange(-9000, 2000).Draw(rt, "delay"), rapid.IntRange(-9000, 4000).Draw(rt, "ttl")
	weight := rapid.SampledFrom([]uint32{1000, 2500, 500}).Draw(rt, "weight")
	for range rapid.IntRange(1, 4).Draw(rt, "messages") {
		one := *msg
		one.id = formatID(m.enqueue(q, msg.key, func(s *store.Message) {
			s.Weight, s.Cost, s.ThrottleKeys, s.CircuitKey = weight, uint32(msg.cost), msg.keys, msg.circuit
			if delay > 0 {
				s.NotBefore = m.now + int64(delay)*1e6
				one.ready, one.own = s.NotBefore, true
			}
			if ttl > 0 && !m.back {
				s.ExpiresAt = m.now + int64(ttl)*1e6
				one.expires = s.ExpiresAt
			}
		}))
		m.b.add(&one)
		m.later(q, func() { one.taken = true })
	}
	m.settle(rt)
}

// answer says something about a delivery, current or not.
func (m *gateMachine) answer(rt *rapid.T) {
	if len(m.open) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.open)-1).Draw(rt, "delivery")
	a := wire.Ack{Kind: rapid.SampledFrom([]wire.AckKind{
		wire.AckDone, wire.AckDone, wire.AckNack, wire.AckNack, wire.AckProgress, wire.AckTerm, wire.AckNoResponders,
	}).Draw(rt, "kind")}
	if a.Kind == wire.AckNack {
		if rapid.Bool().Draw(rt, "explicit") {
			a.HasDelay, a.Delay = true, time.Duration(rapid.IntRange(0, 1500).Draw(rt, "delay"))*time.Millisecond
		}
		a.RetryAfter = time.Duration(max(0, rapid.IntRange(-2000, 2000).Draw(rt, "retry after"))) * time.Millisecond
	}
	if a.Kind == wire.AckNoResponders && rapid.Bool().Draw(rt, "undelivered") {
		m.undeliver(m.open[i])
	} else {
		m.tell(m.open[i], a)
	}
	if rapid.Bool().Draw(rt, "forget") { // otherwise it may be answered again
		m.open = slices.Delete(m.open, i, i+1)
	}
	m.settle(rt)
}

// undeliver is a publish that failed.
func (m *gateMachine) undeliver(d held) {
	q := m.byName(d.queue)
	m.post(q, event{kind: evUndelivered, token: d.token()})
	m.later(q, func() {
		if f := m.b.flights[d.lease]; f != nil {
			m.b.end(f, breaker.Neutral, true)
		}
	})
}

// tell answers a delivery.
func (m *gateMachine) tell(d held, a wire.Ack) {
	q := m.byName(d.queue)
	m.post(q, event{kind: evAck, token: d.token(), ack: a, reply: "reply"})
	if q.isDLQ() {
		return
	}
	visibility := q.visibility()
	m.later(q, func() {
		f := m.b.flights[d.lease]
		if f == nil {
			return
		}
		switch a.Kind {
		case wire.AckDone:
			m.b.end(f, breaker.Success, false)
			f.m.gone = true
		case wire.AckTerm:
			m.b.end(f, breaker.Neutral, false)
			f.m.gone = true
		case wire.AckNoResponders:
			m.b.end(f, breaker.Neutral, true)
		case wire.AckProgress:
			f.deadline = m.now + visibility
		case wire.AckNack:
			m.b.fail(f, int64(a.Delay))
			if f.m.circuit != "" && a.RetryAfter > 0 {
				m.b.circuit(f.m.circuit).retryAfter(m.now, m.now+int64(a.RetryAfter))
			}
		}
	})
}

// ackMany answers all that is open in one turn of each queue.
func (m *gateMachine) ackMany(rt *rapid.T) {
	kind := rapid.SampledFrom([]wire.AckKind{wire.AckDone, wire.AckDone, wire.AckNoResponders, wire.AckNack}).Draw(rt, "kind")
	for _, d := range m.open {
		m.tell(d, wire.Ack{Kind: kind})
	}
	m.open = nil
	m.settle(rt)
}

func (m *gateMachine) consumeOne(rt *rapid.T) {
	name := rapid.SampledFrom([]string{"w1", "w2"}).Draw(rt, "consumer")
	ttl := time.Duration(rapid.SampledFrom([]int{0, 0, 500, 5000}).Draw(rt, "ttl")) * time.Millisecond
	m.consume(m.anyQueue(rt), name, rapid.IntRange(1, 5).Draw(rt, "credit"), ttl)
	m.settle(rt)
}

func (m *gateMachine) leave(rt *rapid.T) {
	name := rapid.SampledFrom([]string{"w1", "w2"}).Draw(rt, "consumer")
	m.call(m.anyQueue(rt), func(l *loop) { l.leave(name, "", func(bool) []byte { return nil }) })
	m.settle(rt)
}

func (m *gateMachine) time(rt *rapid.T) {
	d := rapid.SampledFrom([]int64{1, 1e6, 50e6, 100e6, 300e6, 1e9, 3e9, 20e9}).Draw(rt, "time")
	if m.back && rapid.IntRange(0, 3).Draw(rt, "back") == 0 {
		d = -d
		m.b.exact = false
	}
	m.goOn(d)
}

// goOn lets time go by, or sets the clock back.
func (m *gateMachine) goOn(d int64) {
	m.run()
	m.now += d
	m.b.tick()
	m.now -= d
	m.pass(time.Duration(d))
}

// toNextTimer goes to the time for which a loop has set its timer, and reports
// whether one has set any.
func (m *gateMachine) toNextTimer() bool {
	m.run()
	next := int64(time.Hour)
	for _, l := range m.loops {
		next = min(next, int64(l.sleep()))
	}
	if next == int64(time.Hour) {
		return false // they look up once an hour, with nothing to look for
	}
	m.goOn(next)
	return true
}

func (m *gateMachine) change(rt *rapid.T) {
	key := throttleKey(rapid.IntRange(0, machineKeys-1).Draw(rt, "throttle key"))
	l := drawLimits(rt)
	if rapid.IntRange(0, 2).Draw(rt, "some of it") == 0 { // what is kept goes on
		old := m.limits[key]
		l.Rate, l.Burst = old.Rate, old.Burst
	}
	m.setLimit(key, l)
	m.settle(rt)
}

func (m *gateMachine) anyPause(rt *rapid.T) pauseID {
	q := m.anyQueue(rt).name
	switch rapid.IntRange(0, 4).Draw(rt, "what") {
	case 0:
		return pauseID{wire.PauseQueue, "", q}
	case 1, 2:
		return pauseID{wire.PauseKey, q, rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "key")}
	case 3:
		return pauseID{wire.PauseThrottle, "", throttleKey(rapid.IntRange(0, machineKeys-1).Draw(rt, "throttle key"))}
	}
	return pauseID{wire.PauseCircuit, "", rapid.SampledFrom([]string{"c0", "c1"}).Draw(rt, "circuit key")}
}

func (m *gateMachine) pauseOne(rt *rapid.T) {
	id := m.anyPause(rt)
	until := int64(byHand)
	if rapid.IntRange(0, 3).Draw(rt, "for good") > 0 {
		until = m.now + rapid.SampledFrom([]int64{1, 500e6, 3e9}).Draw(rt, "for")
	}
	m.setPause(id, until)
	m.settle(rt)
}

func (m *gateMachine) resumeOne(rt *rapid.T) {
	m.setPause(m.anyPause(rt), 0)
	m.settle(rt)
}

func (m *gateMachine) setPause(id pauseID, until int64) {
	set := func() {
		delete(m.b.paused, id)
		if until > m.now {
			m.b.paused[id] = until
		}
	}
	switch id.kind {
	case wire.PauseQueue:
		m.later(m.byName(id.name), set)
	case wire.PauseKey:
		m.later(m.byName(id.queue), set)
	case wire.PauseThrottle:
		if set(); until <= m.b.last {
			delete(m.b.paused, id)
		}
	case wire.PauseCircuit:
		if c := m.b.circuit(id.name); until == 0 {
			c.release(m.now)
		} else {
			c.open(m.now, until)
		}
	}
	m.pause(id, until)
}

func (m *gateMachine) weigh(rt *rapid.T) {
	weight := rapid.SampledFrom([]uint32{0, 1000, 5000}).Draw(rt, "weight")
	key := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "key")
	m.call(m.anyQueue(rt), func(l *loop) { l.overrideWeight(key, weight) })
	m.settle(rt)
}
