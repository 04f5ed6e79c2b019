package queue

import (
	"encoding/binary"
	"iter"
	"slices"

	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/sidecar/queue/container"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
)

// subID names a subqueue of a side; 0 is none, for messages without gates.
type subID uint32

// subqueue is the messages of one flow that pass the same gates, in their order.
// Only the first may try the gates, so when it is blocked all of them are. A
// subqueue takes part in the schedule as a whole, by its first message; messages
// never move.
//
// It is eligible (its first message may be what its flow sends next) unless it is
// blocked. A blocked one waits for a gate in a wait list, and is eligible all the
// same while its first message is a probe of that gate, or has just been
// redelivered.
//
// The messages of a flow without gates are a list of their own (keyEntry.plain).
// When their key is paused they become a subqueue without gates, until none is left.
type subqueue struct {
	name    string // its key in subTable.ids
	flow    drr.Flow
	set     *throttle.Set   // throttle keys; nil: none
	circuit Circuit         // nil: none
	refs    int32           // live messages
	ordered int32           // those that wait for their predecessors (see order)
	list    container.Ranks // those that wait, blocked or not, by priority
	pos     int32           // place in the heap of its flow, + 1; 0: it is not eligible

	wait    waitID    // where it is blocked; 0: it is not
	kind    BlockKind // of what blocks it
	counted int32     // messages that count as blocked
	since   int64     // when its first message was blocked; 0: it was not
	probe   probe
	retry   bool   // its first message was redelivered, and has not been blocked since
	stalls  uint32 // its row in gating.stalls; 0: it was never blocked
	reserve reserve

	sisters struct{ prev, next subID } // its neighbours among the subqueues of the flow; 0: none
}

// probe is the first message of a blocked subqueue when it may try a gate that may
// have opened.
type probe struct {
	at        waitID // the gate; 0: nothing is probed
	uncharged bool   // it has been charged nothing in the line
}

// reserve is what a subqueue collects of its gates one by one.
type reserve struct {
	held *throttle.Reservation // nil: nothing
	cost uint32                // what the first message costs
}

// bare reports whether the subqueue has no gates.
func (sub *subqueue) bare() bool { return sub.set == nil && sub.circuit == nil }

// eligible reports whether the first message of a subqueue may go, or try its gates.
func (q *side) eligible(sub *subqueue) bool {
	return q.links.Count(&sub.list) > 0 && (sub.wait == 0 || sub.probe.at != 0 || sub.retry)
}

// subTable finds subqueues by what makes them: flow, throttle keys and circuit key.
type subTable struct {
	ids   map[string]subID
	items []subqueue // items[0] is not used
	free  []subID
	first map[drr.Flow]subID // the subqueues of a flow
	name  []byte             // scratch
	keys  []string           // scratch
}

func newSubTable() subTable {
	return subTable{ids: make(map[string]subID), items: make([]subqueue, 1), first: make(map[drr.Flow]subID)}
}

func (t *subTable) at(id subID) *subqueue { return &t.items[id] }

// key writes what makes a subqueue into the scratch buffer. The order of the
// throttle keys makes no difference, nor does a repetition.
func (t *subTable) key(flow drr.Flow, throttleKeys []string, circuitKey string) []byte {
	if len(throttleKeys) > 1 {
		t.keys = append(t.keys[:0], throttleKeys...)
		slices.Sort(t.keys)
		throttleKeys = slices.Compact(t.keys)
	}
	b := binary.LittleEndian.AppendUint32(t.name[:0], uint32(flow))
	b = binary.AppendUvarint(b, uint64(len(circuitKey)))
	b = append(b, circuitKey...)
	for _, k := range throttleKeys {
		b = binary.AppendUvarint(b, uint64(len(k)))
		b = append(b, k...)
	}
	t.name = b
	return b
}

// acquireSub counts message m in the subqueue of the flow with its gates, which is made
// if need be. Without gates there is none.
func (q *side) acquireSub(flow drr.Flow, m *store.Message, now int64) subID {
	throttleKeys, circuitKey := m.ThrottleKeys, m.CircuitKey
	if len(throttleKeys) == 0 && circuitKey == "" {
		return 0
	}
	t := &q.gating.subs
	name := t.key(flow, throttleKeys, circuitKey)
	entry := &q.keys.entries[flow]
	if id := entry.sub; id != 0 && t.at(id).name == string(name) {
		t.at(id).refs++
		return id
	}
	id, ok := t.ids[string(name)]
	if !ok {
		set, err := q.m.gates.Set(throttleKeys, now)
		if err != nil {
			// Hooks and settings allow no more keys than a set does.
			q.note(Note{Kind: NoteGates, ID: m.ID, Err: err})
			set = nil
		}
		sub := subqueue{name: string(name), flow: flow, set: set}
		if circuitKey != "" {
			sub.circuit = q.m.circuits.Use(circuitKey, now)
		}
		id = t.add(sub)
	}
	entry.sub = id
	t.at(id).refs++
	return id
}

// add gives a subqueue an id.
func (t *subTable) add(sub subqueue) (id subID) {
	if n := len(t.free); n > 0 {
		id, t.free = t.free[n-1], t.free[:n-1]
	} else {
		id = subID(len(t.items))
		t.items = append(t.items, subqueue{})
	}
	if next := t.first[sub.flow]; next != 0 {
		sub.sisters.next = next
		t.at(next).sisters.prev = id
	}
	t.first[sub.flow] = id
	t.items[id] = sub
	if sub.name != "" {
		t.ids[sub.name] = id
	}
	return id
}

// releaseSub counts one message of a subqueue less. Its permits have been given back
// before.
func (q *side) releaseSub(id subID, now int64) {
	if id == 0 {
		return
	}
	sub := q.gating.subs.at(id)
	if sub.refs--; sub.refs > 0 {
		return
	}
	if e := &q.keys.entries[sub.flow]; e.sub == id {
		e.sub = 0
	}
	if sub.set != nil {
		q.m.gates.Close(sub.set, now)
	}
	if sub.circuit != nil {
		q.m.out.Circuits = q.m.circuits.Drop(sub.circuit, now, q.m.out.Circuits)
	}
	q.gating.forgetStalls(sub)
	q.gating.subs.remove(id)
}

// remove forgets a subqueue.
func (t *subTable) remove(id subID) {
	sub := t.at(id)
	delete(t.ids, sub.name)
	prev, next := sub.sisters.prev, sub.sisters.next
	switch {
	case prev != 0:
		t.at(prev).sisters.next = next
	case next != 0:
		t.first[sub.flow] = next
	default:
		delete(t.first, sub.flow)
	}
	if next != 0 {
		t.at(next).sisters.prev = prev
	}
	*sub = subqueue{}
	t.free = append(t.free, id)
}

// of yields the subqueues of a flow. None may be added or removed meanwhile.
func (t *subTable) of(f drr.Flow) iter.Seq[*subqueue] {
	return func(yield func(*subqueue) bool) {
		for id := t.first[f]; id != 0; id = t.at(id).sisters.next {
			if !yield(t.at(id)) {
				return
			}
		}
	}
}

// reweigh makes the flow's present weight count in the schedule and where its
// subqueues wait, after a change that may have brought another one.
func (q *side) reweigh(f drr.Flow) {
	e, weight := &q.keys.entries[f], q.keys.weight(f)
	if e.known == uint32(weight) {
		return
	}
	e.known = uint32(weight)
	q.sched.SetWeight(f, weight)
	for sub := range q.gating.subs.of(f) {
		if at := sub.wait; at != 0 {
			q.gating.waits.at(at).line.SetWeight(f, weight)
			q.lookLater(at) // another subqueue may be the first now
		}
	}
}

// bareSub makes the messages of a flow without gates a subqueue.
func (q *side) bareSub(f drr.Flow) subID {
	e := &q.keys.entries[f]
	id := q.gating.subs.add(subqueue{flow: f, list: e.plain})
	e.plain, e.bare = container.Ranks{}, id
	q.place(id)
	return id
}

// subOf returns the subqueue whose list message s is or would be in; 0: the plain
// messages of its key.
func (q *side) subOf(s *slot) subID {
	if s.sub != 0 {
		return s.sub
	}
	return q.keys.entries[s.flow].bare
}

// isBlocked reports whether a gate holds message s, which waits, back.
func (q *side) isBlocked(s *slot) bool {
	id := q.subOf(s)
	if id == 0 || s.state != slotWaiting {
		return false
	}
	sub := q.gating.subs.at(id)
	return sub.wait != 0 && !(q.eligible(sub) && s.ref == q.links.First(&sub.list))
}

// enter puts message seq into the list where it waits, at the place of stamp.
func (q *side) enter(seq uint64, s *slot, stamp int64) {
	s.state = slotWaiting
	id := q.subOf(s)
	if id == 0 {
		e := &q.keys.entries[s.flow]
		s.ref = q.links.InsertRanked(&e.plain, s.priority, seq, stamp)
		if q.links.First(&e.plain) == s.ref {
			q.flowChanged(s.flow)
		}
		return
	}
	sub := q.gating.subs.at(id)
	s.ref = q.links.InsertRanked(&sub.list, s.priority, seq, stamp)
	switch {
	case q.links.First(&sub.list) == s.ref:
		if sub.reserve.held != nil && sub.reserve.cost != s.cost {
			q.cancelReservation(id)
		}
		if sub.probe.at != 0 {
			q.dropProbe(id, sub, q.links.Second(&sub.list))
		}
		sub.retry = sub.retry || sub.wait != 0 && stamp < 0
		q.place(id)
		q.recost(id)
		q.flowChanged(s.flow)
	case sub.wait != 0:
		q.count(sub, 1)
		if q.firstBlocked(sub) == s.ref {
			q.recost(id)
		}
	}
	if q.order.on && q.isBlocked(s) {
		q.orderBlocked(s)
	}
}

// unlist takes message seq out of the list where it waits, uncharged.
func (q *side) unlist(s *slot) {
	s.state = slotMoving
	id := q.subOf(s)
	if id == 0 {
		e := &q.keys.entries[s.flow]
		first := q.links.First(&e.plain) == s.ref
		q.links.RemoveRanked(&e.plain, s.priority, s.ref)
		if first {
			q.flowChanged(s.flow)
		}
		return
	}
	sub := q.gating.subs.at(id)
	if q.links.First(&sub.list) == s.ref {
		q.cancelReservation(id)
		if sub.probe.at != 0 {
			q.dropProbe(id, sub, s.ref)
		}
		sub.retry = false
		q.lookAnew(sub.wait)
	}
	q.links.RemoveRanked(&sub.list, s.priority, s.ref)
	q.place(id)
	q.recost(id)
	q.flowChanged(s.flow)
}

// take takes message seq, the first that flow f may send and what the schedule has
// named, out for delivery. id is its subqueue.
func (q *side) take(f drr.Flow, id subID, s *slot, now int64) {
	e := &q.keys.entries[f]
	gate := waitID(0)
	if id == 0 {
		q.links.RemoveRanked(&e.plain, s.priority, s.ref)
	} else {
		sub := q.gating.subs.at(id)
		gate = sub.probe.at
		if sub.retry {
			q.lookLater(sub.wait)
		}
		sub.probe, sub.retry, sub.since = probe{}, false, 0
		q.links.RemoveRanked(&sub.list, s.priority, s.ref)
		if q.links.Count(&sub.list) > 0 {
			sub.retry = sub.wait != 0 && q.links.Stamp(q.links.First(&sub.list)) < 0
			if sub.wait != 0 {
				sub.since = now
			}
		}
		q.place(id)
		if sub.retry {
			q.recost(id) // the first of the blocked ones is another one
		}
	}
	if e.starves() {
		q.endStarving(e)
	}
	e.unserved = 0
	cost := q.headCost(f)
	q.sched.Take(cost)
	if e.active = cost != 0; !e.active {
		q.forgive()
	}
	if gate != 0 {
		q.probed(gate)
	}
}

// place puts a subqueue, of which something has changed, into the heap of its flow
// or out of it, and counts what of it is blocked. One without gates and messages is
// gone afterwards. The schedule is told by flowChanged, the line by recost.
func (q *side) place(id subID) {
	sub := q.gating.subs.at(id)
	eligible := q.eligible(sub)
	switch {
	case eligible && sub.pos == 0:
		q.heapAdd(id, sub)
	case eligible:
		q.heapFix(sub)
	case sub.pos != 0:
		q.heapRemove(sub)
	}
	blocked := int32(0)
	if sub.wait != 0 {
		blocked = q.links.Count(&sub.list)
		if eligible {
			blocked--
		}
		if blocked == 0 {
			q.gating.waits.at(sub.wait).line.Remove(sub.flow, uint32(id))
			q.count(sub, -sub.counted)
			q.lookLater(sub.wait)
			sub.wait, sub.retry = 0, false
		}
	}
	q.count(sub, blocked-sub.counted)
	if q.links.Count(&sub.list) == 0 || sub.wait == 0 && sub.probe.at == 0 {
		q.ran(sub)
	}
	if q.links.Count(&sub.list) == 0 && sub.name == "" && sub.refs == 0 {
		q.keys.entries[sub.flow].bare = 0
		q.gating.forgetStalls(sub)
		q.gating.subs.remove(id)
	}
}

// recost tells the line where a subqueue is blocked what its first blocked message
// costs, which may be another one now.
func (q *side) recost(id subID) {
	if sub := q.gating.subs.at(id); sub.wait != 0 {
		q.gating.waits.at(sub.wait).line.SetCost(uint32(id), q.costOf(q.firstBlocked(sub)))
	}
}

// firstBlocked is the link of the first message of a blocked subqueue that is in
// line.
func (q *side) firstBlocked(sub *subqueue) uint32 {
	if q.eligible(sub) {
		return q.links.Second(&sub.list)
	}
	return q.links.First(&sub.list)
}

// count keeps the figures of what is blocked.
func (q *side) count(sub *subqueue, n int32) {
	if n == 0 {
		return
	}
	sub.counted += n
	q.gating.blockedBy[sub.kind] += int64(n)
	q.gating.waits.at(sub.wait).messages += int64(n)
}

// costOf is what the message of a link costs. Where all cost the same nobody looks.
func (q *side) costOf(link uint32) int64 {
	if q.costly == 0 {
		return throttle.One
	}
	return int64(q.slots.Get(q.links.Seq(link)).cost)
}

// firstOf returns the link of the first message that a flow may send, and its
// subqueue; 0: there is none.
func (q *side) firstOf(f drr.Flow) (subID, uint32) {
	e := &q.keys.entries[f]
	if e.ready == 0 {
		return 0, q.links.First(&e.plain)
	}
	id := q.keys.heaps[e.ready][0]
	head := q.links.First(&q.gating.subs.at(id).list)
	if plain := q.links.First(&e.plain); plain != 0 && q.links.Stamp(plain) <= q.links.Stamp(head) {
		return 0, plain
	}
	return id, head
}

// headCost is what the first message that a flow may send costs, 0 if there is none.
func (q *side) headCost(f drr.Flow) int64 {
	_, link := q.firstOf(f)
	if link == 0 {
		return 0
	}
	return q.costOf(link)
}

// flowChanged tells the schedule what a flow sends next.
func (q *side) flowChanged(f drr.Flow) {
	e := &q.keys.entries[f]
	cost := q.headCost(f)
	switch {
	case cost != 0 && e.active:
		q.sched.SetHead(f, cost)
	case cost != 0:
		q.join(f, cost)
	case e.active:
		q.leave(f)
	}
	e.active = cost != 0
}

// block has a subqueue, whose first message has tried its gates in vain, wait at
// why.
func (q *side) block(id subID, why obstacle, now int64) {
	sub := q.gating.subs.at(id)
	gate, uncharged := sub.probe.at, sub.probe.uncharged
	if sub.retry {
		q.lookLater(sub.wait)
	}
	sub.probe, sub.retry = probe{}, false
	if sub.since == 0 || sub.kind != why.kind {
		q.tally().Blocked[why.kind]++
		q.gating.waits.at(why.wait).countHeld(why.kind)
	}
	if sub.since == 0 {
		sub.since = now
	}
	q.stand(id, sub, gate, uncharged, why)
	q.stalled(sub, now)
	q.place(id)
	q.flowChanged(sub.flow)
	if q.order.on {
		q.orderSubBlocked(id, sub.flow)
	}
	if gate != 0 {
		if wl := q.gating.waits.at(gate); gate == why.wait {
			wl.budget, wl.notBefore = 0, why.at
		} else {
			q.follow(gate, why.wait)
		}
		q.probed(gate)
	}
}

// stand puts a subqueue into the line of the wait list of why. gate is the one that
// its first message has probed; 0: none.
func (q *side) stand(id subID, sub *subqueue, gate waitID, uncharged bool, why obstacle) {
	weight, cost := q.keys.weight(sub.flow), q.costOf(q.links.First(&sub.list))
	if gate != 0 {
		wl := q.gating.waits.at(gate)
		switch {
		case uncharged && sub.wait == 0:
			wl.line.Add(sub.flow, weight, uint32(id), cost)
			wl.stood(sub)
			sub.wait = gate
		case !uncharged && (sub.wait == gate || sub.wait == 0):
			wl.line.PutBack(sub.flow, weight, uint32(id), cost) // it has not gone after all
			wl.stood(sub)
			sub.wait = gate
		default:
			q.gating.waits.at(sub.wait).line.SetCost(uint32(id), cost)
		}
	} else if sub.wait != 0 {
		q.gating.waits.at(sub.wait).line.SetCost(uint32(id), cost)
	}
	if sub.wait != why.wait {
		q.count(sub, -sub.counted)
		if sub.wait != 0 {
			q.gating.waits.at(sub.wait).line.Remove(sub.flow, uint32(id))
			q.lookLater(sub.wait)
		}
		wl := q.gating.waits.at(why.wait)
		wl.line.Add(sub.flow, weight, uint32(id), cost)
		wl.stood(sub)
		sub.wait = why.wait
		q.lookLater(why.wait)
	}
	if q.gating.reserving == id {
		q.gating.waits.at(sub.wait).chain.follows = 0 // what it has collected is waited for there
	}
	if sub.kind != why.kind {
		q.count(sub, -sub.counted)
		sub.kind = why.kind
	}
}

// The eligible subqueues of a flow are a binary heap by the stamp of their first
// message.

func (q *side) before(a, b subID) bool {
	return q.links.Stamp(q.links.First(&q.gating.subs.at(a).list)) < q.links.Stamp(q.links.First(&q.gating.subs.at(b).list))
}

func (q *side) heapAdd(id subID, sub *subqueue) {
	h := q.keys.heap(sub.flow)
	*h = append(*h, id)
	q.heapUp(*h, len(*h)-1)
}

func (q *side) heapFix(sub *subqueue) {
	h := *q.keys.heap(sub.flow)
	q.heapDown(h, q.heapUp(h, int(sub.pos-1)))
}

func (q *side) heapRemove(sub *subqueue) {
	h := q.keys.heap(sub.flow)
	i, last := int(sub.pos-1), len(*h)-1
	sub.pos = 0
	moved := (*h)[last]
	*h = (*h)[:last]
	switch {
	case last == 0:
		q.keys.dropHeap(sub.flow)
	case i != last:
		q.heapSet(*h, i, moved)
		q.heapDown(*h, q.heapUp(*h, i))
	}
}

func (q *side) heapSet(h []subID, i int, id subID) {
	h[i] = id
	q.gating.subs.at(id).pos = int32(i + 1)
}

func (q *side) heapUp(h []subID, i int) int {
	id := h[i]
	for i > 0 {
		parent := (i - 1) / 2
		if !q.before(id, h[parent]) {
			break
		}
		q.heapSet(h, i, h[parent])
		i = parent
	}
	q.heapSet(h, i, id)
	return i
}

func (q *side) heapDown(h []subID, i int) {
	id := h[i]
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if r := child + 1; r < len(h) && q.before(h[r], h[child]) {
			child = r
		}
		if !q.before(h[child], id) {
			break
		}
		q.heapSet(h, i, h[child])
		i = child
	}
	q.heapSet(h, i, id)
}
