package container

// link is an item of a list: 24 bytes, no pointers.
type link struct {
	seq        uint64
	stamp      int64
	prev, next uint32
}

// List is a list of sequences in the order of their stamps, of those that one [Lists]
// holds. The zero value is an empty list.
type List struct {
	head, tail uint32 // 0 ends a list
	back       uint32 // latest one that was inserted below stamp 0
	n          int32
}

// Head is the first link of the list; 0: it is empty.
func (l *List) Head() uint32 { return l.head }

// Len is the number of links in the list.
func (l *List) Len() int32 { return l.n }

const (
	linkChunkBits = 8
	linkChunkSize = 1 << linkChunkBits
	linkChunkMask = linkChunkSize - 1

	// spareLinkChunks is how many unused chunks are kept at least.
	spareLinkChunks = 16

	// maxSpareHighs is how many unused higher ranks are kept at most.
	maxSpareHighs = 1024
)

type linkChunk [linkChunkSize]link

// linkState has the free links of a chunk. Chunks with free links are in a list.
type linkState struct {
	free  uint32 // first slot that was used and is free again
	used  uint16
	fresh uint16 // slots from here on were never used
	prev  uint32 // chunk numbers + 1, 0 ends the list
	next  uint32
}

// Lists holds the links of many lists. It grows by a chunk at a time, so that nothing is
// ever copied but the table of chunks. A chunk that falls empty becomes a spare, and is
// given back when there are more spares than half of the chunks in use. The zero value
// is without lists.
type Lists struct {
	chunks []*linkChunk
	states []linkState
	room   uint32   // first chunk with room, + 1
	holes  []uint32 // numbers without a chunk
	spares []*linkChunk
	n      int64

	high       []*higher // of Ranks; high[0] is not used
	freeHigh   []uint32  // places in high
	spareHighs []*higher
}

// Len is the number of links in all lists.
func (x *Lists) Len() int64 { return x.n }

func (x *Lists) at(id uint32) *link { return &x.chunks[id>>linkChunkBits][id&linkChunkMask] }

// Seq is the sequence of a link.
func (x *Lists) Seq(id uint32) uint64 { return x.at(id).seq }

// Stamp is the stamp of a link.
func (x *Lists) Stamp(id uint32) int64 { return x.at(id).stamp }

// Next is the link behind another one; 0: there is none.
func (x *Lists) Next(id uint32) uint32 { return x.at(id).next }

// Prev is the link in front of another one; 0: there is none.
func (x *Lists) Prev(id uint32) uint32 { return x.at(id).prev }

// Insert puts seq at the place of its stamp into l, behind those with the same one,
// and returns its link. It looks for the place from the end or, if the stamp is below
// 0, from the latest of these: what comes back comes in order for the most part. What
// does not is looked for from the head, past no more than were in flight at once.
func (x *Lists) Insert(l *List, seq uint64, stamp int64) uint32 {
	after := l.tail
	if stamp < 0 {
		after = x.lastUpTo(l, stamp)
	}
	for after != 0 && x.at(after).stamp > stamp {
		after = x.at(after).prev
	}
	id := x.alloc()
	if stamp < 0 {
		l.back = id
	}
	it := x.at(id)
	it.seq, it.stamp, it.prev = seq, stamp, after
	if after != 0 {
		a := x.at(after)
		it.next, a.next = a.next, id
	} else {
		it.next, l.head = l.head, id
	}
	if it.next != 0 {
		x.at(it.next).prev = id
	} else {
		l.tail = id
	}
	l.n++
	x.n++
	return id
}

// lastUpTo is the last link up to a stamp; 0: there is none.
func (x *Lists) lastUpTo(l *List, stamp int64) (last uint32) {
	from := l.head
	if l.back != 0 && x.at(l.back).stamp <= stamp {
		from = l.back
	}
	for id := from; id != 0 && x.at(id).stamp <= stamp; id = x.at(id).next {
		last = id
	}
	return last
}

// Remove takes link id out of l.
func (x *Lists) Remove(l *List, id uint32) {
	it := x.at(id)
	if it.prev != 0 {
		x.at(it.prev).next = it.next
	} else {
		l.head = it.next
	}
	if it.next != 0 {
		x.at(it.next).prev = it.prev
	} else {
		l.tail = it.prev
	}
	if l.back == id {
		l.back = it.prev
	}
	l.n--
	x.n--
	x.release(id)
}

func (x *Lists) alloc() uint32 {
	if x.room == 0 {
		x.addChunk()
	}
	c := x.room - 1
	st := &x.states[c]
	id := st.free
	if id != 0 {
		st.free = x.at(id).next
	} else {
		id = c<<linkChunkBits | uint32(st.fresh)
		st.fresh++
	}
	st.used++
	if st.used == linkChunkSize {
		x.closeRoom(c)
	}
	return id
}

func (x *Lists) release(id uint32) {
	c := id >> linkChunkBits
	st := &x.states[c]
	x.at(id).next = st.free
	st.free = id
	if st.used == linkChunkSize {
		x.openRoom(c)
	}
	st.used--
	if st.used > 0 {
		return
	}
	x.closeRoom(c)
	x.spares = append(x.spares, x.chunks[c])
	x.chunks[c] = nil
	x.holes = append(x.holes, c)
	x.trim()
}

// trim gives back two spares at most, one more than came in: what a large backlog
// leaves behind shrinks with it, a bit at a time.
func (x *Lists) trim() {
	keep := max(spareLinkChunks, (len(x.chunks)-len(x.holes))/2)
	for range 2 {
		if n := len(x.spares); n > keep {
			x.spares[n-1] = nil
			x.spares = x.spares[:n-1]
		}
	}
}

func (x *Lists) addChunk() {
	var c uint32
	if n := len(x.holes); n > 0 {
		c = x.holes[n-1]
		x.holes = x.holes[:n-1]
	} else {
		c = uint32(len(x.chunks))
		x.chunks = append(x.chunks, nil)
		x.states = append(x.states, linkState{})
	}
	if n := len(x.spares); n > 0 {
		x.chunks[c], x.spares[n-1] = x.spares[n-1], nil
		x.spares = x.spares[:n-1]
	} else {
		x.chunks[c] = new(linkChunk)
	}
	x.states[c] = linkState{}
	if c == 0 { // it is never given back
		x.states[c].used, x.states[c].fresh = 1, 1 // no link is called 0
	}
	x.openRoom(c)
}

func (x *Lists) openRoom(c uint32) {
	st := &x.states[c]
	st.prev, st.next = 0, x.room
	if x.room != 0 {
		x.states[x.room-1].prev = c + 1
	}
	x.room = c + 1
}

func (x *Lists) closeRoom(c uint32) {
	st := &x.states[c]
	if st.prev == 0 {
		x.room = st.next
	} else {
		x.states[st.prev-1].next = st.next
	}
	if st.next != 0 {
		x.states[st.next-1].prev = st.prev
	}
}
