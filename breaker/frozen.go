package breaker

// Frozen is all of a Machine but its limits, so that another one can go on as it
// would have: unlike Saved, it has the generation, and the calls under way.
type Frozen struct {
	Saved
	Gen       uint64 // of passes that count
	Probes    int    // under way
	Successes int    // of probes
}

// Freeze returns what Thaw needs.
func (m *Machine) Freeze() Frozen {
	return Frozen{Saved: m.Save(), Gen: m.gen, Probes: m.probes, Successes: m.successes}
}

// Thaw returns the Machine that was frozen, with the limits c. The zero Frozen is a
// new one.
func Thaw(c Config, f Frozen) Machine {
	m := NewMachine(c)
	m.state, m.failures = f.State, f.Failures
	m.openedAt, m.since, m.openUntil, m.floor = f.OpenedAt, f.Since, f.OpenUntil, f.Floor
	m.cooling = f.Cooling
	m.gen = max(f.Gen, 1)
	m.probes, m.successes = f.Probes, f.Successes
	if f.State == Open {
		m.after = f.After
	}
	return m
}

// Gen is the generation of the present state, whose passes count.
func (m *Machine) Gen() uint64 { return m.gen }

// GiveUp returns n probes whose outcome will never be reported. They are no longer
// under way, and count as neutral.
func (m *Machine) GiveUp(n int) { m.probes = max(0, m.probes-n) }
