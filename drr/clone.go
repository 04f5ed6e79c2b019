package drr

import (
	"cmp"
	"slices"
)

// Clone returns a copy of the scheduler with up to most active flows, the ones that are due
// first, which decides as the original would from here on and does not change it. The copy
// numbers them anew: flows has the number in the original by the one in the copy. It takes
// O(most), however many flows are active. If more flows than that are due in one round, those
// that it takes are not always the first ones of the round.
func (s *Scheduler) Clone(most int) (c *Scheduler, flows []Flow) {
	ids := s.dueFirst(most)
	slices.SortFunc(ids, func(a, b flowID) int { return cmp.Compare(s.flows.at(a).label, s.flows.at(b).label) })
	c = New(s.quantum)
	c.round, c.carried, c.active = s.round, s.carried, len(ids)
	for i, old := range ids {
		id := flowID(i)
		fl, from := c.flows.take(id), s.flows.at(old)
		fl.label, fl.deficit, fl.weight, fl.head, fl.base, fl.wait = from.label, from.deficit, from.weight, from.head, from.base, from.wait
		fl.before = c.ring.last
		if c.ring.last = id; i == 0 {
			c.ring.first = id
		} else {
			c.flows.at(fl.before).after = id
		}
		if s.visited(from) {
			c.ring.seen = id
		}
		switch {
		case old == s.current:
			c.current = id
		case from.place != listed:
			c.file(id, fl)
		case s.dueRound(from) == s.round:
			fl.place = listed
			c.pushBack(&c.now, id, fl)
		default:
			fl.place = listed
			c.pushBack(&c.next, id, fl)
		}
		flows = append(flows, Flow(old))
	}
	return c, flows
}

// dueFirst returns up to most active flows, those that are due in the nearest rounds.
func (s *Scheduler) dueFirst(most int) []flowID {
	ids := make([]flowID, 0, min(most, s.active))
	add := func(id flowID) (more bool) {
		if len(ids) == most {
			return false
		}
		ids = append(ids, id)
		return true
	}
	if s.current != none {
		add(s.current)
	}
	for id := s.now.head; id != none && add(id); id = s.flows.at(id).next {
	}
	for rest := []flowID{s.due}; len(rest) > 0; {
		id := rest[len(rest)-1]
		if rest = rest[:len(rest)-1]; id != none && add(id) {
			rest = append(rest, s.flows.at(id).next, s.flows.at(id).child)
		}
	}
	for id := s.next.head; id != none && add(id); id = s.flows.at(id).next {
	}
	if s.wheel == nil {
		return ids
	}
	for _, head := range s.wheel.slots { // from the next round on
		for id := head; id != none; {
			if id = s.flows.at(id).prev; !add(id) { // the tail came first
				return ids
			}
			if id == head {
				break
			}
		}
	}
	return ids
}

// Clone returns a copy of the line with the flows that go first, up to most, and up to most
// further lanes of them. It serves as the original would from here on and does not change it.
// A short line is copied whole. Clone takes O(most log most), however long the line is.
func (l *Line) Clone(most int) *Line {
	c := &Line{now: l.now, moves: l.moves}
	most = max(most, indexAbove)
	for _, from := range l.goFirst(most) {
		i, fl := uint32(len(c.flows)), l.flows[from]
		rest := fl.rest
		fl.rest, fl.pos = 0, 0
		c.flows = append(c.flows, fl)
		for at := rest; at != 0 && len(c.lanes) < most; {
			lane := &l.lanes[at-1]
			c.pushLane(i, lane.lane, lane.cost)
			if at = lane.next + 1; at == rest {
				break
			}
		}
	}
	c.grown()
	return c
}

// goFirst returns the places of up to most flows, the one that goes first first. All flows of a
// short line are returned, in any order.
func (l *Line) goFirst(most int) (places []uint32) {
	if l.index == nil {
		for i := range l.flows {
			places = append(places, uint32(i))
		}
		return places
	}
	keys := l.index.heap
	var next keyHeap
	for next.push(0, keys[0]); len(next) > 0 && len(places) < most; {
		pos := next.pop()
		places = append(places, keys[pos].flow)
		for child := 4*pos + 1; child < min(4*pos+5, len(keys)); child++ {
			next.push(child, keys[child])
		}
	}
	return places
}

// keyHeap is a binary heap of places of another heap, by their keys.
type keyHeap []placedKey

type placedKey struct {
	lineKey
	pos int
}

func (h *keyHeap) push(pos int, k lineKey) {
	*h = append(*h, placedKey{k, pos})
	list := *h
	for i := len(list) - 1; i > 0 && list[i].before(list[(i-1)/2].lineKey); i = (i - 1) / 2 {
		list[i], list[(i-1)/2] = list[(i-1)/2], list[i]
	}
}

func (h *keyHeap) pop() (pos int) {
	list := *h
	pos = list[0].pos
	last := len(list) - 1
	list[0] = list[last]
	list = list[:last]
	*h = list
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child < min(2*i+3, last); child++ {
			if list[child].before(list[least].lineKey) {
				least = child
			}
		}
		if least == i {
			return pos
		}
		list[i], list[least] = list[least], list[i]
		i = least
	}
}
