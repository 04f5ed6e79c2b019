// Package breaker is a circuit breaker as a pure state machine: it takes the
// time as an argument, starts no goroutine, reads no clock and logs nothing.
//
// A Machine is closed (calls pass and their outcomes are counted), open (calls
// are refused until the cooldown is over) or half-open (a few probes pass and
// decide). Allow asks for a call and hands out a Pass, Done brings the outcome
// back with that Pass:
//
//	p, _ := m.Allow(now)
//	if p == 0 {
//		return errCircuitOpen
//	}
//	err := call()
//	m.Done(time.Now().UnixNano(), p, outcomeOf(err))
//
// Every transition starts a new generation, and a Pass belongs to the generation
// that handed it out. A result that arrives after the state has moved on is
// dropped, also when the machine has come back to the same state in between: the
// failure of a call that began before an outage cannot reopen a circuit that a
// probe has just closed, and a probe of an earlier half-open phase cannot close a
// later one.
//
// An opening may end in closed instead of half-open (RetryAfter, and Open of one
// that was closed), Reset closes it by hand, Admits says how many calls would be
// granted and when to ask again, and Save and Restore carry an opening over a
// restart.
//
// A FailureWindow counts failures within a time, whatever is between them.
//
// Caveats. A Machine has no mutex: its callers have one. Each Pass that Allow
// granted must be given to Done exactly once (Neutral if the call was never
// made): a probe that is never given back keeps its place, and with
// HalfOpenMaxCalls 1 nothing else would be admitted until Reset. Times are Unix
// nanoseconds of one clock. When that clock jumps back behind the moment of
// opening, the wait starts afresh from the new time; it never becomes longer than
// the cooldown counted from then.
package breaker
