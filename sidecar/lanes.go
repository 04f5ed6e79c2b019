package sidecar

import (
	"encoding/binary"
	"slices"

	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/throttle"
)

// laneID names a lane of a queue; 0 is none, for messages without gates.
type laneID uint32

// lane is the messages of one flow that pass the same gates. They go in the
// order in which they came: only the first may try the gates, so when it is held
// back all of them are, and they take no part in scheduling until a gate calls
// for the first one (sites.go).
//
// A pending message of a lane is in the scheduler, as long as nothing was held
// back, or in the list of parked ones. What stands in the scheduler behind a
// message that is held back joins the list when its turn comes. Messages that
// were called and could not go after all, and those that nobody received, are
// older than the rest of the list: they are the first fronts of it.
type lane struct {
	name    string // its key in laneTable.ids
	flow    drr.Flow
	set     *throttle.Set // throttle keys; nil: none
	circuit *circuit      // nil: none
	refs    int32         // live messages

	list     linkList
	fronts   int32
	frontEnd uint32 // link of the last of the fronts
	ready    int32  // its messages in the scheduler
	returned int32  // those of them that nobody received: older than what is parked

	free       bool // the call has charged nothing in the line
	called     bool // calledSeq is in the scheduler because site calledBy has opened
	calledSeq  uint64
	calledBy   siteID
	site       siteID // where its parked messages wait; 0: there are none
	kind       blockKind
	since      int64 // when the first of them was held back
	reserving  *throttle.Reservation
	reserved   uint32 // cost of the message that reserving is for
	sisters    laneID // the next lane of the flow
	sistersOld laneID // the one before
}

// bare reports whether the lane has no gates.
func (ln *lane) bare() bool { return ln.set == nil && ln.circuit == nil }

// laneTable finds lanes by what makes them: flow, throttle keys and circuit key.
type laneTable struct {
	ids   map[string]laneID
	items []lane // items[0] is not used
	free  []laneID
	first map[drr.Flow]laneID // the lanes of a flow
	bare  int                 // lanes without gates: of keys that are or were paused
	name  []byte              // scratch
	keys  []string            // scratch
}

func newLaneTable() laneTable {
	return laneTable{ids: make(map[string]laneID), items: make([]lane, 1), first: make(map[drr.Flow]laneID)}
}

func (t *laneTable) at(id laneID) *lane { return &t.items[id] }

// hasBare reports whether messages without gates of a flow wait in a lane, because
// their key was paused: others must not overtake them.
func (t *laneTable) hasBare(flow drr.Flow) bool {
	return t.bare > 0 && t.ids[string(t.key(flow, nil, ""))] != 0
}

// key writes what makes a lane into the scratch buffer. The order of the throttle
// keys makes no difference, nor does a repetition.
func (t *laneTable) key(flow drr.Flow, throttleKeys []string, circuitKey string) []byte {
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

// acquireLane counts one more message of the lane with these gates, which is made
// if need be. Without gates there is none.
func (l *loop) acquireLane(flow drr.Flow, throttleKeys []string, circuitKey string, now int64) laneID {
	if len(throttleKeys) == 0 && circuitKey == "" {
		return 0
	}
	return l.laneOf(flow, throttleKeys, circuitKey, now)
}

func (l *loop) laneOf(flow drr.Flow, throttleKeys []string, circuitKey string, now int64) laneID {
	t := &l.lanes
	name := t.key(flow, throttleKeys, circuitKey)
	entry := &l.keys.entries[flow]
	if id := entry.lane; id != 0 && t.at(id).name == string(name) {
		t.at(id).refs++
		return id
	}
	id, ok := t.ids[string(name)]
	if !ok {
		set, err := l.q.core.gates.Set(throttleKeys, now)
		if err != nil {
			// Hooks and settings allow no more keys than a set does.
			l.q.core.log.Error("throttle keys of a message are left out", "queue", l.q.name, "error", err)
			set = nil
		}
		ln := lane{name: string(name), flow: flow, set: set}
		if circuitKey != "" {
			ln.circuit = l.q.core.circuits.use(circuitKey)
		}
		if n := len(t.free); n > 0 {
			id, t.free = t.free[n-1], t.free[:n-1]
		} else {
			id = laneID(len(t.items))
			t.items = append(t.items, lane{})
		}
		if next := t.first[flow]; next != 0 {
			ln.sisters = next
			t.at(next).sistersOld = id
		}
		t.first[flow] = id
		t.items[id] = ln
		t.ids[ln.name] = id
		if ln.bare() {
			t.bare++
		}
	}
	entry.lane = id
	t.at(id).refs++
	return id
}

// releaseLane counts one message of a lane less. Its passes have been given back
// before.
func (l *loop) releaseLane(id laneID, now int64) {
	if id == 0 {
		return
	}
	t := &l.lanes
	ln := t.at(id)
	if ln.refs--; ln.refs > 0 {
		return
	}
	delete(t.ids, ln.name)
	if e := &l.keys.entries[ln.flow]; e.lane == id {
		e.lane = 0
	}
	if ln.bare() {
		t.bare--
	}
	if ln.sistersOld != 0 {
		t.at(ln.sistersOld).sisters = ln.sisters
	} else if ln.sisters != 0 {
		t.first[ln.flow] = ln.sisters
	} else {
		delete(t.first, ln.flow)
	}
	if ln.sisters != 0 {
		t.at(ln.sisters).sistersOld = ln.sistersOld
	}
	if ln.set != nil {
		l.q.core.gates.Close(ln.set, now)
	}
	if ln.circuit != nil {
		l.q.core.circuits.drop(ln.circuit)
	}
	*ln = lane{}
	t.free = append(t.free, id)
}

// reweigh makes a new weight of a flow count where its lanes wait.
func (l *loop) reweigh(f drr.Flow, weight int64) {
	for id := l.lanes.first[f]; id != 0; id = l.lanes.at(id).sisters {
		if at := l.lanes.at(id).site; at != 0 {
			l.sites.at(at).line.SetWeight(f, weight)
			l.lookLater(at) // another lane may be the first now
		}
	}
}

// links holds the lists of messages that wait outside of the scheduler, by lane
// or by fairness key. It has no pointers. Index 0 ends a list.
type links struct {
	items []linkItem
	free  uint32 // the first free one, through next
}

type linkItem struct {
	seq        uint64
	prev, next uint32
}

type linkList struct {
	head, tail uint32
	n          int32
}

// insert puts seq behind the link after (0: at the front) and returns its link.
func (x *links) insert(l *linkList, after uint32, seq uint64) uint32 {
	if len(x.items) == 0 {
		x.items = make([]linkItem, 1)
	}
	i := x.free
	if i != 0 {
		x.free = x.items[i].next
	} else {
		i = uint32(len(x.items))
		x.items = append(x.items, linkItem{})
	}
	next := l.head
	if after != 0 {
		next = x.items[after].next
		x.items[after].next = i
	} else {
		l.head = i
	}
	if next != 0 {
		x.items[next].prev = i
	} else {
		l.tail = i
	}
	x.items[i] = linkItem{seq: seq, prev: after, next: next}
	l.n++
	return i
}

// remove takes link i out of l.
func (x *links) remove(l *linkList, i uint32) {
	it := x.items[i]
	if it.prev != 0 {
		x.items[it.prev].next = it.next
	} else {
		l.head = it.next
	}
	if it.next != 0 {
		x.items[it.next].prev = it.prev
	} else {
		l.tail = it.prev
	}
	x.items[i] = linkItem{next: x.free}
	x.free = i
	l.n--
}

func (x *links) seq(i uint32) uint64 { return x.items[i].seq }
