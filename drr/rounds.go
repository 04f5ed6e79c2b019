package drr

// Rounds: which flow is served next.
//
// The ring of active flows is cut open into a list (ring.go); a round visits it
// from first to last, and the next round begins again at the first. A visit is
// a flow's turn. The place of the visit in progress is the gap behind ring.seen:
// flows up to and including seen have been visited in this round, those after
// it have not. The flow in its turn, if any, is the one right behind seen.
//
// Walking over flows that cannot send yet would cost a step for each of their
// turns. So a waiting flow is only touched in the round in which it will send:
//
//	base     the round of its last visit
//	head     the cost of what it sends next
//	wait     how many turns it needs until that goes, >= 1
//	deficit  what it had saved up at the end of the visit of round base
//
// and everything between is arithmetic. base+wait is the round in which it is
// due. Where it stands:
//
//	the current flow                    s.current, in no list
//	due this round, wait was 1          s.now     list, sorted by place in the ring
//	due next round, wait is 1           s.next    list, sorted
//	due this round, otherwise           s.due     heap by place in the ring
//	due later                           s.wheel   by round, unsorted
//
// Invariants, between calls:
//
//  I1  A waiting flow is due in this round if and only if it has not been
//      visited in it and its deficit covers its head with this turn; otherwise
//      it is due later. No flow is due earlier.
//  I2  wait is the least number, at least 1 and at most maxWait, with
//      deficit + wait*weight*quantum >= head.
//      So a flow that begins a turn can send its head, unless it owes so much that it
//      has waited for maxWait turns.
//  I3  s.now and s.next are sorted because flows enter s.next only at the
//      place where the round is, which moves forward. A flow that must go to
//      any other place goes to the heap or the wheel.
//  I4  The deficit of a waiting flow is below a head that it has or has had
//      since it joined, except for refunds and corrections, and below 0
//      only by corrections: a carried deficit. The deficit of the
//      current flow does not contain its turn, which left adds: it is what
//      the flow brought minus what it sent, and may be negative. A change of
//      weight thus corrects the turn in progress, and no sequence of changes
//      yields more than the largest of the turns. EndTurn leaves the turn
//      out for good. The deficit that the current flow carries is kept
//      apart, in s.carried: it is never forgiven, while a charge beyond a
//      turn that was cut short is.
//  I5  An idle flow is in no structure and has no head; an active one has.
//  I6  Rounds are compared by difference only; differences stay below 2^31
//      (wait <= maxWait), so the 32 bits of flow.base suffice and the count
//      may wrap.

// place says which structure holds a waiting flow.
type place uint8

const (
	nowhere place = iota // idle or current
	listed               // s.now or s.next, as its round says
	heaped               // s.due
	filed                // s.wheel
)

// turn is what a turn adds to the deficit of fl: at most 1e15.
func (s *Scheduler) turn(fl *flow) int64 { return fl.weight * s.quantum }

// maxWait is for how many turns a flow is filed at most, more than the largest head
// needs. A flow that owes more is filed again.
const maxWait = 1 << 30

// turns returns how many turns fl needs until its head can go: 1..maxWait.
func (s *Scheduler) turns(fl *flow) uint32 {
	missing, turn := fl.head-fl.deficit, s.turn(fl)
	if missing <= turn {
		return 1
	}
	return uint32(min((missing-1)/turn+1, maxWait))
}

// dueRound returns the round in which a waiting flow is due.
func (s *Scheduler) dueRound(fl *flow) uint64 {
	return s.round + uint64(fl.base+fl.wait-uint32(s.round))
}

// visits returns how many visits a waiting flow has had since its base.
func (s *Scheduler) visits(fl *flow) uint32 {
	n := uint32(s.round) - fl.base
	if n > 0 && !s.visited(fl) {
		n--
	}
	return n
}

// visited reports whether this round has come past the place of fl.
func (s *Scheduler) visited(fl *flow) bool {
	return s.ring.seen != none && fl.label <= s.flows.at(s.ring.seen).label
}

// join puts a flow that has just become active into the ring, behind all that
// wait: it counts as visited in this round.
func (s *Scheduler) join(id flowID, fl *flow) {
	s.active++
	s.insertAfterSeen(id, fl)
	s.ring.seen = id
	s.await(id, fl)
}

// leave takes a flow that becomes idle out of everything.
func (s *Scheduler) leave(id flowID, fl *flow) {
	s.active--
	fl.head = 0
	if id == s.current {
		s.current = none
	} else {
		s.unplace(id, fl)
	}
	s.removeFromRing(id, fl)
	s.flows.release(id)
}

// beginTurn makes the next flow that is due the current one. There is one.
func (s *Scheduler) beginTurn() {
	if s.now.empty() && s.due == none {
		s.nextRound()
	}
	id := s.due
	if id == none || !s.now.empty() && s.flows.at(s.now.head).label < s.flows.at(id).label {
		id = s.now.head
	}
	fl := s.flows.at(id)
	s.unplace(id, fl)
	fl.deficit += int64(fl.wait-1) * s.turn(fl)
	s.carried = max(0, -fl.deficit)
	fl.deficit += s.carried
	s.ring.seen = fl.before
	s.current = id
}

// reach begins and ends turns until the current flow can send its head, and
// returns it. There is an active flow.
func (s *Scheduler) reach() (flowID, *flow) {
	for {
		if s.current == none {
			s.beginTurn()
		}
		id := s.current
		fl := s.flows.at(id)
		left := s.left(fl)
		if left >= fl.head {
			return id, fl
		}
		s.endTurn(id, fl, left)
	}
}

// left is what the current flow may still spend in its turn; negative: the deficit that it carries.
// A charge beyond a turn that was cut short is forgiven.
func (s *Scheduler) left(fl *flow) int64 { return max(0, fl.deficit+s.turn(fl)) - s.carried }

// endTurn lets the current flow wait for its next turn, with what it keeps of
// its deficit.
func (s *Scheduler) endTurn(id flowID, fl *flow, left int64) {
	fl.deficit = left
	s.current = none
	s.ring.seen = id
	s.await(id, fl)
}

// await places a flow that was visited just now.
func (s *Scheduler) await(id flowID, fl *flow) {
	fl.base = uint32(s.round)
	fl.wait = s.turns(fl)
	if fl.wait == 1 {
		fl.place = listed
		s.pushBack(&s.next, id, fl)
		return
	}
	s.file(id, fl)
}

// catchUp applies the visits that a waiting flow has had since its base, so that
// weight, quantum or head may change. refile must follow.
func (s *Scheduler) catchUp(fl *flow) {
	n := s.visits(fl)
	fl.deficit += int64(n) * s.turn(fl)
	fl.base += n
	fl.wait -= n
}

// refile moves a flow after catchUp to the round in which it is due now.
func (s *Scheduler) refile(id flowID, fl *flow) {
	wait := s.turns(fl)
	if wait == fl.wait {
		return
	}
	s.unplace(id, fl)
	fl.wait = wait
	s.file(id, fl)
}

// file puts a flow into the wheel, or into the heap if it is due this round.
func (s *Scheduler) file(id flowID, fl *flow) {
	due := s.dueRound(fl)
	if due == s.round {
		s.heapPush(id, fl)
		return
	}
	if s.wheel == nil {
		s.wheel = newWheel()
	}
	s.wheelInsert(id, fl, due)
}

// unplace takes a waiting flow out of the structure in which it stands.
func (s *Scheduler) unplace(id flowID, fl *flow) {
	switch fl.place {
	case listed:
		if s.dueRound(fl) == s.round {
			s.unlink(&s.now, fl)
		} else {
			s.unlink(&s.next, fl)
		}
	case heaped:
		s.heapRemove(id, fl)
	case filed:
		s.wheelRemove(id, fl)
	}
	fl.place = nowhere
}

// nextRound goes to the next round in which a flow is due, and skips the others.
func (s *Scheduler) nextRound() {
	for s.now.empty() && s.due == none {
		target := s.round + 1
		if s.next.empty() {
			target = s.wheel.earliest(s.round)
		}
		s.advance(target)
		s.now, s.next = s.next, emptyList
		s.ring.seen = none
	}
}
