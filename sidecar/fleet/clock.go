package fleet

import "time"

// beat is a heartbeat of this instance, with the times of request and answer by this host's clock.
type beat struct {
	rev        uint64
	sent, done int64
	err        error
}

// clock is this instance's estimate of the fleet's clock: its offset from this host's clock and
// the maximum error. The server stores a heartbeat between request and answer, so the offset that
// a heartbeat shows is off by at most half of its round trip. The estimate with the least error
// counts, so a slow heartbeat does no harm.
type clock struct {
	offset int64
	err    int64 // maximum at time at
	at     int64 // by this host's clock
}

const (
	// driftPart: clocks drift apart by at most 1/driftPart of the time.
	driftPart = 1000
	// clockUnknown is the error before the first heartbeat.
	clockUnknown = int64(24 * time.Hour)
	// clockFine is the error at which a start sends no further heartbeat.
	clockFine = int64(20 * time.Millisecond)
	// firstBeats is how many heartbeats a start sends at most to get there.
	firstBeats = 4
)

// errAt returns the maximum error of the offset at a time of this host.
func (c clock) errAt(now int64) int64 {
	return min(c.err+max(0, now-c.at)/driftPart, clockUnknown)
}

// learn returns the estimate after a heartbeat that was stored at a time. If the heartbeat
// contradicts the estimate, the server's clock was set or another server's clock counts; then only
// the heartbeat counts.
func (c clock) learn(b beat, stored time.Time) clock {
	half := (b.done - b.sent) / 2
	told := clock{offset: stored.UnixNano() - b.sent - half, err: half + 1, at: b.done}
	known := c.errAt(b.done)
	if apart := max(told.offset-c.offset, c.offset-told.offset); told.err <= known || apart > told.err+known {
		return told
	}
	return c
}

// exchange matches a heartbeat's answer with its echo in the watch, which come in any order.
type exchange struct {
	asked  beat
	echoed Entry
}

// matches reports whether the newest answer and the newest echo are of the same heartbeat, for the
// first time.
func (x *exchange) matches() bool {
	if x.asked.rev == 0 || x.asked.rev != x.echoed.Rev {
		return false
	}
	x.echoed.Rev = 0
	return true
}
