package drr

import "github.com/stretchr/testify/require"

// boundChecker holds every pair of flows to
//
//	|S_i/w_i - S_j/w_j| <= quantum + C_i/w_i + C_j/w_j
//
// over every interval in which both stay backlogged and keep their weights. Corrections
// count as service. C_i is the largest cost given to flow i, which is stricter than the
// largest of all, plus the most that flow i has carried at once. That is no more than its
// upward corrections since it was last served, since a flow that owes is not served. The
// checker sees only what goes in and comes out, and which flow yields: a flow that yields
// may fall behind the others by what it gave up, but never get ahead of them.
//
// All intervals at once: the largest difference over an interval is the range
// of X(t) = S_i(t)*w_j - S_j(t)*w_i, so its least and greatest value are kept.
//
// A returned or refunded cost counts as served until it has been spent again, also one of a
// flow that owes: by now the flow may have paid a part of it by waiting. This sum is wrong
// for a flow that loses an item after a return, and for one that gets a return in a
// turn in which its weight or the quantum has changed (what it sent beyond a lowered
// turn is forgiven, so a return of it is no credit). Such a flow is left out until it
// has run empty.
type boundChecker struct {
	t       require.TestingT
	quantum int64
	flows   map[Flow]*served
	pairs   map[[2]Flow]*span
	last    Flow // served last: no other can be in its turn
	changed bool // the length of its turn, since it began to be served
}

type served struct {
	weight, largest int64
	sum             int64 // S
	credit          int64 // given back and not yet spent
	raised          int64 // corrected upwards since it was served last without credit
	most            int64 // the largest of that
	tainted         bool
}

// span is the range of X of a pair. After one of the flows has yielded, only one end of the range
// is checked: the flow got no more than its share.
type span struct{ least, most int64 }

func newBoundChecker(t require.TestingT, quantum int64) *boundChecker {
	return &boundChecker{t: t, quantum: quantum, flows: map[Flow]*served{}, pairs: map[[2]Flow]*span{}}
}

func (b *boundChecker) put(f Flow, weight, cost int64) {
	fl := b.flows[f]
	if fl == nil {
		fl = &served{weight: weight}
		b.flows[f] = fl
	}
	fl.largest = max(fl.largest, cost)
	b.setWeight(f, weight)
}

func (b *boundChecker) setWeight(f Flow, weight int64) {
	fl := b.flows[f]
	if fl == nil || fl.weight == weight {
		return
	}
	fl.weight = weight
	b.turnChanges(f)
	for p := range b.pairs {
		if p[0] == f || p[1] == f {
			delete(b.pairs, p)
		}
	}
	b.look()
}

func (b *boundChecker) setQuantum(q int64) {
	if q == b.quantum {
		return
	}
	b.quantum = q
	b.turnChanges(b.last)
	clear(b.pairs)
	b.look()
}

func (b *boundChecker) turnChanges(f Flow) {
	if fl := b.flows[f]; fl != nil && f == b.last {
		b.changed = true
		fl.tainted = fl.tainted || fl.credit > 0
	}
}

func (b *boundChecker) giveBack(f Flow, weight, cost int64) {
	if fl := b.flows[f]; fl != nil {
		weight = fl.weight
	}
	b.put(f, weight, cost)
	b.refund(f, cost)
}

func (b *boundChecker) refund(f Flow, cost int64) {
	fl := b.flows[f]
	fl.credit += cost
	fl.tainted = fl.tainted || f == b.last && b.changed
}

func (b *boundChecker) removed(f Flow) {
	b.flows[f].tainted = b.flows[f].credit > 0 || b.flows[f].tainted
}

func (b *boundChecker) serve(f Flow, cost int64) {
	fl := b.flows[f]
	if f != b.last {
		b.last, b.changed = f, false
	}
	paid := min(fl.credit, cost)
	fl.credit -= paid
	fl.raised = min(fl.raised, fl.credit)
	fl.sum += cost - paid
	b.look()
}

// correct notes that a message that f has sent costs more, or less, than was reported.
func (b *boundChecker) correct(f Flow, delta int64) {
	fl := b.flows[f]
	if fl == nil {
		return
	}
	if delta < 0 {
		b.refund(f, -delta)
	} else {
		taken := min(fl.credit, delta)
		fl.credit -= taken
		fl.raised += delta - taken
		fl.sum += delta - taken
		fl.most = max(fl.most, fl.raised)
	}
	b.look()
}

// yielded notes that f has given up a turn. Intervals in which f falls behind begin again here;
// those in which it gets ahead continue.
func (b *boundChecker) yielded(f Flow) {
	b.look()
	for p, s := range b.pairs {
		x := b.difference(p)
		switch f {
		case p[0]: // X falls when f falls behind
			s.most = x
		case p[1]:
			s.least = x
		}
	}
}

// difference is X of a pair.
func (b *boundChecker) difference(p [2]Flow) int64 {
	i, j := b.flows[p[0]], b.flows[p[1]]
	return i.sum*j.weight - j.sum*i.weight
}

func (b *boundChecker) left(f Flow) {
	delete(b.flows, f)
	for p := range b.pairs {
		if p[0] == f || p[1] == f {
			delete(b.pairs, p)
		}
	}
}

// look extends the spans of all pairs by this moment.
func (b *boundChecker) look() {
	for i, fi := range b.flows {
		for j, fj := range b.flows {
			if i >= j || fi.tainted || fj.tainted {
				continue
			}
			x := b.difference([2]Flow{i, j})
			p := b.pairs[[2]Flow{i, j}]
			if p == nil {
				p = &span{x, x}
				b.pairs[[2]Flow{i, j}] = p
			}
			p.least, p.most = min(p.least, x), max(p.most, x)
			bound := b.quantum*fi.weight*fj.weight + (fi.largest+fi.most)*fj.weight + (fj.largest+fj.most)*fi.weight
			require.LessOrEqual(b.t, max(p.most-x, x-p.least), bound,
				"flows %d and %d, weights %d and %d", i, j, fi.weight, fj.weight)
		}
	}
}
