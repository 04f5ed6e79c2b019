package throttle

// Pause shuts the gate of a key until a time (Unix ns), or with Never until it is
// resumed. A time that is not after now, or 0, resumes it. The latest call counts,
// whether it makes the pause longer or shorter. The key needs neither limits nor a
// Set. A pause does not touch messages in flight, buckets and windows follow the
// clock, and queues keep their places in the wait list. Snapshot does not include
// pauses.
//
// Pause appends the head of the waiters to wake if the gate opens sooner than it
// knows (see Wait.Pass).
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

// pause returns how long the gate stays paused after time last, in nanoseconds:
// forever if only a resume ends it, 0 if it is not paused. Once the end of a pause
// has been seen, it is over for good. It needs g.mu.
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
