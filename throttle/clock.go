package throttle

import (
	"math"
	"sync"
)

// Never is the time of an event that time alone does not bring about: it comes
// with a release, a turn or a change of limits.
const Never = math.MaxInt64

const (
	// stale is how far behind the latest time a caller may be before the clock
	// counts as set back (ns). Queue loops read the clock once per step and then
	// wait for locks and for the processor, so times arrive out of order. If a
	// late caller counted as a clock that was set back, the time between would
	// count twice. The other way round, gates stand still for this long at most.
	stale = 10_000_000_000

	// farAhead is the largest step of the clock that counts in full (ns). It is
	// longer than any window, so no gate stays shut longer because of it.
	farAhead = MaxWindow + MaxWindow/8
)

// instant is a moment in the gates' own time: nanoseconds that only go forward.
// It wraps around after 584 years, so compare two of them only with since and
// after.
type instant uint64

// since returns the time from old to t. old must not be after t.
func (t instant) since(old instant) uint64 { return uint64(t - old) }

// after reports whether t is later than u. They must be within 292 years of each
// other.
func (t instant) after(u instant) bool { return int64(t-u) > 0 }

// clock turns the times of callers into instants. A step forward counts in full,
// up to farAhead. A time that is behind by at most stale counts as the latest time
// seen. A time further behind means that the clock was set back: no time has
// passed, and it becomes the new base, so that nothing waits for the clock to
// return to the old time.
//
// All gates of a registry share one clock, so that one instant is valid for all
// gates of a set and a Grant is small.
type clock struct {
	mu struct {
		sync.Mutex
		started bool
		last    int64 // the time that `at` stands for
		at      instant
	}
}

// tick returns the instant of now and the time that it stands for, which is later
// than now if now is stale.
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

// later returns the time wait nanoseconds after t, or Never if that overflows.
func later(t int64, wait uint64) int64 {
	if wait >= math.MaxInt64 || t > 0 && uint64(math.MaxInt64-t) <= wait {
		return Never
	}
	return t + int64(wait)
}

// latest returns the instant of the latest time seen.
func (c *clock) latest() instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.at
}

// latestTime returns the latest time seen.
func (c *clock) latestTime() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.last
}
