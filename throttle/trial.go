package throttle

import "slices"

// Trial is a copy of a gate for forecasts: what it would admit from a time on if nobody
// else used it. It changes nothing of the gate. It is not safe for concurrent use.
type Trial struct {
	gate *Gate
	from int64   // Unix ns of the copy
	at   instant // and of the gates' clock
	room int64   // of a shared gate: messages that its leases admit; -1: the gate is not shared
}

// Trial returns a copy of the gate at time now. The copy of a gate that several processes
// share admits what its leases hold, and knows of no further ones.
func (g *Gate) Trial(now int64) *Trial {
	g.mu.Lock()
	defer g.mu.Unlock()
	v, last := g.gates.clock.tick(now)
	kind, _ := g.admitAny(v, last)
	t := &Trial{gate: &Gate{key: g.key, gates: g.gates}, from: last, at: v, room: -1}
	m := &t.gate.mu
	m.limits, m.inFlight, m.reserved, m.paused = g.mu.limits, g.mu.inFlight, g.mu.reserved, g.mu.paused
	if l := g.mu.ledger; l != nil {
		m.ledger = l.Trial()
	}
	if s := g.mu.share; s != nil && s.by != owned {
		if t.room = 0; kind == Open {
			t.room = g.admits()
		}
		m.limits.Concurrency = 0
		return t
	}
	if b := g.mu.bucket; b != nil {
		c := *b
		c.lows = lows{}
		m.bucket = &c
	}
	if w := g.mu.window; w != nil {
		c := *w
		c.spans = slices.Clone(w.spans)
		m.window = &c
	}
	return t
}

// Admits returns Open if the gate admits a message of this cost at a time, and otherwise
// what blocks the message and when the gate opens, or Never. Times must not go back.
func (t *Trial) Admits(at, cost int64) (kind Kind, opens int64) {
	v, last := t.instant(at)
	kind, wait := t.gate.admit(v, last, clampCost(cost))
	if kind == Open && t.room == 0 {
		return ByRate, Never
	}
	return kind, later(last, wait)
}

// DeadLetters reports whether a message of this cost does not wait for the gate at a time, but becomes a
// dead letter.
func (t *Trial) DeadLetters(at, cost int64) bool {
	v, last := t.instant(at)
	kind, wait := t.gate.admit(v, last, cost)
	return t.gate.block(kind, last, wait, cost).DeadLetter
}

// Room returns how many messages of cost 1 the gate admits at a time.
func (t *Trial) Room(at int64) int64 {
	switch kind, _ := t.Admits(at, One); {
	case kind != Open:
		return 0
	case t.room >= 0:
		return t.room
	}
	return t.gate.admits()
}

// Take admits a message for which Admits has returned Open.
func (t *Trial) Take(at, cost int64) {
	if t.room > 0 {
		t.room--
	}
	v, _ := t.instant(at)
	t.gate.take(v, clampCost(cost), nil)
}

// Release ends the flight of one message.
func (t *Trial) Release() { t.gate.leave() }

func (t *Trial) instant(at int64) (instant, int64) {
	at = max(at, t.from)
	return t.at + instant(at-t.from), at
}
