package record

import "github.com/filaq/fila/breaker"

// Kind is the kind of a [Step].
type Kind uint8

// The kinds of steps.
const (
	// Outcomes are outcomes of calls while the circuit was closed: Gen and Run.
	Outcomes Kind = iota + 1
	// Probe is a finished probe: Gen and Outcome. breaker.Neutral gives its permit back.
	Probe
	// Want requests a permit.
	Want
	// RetryAfter means that the destination asks for no calls until Until.
	RetryAfter
	// Open is an opening by hand, or by too many failures, until Until; then After.
	Open
	// Reset closes by hand and clears failures.
	Reset
	// Release ends an Open before its time.
	Release
	// Adopt is the state of an instance that was alone.
	Adopt
)

// Step is something that happened at an instance. Kind determines which fields count.
type Step struct {
	Kind    Kind
	Gen     uint64          // of the pass
	Run     Run             // of Outcomes
	Outcome breaker.Outcome // of Probe
	At      int64           // time of an operation by hand; for Adopt: of its last change
	Until   int64
	After   breaker.State
	Cause   string // for Open and Adopt
	Client  string // for Open and Adopt by hand
	State   breaker.Saved
}

// Run summarises a sequence of outcomes for a circuit that counts consecutive failures: Lead failures
// before the first success, if Reset is set, at most Most in a row between successes, and Tail after the
// last.
type Run struct {
	Lead, Most, Tail int
	Reset            bool
}

// run returns the Run of one outcome.
func run(o breaker.Outcome) Run {
	if o == breaker.Success {
		return Run{Reset: true}
	}
	return Run{Lead: 1}
}

// then returns r followed by n.
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

// after returns the consecutive failures after r, given those before it, and the highest count on the
// way.
func (r Run) after(failures int) (now, most int) {
	if !r.Reset {
		return failures + r.Lead, failures + r.Lead
	}
	return r.Tail, max(failures+r.Lead, r.Most, r.Tail)
}

// Merge appends next to steps, merging it into the last one where the outcome is the same.
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
