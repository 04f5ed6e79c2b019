package throttle

// Feedback is what a destination has said about its limit: how much more it admits, and how
// long (ns) until that is renewed, 0 if it did not say.
type Feedback struct {
	Remaining int64 // cost in thousandths
	Reset     int64
}

// Feedback lowers the buckets of the learning limits of the set to what the destination has
// said that it still admits. With nothing remaining, no message goes before the reset. A
// bucket never rises.
func (s *Set) Feedback(f Feedback, now int64) {
	for _, g := range s.Gates() {
		if !g.learns.Load() {
			continue
		}
		g.mu.Lock()
		v, _ := g.gates.clock.tick(now)
		g.advance(v)
		if b := g.mu.bucket; b != nil && g.mu.learner != nil {
			level := f.Remaining - g.mu.reserved
			if f.Remaining < One {
				level = min(level, One-b.rate.Gives(f.Reset))
			}
			if s := g.mu.share; s != nil && s.by == leased {
				s.lowerLeases(g, level, v)
			} else {
				b.lower(level)
			}
		}
		g.mu.Unlock()
	}
}

// lower lowers the level of the bucket at the time of the last advance; it never raises it.
func (b *bucket) lower(tokens int64) {
	if tokens < b.tokens {
		b.tokens, b.frac = max(tokens, -MaxBurst), 0
	}
}

// remaining is the most that the bucket of the fleet may have at a time, beside the leases of this
// process, by the feedback of a destination. The fleet does not know it yet. It refills like the bucket.
type remaining struct {
	known  bool
	tokens int64
	at     instant
}

// advance brings what remains up to time v.
func (r *remaining) advance(l Limits, v instant) {
	r.tokens, r.at = min(r.tokens+l.Rate.Gives(int64(v.since(r.at))), MaxBurst), v
}

// lowerLeases lowers the leases and the bucket of the fleet together to a level at time v. It needs g.mu.
func (s *share) lowerLeases(g *Gate, level int64, v instant) {
	s.expire(v)
	for i := range s.leases {
		s.leases[i].Tokens = min(s.leases[i].Tokens, max(0, level))
		level -= s.leases[i].Tokens
	}
	r := &s.remaining
	if r.advance(g.mu.limits, v); !r.known || level < r.tokens {
		*r = remaining{true, max(level, -MaxBurst), v}
	}
	g.request()
}

// lowerNew lowers tokens of a lease that was taken from the fleet before it knew what remains.
func (s *share) lowerNew(l Limits, tokens int64, v instant) int64 {
	r := &s.remaining
	if !r.known {
		return tokens
	}
	r.advance(l, v)
	tokens = min(tokens, max(0, r.tokens))
	r.tokens -= tokens
	return tokens
}

// lowerBucket lowers the bucket that the gate begins to use itself. It needs g.mu.
func (s *share) lowerBucket(g *Gate, v instant) {
	if r := &s.remaining; r.known && g.mu.bucket != nil {
		r.advance(g.mu.limits, v)
		g.mu.bucket.lower(r.tokens)
	}
}

// TakeRemaining returns and clears the most that the bucket of the fleet may have now, beside the leases,
// by the feedback of a destination. ok is false if there was none. The fleet must lower its bucket.
func (g *Gates) TakeRemaining(key string, now int64) (tokens int64, ok bool) {
	g.onShared(key, func(gate *Gate, s *share) {
		v, _ := g.clock.tick(now)
		if ok = s.remaining.known; ok {
			s.remaining.advance(gate.mu.limits, v)
			tokens, s.remaining = s.remaining.tokens, remaining{}
		}
	})
	return tokens, ok
}

// FinishLeases has the tokens of all leases of a gate not returned, after the bucket of the fleet was lowered
// to what remains. With none, they are not used any more either.
func (g *Gates) FinishLeases(key string, none bool) {
	g.onShared(key, func(_ *Gate, s *share) {
		for i := range s.leases {
			if c := &s.leases[i]; none {
				c.Tokens = 0
			} else {
				c.Final = *c != Lease{}
			}
		}
		for i := range s.ended {
			s.ended[i].Tokens = 0
		}
	})
}
