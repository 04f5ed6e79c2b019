package throttle

import (
	"sync"
	"sync/atomic"
)

// Kind is what holds a message back.
type Kind uint8

// The kinds of a Block.
const (
	Open        Kind = iota // nothing
	ByRate                  // the token bucket has too little in it
	ByWindow                // the sliding window is full
	ByInFlight              // as many are in flight as may be
	ByReserved              // a Reservation holds what it would take
	ByTurn                  // the gate is open, but other queues wait for it
	ByPause                 // somebody has shut it, see Gates.Pause
	kindsOfGate             // the number of kinds
)

// String returns the name used in metrics and explanations: "open", "rate",
// "window", "concurrency", "reserved", "turn" or "paused".
func (k Kind) String() string {
	names := [kindsOfGate]string{"open", "rate", "window", "concurrency", "reserved", "turn", "paused"}
	if k >= kindsOfGate {
		return "unknown"
	}
	return names[k]
}

// Block says which gate holds a message back. Of several that do, it is the one
// that opens last as far as is known: the place to wait.
type Block struct {
	Gate *Gate
	Kind Kind
	// At is when the gate may open, in Unix nanoseconds: not later than that if
	// nothing else takes from it. Never if it is opened by a release, by a turn,
	// by a change of limits or by the end of a pause instead of by time.
	At int64
}

// Gate holds the state of one throttle key: bucket, window and the number in
// flight. It belongs to a Gates, and stays the same as long as a Set, a limit of
// its own or a pause refers to it. Safe for concurrent use.
type Gate struct {
	key   string
	gates *Gates

	mu struct {
		sync.Mutex
		limits   Limits
		bucket   *bucket // nil without a rate
		window   *window // nil without a window
		inFlight int64   // counted without a limit too: one may come later
		// What the one Reservation holds here: its cost in thousandths, or 0.
		reserved int64
		paused   int64 // until when (Unix ns), see pause.go; 0: not paused
		waiting  waiting
		guest    bool   // the last to be let in was a Guest, while queues waited
		share    *share // nil: the limits are those of this process alone
	}

	blocked atomic.Pointer[blockedCounts] // nil: not counted, the gate has never had limits of its own

	// The rest belongs to Gates.mu.
	refs     int  // sets that have it
	declared bool // it has limits of its own
	used     bool // a set has had it
	idle     int  // its place among the idle gates + 1; 0: not there
}

// Key is the throttle key of the gate.
func (g *Gate) Key() string { return g.key }

// What follows needs g.mu.

// settle brings everything that time changes up to v, which was read from the
// clock after g.mu was taken: so it never goes back.
func (g *Gate) advance(v instant) {
	if b := g.mu.bucket; b != nil {
		b.advance(v, g.mu.reserved)
	}
	if w := g.mu.window; w != nil {
		w.advance(v)
	}
}

// reservedEntries is what the reservation takes in a window.
func (g *Gate) reservedEntries() int64 { return min(g.mu.reserved, 1) }

// admit settles the gate and says what holds a message of that cost back and
// for how long (ns): Open and 0 if nothing does. v and last are from one tick of
// the clock.
func (g *Gate) admit(v instant, last, cost int64) (Kind, uint64) {
	if s := g.mu.share; s != nil && s.by != owned {
		return s.admit(g, v, last, cost)
	}
	g.advance(v)
	kind, wait := Open, uint64(0)
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
	if d := g.pause(last); d != 0 && d >= wait {
		kind, wait = ByPause, d
	}
	return kind, wait
}

// take lets a message of that owner in that admit has found no obstacle for.
func (g *Gate) take(v instant, cost int64, owner any) {
	g.mu.guest = owner == Guest && g.mu.waiting.head != nil
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

// setLimits makes l count from v on. sinceStart says that the gate is new:
// nobody has a grant of it, and it begins as the Start of its registry says.
// Otherwise what is added begins full (a bucket) or empty (a window).
func (g *Gate) setLimits(l Limits, v instant, sinceStart bool) {
	changed := v
	if sinceStart {
		changed = v - 1
	}
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

// setParts makes bucket and window go by l.
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

// fresh reports whether the gate is as a new one would be, so that it can be
// forgotten.
func (g *Gate) fresh(v instant, last int64) bool {
	m := &g.mu
	if m.inFlight != 0 || m.reserved != 0 || m.waiting.head != nil || g.pause(last) != 0 {
		return false
	}
	g.advance(v)
	if s := m.share; s != nil && s.rests(v) {
		return false
	}
	return (m.bucket == nil || m.bucket.tokens == m.bucket.burst) && (m.window == nil || m.window.empty())
}

// Info is what a gate looks like at one moment.
type Info struct {
	Key    string
	Limits Limits // the burst is filled in
	// Tokens in the bucket in thousandths, rounded down; negative: debt. Of what a fleet
	// shares: what it has lent.
	Tokens int64
	// BucketFull is how long it takes until the bucket is full, and WindowEmpty until
	// the window is empty, if nothing is taken (ns).
	BucketFull, WindowEmpty int64
	// InWindow is how many messages count in the window. After a crash, while
	// nobody knows, it is the limit.
	InWindow int64
	// InFlight is how many messages are in flight, limit or not.
	InFlight int64
	// Held is the cost of the Reservation that holds the gate, in thousandths,
	// or 0.
	Reserved int64
	// PausedUntil is when the pause ends that is in force (Unix ns): Never if
	// only a resume ends it, 0 if there is none.
	PausedUntil int64
	// Waiting is how many queues wait for the gate.
	Waiting int
	// Kind and At say what a message of cost 1 would find, as in a Block.
	Kind Kind
	At   int64
}

// Info returns the gate's condition at time now and changes nothing.
func (g *Gate) Info(now int64) Info {
	g.mu.Lock()
	defer g.mu.Unlock()
	v, last := g.gates.clock.tick(now)
	kind, wait := g.admit(v, last, One)
	i := Info{
		Key: g.key, Limits: g.mu.limits,
		InFlight: g.mu.inFlight, Reserved: g.mu.reserved, PausedUntil: g.mu.paused, Waiting: g.mu.waiting.n,
		Kind: kind, At: later(last, wait),
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
