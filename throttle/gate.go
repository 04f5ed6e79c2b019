package throttle

import (
	"sync"
	"sync/atomic"

	"github.com/filaq/fila/throttle/budget"
)

// Kind is what blocks a message.
type Kind uint8

// The kinds of a Block.
const (
	Open        Kind = iota // nothing
	ByRate                  // the token bucket has too few tokens
	ByWindow                // the sliding window is full
	ByInFlight              // the concurrency limit is reached
	ByReserved              // a Reservation has what the message needs
	ByTurn                  // the gate is open, but other queues wait for it
	ByPause                 // an operator has paused it, see Gates.Pause
	ByBudget                // the budget is used up, or the disk is behind, see Bank
	kindsOfGate             // the number of kinds
)

// String returns the name used in metrics and explanations: "open", "rate",
// "window", "concurrency", "reserved", "turn", "paused" or "budget".
func (k Kind) String() string {
	names := [kindsOfGate]string{"open", "rate", "window", "concurrency", "reserved", "turn", "paused", "budget"}
	if k >= kindsOfGate {
		return "unknown"
	}
	return names[k]
}

// Block names the gate that blocks a message. If several do, it is the gate that
// opens last as far as is known: the one to wait for.
type Block struct {
	Gate *Gate
	Kind Kind
	// At is when the gate opens at the latest if nothing else takes from it, in
	// Unix nanoseconds. It is Never if time alone does not open the gate.
	At int64
	// DeadLetter says that the message does not wait: it costs more than is left of a budget whose
	// limits say so, see [OnEmpty].
	DeadLetter bool
	// Unbooked says that it waits for a commit alone, which gives it its part of a budget.
	Unbooked bool
}

// Gate is the state of one throttle key: bucket, window and the number of
// messages in flight. It belongs to a Gates, and stays the same object while a
// Set, a limit of its own or a pause refers to it. It is safe for concurrent use.
type Gate struct {
	key   string
	gates *Gates

	mu struct {
		sync.Mutex
		limits   Limits
		bucket   *bucket        // nil without a rate
		window   *window        // nil without a window
		ledger   *budget.Ledger // nil without a budget
		inFlight int64          // counted even without a limit, since one may be set later
		// The cost that the Reservation has taken here in thousandths, or 0.
		reserved int64
		paused   int64 // until when (Unix ns), see pause.go; 0: not paused
		waiting  waiting
		guest    bool     // the gate admitted a Guest last, while queues waited
		share    *share   // nil: the limits are local to this process
		learner  *learner // nil: the limits are fixed; see learn.go
		admitted int64    // messages, see Info
	}

	blocked blockedCounts
	learns  atomic.Bool // mu.learner is not nil

	// Gates.mu guards the fields below.
	refs     int  // number of sets with this gate
	declared bool // it has limits of its own
	used     bool // a set has had it
	idle     int  // index in Gates.mu.idle + 1; 0: not there
}

// Key is the throttle key of the gate.
func (g *Gate) Key() string { return g.key }

// The functions below need g.mu.

// advance brings bucket and window up to v. Callers read v from the clock after
// they have locked g.mu, so v never goes back.
func (g *Gate) advance(v instant) {
	if b := g.mu.bucket; b != nil {
		b.advance(v, g.mu.reserved)
	}
	if w := g.mu.window; w != nil {
		w.advance(v)
	}
}

// reservedEntries is the number of window entries of the reservation.
func (g *Gate) reservedEntries() int64 { return min(g.mu.reserved, 1) }

// admit advances the gate and returns what blocks a message of this cost and for
// how long (ns): Open and 0 if nothing does. v and last come from one tick of the
// clock.
func (g *Gate) admit(v instant, last, cost int64) (Kind, uint64) {
	return g.admitCosts(v, last, cost, cost)
}

// admitAny is admit for the next message, whose cost is not known: it has cost 1, unless there is
// less left of the budget.
func (g *Gate) admitAny(v instant, last int64) (Kind, uint64) { return g.admitCosts(v, last, One, 1) }

func (g *Gate) admitCosts(v instant, last, cost, ofBudget int64) (kind Kind, wait uint64) {
	s := g.mu.share
	leases := s != nil && s.by != owned
	if leases {
		kind, wait = s.admit(g, v, cost)
	} else {
		kind, wait = g.admitAlone(v, cost)
	}
	if g.mu.ledger != nil {
		// A budget that is used up is named before a concurrency limit, which opens sooner, and before
		// leases, which are of no use then.
		if d := g.byBudget(v, last, ofBudget); d != 0 && (d >= wait || (leases || kind == ByInFlight) && d != forever) {
			kind, wait = ByBudget, d
		}
	}
	if d := g.pause(last); d != 0 && d >= wait {
		kind, wait = ByPause, d
	}
	return kind, wait
}

// admitAlone is admitCosts for the rate, window and concurrency that this process applies alone.
func (g *Gate) admitAlone(v instant, cost int64) (kind Kind, wait uint64) {
	g.advance(v)
	if b := g.mu.bucket; b != nil {
		if wait = b.wait(cost, g.mu.reserved); wait != 0 {
			kind = ByRate
		}
	}
	if w := g.mu.window; w != nil {
		if d := w.wait(v, g.reservedEntries()); d > wait {
			kind, wait = ByWindow, d
		}
	}
	if wait == forever {
		kind = ByReserved
	}
	if c := g.mu.limits.Concurrency; c != 0 && g.mu.inFlight >= c {
		kind, wait = ByInFlight, forever
	}
	return kind, wait
}

// take admits a message that admit has found Open for.
func (g *Gate) take(v instant, cost int64, owner any) {
	g.mu.guest = owner == Guest && g.mu.waiting.head != nil
	g.mu.admitted++
	if g.mu.ledger != nil {
		g.spend(cost)
	}
	if s := g.mu.share; s != nil {
		s.used = max(v, 1)
		if s.by != owned {
			g.mu.inFlight++
			s.take(g, cost)
			return
		}
	}
	if b := g.mu.bucket; b != nil {
		b.take(cost, g.mu.reserved)
	}
	if w := g.mu.window; w != nil {
		w.add(v)
	}
	g.mu.inFlight++
}

// leave ends the flight of a message.
func (g *Gate) leave() {
	if g.mu.inFlight > 0 {
		g.mu.inFlight--
	}
	if s := g.mu.share; s != nil && s.crowded && s.permits > max(g.mu.inFlight, s.fair) {
		s.permits = max(g.mu.inFlight, s.fair)
		g.request()
	}
}

// setLimits applies l from v on. sinceStart is true for a new gate, which has no
// grants and begins as the Start of its registry says. Otherwise a new bucket
// begins full and a new window empty.
func (g *Gate) setLimits(l Limits, v instant, sinceStart bool) {
	changed := v
	if sinceStart {
		changed = v - 1
	}
	g.gates.noteOnEmpty(l)
	l = g.learn(l)
	g.mu.limits = l
	if s := g.mu.share; s != nil {
		s.room = room{}
		l = s.part(l)
		if !sinceStart {
			g.request()
		}
	}
	g.setParts(l, v, changed, sinceStart)
}

// setParts gives bucket and window the limits l.
func (g *Gate) setParts(l Limits, v, changed instant, sinceStart bool) {
	m := &g.mu
	g.advance(v)
	switch {
	case l.Rate == (Rate{}):
		m.bucket = nil
	case m.bucket == nil:
		b := &bucket{rate: l.Rate, burst: l.burst(), at: v, changed: changed}
		b.tokens = b.burst
		if sinceStart && g.gates.start.Crashed {
			b.tokens, b.at = 0, g.gates.startAt
		}
		b.advance(v, m.reserved)
		m.bucket = b
	case l.Rate != m.bucket.rate || l.burst() != m.bucket.burst:
		m.bucket.setLimits(l, m.reserved)
	}
	switch {
	case l.Limit == 0:
		m.window = nil
	case m.window == nil:
		w := &window{changed: changed}
		w.setLimits(l)
		if sinceStart && g.gates.start.Crashed {
			w.fill(g.gates.startAt, uint64(g.gates.start.WindowHold))
		}
		m.window = w
	default:
		m.window.setLimits(l)
	}
	g.advance(v)
}

// fresh reports whether the state is the state of a new gate, so that the
// registry may drop the gate.
func (g *Gate) fresh(v instant, last int64) bool {
	m := &g.mu
	if m.inFlight != 0 || m.reserved != 0 || m.waiting.head != nil || g.pause(last) != 0 {
		return false
	}
	g.advance(v)
	if s := m.share; s != nil && s.rests(v) {
		return false
	}
	if m.learner.rests(last) {
		return false
	}
	return (m.bucket == nil || m.bucket.tokens == m.bucket.burst) && (m.window == nil || m.window.empty())
}

// Info is the state of a gate at one moment.
type Info struct {
	Key    string
	Limits Limits // in force: the learned ones of a limit that learns; the burst is filled in
	// Tokens in the bucket in thousandths, rounded down; negative: debt. For a
	// shared gate: the tokens of its leases.
	Tokens int64
	// BucketFull and WindowEmpty are the times until the bucket is full and the
	// window empty if nothing is taken (ns).
	BucketFull, WindowEmpty int64
	// InWindow is the number of messages in the window. While it is unknown
	// after a crash, it is the limit.
	InWindow int64
	// InFlight is the number of messages in flight, with or without a limit.
	InFlight int64
	// Reserved is the cost that the Reservation has taken here, in thousandths,
	// or 0.
	Reserved int64
	// PausedUntil is when the pause ends (Unix ns): Never if only a resume ends
	// it, 0 without a pause.
	PausedUntil int64
	// Waiting is the number of queues that wait for the gate.
	Waiting int
	// Admitted and Blocked are how often the gate, and the ones of its key before it, have
	// admitted and blocked a message or call, see [Gates.Counts]. A message that was undone
	// counts as admitted.
	Admitted, Blocked int64
	// Spending is the state of the budget; the zero State: there is none.
	Spending budget.State
	// Kind and At are the Block of a message of cost 1, but for a budget that only waits for a booking,
	// which Unbooked says.
	Kind     Kind
	At       int64
	Unbooked bool
	// Learned is the state of a limit that learns; nil: the limits are fixed.
	Learned *Learned
}

// Info returns the state of the gate at time now and changes nothing.
func (g *Gate) Info(now int64) Info {
	g.mu.Lock()
	defer g.mu.Unlock()
	v, last := g.gates.clock.tick(now)
	kind, wait := g.admit(v, last, One)
	unbooked := kind == ByBudget && g.mu.ledger.Unbooked(One)
	if unbooked {
		kind, wait = g.admitCosts(v, last, One, 0)
	}
	i := Info{
		Key: g.key, Limits: g.mu.limits,
		InFlight: g.mu.inFlight, Reserved: g.mu.reserved, PausedUntil: g.mu.paused, Waiting: g.mu.waiting.n,
		Admitted: g.mu.admitted, Blocked: g.blocked.sum(),
		Kind: kind, At: later(last, wait), Learned: g.mu.learner.state(), Unbooked: unbooked,
	}
	if l := g.mu.ledger; l != nil {
		i.Spending = l.State()
	}
	if b := g.mu.bucket; b != nil {
		i.Limits.Burst, i.Tokens = g.mu.limits.burst(), b.tokens
		if b.tokens < b.burst {
			i.BucketFull = int64(b.until(b.burst))
		}
		if s := g.mu.share; s != nil && s.by == leased {
			i.Tokens, _ = s.sum()
		}
	}
	if w := g.mu.window; w != nil {
		i.InWindow = w.total
		if w.total >= MaxLimit {
			i.InWindow = w.limit
		}
		if w.n > 0 {
			i.WindowEmpty = int64(w.width - v.since(w.at(w.n-1).last))
		}
	}
	return i
}
