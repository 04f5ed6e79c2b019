package gates

import (
	"math"

	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/sidecar/queue/history"
	"github.com/filaq/fila/throttle"
)

// WaitID names a wait list; 0 is none.
type WaitID uint32

// WaitList is where subqueues wait for one gate: a throttle key, a circuit, or the
// end of a pause of their key. It shares what the gate admits among flows by weight
// (drr.Line).
//
// A wait list is rechecked when time or another queue may have opened its gate, and
// only then. As many subqueues as the gate admits then probe it: each becomes
// eligible with its first message alone, which tries the gates when the schedule
// reaches its flow. So the schedule decides between probes and all other messages.
// Permits are taken at delivery: permits taken with the probe would let deliveries
// bunch beyond the limit.
//
// At a throttle key the queues that wait are served in rounds (throttle.Wait). A queue
// joins the round when a subqueue waits here, and its step of the round ends when its
// probes have tried. If they could not try, because no consumer has credit, the queue
// leaves the round: others must not wait for its consumers.
type WaitList struct {
	kind    waitKind
	gate    *throttle.Gate
	round   *throttle.Wait
	joined  bool // the round
	circuit Circuit
	flow    drr.Flow // of a paused key

	Waiters   drr.Line
	Messages  int64 // that wait here
	probing   int32 // probes that have not tried yet
	aside     int32 // subqueues that wait here and are not in the line while they probe another gate
	budget    int64 // how many more may probe before the next recheck
	at        int64 // when its timer is due; 0: no timer
	notBefore int64 // an earlier recheck is useless: the first costs more than the gate has
	marked    bool  // in Gates.rechecks
	inProbed  bool  // in Gates.probed

	coalesced coalesced
}

type waitKind uint8

const (
	waitFree waitKind = iota
	waitThrottle
	waitCircuit
	waitPause
)

// coalesced links wait lists that wait for one another. Subqueues that all pass the
// same gates would move from one wait list to the next whenever the gate of one opens
// and another is shut: all of them for a single delivery. So a wait list whose
// subqueues all pass the same gates waits, once one of them was blocked elsewhere,
// until that other gate opens.
type coalesced struct {
	set     *throttle.Set // with circuit: what its subqueues pass, unless mixed
	circuit Circuit
	mixed   bool
	into    WaitID   // the wait list for whose gate the subqueues really wait; 0: none
	members []WaitID // the wait lists that wait for this one
}

// WaitLists holds the wait lists of a queue.
type WaitLists struct {
	Items     []*WaitList // Items[0] is not used
	free      []WaitID
	byGate    map[*throttle.Gate]WaitID
	byCircuit map[Circuit]WaitID
	byFlow    map[drr.Flow]WaitID
}

func newWaitLists() WaitLists {
	return WaitLists{
		Items:     make([]*WaitList, 1),
		byGate:    make(map[*throttle.Gate]WaitID),
		byCircuit: make(map[Circuit]WaitID),
		byFlow:    make(map[drr.Flow]WaitID),
	}
}

// At returns the wait list of an id.
func (t *WaitLists) At(id WaitID) *WaitList { return t.Items[id] }

func (t *WaitLists) add(wl WaitList) WaitID {
	if n := len(t.free); n > 0 {
		id := t.free[n-1]
		t.free = t.free[:n-1]
		wl.marked, wl.inProbed = t.Items[id].marked, t.Items[id].inProbed
		*t.Items[id] = wl
		return id
	}
	t.Items = append(t.Items, &wl)
	return WaitID(len(t.Items) - 1)
}

func (g *Gates) atThrottle(gate *throttle.Gate) WaitID {
	id, ok := g.Waits.byGate[gate]
	if !ok {
		id = g.Waits.add(WaitList{kind: waitThrottle, gate: gate, round: throttle.NewWait(gate, g.Owner)})
		g.Waits.byGate[gate] = id
	}
	return id
}

func (g *Gates) atCircuit(c Circuit) WaitID {
	id, ok := g.Waits.byCircuit[c]
	if !ok {
		id = g.Waits.add(WaitList{kind: waitCircuit, circuit: c})
		g.Waits.byCircuit[c] = id
		g.Out.Announce(c, c.Wait(g.Owner, g.Now))
	}
	return id
}

func (g *Gates) atPause(f drr.Flow) WaitID {
	id, ok := g.Waits.byFlow[f]
	if !ok {
		id = g.Waits.add(WaitList{kind: waitPause, flow: f})
		g.Waits.byFlow[f] = id
	}
	return id
}

// countBlocked tells the gate of the list that a message begins to wait there.
func (wl *WaitList) countBlocked(kind BlockKind) {
	switch wl.kind {
	case waitThrottle:
		wl.gate.CountBlocked(throttleKinds[kind])
	case waitCircuit:
		wl.circuit.CountBlocked()
	}
}

// name names the gate of the list. It does not know the key that is paused.
func (wl *WaitList) name() (place, key string) {
	switch wl.kind {
	case waitThrottle:
		return history.PlaceThrottle, wl.gate.Key()
	case waitCircuit:
		return history.PlaceCircuit, wl.circuit.Key()
	}
	return history.PlaceKey, ""
}

// Used reports whether something waits at the list; lists are reused.
func (wl *WaitList) Used() bool { return wl.kind != waitFree }

// Gate is the throttle key of the list; nil: it is for something else.
func (wl *WaitList) Gate() *throttle.Gate { return wl.gate }

// NotBefore is when the first message may try the gate again, which has found it to cost
// more than the gate had; a time that is over means nothing.
func (wl *WaitList) NotBefore() int64 { return wl.notBefore }

// PausedFlow is the flow for whose pause the list is.
func (wl *WaitList) PausedFlow() (drr.Flow, bool) { return wl.flow, wl.kind == waitPause }

// Place describes what the list is for, without the end of a pause.
func (wl *WaitList) Place() Place {
	return Place{Throttle: wl.gate, Circuit: wl.circuit, Paused: wl.kind == waitPause}
}

// closeWait forgets a wait list where nothing waits any more.
func (g *Gates) closeWait(id WaitID) {
	wl := g.Waits.At(id)
	switch wl.kind {
	case waitThrottle:
		g.leaveRound(wl)
		delete(g.Waits.byGate, wl.gate)
	case waitCircuit:
		wl.circuit.Leave(g.Owner)
		delete(g.Waits.byCircuit, wl.circuit)
	case waitPause:
		delete(g.Waits.byFlow, wl.flow)
	}
	g.stopTimer(wl)
	g.separate(wl)
	*wl = WaitList{marked: wl.marked, inProbed: wl.inProbed} // rechecks and probed may still name it
	g.Waits.free = append(g.Waits.free, id)
}

func (g *Gates) leaveRound(wl *WaitList) {
	if wl.joined {
		wl.joined = false
		g.notifyWaiters(wl.round.Leave(g.wakes[:0]))
	}
}

// recheckLater marks a wait list for a recheck in this step.
func (g *Gates) recheckLater(id WaitID) {
	if wl := g.Waits.At(id); !wl.marked {
		wl.marked = true
		g.rechecks = append(g.rechecks, id)
	}
}

// recheckNow marks a wait list, if there is one, for a recheck in this step, even if its gate was
// expected to open later.
func (g *Gates) recheckNow(id WaitID) {
	if id != 0 {
		g.Waits.At(id).notBefore = 0
		g.recheckLater(id)
	}
}

const (
	// rechecksPerRound bounds how many wait lists are rechecked before other work.
	rechecksPerRound = 1024
	// probesPerRecheck bounds how many subqueues probe after one recheck.
	probesPerRecheck = 1024
)

// Begin rechecks the wait lists whose gates may have opened, and begins a round in
// which messages try their gates. It reports whether rechecks are left.
func (g *Gates) Begin(now int64) (more bool) {
	i := 0
	for ; i < len(g.rechecks) && i < rechecksPerRound; i++ {
		g.recheck(g.rechecks[i], now)
	}
	g.rechecks = append(g.rechecks[:0], g.rechecks[i:]...)
	more = g.Busy()
	g.trying = true
	return more
}

// End ends the round: the queue's step in the rounds of the gates that were probed is
// over.
func (g *Gates) End(now int64) {
	g.trying = false
	for _, id := range g.probed {
		wl := g.Waits.At(id)
		wl.inProbed = false
		if wl.kind == waitFree {
			continue
		}
		wl.budget = 0
		switch {
		case wl.probing > 0:
			g.leaveRound(wl)
			continue
		case wl.kind == waitThrottle && wl.joined && wl.notBefore <= now:
			g.notifyWaiters(wl.round.Pass(g.wakes[:0]))
		}
		g.recheckLater(id)
	}
	g.probed = g.probed[:0]
}

// recheck asks the gate of a wait list how many messages it admits, and lets as many
// probe it.
func (g *Gates) recheck(id WaitID, now int64) {
	wl := g.Waits.At(id)
	wl.marked = false
	if wl.kind == waitFree {
		return
	}
	if wl.Waiters.Len() == 0 {
		switch {
		case wl.probing > 0:
		case wl.aside > 0:
			g.leaveRound(wl) // they join again when they are back
		default:
			g.closeWait(id)
		}
		return
	}
	if wl.probing > 0 {
		g.leaveRound(wl) // the earlier probes cause another recheck when they try or end
		return
	}
	if wl.coalesced.into != 0 {
		if !wl.coalesced.mixed {
			g.leaveRound(wl)
			return
		}
		wl.coalesced.into = 0
	}
	if wl.notBefore > now && !g.rejoinRound(wl, now) {
		g.startTimer(id, wl, wl.notBefore)
		return
	}
	n, at := g.admits(wl, now)
	if n <= 0 {
		g.startTimer(id, wl, at)
		return
	}
	g.separate(wl)
	wl.budget = min(n, probesPerRecheck)
	g.probe(id)
	if wl.probing == 0 {
		// The subqueue that is first has a message in the schedule that tries first, and
		// that causes another recheck.
		g.leaveRound(wl)
		return
	}
	if !wl.inProbed {
		wl.inProbed = true
		g.probed = append(g.probed, id)
	}
}

// rejoinRound joins the round of a gate at which the first message has tried in vain
// after the queue had left the round: otherwise nobody would notify the queue. It
// reports whether the first message may go now.
func (g *Gates) rejoinRound(wl *WaitList, now int64) bool {
	if wl.kind != waitThrottle || wl.joined {
		return false
	}
	first, _, _ := wl.Waiters.Peek()
	cost := g.backlog.Cost(g.FirstBlocked(g.Subs.At(ID(first))))
	wl.joined = true
	wl.notBefore = wl.round.Join(now, cost)
	return wl.notBefore <= now
}

// admits returns how many messages the gate of wl admits now, or when to recheck:
// math.MaxInt64 if the queue will be notified.
func (g *Gates) admits(wl *WaitList, now int64) (n, at int64) {
	switch wl.kind {
	case waitThrottle:
		if wl.gate.DeadLetters(now) {
			g.leaveRound(wl) // nobody needs a turn; the next queue of the round finds out itself
			return probesPerRecheck, now
		}
		if !wl.joined {
			wl.joined = true
			wl.round.Join(now, throttle.One)
		}
		return wl.round.Turn(now)
	case waitCircuit:
		return wl.circuit.Admits(now)
	default:
		if until := g.backlog.KeyPaused(wl.flow, now); until != 0 {
			return 0, until
		}
		return math.MaxInt64, 0
	}
}

// startTimer rechecks a wait list again at a time; math.MaxInt64 is never.
func (g *Gates) startTimer(id WaitID, wl *WaitList, at int64) {
	if wl.at == at {
		return
	}
	g.stopTimer(wl)
	if at != math.MaxInt64 {
		wl.at = at
		g.Timers.Add(at, uint64(id))
	}
}

func (g *Gates) stopTimer(wl *WaitList) {
	if wl.at != 0 {
		wl.at = 0
		g.Timers.Dropped()
	}
}

// OnTimer handles a timer that is due.
func (g *Gates) OnTimer(id uint64, _ int64) {
	g.Waits.At(WaitID(id)).at = 0
	g.recheckLater(WaitID(id))
}

// probe makes up to wl.budget subqueues eligible, in the order of the wait list. It
// stops at a subqueue whose earlier probe has not tried yet.
func (g *Gates) probe(id WaitID) {
	wl := g.Waits.At(id)
	for wl.budget > 0 {
		first, reserved := g.reserving, true
		if first == 0 || g.Subs.At(first).reservedAt() != id {
			n, _, ok := wl.Waiters.Peek()
			if !ok {
				return
			}
			first, reserved = ID(n), false
		}
		sub := g.Subs.At(first)
		if g.Eligible(sub) {
			return
		}
		cost, more := int64(0), g.links.Count(&sub.List) > 1
		if more {
			cost = g.backlog.Cost(g.links.Second(&sub.List))
		}
		switch {
		case !reserved:
			wl.Waiters.Take(cost, more)
		case more:
			wl.Waiters.SetCost(uint32(first), cost)
		default:
			wl.Waiters.Remove(sub.Flow, uint32(first))
		}
		if sub.probe = (probe{at: id, prepaid: reserved}); sub.choice != nil {
			g.stepAside(first, sub)
		}
		if !more {
			g.count(sub, -sub.Counted)
			if sub.choice != nil {
				g.stopWaiting(first, sub)
			}
			sub.Wait = 0
		}
		wl.probing++
		wl.budget--
		flow := sub.Flow
		g.place(first)
		g.backlog.FlowChanged(flow)
	}
}

// dropProbe ends the probe of a subqueue before it has tried: the message at link is no longer the
// first, or leaves.
func (g *Gates) dropProbe(id ID, sub *Subqueue, link uint32) {
	at, prepaid := sub.probe.at, sub.probe.prepaid
	sub.probe = probe{}
	wl := g.Waits.At(at)
	wl.probing--
	g.recheckLater(at)
	if sub.waitsAt(at) && !prepaid {
		wl.Waiters.PutBack(sub.Flow, g.backlog.Weight(sub.Flow), uint32(id), g.backlog.Cost(link))
	}
	if sub.choice != nil && sub.Wait != 0 {
		g.stepBack(id, sub, at, link)
	}
}

// EndProbe notes that a probe of a gate has passed, or is blocked again; 0 is no gate.
func (g *Gates) EndProbe(id WaitID) {
	if id == 0 {
		return
	}
	wl := g.Waits.At(id)
	wl.probing--
	if wl.budget > 0 && wl.Waiters.Len() > 0 {
		g.probe(id)
	}
	if wl.probing == 0 && !wl.inProbed {
		g.recheckLater(id)
	}
}

// noteGates notes that a subqueue has joined the wait list.
func (wl *WaitList) noteGates(sub *Subqueue) {
	if c := &wl.coalesced; sub.choice != nil {
		c.mixed = true // it also waits elsewhere
	} else if wl.Waiters.Len() == 1 {
		c.set, c.circuit, c.mixed = sub.Set, sub.Circuit, false
	} else if c.set != sub.Set || c.circuit != sub.Circuit {
		c.mixed = true
	}
}

// coalesce makes a wait list wait for another one, at whose gate one of its subqueues
// was blocked after it had probed: if all of them pass the same gates, the rest would
// be blocked there as well, one after the other.
func (g *Gates) coalesce(id, into WaitID) {
	wl, other := g.Waits.At(id), g.Waits.At(into)
	if wl.coalesced.mixed || wl.coalesced.into != 0 || wl.Waiters.Len() == 0 || other.kind == waitPause {
		return // a pause concerns one flow
	}
	if g.reserving != 0 && g.Subs.At(g.reserving).reservedAt() == id {
		return // that subqueue holds what the others wait for
	}
	for next := into; next != 0; next = g.Waits.At(next).coalesced.into {
		if next == id {
			return // in a cycle no wait list would be rechecked
		}
	}
	wl.budget, wl.coalesced.into = 0, into
	other.coalesced.members = append(other.coalesced.members, id)
}

// Root returns the wait list for whose gate the subqueues of a wait list really wait.
func (g *Gates) Root(id WaitID) WaitID {
	for c := &g.Waits.At(id).coalesced; c.into != 0 && !c.mixed; c = &g.Waits.At(id).coalesced {
		id = c.into
	}
	return id
}

// separate lets the members of a wait list wait for their own gates again: its gate
// has opened, or nothing waits there any more.
func (g *Gates) separate(wl *WaitList) {
	for _, id := range wl.coalesced.members {
		if m := g.Waits.At(id); m.kind != waitFree && m.coalesced.into != 0 {
			m.coalesced.into = 0
			g.recheckNow(id)
		}
	}
	wl.coalesced.members = wl.coalesced.members[:0]
}
