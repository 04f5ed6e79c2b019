package throttle

import (
	"math"
	"math/bits"
)

// bucket is a token bucket in exact arithmetic. This is the generic cell rate
// algorithm (GCRA, ITU-T I.371, there the "virtual scheduling" and "continuous
// state leaky bucket" forms), kept as a level instead of as a theoretical
// arrival time: the level is tokens + frac/rate.Per thousandths. It is never
// rounded, so it does not drift.
//
// Invariants, where top is burst - reserved:
//
//  1. tokens + frac/rate.Per <= top; frac < rate.Per; a full bucket has frac 0.
//  2. take needs a level that covers the cost, or a full bucket without a
//     reservation: so the level after it is at least min(0, burst - cost).
//  3. Only charge goes below that, for messages that were in flight. While the
//     bucket is in debt it admits nothing.
//
// The bound follows from 1 and 2: in an interval t the bucket admits at most its
// content (burst), its inflow (rate * t) and the debt that the last message may
// leave: max(burst, largest cost) + rate * t. By 3 the bound may be exceeded by
// the amount by which the costs of the messages in flight at one moment were
// underestimated; the bucket admits that much less afterwards.
//
// The cost of a reservation (see Reservation) is taken from the level already,
// but counts as used only when the message goes. Until then it lowers the top:
// otherwise the bucket would refill, and burst + reserved could go at once.
type bucket struct {
	rate    Rate
	burst   int64   // thousandths
	tokens  int64   // thousandths, whole ones; negative: debt
	frac    uint64  // fraction of a thousandth, in units of 1/rate.Per
	at      instant // the time of tokens and frac
	changed instant // grants up to this time get no refund
	lows    lows
}

// advance brings the level up to time v.
func (b *bucket) advance(v instant, reserved int64) {
	top := b.burst - reserved
	gone := v.since(b.at)
	b.at = v
	if gone != 0 && b.tokens < top {
		more, frac, ok := mulDiv(gone, uint64(b.rate.Cost), b.frac, uint64(b.rate.Per))
		if !ok || more >= uint64(top-b.tokens) {
			b.tokens = top
		} else {
			b.tokens += int64(more)
			b.frac = frac
		}
	}
	if b.tokens >= top {
		b.tokens, b.frac = top, 0
	}
}

// wait is how long a message of this cost has to wait after the last advance if
// nothing else is taken: 0 if it may go, forever if it waits for the end of a
// reservation.
func (b *bucket) wait(cost, reserved int64) uint64 {
	need := min(cost, b.burst)
	if b.tokens >= need {
		return 0
	}
	if need > b.burst-reserved {
		return forever
	}
	return b.until(need)
}

// until is the time until the bucket reaches a level above its present one (ns,
// rounded up).
func (b *bucket) until(level int64) uint64 {
	hi, lo := bits.Mul64(uint64(level-b.tokens), uint64(b.rate.Per))
	lo, borrow := bits.Sub64(lo, b.frac, 0)
	hi -= borrow
	lo, carry := bits.Add64(lo, uint64(b.rate.Cost)-1, 0)
	hi += carry
	if hi >= uint64(b.rate.Cost) {
		return math.MaxInt64
	}
	wait, _ := bits.Div64(hi, lo, uint64(b.rate.Cost))
	return min(wait, math.MaxInt64)
}

// take takes a cost for which wait is 0, at the time of the last advance.
func (b *bucket) take(cost, reserved int64) {
	b.lows.note(b.at, b.room(reserved))
	b.tokens -= cost
}

// charge takes a cost that has been used already, at the time of the last advance.
func (b *bucket) charge(cost, reserved int64) {
	b.take(cost, reserved)
	b.tokens = max(b.tokens, -MaxBurst)
}

// room is how much fits into the bucket (thousandths, rounded down).
func (b *bucket) room(reserved int64) int64 {
	r := b.burst - reserved - b.tokens
	if b.frac != 0 {
		r--
	}
	return r
}

// putBack refunds a take that was made at time t, as far as the bound allows.
// Compare the real level with the level without that take. They differ by cost at
// t. Later takes do not change the difference. It shrinks only when the level
// without the take overflows, and never below the smallest room since t. So the
// smaller of that room and the cost may be refunded.
func (b *bucket) putBack(t instant, cost, reserved int64) {
	if !t.after(b.changed) {
		return
	}
	back := min(cost, b.room(reserved), b.lows.since(t))
	if back > 0 {
		b.tokens += back
		b.lows.lower(t, cost)
	}
}

// setLimits changes rate and burst at the time of the last advance.
func (b *bucket) setLimits(l Limits, reserved int64) {
	b.frac, _, _ = mulDiv(b.frac, uint64(l.Rate.Per), 0, uint64(b.rate.Per))
	b.rate, b.burst = l.Rate, l.burst()
	b.changed = b.at
	b.lows = lows{}
	b.advance(b.at, reserved)
}

// setRate changes the rate at the time of the last advance. Unlike setLimits it keeps the
// room for refunds, which only depends on the burst.
func (b *bucket) setRate(r Rate) {
	b.frac, _, _ = mulDiv(b.frac, uint64(r.Per), 0, uint64(b.rate.Per))
	b.rate = r
}

// lows remembers the smallest room that a bucket had since any time in the past,
// in a few entries: a stack in which the room grows from old to new. If it is full,
// the two oldest entries are merged into one that is no larger than either.
type lows struct {
	n       int
	entries [6]low
}

type low struct {
	at   instant
	room int64
}

// note records the room before a take. Between takes the room only shrinks, so
// these are all the lows. A second take at the same moment needs no entry, since
// it finds more room than the first.
func (s *lows) note(at instant, room int64) {
	if s.n > 0 && s.entries[s.n-1].at == at {
		return
	}
	for s.n > 0 && s.entries[s.n-1].room >= room {
		s.n--
	}
	if s.n == len(s.entries) {
		s.entries[1].room = s.entries[0].room
		copy(s.entries[:], s.entries[1:])
		s.n--
	}
	s.entries[s.n] = low{at, room}
	s.n++
}

// since is the smallest room noted after t. An entry at t does not count: it is
// the room that the take at t, or one before it, found.
func (s *lows) since(t instant) int64 {
	for _, e := range s.entries[:s.n] {
		if e.at.after(t) {
			return e.room
		}
	}
	return math.MaxInt64
}

// lower subtracts cost from every room noted after t, since a take of that cost
// at t has been undone.
func (s *lows) lower(t instant, cost int64) {
	old := *s
	s.n = 0
	for _, e := range old.entries[:old.n] {
		if e.at.after(t) {
			e.room = max(0, e.room-cost)
		}
		s.note(e.at, e.room)
	}
}

// forever is a wait that time alone does not end.
const forever = math.MaxUint64

// mulDiv returns (a*b + c) / d and the remainder; ok is false if the quotient
// does not fit. b and c must leave the sum within 128 bits.
func mulDiv(a, b, c, d uint64) (quo, rem uint64, ok bool) {
	hi, lo := bits.Mul64(a, b)
	lo, carry := bits.Add64(lo, c, 0)
	hi += carry
	if hi == 0 {
		return lo / d, lo % d, true
	}
	if hi >= d {
		return 0, 0, false
	}
	quo, rem = bits.Div64(hi, lo, d)
	return quo, rem, true
}
