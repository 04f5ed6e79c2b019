package record

import "github.com/filaq/fila/throttle"

// Member is one instance's side of a [Limit]: the newest record that it has seen, and
// what is on the way to it. What it has been granted lies elsewhere, where it is used.
// It is not safe for concurrent use. Make it with [NewMember].
type Member struct {
	me   string
	rec  Limit
	rev  uint64
	came int64 // when rec came or, if that is known, was written; by the clock of this host

	number  uint64
	sent    *sentAsk
	own     *Level // is handed over, until the record has it
	returns []Rest // are given back, until the record has them
}

type sentAsk struct {
	Ask
	grant Grant
	at    int64 // of this host
}

// Rest is what was not used of a chunk, or what messages have cost less.
type Rest struct {
	Tokens int64 // negative: they have cost more
	Slots  Slot
	Until  int64 // it could be used, by the clock of this host
}

// Back is how many of the tokens may be given back at time now. Once the chunk has ended
// they have begun to flow in again, since the bucket was less full for them: what may have
// come of that is not there twice.
func (r Rest) Back(now int64, rate throttle.Rate) int64 {
	if r.Tokens <= 0 || r.Until > now {
		return r.Tokens
	}
	return max(0, r.Tokens-rate.Gives(now-r.Until+int64(ChunkLife+ClockSpread))-1)
}

// Landed is a grant that lies in the record.
type Landed struct {
	Grant
	At int64 // it was asked for, by the clock of this host
}

// NewMember returns the Member of an instance that has seen no record yet.
func NewMember(me string) *Member { return &Member{me: me} }

// Learn takes the record at a revision, the zero Limit where there is none, at time now
// of this host. It returns what that has brought of what was asked for, if anything. A
// record that is older than what is known is ignored.
func (m *Member) Learn(now int64, rev uint64, rec Limit) (l Landed, landed bool) {
	if rev <= m.rev {
		return Landed{}, false
	}
	m.rec, m.rev, m.came = rec, rev, now
	s := m.sent
	if s == nil || rec.Users[m.me].Seen < s.Number && !(s.Leave && !m.Known()) {
		return Landed{}, false
	}
	m.sent, m.own, m.returns = nil, nil, nil
	return Landed{s.grant, s.at}, true
}

// Join begins anew with the record that is there: nothing is on its way, and what was
// granted before is gone, but for permits of messages that are in flight. An owner that
// was about to hand over, and has not, still has to.
// age is how long ago the record was written, as far as that is sure.
func (m *Member) Join(now, age int64, rev uint64, rec Limit) {
	own := m.own
	if rec.Owner != m.me {
		own = nil
	}
	*m = Member{me: m.me, number: max(m.number, rec.Users[m.me].Seen), rec: rec, rev: rev, came: now - max(0, age), own: own}
}

// Known reports whether the record knows this instance as a user.
func (m *Member) Known() bool {
	_, ok := m.rec.Users[m.me]
	return ok
}

// Sole reports whether this instance uses the key alone, by limits of its own, and
// pressed whether it has to hand over, since there are others who live.
func (m *Member) Sole(live func(string) bool) (sole, pressed bool) {
	if m.rec.Owner != m.me {
		return false, false
	}
	for name := range m.rec.Users {
		pressed = pressed || name != m.me && live(name)
	}
	return true, pressed
}

// HandOver notes what the owner has come to. From now on it admits nothing by itself.
func (m *Member) HandOver(own Level) { m.own = &own }

// Regain returns what an owner has that does not know that it is one: the write by which
// it took over was not heard of, or that by which it wanted to hand over was not done.
func (m *Member) Regain() Level {
	own := m.rec.Level
	if m.own != nil {
		own = *m.own
	}
	m.own = nil
	return own
}

// GiveBack notes what has not been used, and cannot be used any more.
func (m *Member) GiveBack(rests ...Rest) { m.returns = append(m.returns, rests...) }

// Swap returns the record to be written over a revision, if it is another one, and what
// will be granted by it or, if nothing is to be written, when to ask again. The caller
// tells its fate by Learn: when it asks again without that, it was refused. fleet is the
// time of the fleet's clock; limits are those of this instance, and set when they were
// set, by that clock.
func (m *Member) Swap(now int64, fleet Reading, a Ask, live func(string) bool, limits throttle.Limits, set int64) (next Limit, over uint64, g Grant, ok bool) {
	m.number++
	a.By, a.Number, a.Own = m.me, m.number, m.own
	inForce, _ := m.InForce(limits, set)
	for _, r := range m.returns {
		a.Back += r.Back(now, inForce.Rate)
		if r.Slots.N > 0 {
			a.BackSlots = append(a.BackSlots, r.Slots)
		}
	}
	next, g, ok = m.rec.Apply(a, LimitEnv{Reading: fleet, Since: max(0, now-m.came), Live: live, Limits: limits, Set: set})
	m.sent = nil
	if ok {
		m.sent = &sentAsk{a, g, now}
	}
	return next, m.rev, g, ok
}

// Record returns the newest record that is known, and its revision.
func (m *Member) Record() (Limit, uint64) { return m.rec, m.rev }

// Level returns what of these limits is used and leased now, as far as it is known. ok is
// false if only the owner knows.
func (m *Member) Level(now int64, fleet Reading, limits throttle.Limits) (v Level, ok bool) {
	v = m.rec.Level
	v.settle(LimitEnv{Reading: fleet, Since: max(0, now-m.came), Limits: limits})
	return v, m.rec.Owner == ""
}

// InForce returns the limits that count: those of the record or, if they are newer,
// those of this instance.
func (m *Member) InForce(limits throttle.Limits, set int64) (inForce throttle.Limits, by string) {
	if own := (Terms[throttle.Limits]{limits, set, m.me}); !own.Newer(&m.rec.Terms) && m.rec.Terms.By != "" {
		return m.rec.Terms.Limits, m.rec.Terms.By
	}
	return limits, m.me
}

// Parts is how many instances use the key, as far as was known last, this one among
// them.
func (m *Member) Parts() int64 {
	n := int64(len(m.rec.Users))
	if !m.Known() {
		n++
	}
	return n
}

// Hungry reports whether another instance asks that has less than its share of permits:
// who has its share or more leaves the next ones to it.
func (m *Member) Hungry(fleet int64, limits throttle.Limits) bool {
	fair := m.Fair(fleet, limits)
	for name, u := range m.rec.Users {
		if name != m.me && u.Asks > fleet && u.Permits < fair && limits.Concurrency > 0 {
			return true
		}
	}
	return false
}

// Fair is how many permits this instance may have while others ask: an equal share of
// those who have some or ask for some.
func (m *Member) Fair(fleet int64, limits throttle.Limits) int64 {
	n := int64(1)
	for name, u := range m.rec.Users {
		if name != m.me && (u.Permits > 0 || u.Asks > fleet) {
			n++
		}
	}
	return max(1, limits.Concurrency/n)
}
