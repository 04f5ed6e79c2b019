package drr

import (
	"math/big"
	"slices"
)

// lineModel is the rule of Line in exact fractions, which grow without end and
// never wrap around. It searches everything and shares nothing with Line.
type lineModel struct {
	now   *big.Int // in 2^-32
	flows []*lineModelFlow
	moves int64
}

type lineModelFlow struct {
	id     Flow
	weight int64
	start  *big.Rat // in 2^-32
	since  int64
	lanes  []lineModelLane // the first one is next
}

type lineModelLane struct {
	lane uint32
	cost int64
}

func newLineModel() *lineModel { return &lineModel{now: new(big.Int)} }

// step is what a cost moves the tags of a flow.
func (f *lineModelFlow) step(cost int64) *big.Rat {
	return new(big.Rat).SetFrac(new(big.Int).Lsh(big.NewInt(cost), 32), big.NewInt(f.weight))
}

func floor(r *big.Rat) *big.Int { return new(big.Int).Div(r.Num(), r.Denom()) }

func ceil(r *big.Rat) *big.Int {
	return new(big.Int).Neg(floor(new(big.Rat).Neg(r)))
}

func (f *lineModelFlow) finish() *big.Int {
	return floor(new(big.Rat).Add(f.start, f.step(f.lanes[0].cost)))
}

func (m *lineModel) flow(id Flow) *lineModelFlow {
	for _, f := range m.flows {
		if f.id == id {
			return f
		}
	}
	return nil
}

// owner is the flow that a lane waits in.
func (m *lineModel) owner(lane uint32) (*lineModelFlow, int) {
	for _, f := range m.flows {
		if i := slices.IndexFunc(f.lanes, func(l lineModelLane) bool { return l.lane == lane }); i >= 0 {
			return f, i
		}
	}
	return nil, 0
}

func (m *lineModel) len() (n int) {
	for _, f := range m.flows {
		n += len(f.lanes)
	}
	return n
}

func (m *lineModel) join(id Flow, weight int64, since int64) *lineModelFlow {
	f := &lineModelFlow{id: id, weight: weight, start: new(big.Rat).SetInt(m.now), since: since}
	m.flows = append(m.flows, f)
	return f
}

func (m *lineModel) add(id Flow, weight int64, lane uint32, cost int64) {
	f := m.flow(id)
	if f == nil {
		m.moves++
		f = m.join(id, weight, m.moves)
	}
	m.reweigh(f, weight)
	f.lanes = append(f.lanes, lineModelLane{lane, cost})
}

func (m *lineModel) peek() *lineModelFlow {
	var best *lineModelFlow
	for _, f := range m.flows {
		if best == nil {
			best = f
			continue
		}
		if c := f.finish().Cmp(best.finish()); c < 0 || c == 0 && f.since < best.since {
			best = f
		}
	}
	return best
}

func (m *lineModel) take(nextCost int64, more bool) {
	f := m.peek()
	first := f.lanes[0]
	f.start = new(big.Rat).Add(f.start, f.step(first.cost))
	if t := ceil(f.start); t.Cmp(m.now) > 0 {
		m.now = t
	}
	f.lanes = f.lanes[1:]
	if more {
		f.lanes = append(f.lanes, lineModelLane{first.lane, nextCost})
	}
	if len(f.lanes) > 0 {
		m.moves++
		f.since = m.moves
	}
	m.forgetEmpty(f)
}

func (m *lineModel) forgetEmpty(f *lineModelFlow) {
	if len(f.lanes) == 0 {
		m.flows = slices.DeleteFunc(m.flows, func(o *lineModelFlow) bool { return o == f })
	}
}

func (m *lineModel) putBack(id Flow, weight int64, lane uint32, cost int64) {
	m.moves++
	f := m.flow(id)
	if f == nil {
		f = m.join(id, weight, 0)
	}
	f.since = m.moves - headStart
	f.lanes = slices.DeleteFunc(f.lanes, func(l lineModelLane) bool { return l.lane == lane })
	f.lanes = slices.Insert(f.lanes, 0, lineModelLane{lane, cost})
	m.setLag(f, new(big.Rat).Add(m.lag(f), f.step(cost)))
}

func (m *lineModel) lag(f *lineModelFlow) *big.Rat {
	return new(big.Rat).Sub(new(big.Rat).SetInt(m.now), f.start)
}

func (m *lineModel) setLag(f *lineModelFlow, lag *big.Rat) {
	if most := new(big.Rat).SetInt64(maxLag); lag.Cmp(most) > 0 {
		lag = most
	}
	if least := new(big.Rat).SetInt64(-maxLead); lag.Cmp(new(big.Rat).Sub(least, big.NewRat(1, 1))) <= 0 {
		lag = least
	}
	f.start = new(big.Rat).Sub(new(big.Rat).SetInt(m.now), lag)
}

func (m *lineModel) reweigh(f *lineModelFlow, weight int64) {
	lag := m.lag(f)
	lag.Mul(lag, big.NewRat(f.weight, weight))
	f.weight = weight
	m.setLag(f, lag)
}

func (m *lineModel) correct(f *lineModelFlow, delta int64) {
	m.setLag(f, new(big.Rat).Sub(m.lag(f), f.step(delta)))
}

func (m *lineModel) remove(lane uint32) {
	f, i := m.owner(lane)
	f.lanes = slices.Delete(f.lanes, i, i+1)
	m.forgetEmpty(f)
}
