package container

// Walk reads the links of Ranks in their order. The lists must not change meanwhile.
type Walk struct {
	x    *Lists
	next [maxRank + 1]uint32 // of each rank
}

// Walk begins at the first link.
func (x *Lists) Walk(r *Ranks) Walk {
	w := Walk{x: x}
	for rank, l := range x.all(r) {
		w.next[rank] = l.head
	}
	return w
}

// First is the link that the walk has reached; 0: the end.
func (w *Walk) First() uint32 {
	rank := w.rank()
	return w.next[rank]
}

// Next goes on to the link behind First.
func (w *Walk) Next() {
	if rank := w.rank(); w.next[rank] != 0 {
		w.next[rank] = w.x.at(w.next[rank]).next
	}
}

// rank is the rank of First.
func (w *Walk) rank() (first int) {
	for rank, id := range w.next {
		if id != 0 && (w.next[first] == 0 || w.x.at(id).stamp < w.x.at(w.next[first]).stamp) {
			first = rank
		}
	}
	return first
}
