package queue

import (
	"maps"
	"math"
	"slices"

	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/sidecar/queue/container"
	"github.com/filaq/fila/throttle"
)

// gating is what a side knows of its gates: who has to pass which, and who waits
// where.
type gating struct {
	subs  subTable
	waits waitTable

	timers    container.Timers  // wait lists to look at, by time
	looks     []waitID          // wait lists to look at in this step
	touched   []waitID          // wait lists that probe in this step
	trying    bool              // messages try their gates: what opens now is looked at in the next step
	wakes     []*throttle.Wait  // scratch
	permits   []*permit         // to be used again
	stalls    stallTable        // of subqueues, see stalls
	held      []BlockedInterval // scratch
	reserving subID             // the subqueue that has the Reservation of the process
	noCredit  int64             // since when nobody has credit, while there is a Reservation; 0: somebody has
	blockedBy [BlockKinds]int64 // messages, by what their subqueues were blocked by last
}

func newGating() gating { return gating{subs: newSubTable(), waits: newWaitTable()} }

// waitID names a wait list of a side; 0 is none.
type waitID uint32

// waitList is where subqueues of a side wait for one gate: a throttle key, a
// circuit, or the end of a pause of their key. The subqueues of all flows stand in
// one line, which shares what the gate admits by weight (drr.Line).
//
// A wait list is looked at when time or somebody else may have opened its gate,
// never otherwise. Then as many subqueues as the gate admits probe it: each is
// eligible with its first message alone, which tries the gates when the turn of its
// flow comes. So the schedule decides between the probes and everybody else. Permits
// are taken at delivery: one taken with the probe would let deliveries bunch beyond
// the limit.
//
// At a throttle key machines are served in turn (throttle.Wait). A machine joins the
// round when a subqueue waits here, and its turn ends when its probes have tried. If
// they could not try, because no consumer has credit, it leaves the round: others
// must not wait for its consumers.
type waitList struct {
	kind    waitKind
	gate    *throttle.Gate
	round   *throttle.Wait
	joined  bool // the round
	circuit Circuit
	flow    drr.Flow // of a paused key

	line      drr.Line
	messages  int64 // that wait here
	probing   int32 // probes that have not tried yet
	budget    int64 // how many more may probe before looking again
	at        int64 // when its timer is due; 0: no timer
	notBefore int64 // looking earlier is in vain: the first costs more than the gate has
	looking   bool  // in gating.looks
	touched   bool  // in gating.touched
	chain     chain
}

type waitKind uint8

const (
	waitFree waitKind = iota
	waitThrottle
	waitCircuit
	waitPause
)

// waitTable holds the wait lists of a side.
type waitTable struct {
	items     []*waitList // items[0] is not used
	free      []waitID
	byGate    map[*throttle.Gate]waitID
	byCircuit map[Circuit]waitID
	byFlow    map[drr.Flow]waitID
}

func newWaitTable() waitTable {
	return waitTable{
		items:     make([]*waitList, 1),
		byGate:    make(map[*throttle.Gate]waitID),
		byCircuit: make(map[Circuit]waitID),
		byFlow:    make(map[drr.Flow]waitID),
	}
}

func (t *waitTable) at(id waitID) *waitList { return t.items[id] }

func (t *waitTable) add(wl waitList) waitID {
	var id waitID
	if n := len(t.free); n > 0 {
		id, t.free = t.free[n-1], t.free[:n-1]
		wl.looking, wl.touched = t.items[id].looking, t.items[id].touched
		*t.items[id] = wl
	} else {
		id = waitID(len(t.items))
		t.items = append(t.items, &wl)
	}
	return id
}

func (q *side) atThrottle(g *throttle.Gate) waitID {
	id, ok := q.gating.waits.byGate[g]
	if !ok {
		id = q.gating.waits.add(waitList{kind: waitThrottle, gate: g, round: throttle.NewWait(g, q.m.owner)})
		q.gating.waits.byGate[g] = id
	}
	return id
}

func (q *side) atCircuit(ci Circuit) waitID {
	id, ok := q.gating.waits.byCircuit[ci]
	if !ok {
		id = q.gating.waits.add(waitList{kind: waitCircuit, circuit: ci})
		q.gating.waits.byCircuit[ci] = id
		q.m.announce(ci, ci.Wait(q.m.owner, q.m.now))
	}
	return id
}

// countHeld tells the gate of the list that a message begins to wait there.
func (wl *waitList) countHeld(kind BlockKind) {
	switch wl.kind {
	case waitThrottle:
		wl.gate.CountBlocked(throttleKinds[kind])
	case waitCircuit:
		wl.circuit.CountBlocked()
	}
}

func (q *side) atPause(f drr.Flow) waitID {
	id, ok := q.gating.waits.byFlow[f]
	if !ok {
		id = q.gating.waits.add(waitList{kind: waitPause, flow: f})
		q.gating.waits.byFlow[f] = id
	}
	return id
}

// closeWait forgets a wait list where nothing waits any more.
func (q *side) closeWait(id waitID) {
	wl := q.gating.waits.at(id)
	switch wl.kind {
	case waitThrottle:
		q.leaveRound(wl)
		delete(q.gating.waits.byGate, wl.gate)
	case waitCircuit:
		wl.circuit.Leave(q.m.owner)
		delete(q.gating.waits.byCircuit, wl.circuit)
	case waitPause:
		delete(q.gating.waits.byFlow, wl.flow)
	}
	q.stopTimer(wl)
	q.lead(wl)
	// looks and touched may still name it.
	*wl = waitList{looking: wl.looking, touched: wl.touched}
	q.gating.waits.free = append(q.gating.waits.free, id)
}

func (q *side) leaveRound(wl *waitList) {
	if wl.joined {
		wl.joined = false
		q.tellWaits(wl.round.Leave(q.gating.wakes[:0]))
	}
}

// tellWaits has those woken whose turn it is at a gate. Wait lists of this side are
// looked at in this step.
func (q *side) tellWaits(wakes []*throttle.Wait) {
	q.gating.wakes = wakes[:0]
	for _, w := range wakes {
		if w.Owner == any(q.m.owner) && !q.gating.trying {
			q.onGate(w.Gate())
		} else {
			q.m.out.Wake = append(q.m.out.Wake, w)
		}
	}
}

// onGate is told that a throttle key may admit more.
func (q *side) onGate(g *throttle.Gate) {
	q.lookAnew(q.gating.waits.byGate[g])
}

// onCircuit is told that a circuit may admit more.
func (q *side) onCircuit(ci Circuit) {
	q.lookAnew(q.gating.waits.byCircuit[ci])
}

// lookLater has a wait list looked at in this step.
func (q *side) lookLater(id waitID) {
	if wl := q.gating.waits.at(id); !wl.looking {
		wl.looking = true
		q.gating.looks = append(q.gating.looks, id)
	}
}

// lookAnew has a wait list, if there is one, looked at in this step whatever was known
// of when its gate opens.
func (q *side) lookAnew(id waitID) {
	if id != 0 {
		q.gating.waits.at(id).notBefore = 0
		q.lookLater(id)
	}
}

// looksPerStep bounds how many wait lists are looked at before other work is done.
const looksPerStep = 1024

// lookAround looks at the wait lists whose gates may have opened. It reports whether some are
// left.
func (q *side) lookAround(now int64) (more bool) {
	i := 0
	for ; i < len(q.gating.looks) && i < looksPerStep; i++ {
		q.look(q.gating.looks[i], now)
	}
	q.gating.looks = append(q.gating.looks[:0], q.gating.looks[i:]...)
	return len(q.gating.looks) > 0
}

// look asks the gate of a wait list how many messages it admits, and lets as many
// probe it.
func (q *side) look(id waitID, now int64) {
	wl := q.gating.waits.at(id)
	wl.looking = false
	if wl.kind == waitFree {
		return
	}
	if wl.line.Len() == 0 {
		if wl.probing == 0 {
			q.closeWait(id)
		}
		return
	}
	if wl.probing > 0 {
		// Earlier probes have not tried yet; their trying, or their end, brings us
		// back.
		q.leaveRound(wl)
		return
	}
	if wl.chain.follows != 0 {
		if !wl.chain.mixed {
			q.leaveRound(wl)
			return
		}
		wl.chain.follows = 0
	}
	if wl.notBefore > now && !q.rejoined(wl, now) {
		q.startTimer(id, wl, wl.notBefore)
		return
	}
	n, at := q.admits(wl, now)
	if n <= 0 {
		q.startTimer(id, wl, at)
		return
	}
	q.lead(wl)
	wl.budget = min(n, deliverPerStep)
	q.probe(id)
	if wl.probing == 0 {
		// The subqueue whose turn it is has something in the schedule that must try
		// first; that brings us back.
		q.leaveRound(wl)
		return
	}
	if !wl.touched {
		wl.touched = true
		q.gating.touched = append(q.gating.touched, id)
	}
}

// rejoined lets the queue join the round of a gate at which its head has tried in
// vain after the queue had left the round, since nobody would tell it otherwise. It
// reports whether the head may go now.
func (q *side) rejoined(wl *waitList, now int64) bool {
	if wl.kind != waitThrottle || wl.joined {
		return false
	}
	first, _, _ := wl.line.Peek()
	cost := q.costOf(q.firstBlocked(q.gating.subs.at(subID(first))))
	wl.joined = true
	wl.notBefore = wl.round.Join(now, cost)
	return wl.notBefore <= now
}

// admits says how many messages the gate of wl admits now, or when to look again:
// math.MaxInt64 if the queue will be told.
func (q *side) admits(wl *waitList, now int64) (n, at int64) {
	switch wl.kind {
	case waitThrottle:
		if !wl.joined {
			wl.joined = true
			wl.round.Join(now, throttle.One)
		}
		return wl.round.Turn(now)
	case waitCircuit:
		return wl.circuit.Admits(now)
	default:
		if until := q.keyPaused(wl.flow, now); until != 0 {
			return 0, until
		}
		return math.MaxInt64, 0
	}
}

// startTimer has a wait list looked at again at a time; math.MaxInt64 is never.
func (q *side) startTimer(id waitID, wl *waitList, at int64) {
	if wl.at == at {
		return
	}
	q.stopTimer(wl)
	if at != math.MaxInt64 {
		wl.at = at
		q.gating.timers.Add(at, uint64(id))
	}
}

func (q *side) stopTimer(wl *waitList) {
	if wl.at != 0 {
		wl.at = 0
		q.gating.timers.Dropped()
	}
}

func (q *side) timerCounts(it container.Timer) bool {
	return q.gating.waits.at(waitID(it.ID)).at == it.At
}

func (q *side) onWaitTimer(id uint64, _ int64) {
	q.gating.waits.at(waitID(id)).at = 0
	q.lookLater(waitID(id))
}

// probe makes up to wl.budget subqueues eligible, in the order of the line. A
// subqueue whose earlier probe has not tried yet is waited for.
func (q *side) probe(id waitID) {
	wl := q.gating.waits.at(id)
	for wl.budget > 0 {
		first, reserved := q.gating.reserving, true
		if first == 0 || q.gating.subs.at(first).wait != id {
			n, _, ok := wl.line.Peek()
			if !ok {
				return
			}
			first, reserved = subID(n), false
		}
		sub := q.gating.subs.at(first)
		if q.eligible(sub) {
			return
		}
		cost, more := int64(0), q.links.Count(&sub.list) > 1
		if more {
			cost = q.costOf(q.links.Second(&sub.list))
		}
		switch {
		case !reserved:
			wl.line.Take(cost, more)
		case more:
			wl.line.SetCost(uint32(first), cost)
		default:
			wl.line.Remove(sub.flow, uint32(first))
		}
		if !more {
			q.count(sub, -sub.counted)
			sub.wait = 0
		}
		sub.probe = probe{at: id, uncharged: reserved}
		wl.probing++
		wl.budget--
		q.place(first)
		q.flowChanged(sub.flow)
	}
}

// dropProbe ends the probe of a subqueue before it has tried: its message, that of
// link, is not the first any more, or goes.
func (q *side) dropProbe(id subID, sub *subqueue, link uint32) {
	at, uncharged := sub.probe.at, sub.probe.uncharged
	sub.probe = probe{}
	wl := q.gating.waits.at(at)
	wl.probing--
	q.lookLater(at)
	if sub.wait == at && !uncharged {
		wl.line.PutBack(sub.flow, q.keys.weight(sub.flow), uint32(id), q.costOf(link))
	}
}

// probed notes that a probe of a gate has gone, or is blocked again.
func (q *side) probed(id waitID) {
	wl := q.gating.waits.at(id)
	wl.probing--
	if wl.budget > 0 && wl.line.Len() > 0 {
		q.probe(id)
	}
	if wl.probing == 0 && !wl.touched {
		q.lookLater(id)
	}
}

// endTurns ends the turn of this side at the wait lists that have probed.
func (q *side) endTurns(now int64) {
	for _, id := range q.gating.touched {
		wl := q.gating.waits.at(id)
		wl.touched = false
		if wl.kind == waitFree {
			continue
		}
		wl.budget = 0
		switch {
		case wl.probing > 0:
			q.leaveRound(wl)
			continue
		case wl.kind == waitThrottle && wl.joined && wl.notBefore <= now:
			q.tellWaits(wl.round.Pass(q.gating.wakes[:0]))
		}
		q.lookLater(id)
	}
	q.gating.touched = q.gating.touched[:0]
}

// chain links wait lists that wait for each other. Subqueues that all pass the same
// gates would wander from one to the next, each when the gate where it waits opens
// and another is shut: all of them for one delivery. So a wait list all of whose
// subqueues pass the same gates waits, after one of them was blocked elsewhere, until
// that other gate opens.
type chain struct {
	set       *throttle.Set // what its subqueues pass, with the circuit via; unless mixed
	via       Circuit
	mixed     bool
	follows   waitID   // its subqueues wait for the gate of that wait list in truth
	followers []waitID // the wait lists that follow this one
}

// stood notes that a subqueue has joined the line of a wait list.
func (wl *waitList) stood(sub *subqueue) {
	if wl.line.Len() == 1 {
		wl.chain.set, wl.chain.via, wl.chain.mixed = sub.set, sub.circuit, false
	} else if wl.chain.set != sub.set || wl.chain.via != sub.circuit {
		wl.chain.mixed = true
	}
}

// follow has a wait list wait for another one, at whose gate one of its subqueues
// was blocked after it had probed: the rest of them, if they all pass the same gates,
// would come there one after the other and be blocked as well.
func (q *side) follow(id, to waitID) {
	wl := q.gating.waits.at(id)
	other := q.gating.waits.at(to)
	if wl.chain.mixed || wl.chain.follows != 0 || wl.line.Len() == 0 || other.kind == waitPause {
		return // a pause concerns one flow
	}
	if r := q.gating.reserving; r != 0 && q.gating.subs.at(r).wait == id {
		return // that subqueue holds what the others wait for
	}
	for next := to; next != 0; next = q.gating.waits.at(next).chain.follows {
		if next == id {
			return // the chain would be a circle, in which no wait list looks for itself
		}
	}
	wl.budget, wl.chain.follows = 0, to
	other.chain.followers = append(other.chain.followers, id)
}

// leader returns the wait list for whose gate those of a wait list wait in truth: it
// is the same one if that follows none.
func (q *side) leader(id waitID) waitID {
	for c := &q.gating.waits.at(id).chain; c.follows != 0 && !c.mixed; c = &q.gating.waits.at(id).chain {
		id = c.follows
	}
	return id
}

// lead has those that follow a wait list look for themselves: its gate has opened, or
// nothing waits there any more.
func (q *side) lead(wl *waitList) {
	for _, id := range wl.chain.followers {
		if f := q.gating.waits.at(id); f.kind != waitFree && f.chain.follows != 0 {
			f.chain.follows = 0
			q.lookAnew(id)
		}
	}
	wl.chain.followers = wl.chain.followers[:0]
}

// leaveGates gives back everything that the side holds of gates, when its queue has
// been deleted.
func (q *side) leaveGates(now int64) {
	q.cancelReservation(q.gating.reserving)
	for i := q.leases.head; i != 0; i = q.leases.items[i-1].next {
		le := &q.leases.items[i-1]
		q.returnPermit(le, q.slots.Get(le.seq), neutral, now)
	}
	for _, seq := range slices.Sorted(maps.Keys(q.failing)) {
		q.returnJudged(q.slots.Get(seq), q.failing[seq].pass, neutral.outcome, now)
	}
	for id := 1; id < len(q.gating.waits.items); id++ {
		if wl := q.gating.waits.items[id]; wl.kind != waitFree {
			q.closeWait(waitID(id))
		}
	}
	for id := range q.gating.subs.items {
		sub := &q.gating.subs.items[id]
		if sub.set != nil {
			q.m.gates.Close(sub.set, now)
		}
		if sub.circuit != nil {
			q.m.out.Circuits = q.m.circuits.Drop(sub.circuit, now, q.m.out.Circuits)
		}
	}
}
