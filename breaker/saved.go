package breaker

// Saved is what has to be kept of a Machine for a restart: whether and until
// when it is open. Calls under way are not part of it, nor are the failures of
// a closed one, since it is the transitions that are worth a write.
//
// The times are Unix nanoseconds.
type Saved struct {
	State     State
	Failures  int // consecutive ones
	OpenedAt  int64
	Since     int64 // when the wait until OpenUntil began
	OpenUntil int64
	Floor     int64 // asked for by RetryAfter; 0: nothing
	Cooling   bool  // OpenUntil comes from the cooldown
	After     State // what follows, Closed or HalfOpen
}

// Save returns what Restore needs.
func (m *Machine) Save() Saved {
	return Saved{
		State: m.state, Failures: m.failures, OpenedAt: m.openedAt, Since: m.since,
		OpenUntil: m.openUntil, Floor: m.floor, Cooling: m.cooling, After: m.after,
	}
}

// Restore puts a new Machine into a saved condition at time now. An open one is
// open until its time; if the clock has been set back meanwhile, for as long as
// it was to be open from its beginning. The probes of a half-open one are gone,
// so it begins anew: it is open and its time is over. A closed one is closed.
func (m *Machine) Restore(now int64, s Saved) {
	if s.State == Closed {
		return
	}
	m.turn(Open, now)
	m.failures = max(s.Failures, 0)
	if s.State != Open {
		m.wait(now, now, HalfOpen)
		return
	}
	m.wait(s.Since, s.OpenUntil, HalfOpen)
	m.openedAt, m.floor, m.cooling = s.OpenedAt, s.Floor, s.Cooling
	if s.After == Closed {
		m.after = Closed
	}
	m.rebase(now)
}
