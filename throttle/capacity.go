package throttle

import "math"

// Capacity is what a gate would admit in a time if nobody else used it and no message in
// flight ended. [Unlimited] is a part that nothing limits.
type Capacity struct {
	Messages int64 // by concurrency and window
	Cost     int64 // thousandths, by the rate
	Burst    int64 // thousandths, the size of the bucket: a message that costs more needs a full one
}

// Unlimited is the part of a [Capacity] that nothing limits.
const Unlimited = math.MaxInt64

// Capacity returns what the gate would admit between two times, both not before now, and
// changes nothing. Before from, the bucket fills and the window empties. Of a gate that
// several processes share it returns what this process would get if the others used nothing.
func (g *Gate) Capacity(now, from, until int64) Capacity {
	g.mu.Lock()
	defer g.mu.Unlock()
	v, last := g.gates.clock.tick(now)
	g.advance(v)
	if from = max(from, last); g.pause(last) != 0 {
		from = max(from, g.mu.paused)
	}
	if from > max(until, last) {
		return Capacity{}
	}
	start, span := v+instant(from-last), uint64(max(until-from, 0))
	c := Capacity{Messages: Unlimited, Cost: Unlimited}
	shared := g.mu.share != nil && g.mu.share.by != owned
	if b := g.mu.bucket; b != nil {
		level := *b
		if shared && g.mu.share.by == leased {
			level.tokens, _ = g.mu.share.sum()
			level.frac, level.at = 0, v
		}
		level.advance(start, g.mu.reserved)
		c.Burst, c.Cost = level.burst, level.tokens
		if more, _, ok := mulDiv(span, uint64(level.rate.Cost), level.frac, uint64(level.rate.Per)); ok && more < Unlimited/2 {
			c.Cost += int64(more)
		} else {
			c.Cost = Unlimited
		}
	}
	if l := g.mu.ledger; l != nil {
		l.Advance(last, uint64(v))
		s := l.State()
		left := max(0, s.Left())
		if until >= s.End {
			again := (until-s.End)/(s.End-s.Start) + 1 // further periods, about as long
			left += s.Amount * min(again, Unlimited/2/s.Amount)
		}
		c.Cost = min(c.Cost, left)
	}
	if w := g.mu.window; w != nil {
		c.Messages = g.windowCapacity(start, span, shared)
	}
	if most := g.mu.limits.Concurrency; most != 0 {
		c.Messages = min(c.Messages, max(most-g.mu.inFlight, 0))
	}
	return c
}

// windowCapacity returns how many messages the window admits in span ns from instant v on, if
// each goes as soon as there is room and, with a rate, costs 1.
func (g *Gate) windowCapacity(v instant, span uint64, shared bool) int64 {
	w := g.mu.window
	again, rest := span/w.width, span%w.width
	if again >= Unlimited/MaxLimit {
		return Unlimited
	}
	last := w.limit // admitted in the rest; before that each place is free again that often
	if !shared {    // otherwise the fleet has the entries
		last = max(last-g.reservedEntries()-w.kept(v+instant(rest)), 0)
	}
	if l := g.mu.limits; l.Rate != (Rate{}) {
		last = min(last, max(1, (l.burst()+l.Rate.Gives(int64(rest)))/One))
	}
	return w.limit*int64(again) + last
}

// kept counts the entries that are still in the window at time v, after the last advance.
func (w *window) kept(v instant) (n int64) {
	for i := range w.n {
		if s := w.at(i); v.since(s.last) < w.width {
			n += s.n
		}
	}
	return n
}
