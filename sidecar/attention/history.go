package attention

import (
	"time"

	"github.com/filaq/fila/wire/api"
)

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

// noneDead reports whether no message has become a dead letter for d before p.
func (h history) noneDead(p point, d time.Duration) bool {
	for _, old := range h {
		if p.at.Sub(old.at) >= d && old.dead == p.dead {
			return true
		}
	}
	return false
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

// backlog is what a gate blocks of a queue at one time.
type backlog struct {
	at       time.Time
	messages int64
	wait     time.Duration // of the first message
}

// backlogs are the last backlogs of a gate, the oldest first: backlogEvery apart, and for
// backlogFor.
type backlogs []backlog

const (
	backlogEvery = 9 * time.Second
	backlogFor   = 30 * time.Second
)

// backlogsOf adds a sample to the backlogs of its throttles.
func (m *Monitor) backlogsOf(s *Sample) map[string]backlogs {
	all := make(map[string]backlogs)
	for i := range s.Queues {
		q := &s.Queues[i]
		for j := range q.Blocked {
			b := &q.Blocked[j]
			if id := q.Name + "\x00" + b.Gate; b.throttled() {
				all[id] = m.backlogs[id].add(backlog{s.At, b.Messages, b.Wait})
			}
		}
	}
	return all
}

func (h backlogs) add(b backlog) backlogs {
	n := len(h)
	if n > 0 && b.at.Before(h[n-1].at) {
		h, n = h[:0], 0 // the clock was set back
	}
	if n > 1 && b.at.Sub(h[n-2].at) < backlogEvery {
		h[n-1] = b
	} else {
		h = append(h, b)
	}
	for b.at.Sub(h[0].at) > backlogFor {
		h = h[1:]
	}
	return h
}

// after returns the backlogs since a time (RFC 3339), at least the last one.
func (h backlogs) after(text string) backlogs {
	at, _ := time.Parse(time.RFC3339Nano, text) // 0001 if it is none: all
	for len(h) > 1 && h[0].at.Before(at) {
		h = h[1:]
	}
	return h
}

// drains returns how long the backlog needs until it is empty. It reports false if it does not
// shrink, or that is not known yet.
func (h backlogs) drains() (rest time.Duration, ok bool) {
	first, now := h[0], h[len(h)-1]
	return api.DrainTime(first.messages, now.messages, h.span())
}

// grows reports whether the first message has waited longer and longer, or messages came faster
// than they went.
func (h backlogs) grows() bool {
	first, now := h[0], h[len(h)-1]
	return h.span() > 0 && (now.messages > first.messages || now.wait-first.wait > h.span()/4)
}

// span is the time that is known, 0 if that is too short for a judgement.
func (h backlogs) span() time.Duration {
	if d := h[len(h)-1].at.Sub(h[0].at); d >= backlogFor/2 {
		return d
	}
	return 0
}
