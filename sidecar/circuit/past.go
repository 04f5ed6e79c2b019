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
	failures [pastMinutes]uint32
	minute   int64 // Unix minute of the last failure; failures is a ring by minute
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
)

func (p *past) addTurn(t turn) {
	old := t.at - pastMinutes*int64(time.Minute)
	n := max(len(p.turns)+1-maxTurns, 0)
	for n < len(p.turns) && p.turns[n].at < old {
		n++
	}
	p.turns = append(slices.Delete(p.turns, 0, n), t)
}

func (p *past) addFailure(now int64) {
	minute := now / int64(time.Minute)
	for m := max(p.minute+1, minute-pastMinutes+1); m <= minute; m++ {
		p.failures[m%pastMinutes] = 0
	}
	p.minute = max(p.minute, minute) // also if the clock has jumped back
	p.failures[p.minute%pastMinutes]++
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

// Past describes the last failure of a circuit and its last hour. Both are nil for a circuit
// that this process does not know.
func (r *Registry) Past(key string) (last *api.CircuitFailure, h *api.CircuitHistory) {
	c := r.find(key)
	if c == nil {
		return nil, nil
	}
	now := r.opt.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	h = &api.CircuitHistory{Since: wire.Timestamp(max(c.since, now-pastMinutes*int64(time.Minute)))}
	p := c.mu.past
	if p == nil {
		return nil, h
	}
	for _, t := range p.turns {
		if t.at > now-pastMinutes*int64(time.Minute) {
			h.Changes = append(h.Changes, api.CircuitChange{At: wire.Timestamp(t.at), Old: t.old.String(), New: t.new.String(), Cause: t.cause})
		}
	}
	first := max(now/int64(time.Minute), p.minute) - pastMinutes + 1
	for m := max(first, 0); m <= p.minute; m++ {
		if n := p.failures[m%pastMinutes]; n > 0 {
			h.Failures = append(h.Failures, api.CircuitFailures{Minute: wire.Timestamp(m * int64(time.Minute)), Failures: int64(n)})
		}
	}
	if p.lastAt != 0 {
		last = &api.CircuitFailure{At: wire.Timestamp(p.lastAt), Caller: p.last.Caller, Attempt: p.last.Attempt, ErrorCode: p.last.Code, Error: p.last.Error}
		if p.last.ID != [16]byte{} {
			last.ID = uuid.UUID(p.last.ID).String()
		}
	}
	return last, h
}
