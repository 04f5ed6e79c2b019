package record

import "github.com/filaq/fila/breaker"

// Kind says what a [Step] is.
type Kind uint8

// The kinds of steps.
const (
	// Outcomes of calls while the circuit was closed: Gen and Run.
	Outcomes Kind = iota + 1
	// Probe has ended with Outcome: Gen. breaker.Neutral gives a permit back.
	Probe
	// Want asks for a permit.
	Want
	// RetryAfter: the destination wants to be left alone until Until.
	RetryAfter
	// Open by hand, or for too many failures, until Until; After follows.
	Open
	// Reset closes by hand and forgets failures.
	Reset
	// Release ends an Open before its time.
	Release
	// Adopt: what an instance that was alone has come to.
	Adopt
)

// Step is something that happened at an instance. Its Kind says which fields count.
type Step struct {
	Kind    Kind
	Gen     uint64          // of the pass
	Run     Run             // of Outcomes
	Outcome breaker.Outcome // of Probe
	At      int64           // of what was done by hand: when; of Adopt: of its last change
	Until   int64
	After   breaker.State
	Cause   string // of Open and Adopt
	Client  string // of the same: who did it by hand
	State   breaker.Saved
}

// Run sums up a row of failures and successes, as far as it matters to a circuit that
// counts failures in a row: Lead of them before the first success, if Reset is set, the
// longest row Most between successes, and Tail after the last.
type Run struct {
	Lead, Most, Tail int
	Reset            bool
}

// run is one outcome.
func run(o breaker.Outcome) Run {
	if o == breaker.Success {
		return Run{Reset: true}
	}
	return Run{Lead: 1}
}

// then is what r and, after it, n are together.
func (r Run) then(n Run) Run {
	switch {
	case !n.Reset && !r.Reset:
		r.Lead += n.Lead
	case !n.Reset:
		r.Tail += n.Lead
	case !r.Reset:
		n.Lead += r.Lead
		return n
	default:
		r.Most, r.Tail = max(r.Most, r.Tail+n.Lead, n.Most), n.Tail
	}
	return r
}

// after returns how many failures in a row there are after r, which begins with so many,
// and the most of them on the way.
func (r Run) after(failures int) (now, most int) {
	if !r.Reset {
		return failures + r.Lead, failures + r.Lead
	}
	return r.Tail, max(failures+r.Lead, r.Most, r.Tail)
}

// Merge adds next to steps, as a part of the last of them where the outcome is the same.
func Merge(steps []Step, next Step) []Step {
	if len(steps) > 0 {
		last := &steps[len(steps)-1]
		switch {
		case next.Kind == Outcomes && last.Kind == Outcomes && last.Gen == next.Gen:
			last.Run = last.Run.then(next.Run)
			return steps
		case next.Kind == RetryAfter && last.Kind == RetryAfter:
			last.Until = max(last.Until, next.Until)
			return steps
		}
	}
	return append(steps, next)
}
