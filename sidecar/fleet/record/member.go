package record

import (
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/throttle/adapt"
)

// Member is one instance's side of a [Limit]: the newest record that it has seen, and what is on the way
// to it. Granted leases are kept where they are used. It is not safe for concurrent use. Use
// [NewMember].
type Member struct {
	me   string
	rec  Limit
	rev  uint64
	came int64 // when rec arrived or, if known, was written, by this host's clock

	number    uint64
	sent      *sentAsk
	own       *Level // to hand over, until the record has it
	returns   []Rest // to give back, until the record has them
	lesson    throttle.Lesson
	teach     *Learned   // of the owner
	remaining *remaining // of a destination, until the record has it
}

type sentAsk struct {
	Ask
	grant   Grant
	at      int64 // by this host's clock
	lowered int64 // in the record that was sent
}

// Rest is the unused part of a lease, or what messages have cost less.
type Rest struct {
	Tokens int64 // negative: messages have cost more
	Slots  Slot
	Until  int64 // end of the lease, by this host's clock
}

// Back returns how many tokens may be given back now. After the end of the lease, the bucket has begun to
// refill in their place; what may have come of that must not exist twice.
func (r Rest) Back(now int64, rate throttle.Rate) int64 {
	if r.Tokens <= 0 || r.Until > now {
		return r.Tokens
	}
	return max(0, r.Tokens-rate.Gives(now-r.Until+int64(ChunkLife+ClockSpread))-1)
}

// Landed is a grant that is in the record.
type Landed struct {
	Grant
	At int64 // when it was requested, by this host's clock
	// Lowered says, also without a grant, that another instance has lowered the bucket since the leases
	// were taken from it.
	Lowered bool
}

// NewMember returns the Member of an instance that has seen no record.
func NewMember(me string) *Member { return &Member{me: me} }

// Learn takes in the record at a revision, the zero Limit if there is none, at time now of this host. It
// returns a grant that it has brought, if any. It ignores older records.
func (m *Member) Learn(now int64, rev uint64, rec Limit) (l Landed, landed bool) {
	if rev <= m.rev {
		return Landed{}, false
	}
	was := m.rec.Lowered
	m.rec, m.rev, m.came = rec, rev, now
	s := m.sent
	if landed = s != nil && (rec.Users[m.me].Seen >= s.Number || s.Leave && !m.Known()); landed {
		l, was = Landed{Grant: s.grant, At: s.at}, max(was, s.lowered)
		m.sent, m.own, m.returns, m.lesson, m.teach = nil, nil, nil, throttle.Lesson{}, nil
		if s.Remaining != nil {
			m.remaining = nil
		}
	}
	if l.Lowered = rec.Lowered > was; l.Lowered {
		m.lowered(&l.Grant)
	}
	return l, landed
}

// Join starts again with the existing record: nothing is on its way, and earlier grants are gone, except
// permits of messages in flight. An owner that was about to hand over still has to. age is the minimum
// age of the record.
func (m *Member) Join(now, age int64, rev uint64, rec Limit) {
	own := m.own
	if rec.Owner != m.me {
		own = nil
	}
	*m = Member{me: m.me, number: max(m.number, rec.Users[m.me].Seen), rec: rec, rev: rev, came: now - max(0, age), own: own}
}

// Known reports whether the record has this instance as a user.
func (m *Member) Known() bool {
	_, ok := m.rec.Users[m.me]
	return ok
}

// Sole reports whether this instance is the owner, and pressed whether it has to hand over, since other
// live instances use the key.
func (m *Member) Sole(live func(string) bool) (sole, pressed bool) {
	if m.rec.Owner != m.me {
		return false, false
	}
	for name := range m.rec.Users {
		pressed = pressed || name != m.me && live(name)
	}
	return true, pressed
}

// HandOver records the owner's level for the next write. The owner admits nothing more by itself.
func (m *Member) HandOver(own Level) { m.own = &own }

// Regain returns the level of an owner that does not know that it is one: the answer of the write by
// which it took over was lost, or the write by which it wanted to hand over was not done.
func (m *Member) Regain() Level {
	own := m.rec.Level
	if m.own != nil {
		own = *m.own
	}
	m.own = nil
	return own
}

// GiveBack records unused parts of leases, which must not be used any more.
func (m *Member) GiveBack(rests ...Rest) { m.returns = append(m.returns, rests...) }

// Report adds what this instance has seen of the level that the fleet learns.
func (m *Member) Report(l throttle.Lesson) { m.lesson.Add(l) }

// Teach records the level that the owner has learned, with times by the fleet's clock.
func (m *Member) Teach(l adapt.Level, cause string) {
	m.teach = &Learned{l, cause[:min(len(cause), maxCause)], m.me}
}

// Swap returns the record to write over a revision, if it has changed, and what it grants; otherwise g
// says when to ask again. The caller reports success by Learn; another Swap without it means that the
// write was refused. fleet is the time of the fleet's clock; limits are the limits of this instance, and set
// is when they were set, by that clock.
func (m *Member) Swap(now int64, fleet Reading, a Ask, live func(string) bool, limits throttle.Limits, set int64) (next Limit, over uint64, g Grant, ok bool) {
	m.number++
	a.By, a.Number, a.Own = m.me, m.number, m.own
	a.Lesson, a.Teach = m.lesson, m.teach
	inForce := m.Effective(limits, set)
	for _, r := range m.returns {
		a.Back += r.Back(now, inForce.Rate)
		if r.Slots.N > 0 {
			a.BackSlots = append(a.BackSlots, r.Slots)
		}
	}
	if m.remaining != nil && m.rec.Owner == "" { // an owner knows the bucket alone: it waits until it has handed over
		tokens := m.remaining.tokensAt(now, inForce.Rate)
		a.Remaining = &tokens
	}
	next, g, ok = m.rec.Apply(a, LimitEnv{Reading: fleet, Since: max(0, now-m.came), Live: live, Limits: limits, Set: set})
	m.sent = nil
	if ok {
		m.sent = &sentAsk{a, g, now, next.Lowered}
	} else {
		m.lesson = throttle.Lesson{} // it has changed nothing
		if a.Remaining != nil {
			m.remaining = nil
		}
	}
	return next, m.rev, g, ok
}

// Record returns the newest known record and its revision.
func (m *Member) Record() (Limit, uint64) { return m.rec, m.rev }

// Level returns the known use of these limits; ok is false if only the owner knows it.
func (m *Member) Level(now int64, fleet Reading, limits throttle.Limits) (v Level, ok bool) {
	v = m.rec.Level
	v.settle(LimitEnv{Reading: fleet, Since: max(0, now-m.came), Limits: limits})
	return v, m.rec.Owner == ""
}

// InForce returns the limits in force: from the record, or from this instance if newer.
func (m *Member) InForce(limits throttle.Limits, set int64) (inForce throttle.Limits, by string) {
	if own := (Terms[throttle.Limits]{limits, set, m.me}); !own.Newer(&m.rec.Terms) && m.rec.Terms.By != "" {
		return m.rec.Terms.Limits, m.rec.Terms.By
	}
	return limits, m.me
}

// Effective returns the limits in force at the level that the fleet has learned.
func (m *Member) Effective(limits throttle.Limits, set int64) throttle.Limits {
	inForce, _ := m.InForce(limits, set)
	return inForce.AtLevel(&m.rec.Learned.Level)
}

// Crowded reports whether all instances together have more permits than a concurrency limit, which has
// been lowered, with those that this one holds.
func (m *Member) Crowded(hold int64, limits throttle.Limits) bool {
	for name, u := range m.rec.Users {
		if name != m.me {
			hold += u.Permits
		}
	}
	return hold > limits.Concurrency
}

// Parts returns how many instances use the key, as last known, including this one.
func (m *Member) Parts() int64 {
	n := int64(len(m.rec.Users))
	if !m.Known() {
		n++
	}
	return n
}

// Hungry reports whether another instance asks that has less than its share of permits: those with their
// share or more leave the next ones to it.
func (m *Member) Hungry(fleet int64, limits throttle.Limits) bool {
	fair := m.Fair(fleet, limits)
	for name, u := range m.rec.Users {
		if name != m.me && u.Asks > fleet && u.Permits < fair && limits.Concurrency > 0 {
			return true
		}
	}
	return false
}

// Fair returns how many permits this instance may have while others ask: an equal share among those that
// have or request some.
func (m *Member) Fair(fleet int64, limits throttle.Limits) int64 {
	n := int64(1)
	for name, u := range m.rec.Users {
		if name != m.me && (u.Permits > 0 || u.Asks > fleet) {
			n++
		}
	}
	return max(1, limits.Concurrency/n)
}
