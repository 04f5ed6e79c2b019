package history

import (
	"cmp"
	"math"
	"slices"
)

// interval is a stretch of time in which one gate or pause blocked messages.
type interval struct {
	kind, place, key string
	from             int64
	to               int64 // notEnded: it still does
}

const notEnded = math.MaxInt64

// Intervals are the latest intervals that blocked a subqueue, or a whole queue, the
// oldest first. They do not overlap.
type Intervals []interval

// maxKept bounds the intervals that are kept of one subqueue.
const maxKept = 8

// Begin notes that messages are blocked from now on. It ends the interval before.
// With refine false, an interval at the same place keeps its kind: the earlier one
// says more.
func (t *Intervals) Begin(kind, place, key string, refine bool, now int64) {
	if n := len(*t); n > 0 {
		last := &(*t)[n-1]
		if last.place == place && last.key == key && last.to >= now {
			last.to = notEnded
			if refine {
				last.kind = kind
			}
			return
		}
		t.End(now)
		if n == maxKept {
			*t = append((*t)[:0], (*t)[1:]...)
		}
	}
	*t = append(*t, interval{kind, place, key, now, notEnded})
}

// End notes that messages are no longer blocked.
func (t *Intervals) End(now int64) {
	if n := len(*t); n > 0 && (*t)[n-1].to == notEnded {
		(*t)[n-1].to = now
	}
}

// during adds to list what blocked a message between since and now.
func (t Intervals) during(list []BlockedInterval, since, now int64) []BlockedInterval {
	for i := range t {
		s := &t[i]
		d := min(s.to, now) - max(s.from, since)
		if d <= 0 {
			continue
		}
		at := slices.IndexFunc(list, func(b BlockedInterval) bool { return b.Place == s.place && b.Key == s.key })
		if at < 0 {
			at = len(list)
			list = append(list, BlockedInterval{Kind: s.kind, Place: s.place, Key: s.key, From: max(s.from, since)})
		}
		list[at].For = min(list[at].For+d, now-since) // stretches overlap if the clock was set back
	}
	return list
}

const (
	// maxIntervals bounds the intervals of one delivery.
	maxIntervals = 4
	// shortest is the shortest interval (ns) that a delivery reports.
	shortest = int64(1e6)
)

// Blocked returns what blocked a message that was ready since a time and is delivered now, the
// longest interval first, or nil if nothing did for a millisecond or more. own are the intervals of
// its subqueue, queue the pauses of the queue. scratch is reused between calls.
func Blocked(own, queue Intervals, since, now int64, scratch *[]BlockedInterval) []BlockedInterval {
	if len(own)+len(queue) == 0 || now-since < shortest {
		return nil
	}
	list := queue.during(own.during((*scratch)[:0], since, now), since, now)
	*scratch = list
	list = slices.DeleteFunc(list, func(b BlockedInterval) bool { return b.For < shortest })
	slices.SortStableFunc(list, func(a, b BlockedInterval) int { return cmp.Compare(b.For, a.For) })
	return slices.Clone(list[:min(len(list), maxIntervals)])
}
