package fleet

import "time"

// beat is one of this instance: when it was sent and written, by this host's clock.
type beat struct {
	rev        uint64
	sent, done int64
	err        error
}

// clock is what this instance knows of the fleet's clock: how far that is ahead of this
// host's, and how far off this may be. A beat was stored at a moment between its sending
// and its answer, so what it tells is wrong by half of its round trip at the most. Of all
// that beats have told, what has the least error now counts, so a beat that was under way
// for long does no harm.
type clock struct {
	offset int64
	err    int64 // at most, at time at
	at     int64 // by this host's clock
}

const (
	// driftPart is the part of the time that clocks may drift apart by.
	driftPart = 1000
	// clockUnknown is the error before the first beat.
	clockUnknown = int64(24 * time.Hour)
	// clockFine is an error for which a start does not send another beat.
	clockFine = int64(20 * time.Millisecond)
	// firstBeats is how many beats a start sends at most to make the error fine.
	firstBeats = 4
)

// errAt is how far the offset may be off at time now of this host.
func (c clock) errAt(now int64) int64 {
	return min(c.err+max(0, now-c.at)/driftPart, clockUnknown)
}

// learn returns the clock after a beat that was stored at a time. If a beat and what is
// known cannot both be true, the server's clock was set, or another server's counts: then
// only the beat counts.
func (c clock) learn(b beat, stored time.Time) clock {
	half := (b.done - b.sent) / 2
	told := clock{offset: stored.UnixNano() - b.sent - half, err: half + 1, at: b.done}
	known := c.errAt(b.done)
	if apart := max(told.offset-c.offset, c.offset-told.offset); told.err <= known || apart > told.err+known {
		return told
	}
	return c
}

// exchange matches a beat with its echo in the watch, which come in any order.
type exchange struct {
	asked  beat
	echoed Entry
}

// matches reports whether the newest beat and the newest echo are of the same beat, for
// the first time.
func (x *exchange) matches() bool {
	if x.asked.rev == 0 || x.asked.rev != x.echoed.Rev {
		return false
	}
	x.echoed.Rev = 0
	return true
}
