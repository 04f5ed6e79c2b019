package drr

// How a Line keeps and finds its flows and lanes: two slices without holes. A
// short line is searched; a long one has an index.

const (
	indexAbove = 16 // lanes
	indexBelow = 8

	laneBit = 1 // in lineIndex.lanes: the lane stands in Line.lanes
)

// lineIndex makes everything O(log flows) in a long line.
type lineIndex struct {
	flows map[Flow]uint32   // places in Line.flows
	lanes map[uint32]uint32 // twice the places in Line.flows, or in Line.lanes + laneBit
	heap  []lineKey         // all flows; four children each
	most  int               // lanes since it was made
}

// lineKey is what orders flows, and the place of the flow.
type lineKey struct {
	finish uint64
	since  uint32
	flow   uint32
}

func (l *Line) key(i uint32) lineKey {
	fl := &l.flows[i]
	return lineKey{finish: fl.finish, since: fl.since, flow: i}
}

// before tells whether flow a goes before flow b.
func (a lineKey) before(b lineKey) bool {
	if a.finish != b.finish {
		return int64(a.finish-b.finish) < 0
	}
	return int32(a.since-b.since) < 0
}

// find returns the place of a flow.
func (l *Line) find(f Flow) (i uint32, ok bool) {
	if l.index != nil {
		i, ok = l.index.flows[f]
		return i, ok
	}
	for i := range l.flows {
		if l.flows[i].id == f {
			return uint32(i), true
		}
	}
	return 0, false
}

// locate returns the place of a lane: in flows if it is the first of its flow,
// otherwise in lanes.
func (l *Line) locate(lane uint32) (at uint32, first, ok bool) {
	if l.index != nil {
		at, ok = l.index.lanes[lane]
		return at >> 1, at&laneBit == 0, ok
	}
	for i := range l.flows {
		if l.flows[i].lane == lane {
			return uint32(i), true, true
		}
	}
	for i := range l.lanes {
		if l.lanes[i].lane == lane {
			return uint32(i), false, true
		}
	}
	return 0, false, false
}

// head returns the place of the flow whose turn it is.
func (l *Line) head() uint32 {
	if l.index != nil {
		return l.index.heap[0].flow
	}
	if l.first == 0 {
		best := l.key(0)
		for i := 1; i < len(l.flows); i++ {
			if k := l.key(uint32(i)); k.before(best) {
				best = k
			}
		}
		l.first = best.flow + 1
	}
	return l.first - 1
}

// join adds a flow with its first lane.
func (l *Line) join(fl lineFlow) {
	fl.tag()
	i := uint32(len(l.flows))
	l.flows = append(l.flows, fl)
	l.first = 0
	if x := l.index; x != nil {
		x.flows[fl.id], x.lanes[fl.lane] = i, i<<1
		x.heap = append(x.heap, l.key(i))
		l.up(uint32(len(x.heap) - 1))
	}
	l.grown()
}

// removeFlow takes a flow with one lane out.
func (l *Line) removeFlow(i uint32) {
	fl := &l.flows[i]
	last := uint32(len(l.flows) - 1)
	l.first = 0
	if x := l.index; x != nil {
		delete(x.flows, fl.id)
		delete(x.lanes, fl.lane)
		end := uint32(len(x.heap) - 1)
		pos := fl.pos
		l.put(pos, x.heap[end])
		x.heap = x.heap[:end]
		if pos < end {
			l.sift(pos)
		}
		if moved := &l.flows[last]; i != last {
			x.flows[moved.id], x.lanes[moved.lane] = i, i<<1
			x.heap[moved.pos].flow = i
		}
	}
	*fl = l.flows[last]
	l.flows = fit(l.flows[:last])
	l.shrunk()
}

// setFirst makes lane the first of a flow.
func (l *Line) setFirst(i, lane, cost uint32) {
	l.flows[i].lane, l.flows[i].cost = lane, cost
	if l.index != nil {
		l.index.lanes[lane] = i << 1
	}
}

// setLane puts lane into a place of lanes.
func (l *Line) setLane(at, lane, cost uint32) {
	l.lanes[at].lane, l.lanes[at].cost = lane, cost
	if l.index != nil {
		l.index.lanes[lane] = at<<1 | laneBit
	}
}

// pushLane puts a lane behind the others of its flow.
func (l *Line) pushLane(i, lane, cost uint32) {
	at := uint32(len(l.lanes))
	fl := &l.flows[i]
	l.lanes = append(l.lanes, lineLane{flow: fl.id, prev: at, next: at})
	l.setLane(at, lane, cost)
	if fl.rest == 0 {
		fl.rest = at + 1
		return
	}
	l.linkBefore(at, fl.rest-1)
}

// linkBefore puts a lane that is in no ring before another one.
func (l *Line) linkBefore(at, next uint32) {
	prev := l.lanes[next].prev
	l.lanes[at].prev, l.lanes[at].next = prev, next
	l.lanes[prev].next, l.lanes[next].prev = at, at
}

// swap exchanges the first lane of a flow with another one of it.
func (l *Line) swap(i, at uint32) {
	lane, cost := l.flows[i].lane, l.flows[i].cost
	l.setFirst(i, l.lanes[at].lane, l.lanes[at].cost)
	l.setLane(at, lane, cost)
}

// rotate puts the first lane of a flow behind the others.
func (l *Line) rotate(i uint32) {
	if rest := l.flows[i].rest; rest != 0 {
		l.swap(i, rest-1)
		l.flows[i].rest = l.lanes[rest-1].next + 1
	}
}

// toFront puts a lane directly behind the first one of its flow.
func (l *Line) toFront(i, at uint32) {
	if rest := l.flows[i].rest - 1; rest != at {
		l.unlink(at)
		l.linkBefore(at, rest)
		l.flows[i].rest = at + 1
	}
}

func (l *Line) unlink(at uint32) {
	prev, next := l.lanes[at].prev, l.lanes[at].next
	l.lanes[prev].next, l.lanes[next].prev = next, prev
}

// popLane replaces the first lane of a flow by the next one.
func (l *Line) popLane(i uint32) {
	gone := l.flows[i].lane
	rest := l.flows[i].rest - 1
	next := l.lanes[rest]
	l.removeLane(i, rest)
	if l.index != nil {
		delete(l.index.lanes, gone)
	}
	l.setFirst(i, next.lane, next.cost)
}

// removeLane takes a lane of flow i out of lanes.
func (l *Line) removeLane(i, at uint32) {
	gone := l.lanes[at]
	if fl := &l.flows[i]; gone.next == at {
		fl.rest = 0
	} else {
		if fl.rest == at+1 {
			fl.rest = gone.next + 1
		}
		l.unlink(at)
	}
	if l.index != nil {
		delete(l.index.lanes, gone.lane)
	}
	last := uint32(len(l.lanes) - 1)
	if at != last {
		l.moveLane(last, at)
	}
	l.lanes = fit(l.lanes[:last])
}

// moveLane moves a lane to another place, whose content is lost.
func (l *Line) moveLane(from, to uint32) {
	moved := l.lanes[from]
	if moved.next == from {
		moved.prev, moved.next = to, to
	} else {
		l.lanes[moved.prev].next, l.lanes[moved.next].prev = to, to
	}
	l.lanes[to] = moved
	i, _ := l.find(moved.flow)
	if fl := &l.flows[i]; fl.rest == from+1 {
		fl.rest = to + 1
	}
	if l.index != nil {
		l.index.lanes[moved.lane] = to<<1 | laneBit
	}
}

// fit gives memory back when a quarter of a slice or less is in use.
func fit[T any](s []T) []T {
	if cap(s) <= 4 || len(s) > cap(s)/4 {
		return s
	}
	return append(make([]T, 0, cap(s)/2), s...)
}

// grown makes the index if the line has become long.
func (l *Line) grown() {
	if l.index == nil && l.Len() > indexAbove {
		l.makeIndex()
	}
	if l.index != nil {
		l.index.most = max(l.index.most, l.Len())
	}
}

// shrunk drops the index if the line has become short, and makes a smaller one
// if most of it is empty, since maps give nothing back.
func (l *Line) shrunk() {
	switch {
	case l.index == nil:
	case l.Len() < indexBelow:
		l.index = nil
	case l.Len() < l.index.most/8:
		l.makeIndex()
	}
}

func (l *Line) makeIndex() {
	x := &lineIndex{
		flows: make(map[Flow]uint32, len(l.flows)),
		lanes: make(map[uint32]uint32, l.Len()),
		heap:  make([]lineKey, len(l.flows)),
		most:  l.Len(),
	}
	l.index, l.first = x, 0
	for i := range l.flows {
		fl := &l.flows[i]
		x.flows[fl.id], x.lanes[fl.lane] = uint32(i), uint32(i)<<1
		x.heap[i], fl.pos = l.key(uint32(i)), uint32(i)
	}
	for i := range l.lanes {
		x.lanes[l.lanes[i].lane] = uint32(i)<<1 | laneBit
	}
	for i := len(x.heap) / 4; i >= 0; i-- {
		if i < len(x.heap) {
			l.down(uint32(i))
		}
	}
}

// The heap.

// put puts a flow into a place of the heap.
func (l *Line) put(pos uint32, k lineKey) {
	l.index.heap[pos] = k
	l.flows[k.flow].pos = pos
}

// fix moves a flow whose key has changed to where it belongs now.
func (l *Line) fix(i uint32) {
	pos := l.flows[i].pos
	l.index.heap[pos] = l.key(i)
	l.sift(pos)
}

// sift moves the flow at a place of the heap to where it belongs.
func (l *Line) sift(pos uint32) {
	if !l.up(pos) {
		l.down(pos)
	}
}

func (l *Line) up(pos uint32) (moved bool) {
	h := l.index.heap
	k := h[pos]
	for pos > 0 && k.before(h[(pos-1)/4]) {
		l.put(pos, h[(pos-1)/4])
		pos = (pos - 1) / 4
		moved = true
	}
	l.put(pos, k)
	return moved
}

func (l *Line) down(pos uint32) {
	h := l.index.heap
	k := h[pos]
	for {
		child := int(4*pos + 1)
		if child >= len(h) {
			break
		}
		for c := child + 1; c < min(child+4, len(h)); c++ {
			if h[c].before(h[child]) {
				child = c
			}
		}
		if k.before(h[child]) {
			break
		}
		l.put(pos, h[child])
		pos = uint32(child)
	}
	l.put(pos, k)
}
