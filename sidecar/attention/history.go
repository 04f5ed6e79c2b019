package attention

import "time"

const (
	// keptFor is how long the counters of a queue are kept, in points at least pointEvery
	// apart: at most keptFor/pointEvery+1 points.
	keptFor    = 15 * time.Minute
	pointEvery = time.Minute
)

// point has the counters of a queue, its consumers, and the age of its oldest message, at one
// time.
type point struct {
	at                                        time.Time
	dead, delivered, expired, refused, failed int64 // failed: runs of hooks
	oldest                                    time.Duration
	consumers                                 int // the most until the next point
}

func pointOf(q *Queue, at time.Time) point {
	p := point{at: at, oldest: time.Duration(q.OldestAgeMs) * time.Millisecond, consumers: q.Consumers}
	if d := q.Detail; d != nil {
		p.dead, p.delivered, p.expired, p.refused = d.DeadLettered, d.Delivered, d.Expired, d.Refused
	}
	for i := range q.Hooks {
		p.failed += q.Hooks[i].Failures + q.Hooks[i].Bypassed
	}
	return p
}

// idle reports whether nothing has ever happened to the queue that a condition counts.
func (p *point) idle() bool { return p.dead+p.delivered+p.expired+p.refused+p.failed == 0 }

// history has the points of a queue, the oldest first.
type history []point

// add adds a point, unless the last one is too near, and drops those that are too old. If the
// clock was set back, it begins anew.
func (h history) add(p point) history {
	if n := len(h); n > 0 && p.at.Before(h[n-1].at) {
		h = h[:0]
	}
	for len(h) > 0 && p.at.Sub(h[0].at) > keptFor {
		h = h[1:]
	}
	if n := len(h); n > 0 && p.at.Sub(h[n-1].at) < pointEvery {
		h[n-1].consumers = max(h[n-1].consumers, p.consumers)
		return h
	}
	return append(h, p)
}

// before returns the oldest point that is at most d older than p; p itself if there is none.
func (h history) before(p point, d time.Duration) point {
	for _, old := range h {
		if p.at.Sub(old.at) <= d {
			return old
		}
	}
	return p
}

// mostConsumers is the largest number of consumers.
func (h history) mostConsumers() (most int) {
	for i := range h {
		most = max(most, h[i].consumers)
	}
	return most
}

// rise is the increase of a counter. A counter that has decreased counts from 0, since its
// process has restarted.
func rise(before, after int64) int64 {
	if after < before {
		return after
	}
	return after - before
}
