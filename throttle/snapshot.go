package throttle

import (
	"cmp"
	"slices"
	"strings"
)

// Snapshot returns the state of every gate that differs from a new gate, in the
// order of the keys. The cost of a Reservation counts as not taken.
func (g *Gates) Snapshot(now int64) []State {
	g.mu.Lock()
	defer g.mu.Unlock()
	states := make([]State, 0, g.count.Load())
	var look body
	v, _ := g.clock.tick(now)
	for key, d := range g.mu.listed.From("") {
		var gate *Gate
		if d == "" {
			gate = g.mu.gates.all[key]
		} else if !d.over(v) {
			gate = g.wake(&look, key, d, g.mu.prefixes.of(key))
		}
		if gate == nil {
			continue
		}
		if s, ok := gate.snapshot(now); ok {
			states = append(states, s)
		}
	}
	return states
}

func (g *Gate) snapshot(now int64) (s State, used bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if sh := g.mu.share; sh != nil && sh.by == leased {
		return State{}, false // the fleet keeps it
	}
	return g.state(now)
}

// state is snapshot for a gate that applies its limits itself. It needs g.mu.
func (g *Gate) state(now int64) (s State, used bool) {
	v, last := g.gates.clock.tick(now)
	g.advance(v)
	s = State{Key: g.key, At: last}
	if b := g.mu.bucket; b != nil {
		if tokens := b.tokens + g.mu.reserved; tokens < b.burst {
			s.Tokens = &tokens
		}
	}
	if w := g.mu.window; w != nil {
		for i := range w.n {
			e := w.at(i)
			s.Entries = append(s.Entries, Entry{Age: int64(v.since(e.last)), Count: e.n})
		}
	}
	return s, s.Tokens != nil || s.Entries != nil
}

// Restore restores the states of an earlier process for the keys that have limits
// now. Call it once, after setting limits and prefixes and before the first Set.
// The time since the snapshot counts, unless the clock has gone back since. Values
// out of range are clamped.
func (g *Gates) Restore(states []State, now int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range states {
		if gate := g.awake(s.Key); gate != nil {
			gate.restore(s, now)
			if gate.refs == 0 {
				g.addIdle(gate)
			}
		} else if l := g.mu.prefixes.of(s.Key); l != (Limits{}) {
			g.restoreDormant(s, l, now)
		}
	}
}

// restoreDormant is restore for a key without a gate. It makes a dormant gate,
// unless the state is the state of a new gate. It needs g.mu.
func (g *Gates) restoreDormant(s State, l Limits, now int64) {
	gate := Gate{gates: g}
	v, last := g.clock.tick(now)
	gate.setLimits(l, v, true)
	gate.restore(s, now)
	if gate.fresh(v, last) {
		return
	}
	g.mu.buf = gate.asDormant(v, g.mu.buf[:0])
	g.mu.listed.Put(strings.Clone(s.Key), dormant(g.mu.buf)) // the key is a substring of the stored text
	g.count.Add(1)
}

func (g *Gate) restore(s State, now int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	v, last := g.gates.clock.tick(now)
	g.fill(&s, v, last)
}

// fill restores a state at instant v of time last. It needs g.mu.
func (g *Gate) fill(s *State, v instant, last int64) {
	then := v
	if last > s.At {
		then -= instant(min(uint64(last)-uint64(s.At), farAhead))
	}
	if b := g.mu.bucket; b != nil && s.Tokens != nil {
		b.tokens, b.frac, b.at = min(max(*s.Tokens, -MaxBurst), b.burst), 0, then
	}
	if w := g.mu.window; w != nil {
		w.restore(s.Entries, then)
	}
	g.advance(v)
}

// restore fills the window with entries whose ages count from time v.
func (w *window) restore(entries []Entry, v instant) {
	w.spans, w.head, w.n, w.total = nil, 0, 0, 0
	entries = slices.Clone(entries)
	slices.SortStableFunc(entries, func(a, b Entry) int { return cmp.Compare(b.Age, a.Age) })
	for _, e := range entries {
		age, count := min(max(e.Age, 0), MaxWindow), min(max(e.Count, 1), MaxLimit)
		w.total += count
		if last := v - instant(age); w.n > 0 && w.at(w.n-1).last == last {
			w.at(w.n - 1).n += count
		} else {
			w.push(span{last: last, n: count})
		}
	}
	w.compact()
}
