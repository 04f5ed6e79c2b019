package drr

import "slices"

// model is deficit round robin as the paper tells it: a ring of flows in a
// plain slice, visited one step at a time. It shares nothing with the scheduler.
type model struct {
	quantum int64
	ring    []*modelFlow
	pos     int        // the flow to visit next, or the one in its turn
	turn    *modelFlow // nil between turns
	carried int64      // by the flow in its turn
}

type modelFlow struct {
	id      Flow
	weight  int64
	deficit int64 // without the turn in progress; negative: carried
	items   []modelItem
}

type modelItem struct {
	value uint64
	cost  int64
}

func (m *model) flow(id Flow) *modelFlow {
	for _, f := range m.ring {
		if f.id == id {
			return f
		}
	}
	return nil
}

func (m *model) join(id Flow, weight, deficit int64, it modelItem) {
	f := &modelFlow{id: id, weight: weight, deficit: deficit, items: []modelItem{it}}
	m.ring = slices.Insert(m.ring, m.pos, f)
	m.pos++
}

func (m *model) push(id Flow, weight int64, it modelItem) {
	f := m.flow(id)
	if f == nil {
		m.join(id, weight, 0, it)
		return
	}
	f.weight = weight
	f.items = append(f.items, it)
}

func (m *model) giveBack(id Flow, weight int64, it modelItem) {
	f := m.flow(id)
	if f == nil {
		m.join(id, weight, it.cost, it)
		return
	}
	f.items = slices.Insert(f.items, 0, it)
	m.correct(id, -it.cost)
}

// pushFront adds an item that was removed before.
func (m *model) pushFront(id Flow, weight int64, it modelItem) {
	if f := m.flow(id); f != nil {
		f.items = slices.Insert(f.items, 0, it)
		return
	}
	m.join(id, weight, 0, it)
}

// insertBehind adds an item behind the item with value after, and refunds a cost.
func (m *model) insertBehind(after uint64, it modelItem, back int64) {
	for _, f := range m.ring {
		for i := range f.items {
			if f.items[i].value == after {
				f.items = slices.Insert(f.items, i+1, it)
				m.correct(f.id, -back)
				return
			}
		}
	}
}

func (m *model) next() (Flow, modelItem, bool) {
	if _, _, ok := m.peek(); !ok {
		return 0, modelItem{}, false
	}
	f := m.turn
	it := f.items[0]
	f.deficit -= it.cost
	f.items = f.items[1:]
	m.leaveIfEmpty(f)
	return f.id, it, true
}

// endTurn reports whether the flow has yielded: given up a turn that it could
// have used.
func (m *model) endTurn() (f Flow, yielded bool) {
	fl := m.turn
	if fl == nil {
		return 0, false
	}
	if left := m.left(fl); left < fl.items[0].cost {
		fl.deficit = left
	} else {
		yielded = true
		fl.deficit = min(left, max(0, fl.deficit))
	}
	m.turn = nil
	m.pos++
	return fl.id, yielded
}

func (m *model) peek() (Flow, modelItem, bool) {
	if len(m.ring) == 0 {
		return 0, modelItem{}, false
	}
	for {
		if m.turn == nil {
			if m.pos == len(m.ring) {
				m.pos = 0
			}
			m.turn = m.ring[m.pos]
			m.carried = max(0, -m.turn.deficit)
			m.turn.deficit += m.carried
		}
		f := m.turn
		if it := f.items[0]; m.left(f) >= it.cost {
			return f.id, it, true
		}
		f.deficit = m.left(f)
		m.turn = nil
		m.pos++
	}
}

// left is what the flow in its turn may still spend. A charge beyond a turn that was cut short is
// forgiven, a carried deficit is not.
func (m *model) left(f *modelFlow) int64 { return max(0, f.deficit+f.weight*m.quantum) - m.carried }

// correct charges a flow more or less for earlier deliveries.
func (m *model) correct(id Flow, delta int64) {
	f := m.flow(id)
	switch {
	case f == nil:
	case f != m.turn:
		f.deficit -= delta
	default:
		m.carried += delta
		f.deficit += max(0, -m.carried)
		m.carried = max(0, m.carried)
	}
}

func (m *model) remove(value uint64) {
	for _, f := range m.ring {
		for i, it := range f.items {
			if it.value == value {
				f.items = slices.Delete(f.items, i, i+1)
				m.leaveIfEmpty(f)
				return
			}
		}
	}
}

func (m *model) leaveIfEmpty(f *modelFlow) {
	if len(f.items) > 0 {
		return
	}
	i := slices.Index(m.ring, f)
	m.ring = slices.Delete(m.ring, i, i+1)
	if i < m.pos {
		m.pos--
	}
	if m.turn == f {
		m.turn = nil
	}
}

func (m *model) len() int {
	n := 0
	for _, f := range m.ring {
		n += len(f.items)
	}
	return n
}

func (m *model) info(f *modelFlow) Info {
	in := Info{Weight: f.weight, Deficit: f.deficit}
	turn := f.weight * m.quantum
	if f == m.turn {
		in.Deficit = m.left(f)
		return in
	}
	in.Turns = max(1, (f.items[0].cost-f.deficit+turn-1)/turn)
	return in
}
