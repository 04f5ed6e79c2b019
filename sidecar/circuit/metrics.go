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

// KeyState is the state of a circuit.
type KeyState struct {
	Key   string // as people read it
	State breaker.State
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
		state := breaker.Closed
		if c := r.find(key); c != nil {
			state, _ = c.stands(now)
		}
		all = append(all, KeyState{wire.ShowKey(key), state})
	}
	type marked struct {
		KeyState
		at int64
	}
	var last []marked
	for _, c := range rest {
		if state, at := c.stands(now); at != 0 {
			last = append(last, marked{KeyState{wire.ShowKey(c.key), state}, at})
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

// stands returns the state of the circuit, and when it has failed or turned last.
func (c *Circuit) stands(now int64) (state breaker.State, marked int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.share != nil {
		now = c.toFleet(now)
	}
	return c.machine().Info(now).State, c.mu.marked
}
