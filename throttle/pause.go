package throttle

// Pause shuts the gate of a key for everybody until a time (Unix ns), or with
// Never until it is resumed; a time that is not after now, or 0, resumes it. The
// latest call counts, whether it makes the pause longer or shorter. The key
// needs no limits and no Set: it stays paused as long as it is, whoever comes
// and goes. Messages in flight are not touched, rates and windows go on by the
// clock, and queues keep their places in the round. A pause is not part of
// Snapshot.
//
// It appends to wake whom to tell (see Wait.Pass): the queue that has the turn,
// if the gate opens sooner than it knows.
func (g *Gates) Pause(key string, until, now int64, wake []*Wait) []*Wait {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, last := g.clock.tick(now)
	if until <= last && until != Never {
		until = 0
	}
	gate := g.awake(key)
	if gate == nil {
		if until == 0 {
			return wake
		}
		gate = g.newGate(key, g.mu.prefixes.of(key), now)
	}
	gate.mu.Lock()
	defer gate.mu.Unlock()
	was := gate.mu.paused
	gate.mu.paused = until
	if was > until {
		return gate.mu.waiting.notifyHead(wake)
	}
	return wake
}

// pause is how long the gate stays paused from time last on, in nanoseconds:
// forever if only a resume ends it, 0 if it is not. A pause whose end has been
// seen is over for good. It needs g.mu.
func (g *Gate) pause(last int64) uint64 {
	switch until := g.mu.paused; {
	case until == 0:
		return 0
	case until == Never:
		return forever
	case until <= last:
		g.mu.paused = 0
		return 0
	default:
		return uint64(until) - uint64(last)
	}
}
