package queue

import "github.com/filaq/fila/drr"

// debts is what the flows of a side owe that have nothing in the schedule: messages of
// them have cost more than was estimated, or they left owing. It is by fairness key, which
// may have no messages meanwhile, and comes back with the flow, less the turns that it
// would have had. Where nobody waits nobody is owed anything, so all is forgotten when the
// schedule is empty.
type debts struct {
	byKey map[string]debt
	order []string // the keys of byKey, in the order in which they are looked at
}

type debt struct {
	owed  int64 // thousandths; 0: nothing
	turn  int64 // what a turn of the flow pays
	round uint64
}

// leastCost is what a message counts as that has cost nothing, in thousandths: a flow that
// is served for nothing would be served for ever while others wait.
const leastCost = 1

// maxDebts bounds how many keys are remembered; beyond it one is forgotten for each that comes.
const maxDebts = 1 << 16

// rest is what is owed in a round.
func (d debt) rest(round uint64) int64 {
	if n := round - d.round; d.owed > 0 && n <= uint64(d.owed/d.turn) {
		return d.owed - int64(n)*d.turn
	}
	return 0
}

// add notes that a key owes so much more, or less.
func (d *debts) add(key string, owed, turn int64, round uint64) {
	old, known := d.byKey[key]
	if owed += old.rest(round); owed <= 0 && !known {
		return
	}
	if !known {
		d.sweep(round)
		if d.byKey == nil {
			d.byKey = make(map[string]debt)
		}
		d.order = append(d.order, key)
	}
	d.byKey[key] = debt{owed: max(0, owed), turn: turn, round: round}
}

// sweep looks at two keys and forgets what is paid, so that no more keys are remembered
// than owe something, in the long run.
func (d *debts) sweep(round uint64) {
	for range min(2, len(d.order)) {
		key := d.order[0]
		d.order = d.order[1:]
		if d.byKey[key].rest(round) == 0 || len(d.byKey) >= maxDebts {
			delete(d.byKey, key)
		} else {
			d.order = append(d.order, key)
		}
	}
}

// take is what a key owes, which is somebody else's to remember from now on.
func (d *debts) take(key string, round uint64) int64 {
	x, ok := d.byKey[key]
	if !ok {
		return 0
	}
	d.byKey[key] = debt{}
	return x.rest(round)
}

// correct charges a flow so much more (thousandths), or less, for message s, which it has
// sent: in the schedule, and where it waits for gates that the message has passed, through
// whichever of its subqueues.
func (q *side) correct(s *slot, delta int64) {
	if delta == 0 {
		return
	}
	if f := s.flow; q.keys.entries[f].active {
		q.sched.Correct(f, delta)
	} else if q.sched.Active() > 0 {
		q.owe(f, delta)
	}
	if s.sub == 0 {
		return
	}
	sub := q.gating.subs.at(s.sub)
	if sub.circuit != nil && len(q.gating.waits.byCircuit) > 0 {
		q.correctAt(q.gating.waits.byCircuit[sub.circuit], s.flow, delta)
	}
	if sub.set != nil && len(q.gating.waits.byGate) > 0 {
		for _, g := range sub.set.Gates() {
			q.correctAt(q.gating.waits.byGate[g], s.flow, delta)
		}
	}
}

// correctAt charges a flow so where it waits for a gate that the message has passed; 0 is
// nowhere.
func (q *side) correctAt(at waitID, f drr.Flow, delta int64) {
	if at != 0 && q.gating.waits.at(at).line.Correct(f, delta) {
		q.lookAnew(at) // another subqueue may be the first now
	}
}

// owe notes that a flow without anything in the schedule owes so much more, or less.
func (q *side) owe(f drr.Flow, delta int64) {
	q.debts.add(q.keys.name(f), delta, q.keys.weight(f)*q.sched.Quantum(), q.sched.Round())
}

// join puts a flow into the schedule, with what it owes.
func (q *side) join(f drr.Flow, cost int64) {
	q.sched.Join(f, q.keys.weight(f), cost)
	q.keys.entries[f].unserved = 0
	if len(q.debts.byKey) > 0 {
		q.sched.Correct(f, q.debts.take(q.keys.name(f), q.sched.Round()))
	}
}

// leave takes a flow out of the schedule, and remembers what it owes.
func (q *side) leave(f drr.Flow) {
	q.endStarving(&q.keys.entries[f])
	if owed := q.sched.Leave(f); owed > 0 {
		q.owe(f, owed)
	}
	q.forgive()
}

// forgive forgets all debts if nothing is in the schedule.
func (q *side) forgive() {
	if len(q.debts.byKey) > 0 && q.sched.Active() == 0 {
		q.debts = debts{}
	}
}
