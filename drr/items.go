package drr

// itemID names an item in the slab: chunk number and slot. 0 ends a list.
type itemID uint32

// item is a pending item: 24 bytes, no pointers.
type item struct {
	value uint64
	cost  uint32 // thousandths; 0 marks a free slot
	flow  flowID
	prev  itemID // in its queue
	next  itemID // in its queue, or in the free slots of its chunk
}

// queue is a list of items, first in, first out.
type queue struct {
	head, tail itemID
	n          uint32
}

const (
	itemChunkBits = 8
	itemChunkSize = 1 << itemChunkBits
	itemChunkMask = itemChunkSize - 1

	// spareItemChunks is how many unused chunks are kept at least.
	spareItemChunks = 16
)

type itemChunk [itemChunkSize]item

// chunkState says what is free in a chunk. Chunks with room stand in a list.
type chunkState struct {
	free  itemID // first slot that was used and is free again
	used  uint16
	fresh uint16 // slots from here on were never used
	prev  uint32 // chunk numbers + 1, 0 ends the list
	next  uint32
}

// itemSlab gives out items. It grows by a chunk at a time, so that nothing is
// ever copied but the table of chunks. A chunk that falls empty becomes a spare,
// and is given back when there are more spares than half of the chunks in use.
type itemSlab struct {
	chunks []*itemChunk
	states []chunkState
	room   uint32   // first chunk with room, + 1
	holes  []uint32 // numbers without a chunk
	spares []*itemChunk
}

// init takes slot 0 away, so that no item is called 0.
func (l *itemSlab) init() {
	l.addChunk()
	l.states[0].used, l.states[0].fresh = 1, 1
}

func (l *itemSlab) at(id itemID) *item {
	return &l.chunks[id>>itemChunkBits][id&itemChunkMask]
}

// find returns a pending item; it panics if the caller's handle is not one.
func (l *itemSlab) find(id itemID) *item {
	c := int(id >> itemChunkBits)
	if c < len(l.chunks) && l.chunks[c] != nil {
		if it := l.at(id); it.cost > 0 {
			return it
		}
	}
	panic("drr: handle of an item that is not pending")
}

func (l *itemSlab) alloc(value uint64, cost uint32, f flowID) itemID {
	if l.room == 0 {
		l.addChunk()
	}
	c := l.room - 1
	st := &l.states[c]
	id := st.free
	if id != 0 {
		st.free = l.at(id).next
	} else {
		id = itemID(c<<itemChunkBits | uint32(st.fresh))
		st.fresh++
	}
	st.used++
	if st.used == itemChunkSize {
		l.closeRoom(c)
	}
	*l.at(id) = item{value: value, cost: cost, flow: f}
	return id
}

func (l *itemSlab) release(id itemID) {
	c := uint32(id >> itemChunkBits)
	st := &l.states[c]
	it := l.at(id)
	it.cost = 0
	it.next = st.free
	st.free = id
	if st.used == itemChunkSize {
		l.openRoom(c)
	}
	st.used--
	if st.used > 0 {
		return
	}
	l.closeRoom(c)
	l.spares = append(l.spares, l.chunks[c])
	l.chunks[c] = nil
	l.holes = append(l.holes, c)
	l.spares = trim(l.spares, max(spareItemChunks, (len(l.chunks)-len(l.holes))/2))
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

func (l *itemSlab) addChunk() {
	var c uint32
	if n := len(l.holes); n > 0 {
		c = l.holes[n-1]
		l.holes = l.holes[:n-1]
	} else {
		c = uint32(len(l.chunks))
		l.chunks = append(l.chunks, nil)
		l.states = append(l.states, chunkState{})
	}
	l.chunks[c] = fromSpares(&l.spares)
	l.states[c] = chunkState{}
	l.openRoom(c)
}

func (l *itemSlab) openRoom(c uint32) {
	st := &l.states[c]
	st.prev, st.next = 0, l.room
	if l.room != 0 {
		l.states[l.room-1].prev = c + 1
	}
	l.room = c + 1
}

func (l *itemSlab) closeRoom(c uint32) {
	st := &l.states[c]
	if st.prev == 0 {
		l.room = st.next
	} else {
		l.states[st.prev-1].next = st.next
	}
	if st.next != 0 {
		l.states[st.next-1].prev = st.prev
	}
}

func (l *itemSlab) pushBack(q *queue, id itemID) {
	it := l.at(id)
	it.prev, it.next = q.tail, 0
	if q.tail == 0 {
		q.head = id
	} else {
		l.at(q.tail).next = id
	}
	q.tail = id
	q.n++
}

func (l *itemSlab) pushFront(q *queue, id itemID) {
	it := l.at(id)
	it.prev, it.next = 0, q.head
	if q.head == 0 {
		q.tail = id
	} else {
		l.at(q.head).prev = id
	}
	q.head = id
	q.n++
}

// insertAfter puts id into the queue of before, directly behind it.
func (l *itemSlab) insertAfter(q *queue, before, id itemID) {
	it, prev := l.at(id), l.at(before)
	it.prev, it.next = before, prev.next
	if prev.next == 0 {
		q.tail = id
	} else {
		l.at(prev.next).prev = id
	}
	prev.next = id
	q.n++
}

func (l *itemSlab) unlink(q *queue, id itemID) {
	it := l.at(id)
	if it.prev == 0 {
		q.head = it.next
	} else {
		l.at(it.prev).next = it.next
	}
	if it.next == 0 {
		q.tail = it.prev
	} else {
		l.at(it.next).prev = it.prev
	}
	q.n--
}
