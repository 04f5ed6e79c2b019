package container

import "iter"

// Ranks is up to ten lists that are read as one, in the order of their stamps; of equal
// stamps the one of the lower rank comes first. Within each rank stamps never fall, so
// that a sequence finds its place at once wherever that is in the whole. The zero value
// is empty.
type Ranks struct {
	low  List   // of rank 0
	high uint32 // the ranks above, in Lists.high; 0: they have nothing
}

// maxRank is the highest rank.
const maxRank = 9

// higher is the lists of the ranks from 1 on.
type higher struct {
	lists [maxRank]List
	n     int32
}

// Count is the number of links of all ranks.
func (x *Lists) Count(r *Ranks) int32 {
	if r.high == 0 {
		return r.low.n
	}
	return r.low.n + x.high[r.high].n
}

// all yields the lists, the lowest first.
func (x *Lists) all(r *Ranks) iter.Seq2[uint8, *List] {
	return func(yield func(uint8, *List) bool) {
		if !yield(0, &r.low) || r.high == 0 {
			return
		}
		h := x.high[r.high]
		for i := range h.lists {
			if !yield(uint8(i+1), &h.lists[i]) {
				return
			}
		}
	}
}

// First is the first link of all; 0: there is none.
func (x *Lists) First(r *Ranks) uint32 {
	if r.high == 0 {
		return r.low.head
	}
	first, _ := x.firstTwo(r)
	return first
}

// Second is the link behind First; 0: there is none.
func (x *Lists) Second(r *Ranks) uint32 {
	if r.high == 0 {
		return x.at(r.low.head).next
	}
	_, second := x.firstTwo(r)
	return second
}

func (x *Lists) firstTwo(r *Ranks) (first, second uint32) {
	for _, l := range x.all(r) {
		switch head := l.head; {
		case head == 0:
		case first == 0:
			first, second = head, x.at(head).next
		case x.at(head).stamp < x.at(first).stamp:
			first, second = head, x.earlier(first, x.at(head).next)
		default:
			second = x.earlier(second, head)
		}
	}
	return first, second
}

// earlier is the one of two links with the smaller stamp, the first of equals; 0 is none.
func (x *Lists) earlier(a, b uint32) uint32 {
	if a == 0 || b != 0 && x.at(b).stamp < x.at(a).stamp {
		return b
	}
	return a
}

// InsertRanked inserts like Insert, into the list of a rank. In a rank above 0 it raises a stamp of
// 0 or more to the stamp of the last link if it is smaller.
func (x *Lists) InsertRanked(r *Ranks, rank uint8, seq uint64, stamp int64) uint32 {
	if rank == 0 {
		return x.Insert(&r.low, seq, stamp)
	}
	if r.high == 0 {
		r.high = x.newHigher()
	}
	h := x.high[r.high]
	h.n++
	l := &h.lists[rank-1]
	if stamp >= 0 && l.tail != 0 {
		stamp = max(stamp, x.at(l.tail).stamp)
	}
	return x.Insert(l, seq, stamp)
}

// RemoveRanked takes a link of a rank out.
func (x *Lists) RemoveRanked(r *Ranks, rank uint8, id uint32) {
	if rank == 0 {
		x.Remove(&r.low, id)
		return
	}
	h := x.high[r.high]
	x.Remove(&h.lists[rank-1], id)
	if h.n--; h.n == 0 {
		if len(x.spareHighs) < maxSpareHighs {
			*h = higher{}
			x.spareHighs = append(x.spareHighs, h)
		}
		x.high[r.high] = nil
		x.freeHigh = append(x.freeHigh, r.high)
		r.high = 0
	}
}

func (x *Lists) newHigher() (id uint32) {
	if n := len(x.freeHigh); n > 0 {
		id, x.freeHigh = x.freeHigh[n-1], x.freeHigh[:n-1]
	} else {
		id = uint32(max(len(x.high), 1)) // 0 is none
		x.high = append(x.high, make([]*higher, int(id)+1-len(x.high))...)
	}
	if n := len(x.spareHighs); n > 0 {
		x.high[id], x.spareHighs = x.spareHighs[n-1], x.spareHighs[:n-1]
	} else {
		x.high[id] = new(higher)
	}
	return id
}

// Ahead counts the links in front of one of a rank, up to most.
func (x *Lists) Ahead(r *Ranks, rank uint8, id uint32, most int64) (n int64) {
	stamp := x.at(id).stamp
	for other, l := range x.all(r) {
		if other == rank {
			for i := x.at(id).prev; i != 0 && n < most; i = x.at(i).prev {
				n++
			}
			continue
		}
		for i := l.head; i != 0 && n < most; i = x.at(i).next {
			if s := x.at(i).stamp; s > stamp || s == stamp && other > rank {
				break
			}
			n++
		}
	}
	return n
}

// Links yields the links of all ranks, the lowest rank first. None may be removed
// meanwhile.
func (x *Lists) Links(r *Ranks) iter.Seq2[uint8, uint32] {
	return func(yield func(uint8, uint32) bool) {
		for rank, l := range x.all(r) {
			for i := l.head; i != 0; i = x.at(i).next {
				if !yield(rank, i) {
					return
				}
			}
		}
	}
}
