package gates

import (
	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/sidecar/queue/container"
	"github.com/filaq/fila/sidecar/queue/history"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
)

// Backlog is what Gates asks and tells the queue whose messages wait. It must not
// call Gates back, except for FlowChanged (First) and SubqueueBlocked.
type Backlog interface {
	// Flow is the record that Gates keeps with a flow.
	Flow(f drr.Flow) *Flow
	// Weight is the weight of a flow in thousandths, Name its fairness key.
	Weight(f drr.Flow) int64
	Name(f drr.Flow) string
	// Cost is the cost (thousandths) of the message of a link.
	Cost(link uint32) int64
	// KeyPaused is the end of the pause of a flow's key, 0 if it is not paused.
	KeyPaused(f drr.Flow, now int64) int64
	// FlowChanged says that the flow may have another first message.
	FlowChanged(f drr.Flow)
	// Draw is an even draw for the next attempt of the message of a link: the same each time.
	Draw(link uint32) uint64
	// SubqueueBlocked says that the subqueue has been blocked; began: it was not
	// before, or by another kind.
	SubqueueBlocked(id ID, f drr.Flow, kind BlockKind, began bool)
}

// Flow is what Gates keeps of a flow, inside the record of its key.
type Flow struct {
	Plain  container.Ranks // messages without gates that wait, by priority
	recent ID              // subqueue of the latest message: saves a look-up; 0: none
	Bare   ID              // subqueue that Plain has become while the key was paused; 0: none
	heap   uint32          // index into Gates.heaps of the eligible subqueues; 0: there are none
}

// Effects are tasks for others after a step.
type Effects struct {
	Wake     []*throttle.Wait // queues of other owners whose turn it is at a gate
	Circuits []Circuit        // to Announce; a circuit may be named twice
}

// Announce notes that a circuit has something to announce, if it is pending.
func (e *Effects) Announce(c Circuit, pending bool) {
	if pending {
		e.Circuits = append(e.Circuits, c)
	}
}

// Shared is what both roles of a queue share.
type Shared struct {
	Throttles *throttle.Gates
	Circuits  Circuits
	Owner     Owner
	Now       int64    // Unix ns of this step
	Out       *Effects // of this step
}

// Gates holds the gates of one role of a queue: which message has to pass which, and
// which ones wait where.
type Gates struct {
	*Shared
	backlog Backlog
	links   *container.Lists

	Subs      Subqueues
	Waits     WaitLists
	heaps     [][]ID // of eligible subqueues, by Flow.heap; heaps[0] is not used
	freeHeaps []uint32

	Timers    container.Timers // when to recheck wait lists
	rechecks  []WaitID         // wait lists to recheck in this step
	probed    []WaitID         // wait lists that have probed in this step
	trying    bool             // messages are trying their gates: what opens now is rechecked in the next round
	wakes     []*throttle.Wait // scratch
	spare     []*Permits
	obstacles [store.MaxRoutes]obstacle // scratch: what blocks the routes of a message
	intervals intervalTable
	scratch   []history.BlockedInterval
	reserving ID    // the subqueue with a reservation; at most one
	reserveBy int64 // Unix ns when the reservation ends without its message
	noCredit  int64 // Unix ns since when no consumer has credit, while there is a reservation; 0: one has

	BlockedBy [BlockKinds]int64 // blocked messages, by the kind that their subqueues found last
}

// Init prepares g for the messages of b, whose lists are in links.
func (g *Gates) Init(b Backlog, links *container.Lists, shared *Shared) {
	*g = Gates{
		Shared: shared, backlog: b, links: links,
		Subs: newSubqueues(), Waits: newWaitLists(), heaps: make([][]ID, 1),
	}
	g.Timers = container.NewTimers(func(it container.Timer) bool { return g.Waits.At(WaitID(it.ID)).at == it.At })
}

// Busy reports whether wait lists are to be rechecked.
func (g *Gates) Busy() bool { return len(g.rechecks) > 0 }

// GateOpened says that a throttle key may admit more.
func (g *Gates) GateOpened(gate *throttle.Gate) { g.recheckNow(g.Waits.byGate[gate]) }

// CircuitOpened says that a circuit may admit more.
func (g *Gates) CircuitOpened(c Circuit) { g.recheckNow(g.Waits.byCircuit[c]) }

// KeyChanged says that the key of a flow has been paused or resumed.
func (g *Gates) KeyChanged(f drr.Flow, paused bool) {
	if paused && g.reserving != 0 && g.Subs.At(g.reserving).Flow == f {
		g.CancelReservation()
	}
	g.recheckNow(g.Waits.byFlow[f])
}

// notifyWaiters wakes the queues whose turn it is at a gate. The wait lists of this
// queue are rechecked in this step.
func (g *Gates) notifyWaiters(wakes []*throttle.Wait) {
	g.wakes = wakes[:0]
	for _, w := range wakes {
		if w.Owner == any(g.Owner) && !g.trying {
			g.GateOpened(w.Gate())
		} else {
			g.Out.Wake = append(g.Out.Wake, w)
		}
	}
}

// Reweigh applies the present weight of a flow wherever its subqueues wait.
func (g *Gates) Reweigh(f drr.Flow, weight int64) {
	for sub := range g.Subs.Of(f) {
		for i := range sub.Routes() {
			if at := sub.RouteAt(i).Wait; at != 0 {
				g.Waits.At(at).Waiters.SetWeight(f, weight)
				g.recheckLater(at) // another subqueue may be the first now
			}
		}
	}
}

// Correct charges flow f for a message of subqueue id that cost delta (thousandths)
// more than estimated, wherever the flow waits for a gate that the message passed on its
// route.
func (g *Gates) Correct(id ID, route int, f drr.Flow, delta int64) {
	sub := g.Subs.At(id).RouteAt(route)
	correct := func(at WaitID) {
		if at != 0 && g.Waits.At(at).Waiters.Correct(f, delta) {
			g.recheckNow(at) // another subqueue may be the first now
		}
	}
	if sub.Circuit != nil && len(g.Waits.byCircuit) > 0 {
		correct(g.Waits.byCircuit[sub.Circuit])
	}
	if sub.Set != nil && len(g.Waits.byGate) > 0 {
		for _, gate := range sub.Set.Gates() {
			correct(g.Waits.byGate[gate])
		}
	}
}

// Blocked returns what blocked a message of subqueue id between since and now. queue
// are the pauses of the whole queue.
func (g *Gates) Blocked(id ID, queue history.Intervals, since, now int64) []history.BlockedInterval {
	var own history.Intervals
	if id != 0 {
		own = g.intervals.of(g.Subs.At(id))
	}
	return history.Blocked(own, queue, since, now, &g.scratch)
}

// Close leaves all gates, when the queue has been deleted. The permits of deliveries
// were returned before.
func (g *Gates) Close(now int64) {
	for id := 1; id < len(g.Waits.Items); id++ {
		if wl := g.Waits.Items[id]; wl.kind != waitFree {
			g.closeWait(WaitID(id))
		}
	}
	for i := range g.Subs.Items {
		g.closeGates(&g.Subs.Items[i], now)
	}
}

// intervalTable holds what blocked the subqueues that have ever been blocked.
type intervalTable struct {
	rows []history.Intervals // rows[0] is not used
	free []uint32
}

func (t *intervalTable) of(sub *Subqueue) history.Intervals {
	if sub.intervals == 0 {
		return nil
	}
	return t.rows[sub.intervals]
}

// row returns the intervals of a subqueue, which it makes if need be.
func (t *intervalTable) row(sub *Subqueue) *history.Intervals {
	if sub.intervals == 0 {
		if n := len(t.free); n > 0 {
			sub.intervals, t.free = t.free[n-1], t.free[:n-1]
		} else {
			if len(t.rows) == 0 {
				t.rows = make([]history.Intervals, 1)
			}
			sub.intervals = uint32(len(t.rows))
			t.rows = append(t.rows, nil)
		}
	}
	return &t.rows[sub.intervals]
}

func (t *intervalTable) end(sub *Subqueue, now int64) {
	if sub.intervals != 0 {
		t.rows[sub.intervals].End(now)
	}
}

func (t *intervalTable) forget(sub *Subqueue) {
	if row := sub.intervals; row != 0 {
		t.rows[row] = nil
		t.free = append(t.free, row)
	}
}
