package queue

import (
	"cmp"
	"slices"

	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/throttle"
)

// Why is what a message that could be delivered waits for: the first of these that is
// so, in this order.
//
//  1. a pause of its queue, or of its key
//  2. a gate that is shut: its circuit, then its throttle keys
//  3. the order of its key
//  4. a consumer: there is none
//  5. credit: no consumer has any
//  6. its turn: others wait for longer at a gate (ByTurn), or are before it in the
//     schedule (ByNothing)
//
// Gates are asked at the moment of the question. What the machine keeps of them is
// what it found when a message tried them last, and while nobody has credit no message
// tries.
type Why struct {
	By BlockKind
	At Place
}

// parks reports whether something holds the message back besides consumers and its
// turn in the schedule.
func (w Why) parks() bool { return w.By != ByNothing && w.By < BlockKinds }

// asking decides for one request what the messages of a side wait for.
type asking struct {
	q     *side
	now   int64
	ready BlockKind       // what messages wait for that nothing else holds back
	asked map[gatesOf]Why // gates that have been asked, up to maxAsked of them
}

// maxAsked is how many gates are remembered: more of them are hardly those of many
// subqueues, and asking again costs less than remembering.
const maxAsked = 256

// gatesOf is what subqueues with the same gates have in common.
type gatesOf struct {
	set     *throttle.Set
	circuit Circuit
	cost    int64
}

func (q *side) asking(now int64) *asking {
	a := &asking{q: q, now: now}
	switch {
	case q.consumers.registered()+len(q.consumers.fetches) == 0:
		a.ready = ByNoConsumer
	case q.consumers.ring == nil:
		a.ready = ByNoCredit
	}
	return a
}

// why is the one place where it is decided what messages wait for: those of a flow
// that are in the list of a subqueue, or without one (nil) in the list of the flow;
// with ordered those of them that wait for their predecessors.
func (a *asking) why(f drr.Flow, sub *subqueue, ordered bool) Why {
	if w := a.paused(f); w.By != ByNothing {
		return w
	}
	if sub != nil {
		if w := a.gate(sub); w.By != ByNothing {
			return w
		}
	}
	switch {
	case ordered || a.q.keyTaken(f):
		return Why{By: ByOrder}
	case a.ready != ByNothing:
		return Why{By: a.ready}
	case sub != nil && sub.wait != 0 && !a.q.eligible(sub):
		if at := a.q.gate(a.q.leader(sub.wait)); !at.Paused {
			return Why{By: ByTurn, At: at}
		}
	}
	return Why{}
}

// paused is the pause of the queue, or of a key.
func (a *asking) paused(f drr.Flow) (w Why) {
	p := &a.q.pauses
	if p.until > a.now {
		return Why{By: ByPause, At: Place{Paused: true, Queue: true, Until: p.until}}
	}
	if len(p.keys) > 0 {
		if until := p.keys[a.q.keys.name(f)]; until > a.now {
			return Why{By: ByPause, At: Place{Paused: true, Until: until}}
		}
	}
	return w
}

// gate asks the gates of a subqueue whether they would admit its first message. Of one
// whose messages all wait for their predecessors it asks whether they would admit
// anything: which is the first of them, and what that costs, is not known.
func (a *asking) gate(sub *subqueue) (w Why) {
	if sub.bare() {
		return w
	}
	k := gatesOf{sub.set, sub.circuit, throttle.One}
	switch head := a.q.links.First(&sub.list); {
	case head != 0:
		k.cost = a.q.costOf(head)
	case a.q.costly > 0:
		k.cost = 1
	}
	if r := sub.reserve.held; r != nil { // what it has collected is shut for others alone
		w = k.ask(func() (throttle.Block, bool) { return r.Check(a.now) }, a.now)
	} else if known, ok := a.asked[k]; ok {
		w = known
	} else {
		w = k.ask(func() (throttle.Block, bool) { return k.set.Check(a.now, k.cost, nil) }, a.now)
		if a.asked == nil {
			a.asked = make(map[gatesOf]Why)
		}
		if len(a.asked) < maxAsked {
			a.asked[k] = w
		}
	}
	if w.By == ByNothing && k.cost < throttle.One && sub.wait != 0 && !a.q.eligible(sub) {
		return a.line(a.q.leader(sub.wait))
	}
	return w
}

// line asks the gate of a wait list what a message finds that stands in line there and
// costs less than 1: it tries the gate when that admits a cost of 1.
func (a *asking) line(id waitID) (w Why) {
	if g := a.q.gating.waits.at(id).gate; g != nil {
		if i := g.Info(a.now); i.Kind != throttle.Open {
			return Why{By: BlockOf(i.Kind), At: Place{Throttle: g}}
		}
	}
	return w
}

// ask asks the circuit, and then the throttle keys by check.
func (k gatesOf) ask(check func() (throttle.Block, bool), now int64) (w Why) {
	if k.circuit != nil {
		if n, _ := k.circuit.Peek(now); n <= 0 {
			return Why{By: ByCircuit, At: Place{Circuit: k.circuit}}
		}
	}
	if b, ok := check(); !ok {
		return Why{By: BlockOf(b.Kind), At: Place{Throttle: b.Gate}}
	}
	return w
}

// keyTaken reports whether a message of the flow that is not in a list owns the key.
func (q *side) keyTaken(f drr.Flow) bool {
	if !q.order.on {
		return false
	}
	o := q.order.keys[f]
	return o != nil && o.owner != 0 && q.slots.Get(o.owner).state != slotWaiting
}

// message says what message s waits for.
func (a *asking) message(s *slot) Why {
	var sub *subqueue
	if id := a.q.subOf(s); id != 0 {
		sub = a.q.gating.subs.at(id)
	}
	return a.why(s.flow, sub, s.state == slotOrdered)
}

// held is what pauses, gates and order hold back of a side or of a flow.
type held struct {
	by     [BlockKinds]int64
	places *places  // nil: nobody asks where
	at     *oneGate // not nil: only what waits there is counted
}

// oneGate is a throttle or, if its key is empty, a circuit, with what waits there.
type oneGate struct {
	throttle, circuit string
	messages          int64
	flows             int
}

func (g *oneGate) is(at Place) bool {
	if g.throttle != "" {
		return at.Throttle != nil && at.Throttle.Key() == g.throttle
	}
	return at.Circuit != nil && at.Circuit.Key() == g.circuit
}

// of reports whether messages of a subqueue go through the gate.
func (g *oneGate) of(sub *subqueue) bool {
	if g.throttle == "" {
		return sub.circuit != nil && sub.circuit.Key() == g.circuit
	}
	return slices.ContainsFunc(sub.set.Gates(), func(t *throttle.Gate) bool { return t.Key() == g.throttle })
}

// places are those where something is held back.
type places struct {
	list []BlockedView
	of   map[heldAt]int // where in list
}

type heldAt struct {
	Place
	by  BlockKind // if the place is none
	key drr.Flow  // of a pause of a key
}

func newPlaces() *places { return &places{of: make(map[heldAt]int)} }

// at is a place of the list, which is good until the next call, and whether it is new.
func (p *places) at(k heldAt) (b *BlockedView, added bool) {
	i, ok := p.of[k]
	if !ok {
		i = len(p.list)
		p.of[k] = i
		p.list = append(p.list, BlockedView{At: k.Place})
	}
	return &p.list[i], !ok
}

// add counts n messages of a flow, in a subqueue of their own.
func (h *held) add(q *side, w Why, f drr.Flow, n int64) {
	if n == 0 || !w.parks() {
		return
	}
	h.by[w.By] += n
	switch {
	case h.at != nil && h.at.is(w.At):
		h.at.messages += n
		h.at.flows++
	case h.places != nil:
		k := heldAt{Place: w.At}
		ofKey := w.At.Paused && !w.At.Queue
		switch {
		case ofKey:
			k.key = f
		case w.At == Place{}:
			k.by = w.By
		}
		b, added := h.places.at(k)
		if added {
			b.By = w.By
			if ofKey {
				b.Key = q.keys.name(f)
			}
		}
		b.Messages += n
		if b.Flows++; ofKey {
			b.Flows = 1
		}
	}
}

func (h *held) sum() (n int64) {
	for _, k := range h.by {
		n += k
	}
	return n
}

// largest are up to most of the places, at least one, the largest first. It may reorder
// them: it is asked once.
func (p *places) largest(most int) (list []BlockedView) {
	if most >= len(p.list) {
		slices.SortFunc(p.list, func(a, b BlockedView) int { return a.before(&b) })
		return p.list
	}
	for i := range p.list {
		b := &p.list[i]
		if len(list) == most && list[most-1].before(b) <= 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(list, b, func(in BlockedView, b *BlockedView) int { return in.before(b) })
		list = slices.Insert(list[:min(len(list), most-1)], at, *b)
	}
	return list
}

// before compares places by their order in lists; below 0: b comes first.
func (b *BlockedView) before(o *BlockedView) int {
	if c := cmp.Compare(o.Messages, b.Messages); c != 0 {
		return c
	}
	kind, key := b.name()
	kind2, key2 := o.name()
	return cmp.Or(cmp.Compare(kind, kind2), cmp.Compare(key, key2), cmp.Compare(b.By, o.By))
}

func (b *BlockedView) name() (kind, key string) {
	switch {
	case b.At.Throttle != nil:
		return "throttle:", b.At.Throttle.Key()
	case b.At.Circuit != nil:
		return "circuit:", b.At.Circuit.Key()
	}
	return "", b.Key
}

// all counts what is held back on the side. It looks at readLines subqueues and keys
// at most; what there is beyond them counts as the machine found it last.
func (a *asking) all(h *held) {
	q := a.q
	if q.pauses.until > a.now {
		h.by[ByPause] = q.links.Len()
		if h.places != nil && q.links.Len() > 0 {
			b, _ := h.places.at(heldAt{Place: a.paused(0).At})
			b.By, b.Messages, b.Flows = ByPause, q.links.Len(), len(q.keys.ids)
		}
		return
	}
	ordered, unseen := q.order.waiting, q.gating.blockedBy
	seen := make(map[waitID]int64)
	items := q.gating.subs.items
	more := len(items) > readLines
	for i := range items[:min(len(items), readLines)] {
		sub := &items[i]
		unseen[sub.kind] -= int64(sub.counted)
		if more && sub.wait != 0 {
			seen[sub.wait] += int64(sub.counted)
		}
		if h.at != nil && !h.at.of(sub) {
			continue
		}
		if n := a.q.links.Count(&sub.list); n > 0 {
			h.add(q, a.why(sub.flow, sub, false), sub.flow, int64(n))
		}
		if sub.ordered > 0 {
			ordered -= int64(sub.ordered)
			h.add(q, a.why(sub.flow, sub, true), sub.flow, int64(sub.ordered))
		}
	}
	if more {
		a.rest(h, unseen, seen)
	}
	ordered -= a.plain(h)
	h.by[ByOrder] += ordered
	if h.places == nil {
		return
	}
	inOrder := heldAt{by: ByOrder}
	if ordered > 0 {
		b, _ := h.places.at(inOrder)
		b.By = ByOrder
		b.Messages += ordered
	}
	if i, ok := h.places.of[inOrder]; ok {
		h.places.list[i].Flows = len(q.order.keys)
	}
}

// flow counts what waits of a flow. Beyond readLines subqueues it counts them as the
// machine found them last.
func (a *asking) flow(f drr.Flow, v *KeyView) {
	q := a.q
	h := held{places: newPlaces()}
	count := func(w Why, n int64) {
		h.add(q, w, f, n)
		if !w.parks() {
			v.Pending += n
		}
	}
	looks := 0
	for sub := range q.gating.subs.of(f) {
		if looks++; looks > readLines {
			blocked := Why{By: sub.kind}
			if sub.wait != 0 {
				blocked.At = q.gate(sub.wait)
			}
			count(blocked, int64(sub.counted))
			count(Why{}, int64(a.q.links.Count(&sub.list)-sub.counted))
			count(Why{By: ByOrder}, int64(sub.ordered))
			continue
		}
		if n := a.q.links.Count(&sub.list); n > 0 {
			count(a.why(f, sub, false), int64(n))
		}
		if sub.ordered > 0 {
			count(a.why(f, sub, true), int64(sub.ordered))
		}
	}
	count(a.why(f, nil, false), int64(q.links.Count(&q.keys.entries[f].plain)))
	if o := q.order.keys[f]; o != nil {
		count(a.why(f, nil, true), o.plain)
	}
	v.Blocked, v.At = h.sum(), h.places.largest(len(h.places.list))
	for i := range v.At {
		v.At[i].Flows = 1
	}
}

// rest counts the subqueues that have not been looked at, by what blocks them, and
// where: seen is what has been found there already.
func (a *asking) rest(h *held, unseen [BlockKinds]int64, seen map[waitID]int64) {
	for by, n := range unseen {
		h.by[by] += n
	}
	if h.places == nil && h.at == nil {
		return
	}
	waits := a.q.gating.waits.items
	for i, wl := range waits[:min(len(waits), readLines)] {
		if i == 0 || wl.kind == waitFree || wl.messages == seen[waitID(i)] {
			continue
		}
		place, more := a.q.gate(waitID(i)), wl.messages-seen[waitID(i)]
		if h.at != nil {
			if h.at.is(place) {
				h.at.messages += more
				h.at.flows = max(h.at.flows, wl.line.Len())
			}
			continue
		}
		b, added := h.places.at(heldAt{Place: place, key: wl.flow})
		if added && wl.kind == waitPause {
			b.By, b.Key = ByPause, a.q.keys.name(wl.flow)
		}
		b.Messages += more
		b.Flows = max(b.Flows, wl.line.Len())
	}
}

// plain counts what is held back of the messages without gates: those of paused keys,
// and those whose key is taken. It returns how many of them wait for their
// predecessors.
func (a *asking) plain(h *held) (ordered int64) {
	q := a.q
	count := func(f drr.Flow) {
		h.add(q, a.why(f, nil, false), f, int64(q.links.Count(&q.keys.entries[f].plain)))
		if o := q.order.keys[f]; o != nil {
			ordered += o.plain
			h.add(q, a.why(f, nil, true), f, o.plain)
		}
	}
	if len(q.pauses.keys) <= readLines { // the sums do not depend on the order of the map
		for key, until := range q.pauses.keys {
			if f, ok := q.keys.ids[key]; ok && until > a.now {
				count(f)
			}
		}
	} else {
		for f := range q.keys.entries[:min(len(q.keys.entries), readLines)] {
			if a.paused(drr.Flow(f)).By == ByPause {
				count(drr.Flow(f))
			}
		}
	}
	if len(q.order.keys) <= readLines {
		for f := range q.order.keys {
			if a.paused(f).By == ByNothing && q.keyTaken(f) {
				count(f)
			}
		}
	}
	return ordered
}
