package circuit

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/wire"
)

// states is the number of states of a circuit.
const states = breaker.HalfOpen + 1

// transitions counts the transitions between states.
type transitions [states][states]int64

// CountBlocked counts a message that begins to wait, or a refused call.
func (c *Circuit) CountBlocked() { c.held.Add(1) }

// mark records a transition for metrics and for the past. Its caller holds mu.
func (c *Circuit) mark(change breaker.Change, cause string) {
	c.mu.marked = change.At
	switch {
	case change.New == breaker.Closed:
		c.mu.unwell = 0
	case c.mu.unwell == 0:
		c.mu.unwell = change.At
	}
	if change.Turned() {
		c.r.transitions[change.Old][change.New].Add(1)
		if c.mu.transitions == nil {
			c.mu.transitions = new(transitions)
		}
		c.mu.transitions[change.Old][change.New]++
		c.remember().addTurn(turn{at: change.At, old: change.Old, new: change.New, cause: cause})
	}
}

// EachTransition calls say with the number of transitions of all circuits between any two states.
func (r *Registry) EachTransition(say func(from, to breaker.State, n int64)) {
	for from := range states {
		for to := range states {
			if from != to {
				say(from, to, r.transitions[from][to].Load())
			}
		}
	}
}

// KeyState is the state of a circuit and its counters since it was last forgotten; circuits with
// limits of their own are never forgotten.
type KeyState struct {
	Key   string // as shown to people
	State breaker.State
	Held  int64 // messages that began to wait, and refused calls

	transitions transitions
}

// EachTransition calls say with the number of transitions between two states, unless it is 0.
func (k *KeyState) EachTransition(say func(from, to breaker.State, n int64)) {
	for from := range states {
		for to := range states {
			if n := k.transitions[from][to]; n > 0 {
				say(from, to, n)
			}
		}
	}
}

// States returns the circuits with limits of their own, by key, and then up to others circuits that
// have failed or changed state last, among the keys that named allows.
func (r *Registry) States(others int, named func(key string) bool) []KeyState {
	now := r.opt.Now()
	r.mu.Lock()
	perKey := r.mu.perKey // a map that does not change
	var rest []*Circuit
	for key, c := range r.mu.byKey {
		if _, configured := perKey[key]; !configured && others > 0 && named(key) {
			rest = append(rest, c)
		}
	}
	r.mu.Unlock()
	var all []KeyState
	for _, key := range slices.Sorted(maps.Keys(perKey)) {
		k := KeyState{Key: wire.ShowKey(key), State: breaker.Closed}
		if c := r.find(key); c != nil {
			k, _ = c.keyState(now)
		}
		all = append(all, k)
	}
	type marked struct {
		KeyState
		at int64
	}
	var last []marked
	for _, c := range rest {
		if k, at := c.keyState(now); at != 0 {
			last = append(last, marked{k, at})
		}
	}
	slices.SortFunc(last, func(a, b marked) int { return cmp.Or(cmp.Compare(b.at, a.at), cmp.Compare(a.Key, b.Key)) })
	for _, m := range last[:min(others, len(last))] {
		all = append(all, m.KeyState)
	}
	return all
}

// Unwell summarises the circuits that are not closed.
type Unwell struct {
	Open, HalfOpen int
	Longest        time.Duration // longest time that one of them has not been closed
}

// forgottenAfter is how long after its last change an unused half-open circuit counts as unwell:
// nobody is there to prove that the destination is well.
const forgottenAfter = 15 * time.Minute

// Unwell returns the summary of all circuits.
func (r *Registry) Unwell() (u Unwell) {
	now := r.opt.Now()
	r.mu.Lock()
	idle := make(map[*Circuit]bool, len(r.mu.byKey))
	for _, c := range r.mu.byKey {
		idle[c] = c.idle >= 0
	}
	r.mu.Unlock()
	for c, unused := range idle {
		state, since, marked := c.ails(now)
		switch {
		case state == breaker.Closed, state == breaker.HalfOpen && unused && now-marked > int64(forgottenAfter):
			continue
		case state == breaker.Open:
			u.Open++
		default:
			u.HalfOpen++
		}
		u.Longest = max(u.Longest, time.Duration(now-since))
	}
	return u
}

// ails returns the state of the circuit, since when it is not closed, and when it last failed or
// changed state.
func (c *Circuit) ails(now int64) (state breaker.State, since, marked int64) {
	state, marked = c.state(now)
	c.mu.Lock()
	defer c.mu.Unlock()
	if since = c.mu.unwell; since == 0 { // it was open when this process first saw it
		since = c.machine().Save().OpenedAt
		if c.mu.share != nil {
			since = c.toHost(since)
		}
	}
	return state, cmp.Or(since, now), marked
}

// keyState returns the state of the circuit, and when it last failed or changed state.
func (c *Circuit) keyState(now int64) (k KeyState, marked int64) {
	k = KeyState{Key: wire.ShowKey(c.key), Held: c.held.Load()}
	k.State, marked = c.state(now)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.transitions != nil {
		k.transitions = *c.mu.transitions
	}
	return k, marked
}

// state returns the state of the circuit, and when it last failed or changed state.
func (c *Circuit) state(now int64) (state breaker.State, marked int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.share != nil {
		now = c.toFleet(now)
	}
	return c.machine().Info(now).State, c.mu.marked
}
