package queue

// links holds the lists of messages that wait outside of the schedule, by
// subqueue or by fairness key. It has no pointers. Index 0 ends a list.
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
