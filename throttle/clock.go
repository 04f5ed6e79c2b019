package throttle

import (
	"math"
	"sync"
)

// Never is the time of what has no time of its own: it comes with a release, a
// turn or a change of limits.
const Never = math.MaxInt64

const (
	// stale is how far behind the latest time a caller may be and still count
	// as late rather than as a clock that was set back (ns). Queue loops read
	// the clock once per turn and then wait for locks and for the processor, so
	// that times arrive out of order. Taking a late caller for a clock that was
	// set back would count the time between them twice; the other way round,
	// gates stand still for as long at most.
	stale = 10_000_000_000

	// farAhead is the most that one step of the clock counts for (ns): more
	// than any window, so that nothing is shut longer for it.
	farAhead = MaxWindow + MaxWindow/8
)

// instant is a moment of the gates' own time: nanoseconds that only ever go
// forward. It wraps around after 584 years, which is why two of them are never
// compared, only subtracted: since says how long ago one was.
type instant uint64

// since is the time from old to t, for an old that is not after t.
func (t instant) since(old instant) uint64 { return uint64(t - old) }

// after tells whether t is later than u, for instants within 292 years of each
// other.
func (t instant) after(u instant) bool { return int64(t-u) > 0 }

// clock turns the times that callers give into instants. A step forward counts
// in full, up to farAhead. A time that is behind by no more than stale counts
// as the latest one seen. One that is further behind means that the clock was
// set back: it counts as no time at all and becomes the new base, so that
// nothing waits for the clock to return to where it was.
//
// All gates of a registry share one clock. That makes an instant good for every
// gate of a set, and a Ticket small.
type clock struct {
	mu struct {
		sync.Mutex
		started bool
		last    int64 // the time that `at` stands for
		at      instant
	}
}

// tick returns the instant of now, and the time that it stands for, which is
// later than now if now is stale.
func (c *clock) tick(now int64) (at instant, last int64) {
	c.mu.Lock()
	m := &c.mu
	switch {
	case !m.started:
		m.started, m.last = true, now
	case now > m.last:
		m.at += instant(min(uint64(now)-uint64(m.last), farAhead))
		m.last = now
	case uint64(m.last)-uint64(now) > stale:
		m.last = now
	}
	at, last = m.at, m.last
	c.mu.Unlock()
	return at, last
}

// later is the time that comes wait nanoseconds after t, or Never.
func later(t int64, wait uint64) int64 {
	if wait >= math.MaxInt64 || t > 0 && uint64(math.MaxInt64-t) <= wait {
		return Never
	}
	return t + int64(wait)
}

// latest is the instant of the newest time that was seen.
func (c *clock) latest() instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.at
}
