package gates

import (
	"cmp"
	"encoding/binary"
	"iter"
	"math"
	"slices"

	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/sidecar/queue/container"
	"github.com/filaq/fila/sidecar/queue/history"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
)

// ID names a subqueue; 0 is none, for messages without gates.
type ID uint32

// Subqueue is the messages of one flow that pass the same gates, in their order.
// Only the first may try the gates, so when it is blocked all of them are. A
// subqueue takes part in the schedule as a whole, by its first message; messages
// never move between subqueues.
//
// A subqueue is eligible (its first message may be what its flow sends next) unless
// it is blocked. A blocked one waits in a wait list, and is still eligible while its
// first message is a probe of that gate or has just been redelivered.
//
// The messages of a flow without gates are a list of their own (Flow.Plain). When
// their key is paused they become a bare subqueue, until none is left.
type Subqueue struct {
	name    string // its key in Subqueues.ids; empty: it is bare
	Flow    drr.Flow
	Route                   // the first of its routes; most subqueues have one
	choice  *choice         // nil: there is one route
	refs    int32           // live messages
	Ordered int32           // messages that wait for their predecessors, in strict order
	List    container.Ranks // messages that wait, blocked or not, by priority
	pos     int32           // place in the heap of its flow, + 1; 0: it is not eligible

	Kind      BlockKind // what blocked it last, at its first route
	Counted   int32     // messages that count as blocked, at the list of the first route
	Since     int64     // Unix ns when its first message was blocked; 0: it was not
	probe     probe
	retry     bool   // its first message was redelivered, and has not been blocked since
	intervals uint32 // its row in Gates.intervals; 0: it was never blocked
	reserved  *throttle.Reservation
	cost      uint32 // of the first message, while reserved is not nil

	siblings struct{ prev, next ID } // among the subqueues of the flow; 0: none
}

// probe is the first message of a blocked subqueue while it may try a gate that may
// have opened.
type probe struct {
	at      WaitID // the gate; 0: there is no probe
	prepaid bool   // the wait list has charged nothing for it
}

// bare reports whether the subqueue has no gates.
func (sub *Subqueue) bare() bool { return sub.Set == nil && sub.Circuit == nil && sub.choice == nil }

// Eligible reports whether the first message of a subqueue may go, or try its gates.
func (g *Gates) Eligible(sub *Subqueue) bool {
	return g.links.Count(&sub.List) > 0 && (sub.Wait == 0 || sub.probe.at != 0 || sub.retry)
}

// Probing is the wait list whose gate the first message of a subqueue may try; 0: none.
func (sub *Subqueue) Probing() WaitID { return sub.probe.at }

// Retrying reports whether the first message of a subqueue has come back and may try its
// gates though the subqueue waits.
func (sub *Subqueue) Retrying() bool { return sub.retry }

// Subqueues finds subqueues by flow, throttle keys and circuit key.
type Subqueues struct {
	ids   map[string]ID
	Items []Subqueue // Items[0] is not used
	free  []ID
	first map[drr.Flow]ID // the subqueues of a flow
	name  []byte          // scratch
	keys  []string        // scratch
}

func newSubqueues() Subqueues {
	return Subqueues{ids: make(map[string]ID), Items: make([]Subqueue, 1), first: make(map[drr.Flow]ID)}
}

// At returns the subqueue of an id.
func (t *Subqueues) At(id ID) *Subqueue { return &t.Items[id] }

// Of yields the subqueues of a flow. None may be added or removed meanwhile.
func (t *Subqueues) Of(f drr.Flow) iter.Seq[*Subqueue] {
	return func(yield func(*Subqueue) bool) {
		for id := t.first[f]; id != 0; id = t.At(id).siblings.next {
			if !yield(t.At(id)) {
				return
			}
		}
	}
}

// key writes what identifies a subqueue into the scratch buffer. Order and
// repetition of the throttle keys make no difference.
func (t *Subqueues) key(flow drr.Flow, c *store.Class) []byte {
	b := binary.LittleEndian.AppendUint32(t.name[:0], uint32(flow))
	b = t.appendGates(b, c.ThrottleKeys, c.CircuitKey)
	if len(c.Routes) > 0 {
		b = append(b, routesFollow...)
	}
	for i := range c.Routes {
		r := &c.Routes[i]
		b = binary.AppendUvarint(appendText(b, r.Name), uint64(r.Weight))
		b = binary.AppendUvarint(b, uint64(len(r.ThrottleKeys)))
		b = t.appendGates(b, r.ThrottleKeys, r.CircuitKey)
	}
	t.name = b
	return b
}

// routesFollow begins the routes in the key of a subqueue: no throttle key is that long.
var routesFollow = binary.AppendUvarint(nil, math.MaxUint64)

func (t *Subqueues) appendGates(b []byte, throttleKeys []string, circuitKey string) []byte {
	if len(throttleKeys) > 1 {
		t.keys = append(t.keys[:0], throttleKeys...)
		slices.Sort(t.keys)
		throttleKeys = slices.Compact(t.keys)
	}
	b = appendText(b, circuitKey)
	for _, k := range throttleKeys {
		b = appendText(b, k)
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func (t *Subqueues) add(sub Subqueue) (id ID) {
	if n := len(t.free); n > 0 {
		id, t.free = t.free[n-1], t.free[:n-1]
	} else {
		id = ID(len(t.Items))
		t.Items = append(t.Items, Subqueue{})
	}
	if next := t.first[sub.Flow]; next != 0 {
		sub.siblings.next = next
		t.At(next).siblings.prev = id
	}
	t.first[sub.Flow] = id
	t.Items[id] = sub
	if sub.name != "" {
		t.ids[sub.name] = id
	}
	return id
}

func (t *Subqueues) remove(id ID) {
	sub := t.At(id)
	delete(t.ids, sub.name)
	prev, next := sub.siblings.prev, sub.siblings.next
	switch {
	case prev != 0:
		t.At(prev).siblings.next = next
	case next != 0:
		t.first[sub.Flow] = next
	default:
		delete(t.first, sub.Flow)
	}
	if next != 0 {
		t.At(next).siblings.prev = prev
	}
	*sub = Subqueue{}
	t.free = append(t.free, id)
}

// Acquire counts a message of a flow with the gates of class c, and returns its subqueue;
// 0 if it has no gates. If throttle keys cannot be used the message passes without them,
// and Acquire returns why.
func (g *Gates) Acquire(f drr.Flow, c *store.Class, now int64) (id ID, err error) {
	if len(c.ThrottleKeys) == 0 && c.CircuitKey == "" && len(c.Routes) == 0 {
		return 0, nil
	}
	t, flow := &g.Subs, g.backlog.Flow(f)
	name := t.key(f, c)
	if id = flow.recent; id != 0 && t.At(id).name == string(name) {
		t.At(id).refs++
		return id, nil
	}
	id, ok := t.ids[string(name)]
	if !ok {
		sub := Subqueue{name: string(name), Flow: f}
		if len(c.Routes) > 0 {
			err = g.openRoutes(&sub, c, now)
		} else {
			sub.Route, err = g.openRoute(c.ThrottleKeys, c.CircuitKey, now)
		}
		id = t.add(sub)
	}
	flow.recent = id
	t.At(id).refs++
	return id, err
}

// Release ends the count of one message. Its permits have been returned before.
func (g *Gates) Release(id ID, now int64) {
	if id == 0 {
		return
	}
	sub := g.Subs.At(id)
	if sub.refs--; sub.refs > 0 {
		return
	}
	if flow := g.backlog.Flow(sub.Flow); flow.recent == id {
		flow.recent = 0
	}
	g.closeGates(sub, now)
	g.intervals.forget(sub)
	g.Subs.remove(id)
}

// openRoute opens the gates of a route.
func (g *Gates) openRoute(throttleKeys []string, circuitKey string, now int64) (r Route, err error) {
	if r.Set, err = g.Throttles.Set(throttleKeys, now); err != nil {
		r.Set = nil
	}
	if circuitKey != "" {
		r.Circuit = g.Circuits.Use(circuitKey, now)
	}
	return r, err
}

// openRoutes opens the gates of all routes of a class.
func (g *Gates) openRoutes(sub *Subqueue, c *store.Class, now int64) (err error) {
	n := len(c.Routes)
	sub.choice = &choice{more: make([]Route, n-1), names: make([]string, n)}
	weighted := slices.ContainsFunc(c.Routes, func(r store.Route) bool { return r.Weight > 0 })
	for i := range c.Routes {
		r := &c.Routes[i]
		keys, circuitKey := c.Gates(r)
		open, oerr := g.openRoute(keys, circuitKey, now)
		err = cmp.Or(err, oerr)
		*sub.RouteAt(i) = open
		sub.choice.names[i] = r.Name
		if weighted {
			sub.choice.weights = append(sub.choice.weights, cmp.Or(r.Weight, 1000))
		}
	}
	return err
}

func (g *Gates) closeGates(sub *Subqueue, now int64) {
	for i := range sub.Routes() {
		r := sub.RouteAt(i)
		if r.Set != nil {
			g.Throttles.Close(r.Set, now)
		}
		if r.Circuit != nil {
			g.Out.Circuits = g.Circuits.Drop(r.Circuit, now, g.Out.Circuits)
		}
	}
}

// MakeBare turns the messages of a flow without gates into a subqueue.
func (g *Gates) MakeBare(f drr.Flow) ID {
	flow := g.backlog.Flow(f)
	id := g.Subs.add(Subqueue{Flow: f, List: flow.Plain})
	flow.Plain, flow.Bare = container.Ranks{}, id
	g.place(id)
	return id
}

// IsBlocked reports whether a message that waits in subqueue id is blocked.
func (g *Gates) IsBlocked(id ID, link uint32) bool {
	if id == 0 {
		return false
	}
	sub := g.Subs.At(id)
	return sub.Wait != 0 && !(g.Eligible(sub) && link == g.links.First(&sub.List))
}

// Insert puts message seq into the list of subqueue id, at the place of stamp, and
// returns its link.
func (g *Gates) Insert(id ID, priority uint8, seq uint64, stamp int64, cost uint32) (link uint32) {
	sub := g.Subs.At(id)
	link = g.links.InsertRanked(&sub.List, priority, seq, stamp)
	switch {
	case g.links.First(&sub.List) == link:
		if sub.reserved != nil && sub.cost != cost {
			g.cancelReservationOf(id)
		}
		if sub.probe.at != 0 {
			g.dropProbe(id, sub, g.links.Second(&sub.List))
		}
		sub.retry = sub.retry || sub.Wait != 0 && stamp < 0
		g.place(id)
		g.updateCost(id)
		g.backlog.FlowChanged(sub.Flow)
	case sub.Wait != 0:
		g.count(sub, 1)
		if g.FirstBlocked(sub) == link {
			g.updateCost(id)
		}
	}
	return link
}

// Remove takes a message out of the list of subqueue id without charging its flow.
func (g *Gates) Remove(id ID, priority uint8, link uint32) {
	sub := g.Subs.At(id)
	flow := sub.Flow
	if g.links.First(&sub.List) == link {
		g.cancelReservationOf(id)
		if sub.probe.at != 0 {
			g.dropProbe(id, sub, link)
		}
		sub.retry = false
		g.recheckWaits(sub, true)
	}
	g.links.RemoveRanked(&sub.List, priority, link)
	g.place(id)
	g.updateCost(id)
	g.backlog.FlowChanged(flow)
}

// Take takes the first message of subqueue id out for delivery. The caller charges
// the flow, and then calls EndProbe with the gate that Take returns.
func (g *Gates) Take(id ID, priority uint8, link uint32, now int64) (probed WaitID) {
	sub := g.Subs.At(id)
	probed = sub.probe.at
	if sub.retry {
		g.recheckWaits(sub, false)
	}
	sub.probe, sub.retry, sub.Since = probe{}, false, 0
	g.links.RemoveRanked(&sub.List, priority, link)
	if sub.choice != nil && probed != 0 && sub.Wait != 0 {
		g.stepBack(id, sub, probed, g.links.First(&sub.List))
	}
	if g.links.Count(&sub.List) > 0 {
		sub.retry = sub.Wait != 0 && g.links.Stamp(g.links.First(&sub.List)) < 0
		if sub.Wait != 0 {
			sub.Since = now
		}
	}
	g.place(id)
	if sub.retry {
		g.updateCost(id) // the first of the blocked ones is another one
	}
	return probed
}

// place puts a subqueue that has changed into the heap of its flow or out of it, and
// counts its blocked messages. It removes a bare subqueue without messages. The caller
// tells the schedule (FlowChanged) and the wait list (updateCost).
func (g *Gates) place(id ID) {
	sub := g.Subs.At(id)
	eligible := g.Eligible(sub)
	switch {
	case eligible && sub.pos == 0:
		g.heapAdd(id, sub)
	case eligible:
		g.heapFix(sub)
	case sub.pos != 0:
		g.heapRemove(sub)
	}
	blocked := int32(0)
	if sub.Wait != 0 {
		blocked = g.links.Count(&sub.List)
		if eligible {
			blocked--
		}
		if blocked == 0 {
			g.count(sub, -sub.Counted)
			if sub.choice != nil {
				g.stopWaiting(id, sub)
			} else {
				g.Waits.At(sub.Wait).Waiters.Remove(sub.Flow, uint32(id))
				g.recheckLater(sub.Wait)
			}
			sub.Wait, sub.retry = 0, false
		}
	}
	g.count(sub, blocked-sub.Counted)
	empty := g.links.Count(&sub.List) == 0
	if empty || sub.Wait == 0 && sub.probe.at == 0 {
		g.intervals.end(sub, g.Now)
	}
	if empty && sub.name == "" && sub.refs == 0 {
		g.backlog.Flow(sub.Flow).Bare = 0
		g.intervals.forget(sub)
		g.Subs.remove(id)
	}
}

// updateCost tells the wait lists of a subqueue what its first blocked message costs.
func (g *Gates) updateCost(id ID) {
	sub := g.Subs.At(id)
	if sub.Wait == 0 {
		return
	}
	cost := g.backlog.Cost(g.FirstBlocked(sub))
	for i := range sub.Routes() {
		g.Waits.At(sub.RouteAt(i).Wait).Waiters.SetCost(uint32(id), cost)
	}
}

// FirstBlocked is the link of the first blocked message of a blocked subqueue.
func (g *Gates) FirstBlocked(sub *Subqueue) uint32 {
	if g.Eligible(sub) {
		return g.links.Second(&sub.List)
	}
	return g.links.First(&sub.List)
}

// count adds n to the counts of blocked messages.
func (g *Gates) count(sub *Subqueue, n int32) {
	if n == 0 {
		return
	}
	sub.Counted += n
	g.BlockedBy[sub.Kind] += int64(n)
	g.Waits.At(sub.Wait).Messages += int64(n)
}

// block makes a subqueue wait, whose first message has tried its gates in vain. If it has
// several routes, g.obstacles has what blocks each, and why is the first of them.
func (g *Gates) block(id ID, why obstacle, now int64) {
	sub := g.Subs.At(id)
	gate, prepaid := sub.probe.at, sub.probe.prepaid
	if sub.retry {
		g.recheckLater(sub.Wait)
	}
	sub.probe, sub.retry = probe{}, false
	wait := g.waitFor(&why, sub.Flow)
	began := sub.Since == 0 || sub.Kind != why.kind
	if began {
		g.Waits.At(wait).countBlocked(why.kind)
	}
	if sub.Since == 0 {
		sub.Since = now
	}
	if sub.choice != nil {
		g.joinRoutes(id, sub, gate, prepaid)
	} else {
		g.join(id, sub, gate, prepaid, wait, why.kind)
	}
	if g.reserving == id {
		g.Waits.At(sub.reservedAt()).coalesced.into = 0 // it waits there for what it has collected
	}
	place, key := g.Waits.At(sub.Wait).name()
	if place == history.PlaceKey {
		key = g.backlog.Name(sub.Flow)
	}
	g.intervals.row(sub).Begin(sub.Kind.String(), place, key, sub.Kind != ByTurn, now)
	if gate != 0 && sub.choice != nil {
		for i := range sub.Routes() {
			if sub.RouteAt(i).Wait == gate {
				wl := g.Waits.At(gate)
				wl.budget, wl.notBefore = 0, g.obstacles[i].at
			}
		}
	}
	flow, choice := sub.Flow, sub.choice != nil
	g.place(id)
	g.backlog.FlowChanged(flow)
	g.backlog.SubqueueBlocked(id, flow, why.kind, began)
	if gate != 0 {
		switch wl := g.Waits.At(gate); {
		case choice:
		case gate == wait:
			wl.budget, wl.notBefore = 0, why.at
		default:
			g.coalesce(gate, wait)
		}
		g.EndProbe(gate)
	}
}

// join puts a subqueue into the wait list at, for what blocks it. gate is the one that its
// first message has probed; 0: none.
func (g *Gates) join(id ID, sub *Subqueue, gate WaitID, prepaid bool, at WaitID, kind BlockKind) {
	weight, cost := g.backlog.Weight(sub.Flow), g.backlog.Cost(g.links.First(&sub.List))
	back := gate != 0 && (prepaid && sub.Wait == 0 || !prepaid && (sub.Wait == gate || sub.Wait == 0))
	switch {
	case back:
		wl := g.Waits.At(gate)
		if prepaid {
			wl.Waiters.Add(sub.Flow, weight, uint32(id), cost)
		} else {
			wl.Waiters.PutBack(sub.Flow, weight, uint32(id), cost) // it has not gone after all
		}
		wl.noteGates(sub)
		sub.Wait = gate
	case sub.Wait != 0:
		g.Waits.At(sub.Wait).Waiters.SetCost(uint32(id), cost)
	}
	if sub.Wait != at {
		g.count(sub, -sub.Counted)
		if sub.Wait != 0 {
			g.Waits.At(sub.Wait).Waiters.Remove(sub.Flow, uint32(id))
			g.recheckLater(sub.Wait)
		}
		wl := g.Waits.At(at)
		wl.Waiters.Add(sub.Flow, weight, uint32(id), cost)
		wl.noteGates(sub)
		sub.Wait = at
		g.recheckLater(at)
	}
	if sub.Kind != kind {
		g.count(sub, -sub.Counted)
		sub.Kind = kind
	}
}
