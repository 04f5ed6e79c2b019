package queue

import (
	"encoding/binary"
	"slices"

	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/throttle"
)

// subID names a subqueue of a side; 0 is none, for messages without gates.
type subID uint32

// subqueue is the messages of one flow that pass the same gates. They go in the
// order in which they came: only the first may try the gates, so when it is blocked
// all of them are, and they take no part in scheduling until a gate is probed with
// the first one (waitList).
//
// A pending message of a subqueue is in the schedule, as long as nothing was
// blocked, or in the list of blocked ones. What stands in the schedule behind a
// message that is blocked joins the list when its turn comes. Messages that probed a
// gate in vain, and those that were redelivered, are older than the rest of the
// list: they are its heads.
type subqueue struct {
	name    string // its key in subTable.ids
	flow    drr.Flow
	set     *throttle.Set // throttle keys; nil: none
	circuit Circuit       // nil: none
	refs    int32         // live messages

	list        linkList // the blocked ones
	heads       int32
	headEnd     uint32 // link of the last of the heads
	ready       int32  // its messages in the schedule
	redelivered int32  // those of them that nobody received: older than what is blocked
	probe       probe

	wait    waitID    // where its blocked messages wait; 0: there are none
	kind    BlockKind // of what blocks the first of them
	since   int64     // when the first of them was blocked
	reserve reserve

	sisters    subID // the next subqueue of the flow
	sistersOld subID // the one before
}

// probe is the message of a subqueue that is in the schedule to try a gate which may
// have opened.
type probe struct {
	seq       uint64
	at        waitID // the gate; 0: nothing is probed
	uncharged bool   // it has been charged nothing in the line
}

// reserve is what a subqueue collects of its gates one by one.
type reserve struct {
	held *throttle.Reservation // nil: nothing
	cost uint32                // of the message that it is for
}

// probing reports whether message seq is the probe of the subqueue.
func (sub *subqueue) probing(seq uint64) bool { return sub.probe.at != 0 && sub.probe.seq == seq }

// bare reports whether the subqueue has no gates.
func (sub *subqueue) bare() bool { return sub.set == nil && sub.circuit == nil }

// subTable finds subqueues by what makes them: flow, throttle keys and circuit key.
type subTable struct {
	ids   map[string]subID
	items []subqueue // items[0] is not used
	free  []subID
	first map[drr.Flow]subID // the subqueues of a flow
	bare  int                // subqueues without gates: of keys that are or were paused
	name  []byte             // scratch
	keys  []string           // scratch
}

func newSubTable() subTable {
	return subTable{ids: make(map[string]subID), items: make([]subqueue, 1), first: make(map[drr.Flow]subID)}
}

func (t *subTable) at(id subID) *subqueue { return &t.items[id] }

// hasBare reports whether messages without gates of a flow wait in a subqueue,
// because their key was paused: others must not overtake them.
func (t *subTable) hasBare(flow drr.Flow) bool {
	return t.bare > 0 && t.ids[string(t.key(flow, nil, ""))] != 0
}

// key writes what makes a subqueue into the scratch buffer. The order of the throttle
// keys makes no difference, nor does a repetition.
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

// acquireSub counts one more message of the subqueue with these gates, which is
// made if need be. Without gates there is none.
func (q *side) acquireSub(flow drr.Flow, throttleKeys []string, circuitKey string, now int64) subID {
	if len(throttleKeys) == 0 && circuitKey == "" {
		return 0
	}
	return q.subOf(flow, throttleKeys, circuitKey, now)
}

func (q *side) subOf(flow drr.Flow, throttleKeys []string, circuitKey string, now int64) subID {
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
			q.note(Note{Kind: NoteGates, Err: err})
			set = nil
		}
		sub := subqueue{name: string(name), flow: flow, set: set}
		if circuitKey != "" {
			sub.circuit = q.m.circuits.Use(circuitKey, now)
		}
		if n := len(t.free); n > 0 {
			id, t.free = t.free[n-1], t.free[:n-1]
		} else {
			id = subID(len(t.items))
			t.items = append(t.items, subqueue{})
		}
		if next := t.first[flow]; next != 0 {
			sub.sisters = next
			t.at(next).sistersOld = id
		}
		t.first[flow] = id
		t.items[id] = sub
		t.ids[sub.name] = id
		if sub.bare() {
			t.bare++
		}
	}
	entry.sub = id
	t.at(id).refs++
	return id
}

// releaseSub counts one message of a subqueue less. Its permits have been given back
// before.
func (q *side) releaseSub(id subID, now int64) {
	if id == 0 {
		return
	}
	t := &q.gating.subs
	sub := t.at(id)
	if sub.refs--; sub.refs > 0 {
		return
	}
	delete(t.ids, sub.name)
	if e := &q.keys.entries[sub.flow]; e.sub == id {
		e.sub = 0
	}
	if sub.bare() {
		t.bare--
	}
	if sub.sistersOld != 0 {
		t.at(sub.sistersOld).sisters = sub.sisters
	} else if sub.sisters != 0 {
		t.first[sub.flow] = sub.sisters
	} else {
		delete(t.first, sub.flow)
	}
	if sub.sisters != 0 {
		t.at(sub.sisters).sistersOld = sub.sistersOld
	}
	if sub.set != nil {
		q.m.gates.Close(sub.set, now)
	}
	if sub.circuit != nil {
		q.m.out.Circuits = q.m.circuits.Drop(sub.circuit, now, q.m.out.Circuits)
	}
	*sub = subqueue{}
	t.free = append(t.free, id)
}

// reweigh makes a new weight of a flow count where its subqueues wait.
func (q *side) reweigh(f drr.Flow, weight int64) {
	for id := q.gating.subs.first[f]; id != 0; id = q.gating.subs.at(id).sisters {
		if at := q.gating.subs.at(id).wait; at != 0 {
			q.gating.waits.at(at).line.SetWeight(f, weight)
			q.lookLater(at) // another subqueue may be the first now
		}
	}
}

// block takes message seq out of the schedule to wait with its subqueue: at the wait
// list of why or, without one, where its subqueue waits already.
func (q *side) block(seq uint64, s *slot, why obstacle, now int64) {
	id := s.sub
	sub := q.gating.subs.at(id)
	q.sched.Remove(drr.Handle(s.ref))
	sub.ready--
	s.state = slotBlocked
	gate := waitID(0)
	if sub.probing(seq) {
		gate = sub.probe.at
	} else {
		q.notRedelivered(sub, s)
	}
	if sub.since == 0 {
		sub.since = now
	}
	if why.wait == 0 {
		why.wait, why.kind = sub.wait, sub.kind
	}
	first := gate != 0 || sub.list.n == 0
	switch {
	case gate != 0:
		s.ref = q.links.insert(&sub.list, 0, seq)
		if sub.heads++; sub.heads == 1 {
			sub.headEnd = s.ref
		}
	case s.head:
		after := q.headBefore(sub, seq)
		s.ref = q.links.insert(&sub.list, after, seq)
		if sub.heads++; after == sub.headEnd {
			sub.headEnd = s.ref
		}
		first = after == 0
	default:
		s.ref = q.links.insert(&sub.list, sub.list.tail, seq)
	}
	if first {
		q.stand(id, sub, gate, why)
	}
	q.countBlocked(sub, 1)
	if q.order.on {
		q.orderBlocked(s)
	}
	if gate != 0 {
		if wl := q.gating.waits.at(gate); gate == why.wait {
			wl.budget, wl.notBefore = 0, why.at
		} else {
			q.follow(gate, why.wait)
		}
		q.probed(sub, now)
	}
}

// headBefore returns the link of the last head of a subqueue that comes before the
// message seq, which nobody received; 0: none. There are no more heads than messages
// that were in flight, and a probe.
func (q *side) headBefore(sub *subqueue, seq uint64) uint32 {
	if sub.heads == 0 {
		return 0
	}
	at := sub.headEnd
	for at != 0 && q.links.seq(at) > seq {
		at = q.links.items[at].prev
	}
	return at
}

// stand puts a subqueue, which has a new first message in its list, into the line of
// the wait list of why. gate is the one that this message has probed; 0: none.
func (q *side) stand(id subID, sub *subqueue, gate waitID, why obstacle) {
	weight, cost := q.keys.weight(sub.flow), int64(q.slots.get(q.links.seq(sub.list.head)).cost)
	counted := int64(sub.list.n) - 1
	switch {
	case gate != 0 && sub.probe.uncharged && sub.wait == 0:
		wl := q.gating.waits.at(gate)
		wl.line.Add(sub.flow, weight, uint32(id), cost)
		wl.stood(sub)
		sub.wait = gate
	case gate != 0 && !sub.probe.uncharged && (sub.wait == gate || sub.wait == 0):
		wl := q.gating.waits.at(gate)
		wl.line.PutBack(sub.flow, weight, uint32(id), cost) // it has not gone after all
		wl.stood(sub)
		sub.wait = gate
	case sub.wait != 0:
		q.gating.waits.at(sub.wait).line.SetCost(uint32(id), cost)
	}
	if sub.wait != why.wait {
		if sub.wait != 0 {
			old := q.gating.waits.at(sub.wait)
			old.line.Remove(sub.flow, uint32(id))
			old.messages -= counted
			q.lookLater(sub.wait)
		}
		wl := q.gating.waits.at(why.wait)
		wl.line.Add(sub.flow, weight, uint32(id), cost)
		wl.stood(sub)
		wl.messages += counted
		sub.wait = why.wait
		q.lookLater(why.wait)
	}
	if q.gating.reserving == id {
		q.gating.waits.at(sub.wait).chain.follows = 0 // what it has collected is waited for there
	}
	if sub.kind != why.kind {
		q.gating.blockedBy[sub.kind] -= counted
		q.gating.blockedBy[why.kind] += counted
		sub.kind = why.kind
	}
}

// blockBehind appends a message that becomes pending to the list of its subqueue,
// which is blocked.
func (q *side) blockBehind(seq uint64, s *slot, sub *subqueue) {
	s.state = slotBlocked
	s.ref = q.links.insert(&sub.list, sub.list.tail, seq)
	q.countBlocked(sub, 1)
	if q.order.on {
		q.orderBlocked(s)
	}
}

// unblock takes a blocked message out of its subqueue.
func (q *side) unblock(s *slot) {
	sub := q.gating.subs.at(s.sub)
	i := s.ref
	first := i == sub.list.head
	if s.head {
		sub.heads--
		if i == sub.headEnd {
			sub.headEnd = q.links.items[i].prev
		}
		s.head = false
	}
	q.links.remove(&sub.list, i)
	q.countBlocked(sub, -1)
	s.state = slotMoving
	if !first {
		return
	}
	q.cancelReservation(s.sub)
	wl := q.gating.waits.at(sub.wait)
	wl.notBefore = 0
	q.lookLater(sub.wait)
	if sub.list.n > 0 {
		wl.line.SetCost(uint32(s.sub), int64(q.slots.get(q.links.seq(sub.list.head)).cost))
		return
	}
	wl.line.Remove(sub.flow, uint32(s.sub))
	q.lookLater(sub.wait)
	sub.wait = 0
}

// unready takes a pending message out of the accounts of its subqueue; the schedule
// has let it go.
func (q *side) unready(seq uint64, s *slot) {
	if s.sub == 0 {
		return
	}
	sub := q.gating.subs.at(s.sub)
	sub.ready--
	if sub.probing(seq) {
		q.cancelReservation(s.sub)
		q.dropProbe(sub)
	}
	q.notRedelivered(sub, s)
	s.head = false
}

// countBlocked keeps the figures of what is blocked.
func (q *side) countBlocked(sub *subqueue, n int64) {
	q.gating.blocked += n
	q.gating.blockedBy[sub.kind] += n
	q.gating.waits.at(sub.wait).messages += n
}
