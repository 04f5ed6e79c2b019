package breaker

// Saved is the part of a Machine that survives a restart: whether and until when it is open. It has
// neither the calls under way nor the failures of a closed one, since only transitions are worth a
// write.
//
// The times are Unix nanoseconds.
type Saved struct {
	State     State
	Failures  int   // consecutive ones
	OpenedAt  int64 // when the cooldown began
	Since     int64 // when the wait until OpenUntil began; not before OpenedAt
	OpenUntil int64
	Floor     int64 // what RetryAfter asks for: a shorter cooldown does not go below; 0: nothing
	Cooling   bool  // OpenUntil comes from the cooldown
	After     State // what follows an open one when its time is over, Closed or HalfOpen
}

// Frozen is a Machine without its limits, so that another Machine can continue it. Unlike Saved, it
// has the generation and the calls under way.
type Frozen struct {
	Saved
	Gen       uint64 // of the current state; a Pass of another one is stale
	Probes    int    // under way; half-open only
	Successes int    // of probes; half-open only
}

// Save returns what Restore needs.
func (m *Machine) Save() Saved { return m.s.Saved }

// Freeze returns what Thaw needs.
func (m *Machine) Freeze() Frozen { return m.s }

// Thaw returns the Machine that was frozen, with the limits c. The zero Frozen is a
// new one.
func Thaw(c Config, f Frozen) Machine {
	f.Gen = max(f.Gen, 1)
	if f.State != Open {
		f.After = HalfOpen
	}
	return Machine{cfg: c.withDefaults(), s: f}
}

// Gen returns the generation of the current state. A Pass of another generation is stale.
func (m *Machine) Gen() uint64 { return m.s.Gen }

// GiveUp returns n probes whose outcome will never be reported. They are no longer
// under way, and count as neutral.
func (m *Machine) GiveUp(n int) { m.s.Probes = max(0, m.s.Probes-n) }

// Restore puts a new Machine into a saved condition at time now. An open one is
// open until its time; if the clock has been set back meanwhile, for as long as
// it was to be open from its beginning. The probes of a half-open one are gone,
// so it begins anew: it is open and its time is over. A closed one is closed.
func (m *Machine) Restore(now int64, s Saved) {
	if s.State == Closed {
		return
	}
	m.turn(Open, now)
	m.s.Failures = max(s.Failures, 0)
	if s.State != Open {
		m.wait(now, now, HalfOpen)
		return
	}
	m.wait(s.Since, s.OpenUntil, HalfOpen)
	m.s.OpenedAt, m.s.Floor, m.s.Cooling = s.OpenedAt, s.Floor, s.Cooling
	if s.After == Closed {
		m.s.After = Closed
	}
	m.rebase(now)
}
