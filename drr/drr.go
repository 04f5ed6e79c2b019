package drr

import "iter"

// Flow names a flow: a small number given out by the caller. Numbers should be
// dense (memory is reserved up to the largest one in chunks) and may be given
// to another key as soon as the flow has nothing pending.
type Flow uint32

// Handle names a pending item until it is taken by Next or dropped by Remove.
// It is never 0, so that 0 may stand for "none".
type Handle uint32

// Item is what Next hands out.
type Item struct {
	Flow  Flow
	Value uint64 // as given to Push or Return
	Cost  int64  // thousandths
}

// Info describes a flow that has something pending.
type Info struct {
	Weight  int64 // thousandths
	Deficit int64 // thousandths of cost that the flow may spend now, or has saved up while it waits
	Pending int64 // number of items
	Turns   int64 // turns until its next item goes; 0 while the flow is in its turn
}

// The ranges of the arguments. Values outside are clamped.
const (
	MaxWeight  = 1_000_000_000 // thousandths
	MaxCost    = 1_000_000_000 // thousandths
	MaxQuantum = 1_000_000
)

// Scheduler holds the pending items of many flows and hands them out in
// weighted fair order. Make one with New. It is not safe for concurrent use.
type Scheduler struct {
	quantum int64
	pending int
	active  int

	flows flowSlab
	items itemSlab
	ring  ring

	// What follows belongs to rounds.go, where the invariants are.
	round   uint64 // number of the current round; wraps around
	current flowID // the flow in its turn, or none
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
	s.items.init()
	return s
}

// Push adds an item to the end of flow f and sets the flow's weight, which
// counts at once for everything pending in it. A flow that had nothing pending
// joins the ring behind all that wait.
func (s *Scheduler) Push(f Flow, weight int64, value uint64, cost int64) Handle {
	id, w := flowID(f), uint32(clamp(weight, MaxWeight))
	fl := s.flows.get(id)
	idle := fl == nil || fl.items.n == 0
	if idle {
		fl = s.flows.take(id)
		fl.weight = w
	}
	it := s.items.alloc(value, uint32(clamp(cost, MaxCost)), id)
	s.items.pushBack(&fl.items, it)
	s.pending++
	if idle {
		s.join(id, fl)
	} else if fl.weight != w {
		s.reweigh(id, fl, w)
	}
	return Handle(it)
}

// Return puts an item back that Next has handed out and that was not used. It
// goes to the front of its flow, so several are returned in the reverse order
// of taking, and its cost is given back: while the flow is in its turn this
// undoes Next (what it sent beyond a turn that SetWeight or SetQuantum cut short
// comes first, and is no credit); a flow that waits may spend it in its next
// turn, which is longer by what was given back; a flow that has left since joins
// again, behind all that wait, with that cost to its credit.
//
// Until a returned item has gone out again, the bound of the package comment
// counts it as served.
//
// The weight is used only if the flow has nothing else pending: otherwise a
// later Push or SetWeight has the say.
func (s *Scheduler) Return(f Flow, weight int64, value uint64, cost int64) Handle {
	cost = clamp(cost, MaxCost)
	return s.putFront(f, weight, value, cost, cost)
}

// putFront adds an item to the front of a flow and gives back so much cost.
func (s *Scheduler) putFront(f Flow, weight int64, value uint64, cost, back int64) Handle {
	id := flowID(f)
	fl := s.flows.get(id)
	idle := fl == nil || fl.items.n == 0
	switch {
	case idle:
		fl = s.flows.take(id)
		fl.weight = uint32(clamp(weight, MaxWeight))
	case id != s.current:
		s.settle(fl)
	}
	it := s.items.alloc(value, uint32(cost), id)
	s.items.pushFront(&fl.items, it)
	s.pending++
	fl.deficit = saturate(fl.deficit, back)
	switch {
	case idle:
		s.join(id, fl)
	case id != s.current:
		s.refile(id, fl)
	}
	return Handle(it)
}

// ReturnBehind puts an item back as Return does, but directly behind the pending
// item after, which must be of the same flow: so several that come back one by
// one, in the order of taking, keep it. It panics if after names no pending
// item.
func (s *Scheduler) ReturnBehind(after Handle, value uint64, cost int64) Handle {
	id := s.items.find(itemID(after)).flow
	cost = clamp(cost, MaxCost)
	it := s.items.alloc(value, uint32(cost), id)
	s.pending++
	fl := s.flows.at(id)
	waits := id != s.current
	if waits {
		s.settle(fl)
	}
	s.items.insertAfter(&fl.items, itemID(after), it)
	fl.deficit = saturate(fl.deficit, cost)
	if waits {
		s.refile(id, fl)
	}
	return Handle(it)
}

// Next takes the next item, or reports false if nothing is pending.
func (s *Scheduler) Next() (Item, bool) {
	if s.pending == 0 {
		return Item{}, false
	}
	id, fl := s.reach()
	head := s.items.at(fl.items.head)
	item := Item{Flow: Flow(id), Value: head.value, Cost: int64(head.cost)}
	fl.deficit -= item.Cost
	s.drop(id, fl, fl.items.head)
	return item, true
}

// Remove drops a pending item, wherever it stands in its flow, and returns its
// value. Nothing is charged. It panics if h names no pending item.
func (s *Scheduler) Remove(h Handle) (value uint64) {
	it := s.items.find(itemID(h))
	id := it.flow
	value = it.value
	fl := s.flows.at(id)
	if id == s.current || fl.items.n == 1 || fl.items.head != itemID(h) {
		s.drop(id, fl, itemID(h))
		return value
	}
	// The flow waits for what its head costs, and its head changes.
	s.settle(fl)
	s.drop(id, fl, itemID(h))
	s.refile(id, fl)
	return value
}

// drop unlinks and frees an item; a flow that it leaves empty leaves the ring.
func (s *Scheduler) drop(id flowID, fl *flow, it itemID) {
	s.items.unlink(&fl.items, it)
	s.items.release(it)
	s.pending--
	if fl.items.n == 0 {
		s.leave(id, fl)
	}
}

// SetWeight sets the weight of a flow for everything pending in it; what it has
// saved up so far stays. A flow without pending items has no weight: nothing
// happens.
func (s *Scheduler) SetWeight(f Flow, weight int64) {
	id, w := flowID(f), uint32(clamp(weight, MaxWeight))
	fl := s.flows.get(id)
	if fl != nil && fl.items.n > 0 && fl.weight != w {
		s.reweigh(id, fl, w)
	}
}

func (s *Scheduler) reweigh(id flowID, fl *flow, w uint32) {
	if id == s.current {
		fl.weight = w
		return
	}
	s.settle(fl)
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
			s.settle(s.flows.at(id))
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

// Len returns the number of pending items.
func (s *Scheduler) Len() int { return s.pending }

// Active returns the number of flows that have something pending.
func (s *Scheduler) Active() int { return s.active }

// Flow describes a flow, or reports false if it has nothing pending.
func (s *Scheduler) Flow(f Flow) (Info, bool) {
	fl := s.flows.get(flowID(f))
	if fl == nil || fl.items.n == 0 {
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
	in := Info{Weight: int64(fl.weight), Pending: int64(fl.items.n)}
	if id == s.current {
		in.Deficit = max(0, fl.deficit+s.turn(fl))
		return in
	}
	visits := s.visits(fl)
	in.Deficit = fl.deficit + int64(visits)*s.turn(fl)
	in.Turns = int64(fl.wait - visits)
	return in
}

func clamp(v, most int64) int64 { return min(max(v, 1), most) }

// maxDeficit leaves room to add a turn (at most 1e15) to a deficit without a
// check. It takes 1e9 returns of the largest cost to get there.
const maxDeficit = 1 << 60

func saturate(deficit, add int64) int64 { return min(deficit+add, maxDeficit) }
