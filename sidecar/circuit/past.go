package circuit

import (
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// past is the last hour of a circuit: at most 9 KB with its last failure. It is not stored.
type past struct {
	turns    []turn // oldest first, at most maxTurns
	failures minutes
	openings minutes
	last     gates.FailedCall
	lastAt   int64 // Unix ns; 0: none
}

// turn is a change of the state.
type turn struct {
	at       int64 // Unix ns
	old, new breaker.State
	cause    string
}

const (
	pastMinutes = 60
	maxTurns    = 256
	// maxFailureText is how many bytes of an error and of a code are kept.
	maxFailureText = 512
	// openingsWithin is the time of [api.CircuitOpenings].
	openingsWithin = 10
)

// minutes counts by minute for an hour.
type minutes struct {
	n    [pastMinutes]uint32 // a ring, by Unix minute
	last int64               // the Unix minute of the last count
}

// add counts one.
func (c *minutes) add(now int64) {
	minute := now / int64(time.Minute)
	for m := max(c.last+1, minute-pastMinutes+1); m <= minute; m++ {
		c.n[m%pastMinutes] = 0
	}
	c.last = max(c.last, minute) // also if the clock has jumped back
	c.n[c.last%pastMinutes]++
}

// each calls fn with the beginning (Unix ns) of each of the last minutes that has counts, the oldest
// first.
func (c *minutes) each(now, most int64, fn func(minute int64, n uint32)) {
	for m := max(now/int64(time.Minute), c.last) - most + 1; m <= c.last; m++ {
		if m >= 0 && c.n[m%pastMinutes] > 0 {
			fn(m*int64(time.Minute), c.n[m%pastMinutes])
		}
	}
}

// addTurn adds a change. If there are too many, the older half keeps one of each minute.
func (p *past) addTurn(t turn) {
	if t.new == breaker.Open && t.cause != api.CauseByHand {
		p.openings.add(t.at)
	}
	old := t.at - pastMinutes*int64(time.Minute)
	n := 0
	for n < len(p.turns) && p.turns[n].at < old {
		n++
	}
	p.turns = slices.Delete(p.turns, 0, n)
	if len(p.turns) == maxTurns {
		half := thinned(slices.Clone(p.turns[:maxTurns/2]))
		p.turns = slices.Replace(p.turns, 0, maxTurns/2, half...)
		if len(half) > 0 {
			p.turns[len(half)].old = half[len(half)-1].new
		}
	}
	p.turns = append(p.turns[max(len(p.turns)+1-maxTurns, 0):], t)
}

// thinned keeps one change of each minute, an opening if there is one.
func thinned(turns []turn) []turn {
	minute := func(t turn) int64 { return t.at / int64(time.Minute) }
	kept := turns[:0]
	for _, t := range turns {
		n := len(kept)
		switch {
		case n == 0 || minute(kept[n-1]) != minute(t):
			kept = append(kept, t)
		case kept[n-1].new != breaker.Open:
			kept[n-1] = t
		}
	}
	for i := 1; i < len(kept); i++ {
		kept[i].old = kept[i-1].new
	}
	return kept
}

// wasOpen reports whether the circuit has opened lately.
func (c *Circuit) wasOpen(now int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.openings(now) != nil
}

// openings describes how often the circuit has opened by itself lately, nil if it has not. Its caller holds mu.
func (c *Circuit) openings(now int64) *api.CircuitOpenings {
	p := c.mu.past
	if p == nil {
		return nil
	}
	o := &api.CircuitOpenings{}
	p.openings.each(now, openingsWithin, func(_ int64, n uint32) { o.Count += int64(n) })
	for _, t := range slices.Backward(p.turns) {
		if t.new == breaker.Open && t.cause != api.CauseByHand && o.Count > 0 {
			o.Last, o.Cause = wire.Timestamp(t.at), t.cause
			return o
		}
	}
	return nil
}

func (p *past) setLast(now int64, f gates.FailedCall) {
	f.Error, f.Code = cutText(f.Error), cutText(f.Code)
	p.last, p.lastAt = f, now
}

// cutText returns the beginning of a text, which does not keep the rest of its message in memory.
func cutText(s string) string { return strings.Clone(wire.Cut(s, maxFailureText)) }

// remember returns the past, which is made for the first change or failure. Its caller holds mu.
func (c *Circuit) remember() *past {
	if c.mu.past == nil {
		c.mu.past = new(past)
	}
	return c.mu.past
}

// keptPast is the past of a circuit that is forgotten, and since when it was known.
type keptPast struct {
	since int64 // Unix ns
	*past
}

// maxPasts is how many pasts of forgotten circuits are kept: of those that were forgotten last, up to
// twice as many.
const maxPasts = 250

// Past describes the last failure of a circuit and its last hour. Both are nil for a circuit
// that this process does not know.
func (r *Registry) Past(key string) (last *api.CircuitFailure, h *api.CircuitHistory) {
	now := r.opt.Now()
	r.mu.Lock() // a past goes from a circuit to pasts and back under it
	defer r.mu.Unlock()
	if c := r.mu.byKey[key]; c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.mu.past.describe(c.since, now)
	}
	if k, ok := r.mu.pasts.Get(key); ok {
		return k.describe(k.since, now)
	}
	return nil, nil
}

// describe describes a past, nil for a circuit without one, that is known since a time.
func (p *past) describe(since, now int64) (last *api.CircuitFailure, h *api.CircuitHistory) {
	h = &api.CircuitHistory{Since: wire.Timestamp(max(since, now-pastMinutes*int64(time.Minute)))}
	if p == nil {
		return nil, h
	}
	for _, t := range p.turns {
		if t.at > now-pastMinutes*int64(time.Minute) {
			h.Changes = append(h.Changes, api.CircuitChange{At: wire.Timestamp(t.at), Old: t.old.String(), New: t.new.String(), Cause: t.cause})
		}
	}
	p.failures.each(now, pastMinutes, func(minute int64, n uint32) {
		h.Failures = append(h.Failures, api.CircuitFailures{Minute: wire.Timestamp(minute), Failures: int64(n)})
	})
	p.openings.each(now, pastMinutes, func(minute int64, n uint32) {
		h.Openings = append(h.Openings, api.CircuitOpened{Minute: wire.Timestamp(minute), Openings: int64(n)})
	})
	if p.lastAt != 0 {
		last = &api.CircuitFailure{At: wire.Timestamp(p.lastAt), Caller: p.last.Caller, Attempt: p.last.Attempt, ErrorCode: p.last.Code, Error: p.last.Error}
		if p.last.ID != [16]byte{} {
			last.ID = uuid.UUID(p.last.ID).String()
		}
	}
	return last, h
}
