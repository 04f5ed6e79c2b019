package store

import "slices"

// recordWeight is the approximate size of a record besides headers and payload, so that
// compaction counts tiny messages.
const recordWeight = 128

// Classes of segments, for compaction. Small segments wait in tiers until enough of one
// tier can be merged. The others are classified by their share of finished records.
const (
	classNone  = -1
	tiers      = 2
	deadSteps  = 16
	classes    = tiers + deadSteps
	tier0Bytes = 4 << 10
	tier1Bytes = 64 << 10
	deadFloor  = tiers + deadSteps/4 // with fewer finished records a segment is not compacted
)

// segment is the state of a segment in memory.
type segment struct {
	id         uint64
	n, live    int   // records, and those not finished
	weight     int64 // of all records
	liveWeight int64
	done       []uint64 // a bit for each finished record
	data       []byte   // its value while it is in the read cache
	damaged    bool     // a part cannot be read: it is neither compacted nor deleted
	dirty      bool     // its bitmap changes in the running commit
	hasBitmap  bool     // on disk
	victim     bool     // the running commit carries its live records
	class      int8
	next, prev uint32 // within its class
}

func (g *segment) isDone(slot int) bool { return g.done[slot/64]>>(slot%64)&1 != 0 }

func (g *segment) classify() int8 {
	switch {
	case g.damaged || g.victim || g.live == 0:
		return classNone
	case g.weight < tier0Bytes:
		return 0
	case g.weight < tier1Bytes:
		return 1
	}
	return int8(tiers + (g.weight-g.liveWeight)*deadSteps/(g.weight+1))
}

// segTable has all segments by handle, and lists of them by class. Handles of deleted
// segments are used again.
type segTable struct {
	segs   []*segment // segs[0] is not used
	free   []uint32
	heads  [classes]uint32
	counts [classes]int
	nextID uint64

	n          int64 // segments
	records    int64
	finished   int64 // of the records
	weight     int64
	liveWeight int64
}

func newSegTable() segTable {
	return segTable{segs: make([]*segment, 1), nextID: 1}
}

func (t *segTable) add(g *segment) uint32 {
	var h uint32
	if k := len(t.free); k > 0 {
		h, t.free = t.free[k-1], t.free[:k-1]
		t.segs[h] = g
	} else {
		h = uint32(len(t.segs))
		t.segs = append(t.segs, g)
	}
	t.n++
	t.count(g, 1)
	t.nextID = max(t.nextID, g.id+1)
	g.class = classNone
	t.reclass(h)
	return h
}

func (t *segTable) remove(h uint32) {
	g := t.segs[h]
	t.n--
	t.count(g, -1)
	t.unlink(h)
	t.segs[h] = nil
	t.free = append(t.free, h)
}

// count adds the records of g to the sums, or subtracts them with sign -1.
func (t *segTable) count(g *segment, sign int64) {
	t.records += sign * int64(g.n)
	t.finished += sign * int64(g.n-g.live)
	t.weight += sign * g.weight
	t.liveWeight += sign * g.liveWeight
}

// finish marks a record as finished.
func (t *segTable) finish(h uint32, slot int, size uint32) {
	g := t.segs[h]
	g.done[slot/64] |= 1 << (slot % 64)
	w := int64(size) + recordWeight
	g.live--
	g.liveWeight -= w
	t.finished++
	t.liveWeight -= w
	t.reclass(h)
}

// reclass moves a segment to the list of its class.
func (t *segTable) reclass(h uint32) {
	g := t.segs[h]
	c := g.classify()
	if c == g.class {
		return
	}
	t.unlink(h)
	if c == classNone {
		return
	}
	g.class, g.next, g.prev = c, t.heads[c], 0
	if g.next != 0 {
		t.segs[g.next].prev = h
	}
	t.heads[c] = h
	t.counts[c]++
}

func (t *segTable) unlink(h uint32) {
	g := t.segs[h]
	if g.class == classNone {
		return
	}
	if g.prev != 0 {
		t.segs[g.prev].next = g.next
	} else {
		t.heads[g.class] = g.next
	}
	if g.next != 0 {
		t.segs[g.next].prev = g.prev
	}
	t.counts[g.class]--
	g.class, g.next, g.prev = classNone, 0, 0
}

// readCache has the segments whose bytes are in memory, oldest first.
type readCache struct {
	budget, used int64
	segs         int      // with their bytes in memory
	fifo         []cached // these, and some dropped ones
}

type cached struct {
	h  uint32
	id uint64
}

func (c *readCache) put(t *segTable, h uint32, data []byte) {
	if int64(len(data)) > c.budget {
		return
	}
	t.segs[h].data = data
	c.used += int64(len(data))
	c.segs++
	c.fifo = append(c.fifo, cached{h, t.segs[h].id})
	for c.used > c.budget {
		if old := c.fifo[0]; old.in(t) {
			c.drop(t.segs[old.h])
		}
		c.fifo = c.fifo[1:]
	}
	const few = 64
	if len(c.fifo) > 2*c.segs+few {
		// If segments are short-lived, the budget never evicts any.
		c.fifo = slices.DeleteFunc(c.fifo, func(k cached) bool { return !k.in(t) })
	}
}

// in reports whether the bytes of k are still in memory.
func (k cached) in(t *segTable) bool {
	g := t.segs[k.h]
	return g != nil && g.id == k.id && g.data != nil
}

// drop drops the bytes of a segment.
func (c *readCache) drop(g *segment) {
	if g.data == nil {
		return
	}
	c.used -= int64(len(g.data))
	c.segs--
	g.data = nil
}
