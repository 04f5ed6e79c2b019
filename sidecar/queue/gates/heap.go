package gates

import "github.com/filaq/fila/drr"

// The eligible subqueues of a flow are a binary heap by the stamp of their first
// message. Most flows have none, so heaps are kept apart and reused.

// First returns the link of the first message that a flow may send, and its
// subqueue; link 0: there is none.
func (g *Gates) First(f drr.Flow) (ID, uint32) {
	flow := g.backlog.Flow(f)
	plain := g.links.First(&flow.Plain)
	if flow.heap == 0 {
		return 0, plain
	}
	id := g.heaps[flow.heap][0]
	head := g.links.First(&g.Subs.At(id).List)
	if plain != 0 && g.links.Stamp(plain) <= g.links.Stamp(head) {
		return 0, plain
	}
	return id, head
}

// heapOf returns the heap of a flow, which it makes if need be.
func (g *Gates) heapOf(flow *Flow) *[]ID {
	if flow.heap == 0 {
		if n := len(g.freeHeaps); n > 0 {
			flow.heap, g.freeHeaps = g.freeHeaps[n-1], g.freeHeaps[:n-1]
		} else {
			flow.heap = uint32(len(g.heaps))
			g.heaps = append(g.heaps, nil)
		}
	}
	return &g.heaps[flow.heap]
}

// dropHeap gives back the empty heap of a flow.
func (g *Gates) dropHeap(flow *Flow) {
	const keep = 64
	if cap(g.heaps[flow.heap]) > keep {
		g.heaps[flow.heap] = nil
	}
	g.freeHeaps = append(g.freeHeaps, flow.heap)
	flow.heap = 0
}

func (g *Gates) before(a, b ID) bool {
	return g.links.Stamp(g.links.First(&g.Subs.At(a).List)) < g.links.Stamp(g.links.First(&g.Subs.At(b).List))
}

func (g *Gates) heapAdd(id ID, sub *Subqueue) {
	h := g.heapOf(g.backlog.Flow(sub.Flow))
	*h = append(*h, id)
	g.heapUp(*h, len(*h)-1)
}

func (g *Gates) heapFix(sub *Subqueue) {
	h := g.heaps[g.backlog.Flow(sub.Flow).heap]
	g.heapDown(h, g.heapUp(h, int(sub.pos-1)))
}

func (g *Gates) heapRemove(sub *Subqueue) {
	flow := g.backlog.Flow(sub.Flow)
	h := &g.heaps[flow.heap]
	i, last := int(sub.pos-1), len(*h)-1
	sub.pos = 0
	moved := (*h)[last]
	*h = (*h)[:last]
	switch {
	case last == 0:
		g.dropHeap(flow)
	case i != last:
		g.heapSet(*h, i, moved)
		g.heapDown(*h, g.heapUp(*h, i))
	}
}

func (g *Gates) heapSet(h []ID, i int, id ID) {
	h[i] = id
	g.Subs.At(id).pos = int32(i + 1)
}

func (g *Gates) heapUp(h []ID, i int) int {
	id := h[i]
	for i > 0 {
		parent := (i - 1) / 2
		if !g.before(id, h[parent]) {
			break
		}
		g.heapSet(h, i, h[parent])
		i = parent
	}
	g.heapSet(h, i, id)
	return i
}

func (g *Gates) heapDown(h []ID, i int) {
	id := h[i]
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if r := child + 1; r < len(h) && g.before(h[r], h[child]) {
			child = r
		}
		if !g.before(h[child], id) {
			break
		}
		g.heapSet(h, i, h[child])
		i = child
	}
	g.heapSet(h, i, id)
}

// EligibleOf returns the eligible subqueues of a flow. The list is read-only, in no
// useful order, and valid until the next change.
func (g *Gates) EligibleOf(f drr.Flow) []ID {
	flow := g.backlog.Flow(f)
	if flow.heap == 0 {
		return nil
	}
	return g.heaps[flow.heap]
}
