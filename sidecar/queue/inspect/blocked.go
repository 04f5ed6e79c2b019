package inspect

import (
	"cmp"
	"slices"

	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/throttle"
)

// blocked sums up blocked messages of a queue or of a flow.
type blocked struct {
	by     [gates.BlockKinds]int64
	places *places  // nil: not wanted
	at     *oneGate // not nil: only what waits there is counted
}

// oneGate is a throttle or, if its key is empty, a circuit, with its waiters.
type oneGate struct {
	throttle, circuit string
	messages          int64
	flows             int
}

func (g *oneGate) matches(at gates.Place) bool {
	if g.throttle != "" {
		return at.Throttle != nil && at.Throttle.Key() == g.throttle
	}
	return at.Circuit != nil && at.Circuit.Key() == g.circuit
}

// passes reports whether messages of a subqueue may pass all gates that are named, on one
// route.
func passes(sub *gates.Subqueue, throttleKey, circuitKey string) bool {
	for i := range sub.Routes() {
		r := sub.RouteAt(i)
		if (circuitKey == "" || r.Circuit != nil && r.Circuit.Key() == circuitKey) &&
			(throttleKey == "" || slices.ContainsFunc(r.Set.Gates(), func(t *throttle.Gate) bool { return t.Key() == throttleKey })) {
			return true
		}
	}
	return false
}

// places are the places where something is blocked.
type places struct {
	list  []BlockedView
	index map[placeKey]int // into list
}

type placeKey struct {
	gates.Place
	by  gates.BlockKind // if Place is zero
	key drr.Flow        // of a pause of a key
}

func newPlaces() *places { return &places{index: make(map[placeKey]int)} }

// at returns a place of the list, valid until the next call, and whether it is new.
func (p *places) at(k placeKey) (b *BlockedView, added bool) {
	i, ok := p.index[k]
	if !ok {
		i = len(p.list)
		p.index[k] = i
		p.list = append(p.list, BlockedView{WaitReason: WaitReason{At: k.Place}})
	}
	return &p.list[i], !ok
}

// add counts n messages of a flow that wait for w, in a subqueue of their own. It returns
// the place, valid until the next call; nil: places are not wanted.
func (h *blocked) add(r *Reader, w WaitReason, f drr.Flow, n int64) *BlockedView {
	if n == 0 || !w.Blocks() {
		return nil
	}
	h.by[w.By] += n
	switch {
	case h.at != nil && h.at.matches(w.At):
		h.at.messages += n
		h.at.flows++
	case h.places != nil:
		k := placeKey{Place: w.At}
		ofKey := w.At.Paused && !w.At.Queue
		switch {
		case ofKey:
			k.key = f
		case w.At == gates.Place{}:
			k.by = w.By
		}
		b, added := h.places.at(k)
		if added {
			b.WaitReason = w
			if ofKey {
				b.Key = r.t.Name(f)
			}
		}
		b.DeadLetter, b.Unbooked = b.DeadLetter && w.DeadLetter, b.Unbooked && w.Unbooked
		b.Messages += n
		if b.Flows++; ofKey {
			b.Flows = 1
		}
		return b
	}
	return nil
}

func (h *blocked) total() (n int64) {
	for _, k := range h.by {
		n += k
	}
	return n
}

// largest returns up to most of the places, the largest first. It reorders them.
func (p *places) largest(most int) []BlockedView {
	t := top[BlockedView]{n: most, compare: func(a, b BlockedView) int { return a.compare(&b) }, list: p.list[:0]}
	for _, b := range p.list { // t.list never overtakes it
		t.add(b)
	}
	return t.first()
}

// compare orders places in lists; below 0: b comes first.
func (b *BlockedView) compare(o *BlockedView) int {
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

// all counts blocked messages of the queue. It evaluates readLines subqueues and keys at
// most; the others count as the queue found them last.
func (e *evaluator) all(h *blocked) {
	t := e.t
	if t.Pauses.Until > e.now {
		h.by[gates.ByPause] = t.Links.Len()
		if h.places != nil && t.Links.Len() > 0 {
			b, _ := h.places.at(placeKey{Place: e.paused(0).At})
			b.By, b.Messages, b.Flows = gates.ByPause, t.Links.Len(), len(t.Keys.IDs)
		}
		return
	}
	ordered, unseen := t.Order.Waiting, e.g.BlockedBy
	seen := make(map[gates.WaitID]int64)
	items := e.g.Subs.Items
	more := len(items) > readLines
	for i := range items[:min(len(items), readLines)] {
		sub := &items[i]
		unseen[sub.Kind] -= int64(sub.Counted)
		if more && sub.Wait != 0 {
			seen[sub.Wait] += int64(sub.Counted)
		}
		if h.at != nil && !passes(sub, h.at.throttle, h.at.circuit) {
			continue
		}
		if n := t.Links.Count(&sub.List); n > 0 {
			if b := h.add(e.Reader, e.reason(sub.Flow, sub, false), sub.Flow, int64(n)); b != nil {
				b.Wait = max(b.Wait, e.now-t.Slots.Get(t.Links.Seq(t.Links.First(&sub.List))).ReadyAt)
			}
		}
		if sub.Ordered > 0 {
			ordered -= int64(sub.Ordered)
			h.add(e.Reader, e.reason(sub.Flow, sub, true), sub.Flow, int64(sub.Ordered))
		}
	}
	if more {
		e.rest(h, unseen, seen)
	}
	ordered -= e.plain(h)
	h.by[gates.ByOrder] += ordered
	if h.places == nil {
		return
	}
	inOrder := placeKey{by: gates.ByOrder}
	if ordered > 0 {
		b, _ := h.places.at(inOrder)
		b.By = gates.ByOrder
		b.Messages += ordered
	}
	if i, ok := h.places.index[inOrder]; ok {
		h.places.list[i].Flows = len(t.Order.Keys)
	}
}

// flow counts waiting messages of a flow. Beyond readLines subqueues it counts them as the
// queue found them last.
func (e *evaluator) flow(f drr.Flow, v *KeyView) {
	t := e.t
	h := blocked{places: newPlaces()}
	count := func(w WaitReason, n int64) {
		h.add(e.Reader, w, f, n)
		if !w.Blocks() {
			v.Pending += n
		}
	}
	n := 0
	for sub := range e.g.Subs.Of(f) {
		if n++; n > readLines {
			last := WaitReason{By: sub.Kind}
			if sub.Wait != 0 {
				last.At = e.place(sub.Wait)
			}
			count(last, int64(sub.Counted))
			count(WaitReason{}, int64(t.Links.Count(&sub.List)-sub.Counted))
			count(WaitReason{By: gates.ByOrder}, int64(sub.Ordered))
			continue
		}
		if n := t.Links.Count(&sub.List); n > 0 {
			count(e.reason(f, sub, false), int64(n))
		}
		if sub.Ordered > 0 {
			count(e.reason(f, sub, true), int64(sub.Ordered))
		}
	}
	count(e.reason(f, nil, false), int64(t.Links.Count(&t.Flow(f).Plain)))
	if o := t.Order.Keys[f]; o != nil {
		count(e.reason(f, nil, true), o.Plain)
	}
	v.Blocked, v.At = h.total(), h.places.largest(len(h.places.list))
	for i := range v.At {
		v.At[i].Flows = 1
	}
}

// rest counts the subqueues that were not evaluated, by what blocked them last and
// where. seen has the messages that were counted at the wait lists.
func (e *evaluator) rest(h *blocked, unseen [gates.BlockKinds]int64, seen map[gates.WaitID]int64) {
	for by, n := range unseen {
		h.by[by] += n
	}
	if h.places == nil && h.at == nil {
		return
	}
	waits := e.g.Waits.Items
	for i, wl := range waits[:min(len(waits), readLines)] {
		id := gates.WaitID(i)
		if i == 0 || !wl.Used() || wl.Messages == seen[id] {
			continue
		}
		place, more := e.place(id), wl.Messages-seen[id]
		if h.at != nil {
			if h.at.matches(place) {
				h.at.messages += more
				h.at.flows = max(h.at.flows, wl.Waiters.Len())
			}
			continue
		}
		f, ofKey := wl.PausedFlow()
		b, added := h.places.at(placeKey{Place: place, key: f})
		if added && ofKey {
			b.By, b.Key = gates.ByPause, e.t.Name(f)
		}
		b.Messages += more
		b.Flows = max(b.Flows, wl.Waiters.Len())
	}
}

// plain counts blocked messages without gates: messages of paused keys, and messages whose key is
// taken. It returns how many of them wait for their predecessors.
func (e *evaluator) plain(h *blocked) (ordered int64) {
	t := e.t
	count := func(f drr.Flow) {
		h.add(e.Reader, e.reason(f, nil, false), f, int64(t.Links.Count(&t.Flow(f).Plain)))
		if o := t.Order.Keys[f]; o != nil {
			ordered += o.Plain
			h.add(e.Reader, e.reason(f, nil, true), f, o.Plain)
		}
	}
	if len(t.Pauses.Keys) <= readLines { // the sums do not depend on the order of the map
		for key, until := range t.Pauses.Keys {
			if f, ok := t.Keys.IDs[key]; ok && until > e.now {
				count(f)
			}
		}
	} else {
		for f := range t.Keys.Entries[:min(len(t.Keys.Entries), readLines)] {
			if e.paused(drr.Flow(f)).By == gates.ByPause {
				count(drr.Flow(f))
			}
		}
	}
	if len(t.Order.Keys) <= readLines {
		for f := range t.Order.Keys {
			if e.paused(f).By == gates.ByNothing && t.KeyTaken(f) {
				count(f)
			}
		}
	}
	return ordered
}
