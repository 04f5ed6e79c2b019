package drr

import (
	"iter"
	"math/bits"
)

// Line orders the lanes that wait for the same gate. A lane is a list of messages; the
// caller gives it a number that is unique in the line. It belongs to a flow, and its
// first message has a cost. Flows share by weight what the gate admits, and the lanes of
// a flow take turns.
//
// The zero value is an empty line. It takes 72 bytes, and 48 for a flow with one
// lane, 20 for each further lane of it. A line of up to 16 lanes is searched; a
// longer one has an index of another 50 bytes a flow, so that everything but All
// takes O(log flows). A Line must not be copied after first use and is not safe
// for concurrent use.
//
// # The rule
//
// Self-clocked fair queueing: S. J. Golestani, "A Self-Clocked Fair Queueing
// Scheme for Broadband Applications" (INFOCOM 1994). Each flow has a start tag;
// its finish tag is the start tag + cost of its first message / weight. The
// smallest finish tag goes, the one that has waited longer among equals, and
// becomes both the virtual time and the start tag of its flow. A flow that joins
// starts at the virtual time.
//
// For two flows that wait over an interval with unchanged weights
//
//	|S_i/w_i - S_j/w_j| <= C_i/w_i + C_j/w_j
//
// with S the cost taken, C the largest cost of a flow: its start tag is not after
// the virtual time, its finish tag not before it, so that it has got what the
// virtual time has advanced, give or take C/w. That is the bound of Scheduler
// with a quantum of nothing. (Start-time fair queueing, by Goyal, Vin and Cheng,
// has the same bound, but has to remember the tags of flows that have left. Here
// they are forgotten, and flow numbers may be used again at once.)
//
// Corrections ([Line.Correct]) change the cost taken, and widen this bound as they widen
// the bound of Scheduler.
//
// # Leaving and coming back
//
// A flow gains nothing by leaving and coming back, not even a message: its start
// tag is never after the virtual time, at which it starts anew. Flows that come
// with one message at a time, which leave whenever they have been served, get
// their share by weight like those that stay. A flow that leaves without having
// been served (Remove) loses what it has waited for, a message at most.
//
// # Arithmetic
//
// Tags count cost/weight in 2^-32: weights and costs in thousandths from 1 to
// 1e9 make steps from 4.29 to 4.29e18. A start tag has a fraction in 1/weight
// besides, so that nothing is rounded away however long a flow stays; only finish
// tags are compared without it, which moves a message by less than 2^-32. Start
// tags lie in [now-4.3e18, now], or up to 2.9e17 after now by what was corrected, and
// finish tags at most 4.3e18 after them, so all
// are within 8.9e18 < 2^63 of each other: they wrap around and are compared by
// difference. Order among equals is by arrival as long as fewer than 2^31 messages
// go meanwhile.
type Line struct {
	now   uint64     // virtual time; wraps around
	flows []lineFlow // in any order
	lanes []lineLane // those that are not the first of their flow, in any order
	index *lineIndex // nil in a short line
	moves uint32     // joins and takes, for ties; wraps around
	first uint32     // place of the next flow + 1, or 0: not known; without index only
}

// lineFlow is a flow and its first lane: 48 bytes.
type lineFlow struct {
	start  uint64 // start tag
	finish uint64 // finish tag of the first lane
	frac   uint32 // start is that much later, in 1/weight
	weight uint32 // thousandths
	since  uint32 // Line.moves when its message became the first
	id     Flow
	lane   uint32
	cost   uint32 // thousandths
	rest   uint32 // place of its next lane in lanes + 1, or 0: none
	pos    uint32 // place in lineIndex.heap
}

// lineLane is a further lane of a flow: 20 bytes. They form a ring.
type lineLane struct {
	lane       uint32
	cost       uint32 // thousandths
	flow       Flow
	prev, next uint32 // places in lanes
}

const (
	tagBits = 32

	// maxLag is how far a start tag may be behind the virtual time: one message
	// of the largest cost and the smallest weight.
	maxLag = MaxCost << tagBits

	// maxLead is how far Correct may put a start tag before the virtual time: a cost of
	// 67 million for weight 1. A flow that owes more is forgiven the rest.
	maxLead = 1 << 58

	// headStart is the advantage, among equals, of a flow whose message was put back.
	headStart = 1 << 30
)

// Len returns the number of lanes that wait.
func (l *Line) Len() int { return len(l.flows) + len(l.lanes) }

// Has tells whether a lane waits.
func (l *Line) Has(lane uint32) bool {
	_, _, ok := l.locate(lane)
	return ok
}

// Cost returns the cost of the first message of a lane, in thousandths; 0: the lane does
// not wait.
func (l *Line) Cost(lane uint32) int64 {
	switch at, first, ok := l.locate(lane); {
	case !ok:
		return 0
	case first:
		return int64(l.flows[at].cost)
	default:
		return int64(l.lanes[at].cost)
	}
}

// Add lets a lane wait behind the other lanes of flow f; cost is the cost of its first
// message. The weight counts at once for the flow. It panics if the lane waits
// already.
func (l *Line) Add(f Flow, weight int64, lane uint32, cost int64) {
	l.mustBeNew(lane)
	w, c := uint32(clamp(weight, MaxWeight)), uint32(clamp(cost, MaxCost))
	i, ok := l.find(f)
	if !ok {
		l.moves++
		l.join(lineFlow{start: l.now, weight: w, since: l.moves, id: f, lane: lane, cost: c})
		return
	}
	l.reweigh(i, w)
	l.pushLane(i, lane, c)
	l.grown()
}

// Peek returns the lane that is served next and its flow, or reports false if none waits.
// Only a change of the line changes it.
func (l *Line) Peek() (lane uint32, f Flow, ok bool) {
	if len(l.flows) == 0 {
		return 0, 0, false
	}
	fl := &l.flows[l.head()]
	return fl.lane, fl.id, true
}

// Take lets the first message of Peek's lane go and charges its cost to its flow.
// If the lane has more messages it waits on, behind the other lanes of its flow,
// with nextCost at its head; otherwise it leaves. It panics if none waits.
func (l *Line) Take(nextCost int64, more bool) {
	if len(l.flows) == 0 {
		panic("drr: no lane waits")
	}
	i := l.head()
	fl := &l.flows[i]
	l.charge(fl, fl.cost)
	l.pass(fl)
	if !more && fl.rest == 0 {
		l.removeFlow(i)
		return
	}
	l.moves++
	fl.since = l.moves
	if more {
		fl.cost = uint32(clamp(nextCost, MaxCost))
		l.rotate(i)
	} else {
		l.popLane(i)
	}
	l.retag(i)
	l.shrunk()
}

// pass lets the virtual time reach the start tag of fl, rounded up: who joins
// gains nothing by the rounding.
func (l *Line) pass(fl *lineFlow) {
	t := fl.start
	if fl.frac != 0 {
		t++
	}
	if int64(t-l.now) > 0 {
		l.now = t
	}
}

// PutBack undoes the Take of a message that could not go after all: its lane is
// the first of its flow again, with that message at its head, whether it has left
// or waits with the message behind it; and its cost is taken off the flow's
// charge. A flow that has left meanwhile joins again with that cost to its
// credit: if nobody else has gone since, it is first again. The weight is used
// only then. It panics if the lane waits in another flow.
//
// Until the message has gone, the bound counts it as taken.
func (l *Line) PutBack(f Flow, weight int64, lane uint32, cost int64) {
	c := uint32(clamp(cost, MaxCost))
	l.moves++
	i, ok := l.find(f)
	if !ok {
		l.mustBeNew(lane)
		fl := lineFlow{start: l.now, weight: uint32(clamp(weight, MaxWeight)), id: f, lane: lane, cost: c}
		fl.since = l.moves - headStart
		l.refund(&fl, c)
		l.join(fl)
		return
	}
	fl := &l.flows[i]
	fl.since = l.moves - headStart
	l.refund(fl, c)
	switch at, first, waits := l.locate(lane); {
	case !waits:
		l.pushLane(i, fl.lane, fl.cost)
		fl.rest = l.lanes[fl.rest-1].prev + 1
		l.setFirst(i, lane, c)
		l.grown()
	case first && at == i:
		fl.cost = c
	case !first && l.lanes[at].flow == f:
		// Where it stood stands the first now, which then goes to the front.
		l.swap(i, at)
		fl.cost = c
		l.toFront(i, at)
	default:
		panic("drr: the lane waits in another flow")
	}
	l.retag(i)
}

// refund takes a cost off what fl was charged.
func (l *Line) refund(fl *lineFlow, cost uint32) {
	n, w := uint64(cost)<<tagBits, uint64(fl.weight)
	fl.start -= n / w
	r := uint32(n % w)
	if fl.frac < r {
		fl.start--
		fl.frac += fl.weight
	}
	fl.frac -= r
	l.limitLag(fl)
}

// Correct charges a flow delta (thousandths) more, or less if it is negative, for a
// message that has gone. It reports whether the flow waits: a flow that has left is
// forgotten with what it owes.
func (l *Line) Correct(f Flow, delta int64) bool {
	i, ok := l.find(f)
	if !ok {
		return false
	}
	fl := &l.flows[i]
	if delta = min(max(delta, -MaxCost), MaxCost); delta < 0 {
		l.refund(fl, uint32(-delta))
	} else {
		l.charge(fl, uint32(delta))
		l.limitLag(fl)
	}
	l.retag(i)
	return true
}

// charge moves the start tag of fl by a cost.
func (l *Line) charge(fl *lineFlow, cost uint32) {
	n, w := uint64(cost)<<tagBits+uint64(fl.frac), uint64(fl.weight)
	fl.start += n / w
	fl.frac = uint32(n % w)
}

// limitLag keeps a start tag in its range.
func (l *Line) limitLag(fl *lineFlow) {
	switch lag := int64(l.now - fl.start); {
	case lag > maxLag:
		fl.start, fl.frac = l.now-maxLag, 0
	case lag < -maxLead:
		fl.start, fl.frac = l.now+maxLead, 0
	}
}

// Remove takes a lane of flow f out of the line and reports whether it waited
// there. Nothing is charged. A flow whose last lane leaves is forgotten.
func (l *Line) Remove(f Flow, lane uint32) bool {
	at, first, ok := l.locate(lane)
	switch {
	case !ok:
		return false
	case !first:
		if l.lanes[at].flow != f {
			return false
		}
		i, _ := l.find(f)
		l.removeLane(i, at)
	case l.flows[at].id != f:
		return false
	case l.flows[at].rest == 0:
		l.removeFlow(at)
		return true
	default:
		l.popLane(at)
		l.retag(at)
	}
	l.shrunk()
	return true
}

// SetCost changes the cost of the first message of a lane. Nothing happens if the
// lane does not wait.
func (l *Line) SetCost(lane uint32, cost int64) {
	c := uint32(clamp(cost, MaxCost))
	switch at, first, ok := l.locate(lane); {
	case !ok:
	case first:
		l.flows[at].cost = c
		l.retag(at)
	default:
		l.lanes[at].cost = c
	}
}

// SetWeight sets the weight of a flow; what it has waited for so far stays, in
// cost. Nothing happens if no lane of it waits.
func (l *Line) SetWeight(f Flow, weight int64) {
	if i, ok := l.find(f); ok {
		l.reweigh(i, uint32(clamp(weight, MaxWeight)))
	}
}

func (l *Line) reweigh(i uint32, w uint32) {
	fl := &l.flows[i]
	if fl.weight == w {
		return
	}
	if int64(l.now-fl.start) < 0 || fl.start == l.now && fl.frac != 0 {
		l.reweighAhead(fl, w)
		l.retag(i)
		return
	}
	// The lag behind the virtual time in 2^-32 of cost, then at the new weight.
	hi, lo := bits.Mul64(l.now-fl.start, uint64(fl.weight))
	lo, borrow := bits.Sub64(lo, uint64(fl.frac), 0)
	hi -= borrow
	fl.weight = w
	if hi >= uint64(w) {
		fl.start, fl.frac = l.now-maxLag, 0
	} else {
		lag, rest := bits.Div64(hi, lo, uint64(w))
		lag = min(lag, maxLag+1)
		fl.start, fl.frac = l.now-lag, 0
		if rest != 0 {
			fl.start--
			fl.frac = w - uint32(rest)
		}
		l.limitLag(fl)
	}
	l.retag(i)
}

// reweighAhead is reweigh for a flow whose start tag is after the virtual time: what it
// owes stays, in cost.
func (l *Line) reweighAhead(fl *lineFlow, w uint32) {
	hi, lo := bits.Mul64(fl.start-l.now, uint64(fl.weight))
	lo, carry := bits.Add64(lo, uint64(fl.frac), 0)
	hi += carry
	fl.weight = w
	if hi >= uint64(w) {
		fl.start, fl.frac = l.now+maxLead, 0
		return
	}
	lead, rest := bits.Div64(hi, lo, uint64(w))
	lead = min(lead, maxLead+1)
	fl.start, fl.frac = l.now+lead, uint32(rest)
	l.limitLag(fl)
}

// retag computes the finish tag of a flow anew and brings the flow to its place
// in the order.
func (l *Line) retag(i uint32) {
	fl := &l.flows[i]
	fl.tag()
	if l.index == nil {
		l.first = 0
		return
	}
	l.fix(i)
}

func (fl *lineFlow) tag() {
	fl.finish = fl.start + (uint64(fl.cost)<<tagBits+uint64(fl.frac))/uint64(fl.weight)
}

// All yields the lanes that wait and their flows: the lanes of a flow in the order
// of their turns, the flows in any order. The line must not be changed meanwhile.
func (l *Line) All() iter.Seq2[uint32, Flow] {
	return func(yield func(uint32, Flow) bool) {
		for i := range l.flows {
			fl := &l.flows[i]
			if !yield(fl.lane, fl.id) {
				return
			}
			if fl.rest == 0 {
				continue
			}
			for at := fl.rest - 1; ; {
				if !yield(l.lanes[at].lane, fl.id) {
					return
				}
				if at = l.lanes[at].next; at == fl.rest-1 {
					break
				}
			}
		}
	}
}

func (l *Line) mustBeNew(lane uint32) {
	if l.Has(lane) {
		panic("drr: the lane waits already")
	}
}
