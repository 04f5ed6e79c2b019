package sidecar

import (
	"math"

	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/throttle"
)

// siteID names a site of a queue; 0 is none.
type siteID uint32

// site is where lanes of a queue wait for one gate: a throttle key, a circuit, or
// the end of a pause of their flow. The lanes of all flows stand in one line,
// which shares what the gate admits by weight (drr.Line).
//
// A site is looked at when time or somebody else may have opened its gate, never
// otherwise. Then as many lanes as the gate admits are called: the first parked
// message of each goes to the front of its flow in the scheduler, and tries the
// gates when its turn comes there. So the scheduler decides between those that
// have been called and everybody else.
//
// At a throttle key queues are served in turn (throttle.Wait). The queue joins
// the round when a lane parks here, and its turn ends when those that it called
// have tried. If they could not try, because no consumer has credit, it leaves
// the round: others must not wait for its consumers.
type site struct {
	gate    *throttle.Gate
	wait    *throttle.Wait
	joined  bool
	circuit *circuit
	flow    drr.Flow // of a paused key
	kind    siteKind

	line      drr.Line
	called    int32         // called messages that have not tried yet
	budget    int64         // how many more may be called before looking again
	messages  int64         // parked here
	set       *throttle.Set // what its lanes pass, with circuit key via; unless mixed
	via       *circuit
	mixed     bool
	follows   siteID   // its lanes wait for the gate of that site in truth
	followers []siteID // the sites that follow this one
	at        int64    // when its timer is due; 0: no timer
	notBefore int64    // looking earlier is in vain: the head costs more than the gate has
	looking   bool     // in loop.looks
	touched   bool     // in loop.touched
}

type siteKind uint8

const (
	siteFree siteKind = iota
	siteThrottle
	siteCircuit
	sitePause
)

// siteTable holds the sites of a queue.
type siteTable struct {
	items     []*site // items[0] is not used
	free      []siteID
	byGate    map[*throttle.Gate]siteID
	byCircuit map[*circuit]siteID
	byFlow    map[drr.Flow]siteID
}

func newSiteTable() siteTable {
	return siteTable{
		items:     make([]*site, 1),
		byGate:    make(map[*throttle.Gate]siteID),
		byCircuit: make(map[*circuit]siteID),
		byFlow:    make(map[drr.Flow]siteID),
	}
}

func (t *siteTable) at(id siteID) *site { return t.items[id] }

func (t *siteTable) add(st site) siteID {
	var id siteID
	if n := len(t.free); n > 0 {
		id, t.free = t.free[n-1], t.free[:n-1]
		st.looking, st.touched = t.items[id].looking, t.items[id].touched
		*t.items[id] = st
	} else {
		id = siteID(len(t.items))
		t.items = append(t.items, &st)
	}
	return id
}

func (l *loop) throttleSite(g *throttle.Gate) siteID {
	id, ok := l.sites.byGate[g]
	if !ok {
		id = l.sites.add(site{kind: siteThrottle, gate: g, wait: throttle.NewWait(g, l.q)})
		l.sites.byGate[g] = id
	}
	return id
}

func (l *loop) circuitSite(ci *circuit) siteID {
	id, ok := l.sites.byCircuit[ci]
	if !ok {
		id = l.sites.add(site{kind: siteCircuit, circuit: ci})
		l.sites.byCircuit[ci] = id
		ci.wait(l.q)
	}
	return id
}

func (l *loop) pauseSite(f drr.Flow) siteID {
	id, ok := l.sites.byFlow[f]
	if !ok {
		id = l.sites.add(site{kind: sitePause, flow: f})
		l.sites.byFlow[f] = id
	}
	return id
}

// closeSite forgets a site at which nothing waits any more.
func (l *loop) closeSite(id siteID) {
	st := l.sites.at(id)
	switch st.kind {
	case siteThrottle:
		l.leaveRound(st)
		delete(l.sites.byGate, st.gate)
	case siteCircuit:
		st.circuit.leave(l.q)
		delete(l.sites.byCircuit, st.circuit)
	case sitePause:
		delete(l.sites.byFlow, st.flow)
	}
	l.stopTimer(st)
	l.lead(st)
	// looks and touched may still name it.
	*st = site{looking: st.looking, touched: st.touched}
	l.sites.free = append(l.sites.free, id)
}

func (l *loop) leaveRound(st *site) {
	if st.joined {
		st.joined = false
		l.tellWaits(st.wait.Leave(l.wakes[:0]))
	}
}

// tellWaits wakes the queues whose turn it is at a gate. Those of this queue are
// looked at in this turn.
func (l *loop) tellWaits(wakes []*throttle.Wait) {
	l.wakes = wakes[:0]
	for _, w := range wakes {
		if w.Owner == l.q && !l.trying {
			l.onGate(w.Gate())
		} else {
			l.q.core.wakeOne(w)
		}
	}
}

// onGate is told that a throttle key may have opened for this queue.
func (l *loop) onGate(g *throttle.Gate) {
	if id, ok := l.sites.byGate[g]; ok {
		l.sites.at(id).notBefore = 0
		l.lookLater(id)
	}
}

// onCircuit is told that a circuit may have opened for this queue.
func (l *loop) onCircuit(ci *circuit) {
	if id, ok := l.sites.byCircuit[ci]; ok {
		l.sites.at(id).notBefore = 0
		l.lookLater(id)
	}
}

// lookLater has a site looked at in this turn.
func (l *loop) lookLater(id siteID) {
	if st := l.sites.at(id); !st.looking {
		st.looking = true
		l.looks = append(l.looks, id)
	}
}

// looksPerTurn bounds how many sites are looked at before other work is done.
const looksPerTurn = 1024

// lookAround looks at the sites that may have opened. It reports whether some are
// left.
func (l *loop) lookAround(now int64) (more bool) {
	i := 0
	for ; i < len(l.looks) && i < looksPerTurn; i++ {
		l.look(l.looks[i], now)
	}
	l.looks = append(l.looks[:0], l.looks[i:]...)
	return len(l.looks) > 0
}

// look asks the gate of a site how many messages it admits, and calls as many.
func (l *loop) look(id siteID, now int64) {
	st := l.sites.at(id)
	st.looking = false
	if st.kind == siteFree {
		return
	}
	if st.line.Len() == 0 {
		if st.called == 0 {
			l.closeSite(id)
		}
		return
	}
	if st.called > 0 {
		// Those that were called before have not tried yet; their trying, or
		// their end, brings us back.
		l.leaveRound(st)
		return
	}
	if st.follows != 0 {
		if !st.mixed {
			l.leaveRound(st)
			return
		}
		st.follows = 0
	}
	if st.notBefore > now && !l.rejoined(st, now) {
		l.startTimer(id, st, st.notBefore)
		return
	}
	n, at := l.admits(st, now)
	if n <= 0 {
		l.startTimer(id, st, at)
		return
	}
	l.lead(st)
	st.budget = min(n, deliverPerTurn)
	l.call(id, now)
	if st.called == 0 {
		// The lane whose turn it is has something in the scheduler that must
		// try first; that brings us back.
		l.leaveRound(st)
		return
	}
	if !st.touched {
		st.touched = true
		l.touched = append(l.touched, id)
	}
}

// rejoined lets the queue join the round of a gate at which its head has tried in
// vain after the queue had left the round, since nobody would tell it otherwise. It
// reports whether the head may go now.
func (l *loop) rejoined(st *site, now int64) bool {
	if st.kind != siteThrottle || st.joined {
		return false
	}
	lane, _, _ := st.line.Peek()
	head := l.slots.get(l.links.seq(l.lanes.at(laneID(lane)).list.head))
	st.joined = true
	st.notBefore = st.wait.Join(now, int64(head.cost))
	return st.notBefore <= now
}

// admits says how many messages the gate of st admits now, or when to look again:
// math.MaxInt64 if the queue will be told.
func (l *loop) admits(st *site, now int64) (n, at int64) {
	switch st.kind {
	case siteThrottle:
		if !st.joined {
			st.joined = true
			st.wait.Join(now, throttle.One)
		}
		return st.wait.Turn(now)
	case siteCircuit:
		return st.circuit.admits(now)
	default:
		if until := l.keyPaused(st.flow, now); until != 0 {
			return 0, until
		}
		return math.MaxInt64, 0
	}
}

// startTimer has a site looked at again at a time; math.MaxInt64 is never.
func (l *loop) startTimer(id siteID, st *site, at int64) {
	if st.at == at {
		return
	}
	l.stopTimer(st)
	if at != math.MaxInt64 {
		st.at = at
		l.siteTimers.push(at, uint64(id))
	}
}

func (l *loop) stopTimer(st *site) {
	if st.at != 0 {
		st.at = 0
		l.siteTimers.dropped(l.siteTimerCounts)
	}
}

func (l *loop) siteTimerCounts(it dueItem) bool { return l.sites.at(siteID(it.seq)).at == it.at }

func (l *loop) onSiteTimer(it dueItem, _ int64) {
	if !l.siteTimerCounts(it) {
		if l.siteTimers.stale > 0 {
			l.siteTimers.stale--
		}
		return
	}
	l.sites.at(siteID(it.seq)).at = 0
	l.lookLater(siteID(it.seq))
}
