package throttle

import "sort"

// exactLimit is the largest limit for which a window keeps every entry, and the
// number of parts that it divides a window into above that.
const exactLimit = 1024

// window is a sliding window log: the times of the entries that still count,
// oldest first. Entries of the same moment share a span. With a limit above
// exactLimit, entries within width/1024 of the first one share a span too, and
// all of them count until the last one has left the window. So a window never
// admits more than its limit, and may admit a message late by width/1024.
//
// Invariants:
//
//  1. total is the sum of the counts; every count is positive.
//  2. The times rise from old to new. An entry is later than the time of the
//     span before its own and not later than the time of its own.
//  3. An entry is added only when total < limit after everything older than
//     width has been dropped: so an entry and the one limit places before it are
//     at least width apart.
type window struct {
	limit int64
	width uint64 // ns: the window
	part  uint64 // ns: how much later than its first entry a span may end
	total int64

	spans []span // a ring buffer; its length is a power of two, or 0
	head  int    // index of the oldest
	n     int    // spans in use

	first  instant // first entry of the newest span
	closed bool    // nothing may be added to the newest span

	changed instant // grants up to this time have no entry here
	gone    instant // time of the last span dropped
	dropped bool    // gone is valid
}

// span is a number of entries that count until the last of them leaves the window.
type span struct {
	last instant // time of the last entry
	n    int64
}

func (w *window) setLimits(l Limits) {
	w.limit, w.width = l.Limit, uint64(l.Window)
	w.part = 0
	if l.Limit > exactLimit {
		w.part = w.width / exactLimit
	}
	w.compact()
}

// advance drops the spans that have left the window at time v.
func (w *window) advance(v instant) {
	for w.n > 0 {
		s := w.spans[w.head]
		if v.since(s.last) < w.width {
			return
		}
		w.total -= s.n
		w.gone, w.dropped = s.last, true
		w.head = (w.head + 1) & (len(w.spans) - 1)
		w.n--
	}
}

// waitSteps bounds the work of wait. Only a window whose limit was lowered
// needs more than a step per missing entry.
const waitSteps = 64

// wait is how long an entry has to wait from time v, the time of the last
// advance: 0 if it may go at once, forever if only a reservation blocks it. After
// the limit was lowered far below the number of entries the result may be too
// early, never too late.
func (w *window) wait(v instant, reserved int64) uint64 {
	surplus := w.total + reserved - w.limit
	if surplus < 0 {
		return 0
	}
	for i := range w.n {
		s := w.at(i)
		surplus -= s.n
		if surplus < 0 || i == waitSteps {
			return w.width - v.since(s.last)
		}
	}
	return forever
}

// add adds an entry for which wait is 0 at time v, the time of the last advance.
func (w *window) add(v instant) {
	w.total++
	if w.n > 0 {
		s := w.at(w.n - 1)
		if s.last == v || !w.closed && v.since(w.first) <= w.part {
			s.last = v
			s.n++
			return
		}
	}
	w.push(span{last: v, n: 1})
	w.first, w.closed = v, false
}

// remove removes an entry that was added at time t, if it is still there.
func (w *window) remove(t instant) {
	if !t.after(w.changed) || w.dropped && !t.after(w.gone) {
		return
	}
	place := sort.Search(w.n, func(i int) bool { return !t.after(w.at(i).last) }) // the first span that does not end before t
	if place == w.n {
		return
	}
	w.total--
	s := w.at(place)
	if s.n--; s.n > 0 {
		return
	}
	for i := place; i < w.n-1; i++ {
		*w.at(i) = *w.at(i + 1)
	}
	w.n--
	w.closed = true
}

// at returns the span i places after the oldest.
func (w *window) at(i int) *span { return &w.spans[(w.head+i)&(len(w.spans)-1)] }

func (w *window) push(s span) {
	if w.n == len(w.spans) {
		grown := make([]span, max(4, 2*len(w.spans)))
		for i := range w.n {
			grown[i] = *w.at(i)
		}
		w.spans, w.head = grown, 0
	}
	w.n++
	*w.at(w.n - 1) = s
}

// compact merges spans that fit into one part, so that memory stays bounded when
// the window changes again and again. All that is known of the begin of a span is
// that it comes after the end of the span before.
func (w *window) compact() {
	w.closed = true
	if w.part == 0 || w.n < 3 {
		return
	}
	kept := 2
	for i := 2; i < w.n; i++ {
		s, previous := *w.at(i), w.at(kept-1)
		if s.last.since(w.at(kept-2).last) <= w.part {
			previous.last = s.last
			previous.n += s.n
			continue
		}
		*w.at(kept) = s
		kept++
	}
	w.n = kept
}

func (w *window) empty() bool { return w.n == 0 }

// fill makes an empty window full until hold nanoseconds after v, or until one
// window width after v if that is sooner. The number of entries before a crash is
// unknown, and an earlier limit may have admitted more than the present one. So
// the window stays full even if the limit is raised.
func (w *window) fill(v instant, hold uint64) {
	if hold == 0 {
		return
	}
	if hold < w.width {
		v -= instant(w.width - hold)
	}
	w.push(span{last: v, n: MaxLimit})
	w.total, w.closed = MaxLimit, true
}
