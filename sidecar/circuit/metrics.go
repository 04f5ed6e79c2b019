package circuit

import (
	"cmp"
	"slices"
	"time"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/wire"
)

// states is how many a circuit can have.
const states = breaker.HalfOpen + 1

// turns says how often a circuit has gone from one state to another.
type turns [states][states]int64

// CountBlocked counts a message that begins to wait, or a call that is refused.
func (c *Circuit) CountBlocked() { c.held.Add(1) }

// mark notes a transition for those who count. Its caller holds mu.
func (c *Circuit) mark(change breaker.Change) {
	c.mu.marked = change.At
	switch {
	case change.New == breaker.Closed:
		c.mu.unwell = 0
	case c.mu.unwell == 0:
		c.mu.unwell = change.At
	}
	if change.Turned() {
		c.r.turns[change.Old][change.New].Add(1)
		if c.mu.turns == nil {
			c.mu.turns = new(turns)
		}
		c.mu.turns[change.Old][change.New]++
	}
}

// EachTurn says how many transitions there have been of all circuits together, between
// any two states.
func (r *Registry) EachTurn(say func(from, to breaker.State, n int64)) {
	for from := range states {
		for to := range states {
			if from != to {
				say(from, to, r.turns[from][to].Load())
			}
		}
	}
}

// KeyState is the state of a circuit, and what has been counted of it since it was last
// forgotten, which one with limits of its own never is.
type KeyState struct {
	Key   string // as people read it
	State breaker.State
	Held  int64 // messages that began to wait, and calls that were refused

	turns turns
}

// EachTurn says how many transitions there have been between any two states, where there
// has been one.
func (k *KeyState) EachTurn(say func(from, to breaker.State, n int64)) {
	for from := range states {
		for to := range states {
			if n := k.turns[from][to]; n > 0 {
				say(from, to, n)
			}
		}
	}
}

// States returns the states of the circuits that have limits of their own, by key, and
// after them of those that have failed or turned last: at most so many, whose keys may
// be named.
func (r *Registry) States(others int, named func(key string) bool) []KeyState {
	now := r.opt.Now()
	r.mu.Lock()
	perKey := r.mu.perKey
	var own []string
	var rest []*Circuit
	for key := range perKey {
		own = append(own, key)
	}
	for key, c := range r.mu.byKey {
		if _, configured := perKey[key]; !configured && others > 0 && named(key) {
			rest = append(rest, c)
		}
	}
	r.mu.Unlock()
	slices.Sort(own)
	var all []KeyState
	for _, key := range own {
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

// Unwell is how the circuits stand together that are not closed.
type Unwell struct {
	Open, HalfOpen int
	Longest        time.Duration // for which one of them has not been closed
}

// forgottenAfter is for how long nothing has to happen to a circuit that nobody uses until
// it does not count as unwell any more: its time is over, and nobody is there to prove that
// the destination is well.
const forgottenAfter = 15 * time.Minute

// Unwell looks at all circuits, whatever their keys.
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

// ails returns the state of the circuit, since when it is not closed, and when it has failed
// or turned last.
func (c *Circuit) ails(now int64) (state breaker.State, since, marked int64) {
	state, marked = c.stands(now)
	c.mu.Lock()
	defer c.mu.Unlock()
	if since = c.mu.unwell; since == 0 { // it was open when it was met
		since = c.machine().Save().OpenedAt
		if c.mu.share != nil {
			since = c.toHost(since)
		}
	}
	return state, cmp.Or(since, now), marked
}

// keyState returns how the circuit stands, and when it has failed or turned last.
func (c *Circuit) keyState(now int64) (k KeyState, marked int64) {
	k = KeyState{Key: wire.ShowKey(c.key), Held: c.held.Load()}
	k.State, marked = c.stands(now)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.turns != nil {
		k.turns = *c.mu.turns
	}
	return k, marked
}

// stands returns the state of the circuit, and when it has failed or turned last.
func (c *Circuit) stands(now int64) (state breaker.State, marked int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.share != nil {
		now = c.toFleet(now)
	}
	return c.machine().Info(now).State, c.mu.marked
}
