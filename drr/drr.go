package drr

import "iter"

// Flow names a flow: a small number given out by the caller. Numbers should be
// dense (memory is reserved up to the largest one in chunks) and may be given to
// another key as soon as the flow is idle. The largest uint32 is not one.
type Flow uint32

// Info describes an active flow.
type Info struct {
	Weight  int64 // thousandths
	Deficit int64 // thousandths of cost that the flow may spend now, or has saved up while it waits; negative: carried deficit
	Turns   int64 // turns until it is served; 0 while it is in its turn
}

// The ranges of the arguments. Values outside are clamped.
const (
	MaxWeight  = 1_000_000_000 // thousandths
	MaxCost    = 1_000_000_000 // thousandths
	MaxQuantum = 1_000_000
)

// Scheduler decides which of many flows is served next, in weighted fair order. A flow
// is active while it has something to send, and idle otherwise. Make one with New. It is
// not safe for concurrent use.
type Scheduler struct {
	quantum int64
	active  int

	flows flowSlab
	ring  ring

	// The fields below belong to rounds.go, which has the invariants.
	round   uint64 // number of the current round; wraps around
	current flowID // the flow in its turn, or none
	carried int64  // deficit that the current flow carries, thousandths
	now     list   // unfiled flows still to be visited in this round
	next    list   // unfiled flows of the next round
	due     flowID // root of the heap of filed flows still to be visited in this round
	wheel   *wheel // filed flows of later rounds; nil until the first one
}

// New returns an empty scheduler. The quantum (1..MaxQuantum) is the cost that
// a flow of weight 1 may spend per turn.
func New(quantum int64) *Scheduler {
	s := &Scheduler{
		quantum: clamp(quantum, MaxQuantum),
		current: none,
		now:     emptyList,
		next:    emptyList,
		due:     none,
	}
	s.ring.init()
	return s
}

// Join makes an idle flow active; its first message costs cost. The flow is placed in the
// ring behind all that wait, with a deficit of 0. It panics if the flow is active.
func (s *Scheduler) Join(f Flow, weight, cost int64) {
	id := flowID(f)
	if fl := s.flows.get(id); fl != nil && fl.head > 0 {
		panic("drr: the flow is active already")
	}
	fl := s.flows.take(id)
	fl.weight = clamp(weight, MaxWeight)
	fl.head = clamp(cost, MaxCost)
	s.join(id, fl)
}

// SetHead changes the cost of the message that an active flow sends next, because
// another message has become first. Nothing is charged. It panics if the flow is idle.
func (s *Scheduler) SetHead(f Flow, cost int64) {
	id, head := flowID(f), clamp(cost, MaxCost)
	fl := s.flows.find(id)
	switch {
	case fl.head == head:
	case id == s.current:
		fl.head = head
	default:
		s.catchUp(fl)
		fl.head = head
		s.refile(id, fl)
	}
}

// Leave makes an active flow idle without charging it: it can send nothing. The flow loses
// its deficit. Leave returns and drops the deficit that it carries (thousandths). It panics
// if the flow is idle.
func (s *Scheduler) Leave(f Flow) (carried int64) {
	id := flowID(f)
	fl := s.flows.find(id)
	carried = s.carriedBy(id, fl)
	s.leave(id, fl)
	return carried
}

// Peek returns the flow that is served next, and reports false if all are idle. It
// may end a turn and begin others. If nothing else is called in between, it returns
// the same flow again.
func (s *Scheduler) Peek() (Flow, bool) {
	if s.active == 0 {
		return 0, false
	}
	id, _ := s.reach()
	return Flow(id), true
}

// Take serves the flow that Peek has returned, and charges it the cost of its head. The
// message after that costs next; 0: there is none, and the flow becomes idle. Calls about
// other flows may come between Peek and Take. It panics if no flow is in its turn.
func (s *Scheduler) Take(next int64) {
	if s.current == none {
		panic("drr: Take without Peek")
	}
	id := s.current
	fl := s.flows.at(id)
	fl.deficit -= fl.head
	if next == 0 {
		s.leave(id, fl)
		return
	}
	fl.head = clamp(next, MaxCost)
}

// Refund returns the cost of a message that has come back unused. While the flow is in
// its turn this undoes Take (a charge beyond a turn that SetWeight or SetQuantum cut
// short is returned first, and is no credit). A flow that waits may spend the cost in
// its next turn, which is longer by it. Nothing happens to an idle flow: if the message
// makes it active, call Join first.
//
// Until the message has gone out again, the bound of the package comment counts it as
// served.
func (s *Scheduler) Refund(f Flow, cost int64) { s.Correct(f, -clamp(cost, MaxCost)) }

// Correct charges a flow delta (thousandths) more, or less if it is negative, for a
// message that has gone: it has cost more or less than estimated. A flow without enough
// deficit owes the rest, and its next turns pay that first; a flow in its turn that owes
// more than the turn has left loses the rest of the turn. Correct reports whether the
// flow is active; nothing happens to an idle flow.
func (s *Scheduler) Correct(f Flow, delta int64) (active bool) {
	id := flowID(f)
	fl := s.flows.get(id)
	delta = min(max(delta, -maxDeficit), maxDeficit)
	switch {
	case fl == nil || fl.head == 0:
		return false
	case delta == 0:
	case id == s.current:
		if s.carried = saturate(s.carried, delta); s.carried < 0 {
			fl.deficit, s.carried = saturate(fl.deficit, -s.carried), 0
		}
	default:
		s.catchUp(fl)
		fl.deficit = saturate(fl.deficit, -delta)
		s.refile(id, fl)
	}
	return true
}

// carriedBy returns the deficit that an active flow carries (thousandths).
func (s *Scheduler) carriedBy(id flowID, fl *flow) int64 {
	switch {
	case id == s.current:
		return max(0, -s.left(fl))
	case fl.deficit >= 0:
		return 0
	default:
		return max(0, -fl.deficit-int64(s.visits(fl))*s.turn(fl))
	}
}

// Round is the number of the round in progress. It wraps around, and does not change
// while all flows are idle.
func (s *Scheduler) Round() uint64 { return s.round }

// SetWeight sets the weight of an active flow; its deficit stays. Nothing happens to an
// idle flow.
func (s *Scheduler) SetWeight(f Flow, weight int64) {
	id, w := flowID(f), clamp(weight, MaxWeight)
	fl := s.flows.get(id)
	if fl != nil && fl.head > 0 && fl.weight != w {
		s.reweigh(id, fl, w)
	}
}

func (s *Scheduler) reweigh(id flowID, fl *flow, w int64) {
	if id == s.current {
		fl.weight = w
		return
	}
	s.catchUp(fl)
	fl.weight = w
	s.refile(id, fl)
}

// SetQuantum changes the quantum, also for the turn in progress. O(active
// flows).
func (s *Scheduler) SetQuantum(quantum int64) {
	quantum = clamp(quantum, MaxQuantum)
	if quantum == s.quantum {
		return
	}
	for id := s.ring.first; id != none; id = s.flows.at(id).after {
		if id != s.current {
			s.catchUp(s.flows.at(id))
		}
	}
	s.quantum = quantum
	for id := s.ring.first; id != none; id = s.flows.at(id).after {
		if id != s.current {
			s.refile(id, s.flows.at(id))
		}
	}
}

// Quantum returns the quantum in force.
func (s *Scheduler) Quantum() int64 { return s.quantum }

// Active returns the number of active flows.
func (s *Scheduler) Active() int { return s.active }

// Flow describes a flow, or reports false if it is idle.
func (s *Scheduler) Flow(f Flow) (Info, bool) {
	fl := s.flows.get(flowID(f))
	if fl == nil || fl.head == 0 {
		return Info{}, false
	}
	return s.info(flowID(f), fl), true
}

// All yields the active flows in the order of the ring. The scheduler must not
// be changed meanwhile. O(active flows).
func (s *Scheduler) All() iter.Seq2[Flow, Info] {
	return func(yield func(Flow, Info) bool) {
		for id := s.ring.first; id != none; {
			fl := s.flows.at(id)
			if !yield(Flow(id), s.info(id, fl)) {
				return
			}
			id = fl.after
		}
	}
}

func (s *Scheduler) info(id flowID, fl *flow) Info {
	in := Info{Weight: fl.weight}
	if id == s.current {
		in.Deficit = s.left(fl)
		return in
	}
	visits := s.visits(fl)
	in.Deficit = fl.deficit + int64(visits)*s.turn(fl)
	in.Turns = int64(fl.wait - visits)
	return in
}

func clamp(v, most int64) int64 { return min(max(v, 1), most) }

// maxDeficit leaves room to add a turn (at most 1e15) to a deficit without a
// check. It takes 1e9 refunds of the largest cost to get there.
const maxDeficit = 1 << 60

func saturate(deficit, add int64) int64 { return min(max(deficit+add, -maxDeficit), maxDeficit) }
