package throttle

import (
	"cmp"
	"slices"
)

// State is what has to be kept of a gate over a clean stop, in a form that can
// be stored. Messages in flight are not part of it: they have leases, and are
// counted again by Set.Adopt.
type State struct {
	Key string `json:"key"`
	// At is the time of the snapshot in Unix nanoseconds.
	At int64 `json:"at"`
	// Tokens in the bucket at that time, in thousandths, rounded down; negative:
	// debt. Nil if it was full or there was none.
	Tokens *int64 `json:"tokens,omitempty"`
	// Entries of the window, oldest first.
	Entries []Entry `json:"entries,omitempty"`
}

// Entry is messages that a window counts as one moment.
type Entry struct {
	Age   int64 `json:"age"` // ns before the time of the snapshot
	Count int64 `json:"count"`
}

// Snapshot returns the state of every gate that differs from a new one, in the
// order of the keys. What a Reservation holds counts as not taken.
func (g *Gates) Snapshot(now int64) []State {
	g.mu.Lock()
	defer g.mu.Unlock()
	var states []State
	for key, d := range g.mu.listed.From("") {
		gate := g.mu.gates.all[key]
		if d != "" {
			gate = g.wake(key, d, g.mu.prefixes.of(key)) // for the one look
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
	v, last := g.gates.clock.tick(now)
	g.settle(v)
	s = State{Key: g.key, At: last}
	if b := g.mu.bucket; b != nil {
		if tokens := b.tokens + g.mu.held; tokens < b.burst {
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

// Restore puts the states of an earlier process back, for the keys that have a
// limit now; call it once, after limits and prefixes are set and before the
// first Set. The time since the snapshot counts, unless the clock has gone back
// since. Values out of range are taken as the nearest that are in it.
func (g *Gates) Restore(states []State, now int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range states {
		gate := g.awake(s.Key)
		if gate == nil {
			l := g.mu.prefixes.of(s.Key)
			if l == (Limits{}) {
				continue
			}
			gate = g.newGate(s.Key, l, now)
		}
		gate.restore(s, now)
		if gate.refs == 0 {
			g.rest(gate)
		}
		g.sweep(now, sweepSteps)
	}
}

func (g *Gate) restore(s State, now int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	v, last := g.gates.clock.tick(now)
	then := v
	if last > s.At {
		then -= instant(min(uint64(last)-uint64(s.At), farAhead))
	}
	if b := g.mu.bucket; b != nil && s.Tokens != nil {
		b.tokens, b.frac, b.at = min(max(*s.Tokens, -MaxCost), b.burst), 0, then
	}
	if w := g.mu.window; w != nil {
		w.restore(s.Entries, then)
	}
	g.settle(v)
}

// restore fills the window with entries as seen at time v.
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
