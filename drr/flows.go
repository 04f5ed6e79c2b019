package drr

// flowID is a Flow in the structures of this package; none ends a list.
type flowID uint32

const none = ^flowID(0)

// flow is the record of a flow: one cache line, no pointers.
type flow struct {
	label   uint64 // place in the ring, see ring.go
	deficit int64  // thousandths, see rounds.go
	weight  int64  // thousandths
	head    int64  // cost of what goes first, thousandths; 0: the flow is idle
	base    uint32 // low bits of a round, see rounds.go
	wait    uint32 // turns
	before  flowID // in the ring
	after   flowID
	prev    flowID // in the list, heap or wheel slot where the flow stands
	next    flowID
	child   flowID // in the heap
	place   place
	level   uint8 // of the wheel
}

const (
	flowChunkBits = 7
	flowChunkSize = 1 << flowChunkBits
	flowChunkMask = flowChunkSize - 1

	// spareFlowChunks is how many unused chunks are kept at least.
	spareFlowChunks = 16
)

type flowChunk [flowChunkSize]flow

// flowSlab finds flows by number. A chunk whose flows are all idle holds
// nothing worth keeping: it becomes a spare for any other range of numbers, and
// is given back when there are more spares than chunks in use.
type flowSlab struct {
	chunks []*flowChunk
	active []uint8 // active flows of a chunk
	spares []*flowChunk
	used   int // chunks in place
}

// at returns the record of an active flow.
func (l *flowSlab) at(id flowID) *flow {
	return &l.chunks[id>>flowChunkBits][id&flowChunkMask]
}

// get returns the record of a flow, or nil if there is none. An idle flow may have
// one, without a head.
func (l *flowSlab) get(id flowID) *flow {
	c := int(id >> flowChunkBits)
	if c >= len(l.chunks) || l.chunks[c] == nil {
		return nil
	}
	return &l.chunks[c][id&flowChunkMask]
}

// find returns the record of an active flow, as which the caller names it.
func (l *flowSlab) find(id flowID) *flow {
	fl := l.get(id)
	if fl == nil || fl.head == 0 {
		panic("drr: the flow is idle")
	}
	return fl
}

// take returns a fresh record for an idle flow.
func (l *flowSlab) take(id flowID) *flow {
	if id == none {
		panic("drr: flow number out of range")
	}
	c := int(id >> flowChunkBits)
	for c >= len(l.chunks) {
		l.chunks = append(l.chunks, nil)
		l.active = append(l.active, 0)
	}
	if l.chunks[c] == nil {
		l.chunks[c] = fromSpares(&l.spares)
		l.used++
	}
	l.active[c]++
	fl := &l.chunks[c][id&flowChunkMask]
	*fl = flow{before: none, after: none, prev: none, next: none, child: none}
	return fl
}

// release gives back the record of a flow that has become idle. The record has no
// head, so a chunk of idle flows can be used for other numbers as it is.
func (l *flowSlab) release(id flowID) {
	c := int(id >> flowChunkBits)
	l.active[c]--
	if l.active[c] > 0 {
		return
	}
	l.spares = append(l.spares, l.chunks[c])
	l.chunks[c] = nil
	l.used--
	l.spares = trim(l.spares, max(spareFlowChunks, l.used))
}

// list is a list of waiting flows through flow.prev and flow.next.
type list struct{ head, tail flowID }

var emptyList = list{none, none}

func (l *list) empty() bool { return l.head == none }

func (s *Scheduler) pushBack(l *list, id flowID, fl *flow) {
	fl.prev, fl.next = l.tail, none
	if l.tail == none {
		l.head = id
	} else {
		s.flows.at(l.tail).next = id
	}
	l.tail = id
}

func (s *Scheduler) unlink(l *list, fl *flow) {
	if fl.prev == none {
		l.head = fl.next
	} else {
		s.flows.at(fl.prev).next = fl.next
	}
	if fl.next == none {
		l.tail = fl.prev
	} else {
		s.flows.at(fl.next).prev = fl.prev
	}
}

// trim gives back two spares at most, one more than came in: what a large
// backlog leaves behind shrinks with it, a bit at a time.
func trim[T any](spares []*T, keep int) []*T {
	for range 2 {
		if n := len(spares); n > keep {
			spares[n-1] = nil
			spares = spares[:n-1]
		}
	}
	return spares
}

// fromSpares takes a spare chunk, or makes one.
func fromSpares[T any](spares *[]*T) *T {
	n := len(*spares)
	if n == 0 {
		return new(T)
	}
	c := (*spares)[n-1]
	(*spares)[n-1] = nil
	*spares = (*spares)[:n-1]
	return c
}
