package store

import (
	"errors"

	"go.etcd.io/bbolt"

	"github.com/filaq/fila/store/storefile"
)

// carried is a live record on its way from a victim to a new segment. It is copied with its
// checksums, so that damage remains visible.
type carried struct {
	ref           Ref
	entry, record []byte
}

// compact chooses segments to delete, whose live messages this commit writes again. There
// are two reasons:
//
//   - Slow traffic leaves segments of few messages. They are merged when one tier has
//     enough of them, so that a message is carried a few times at most until it is in a
//     large segment.
//   - Messages that finish in another order than they arrived leave finished records.
//     While the stored weight is above CompactRatio times the live one, the segments with
//     the most finished records are deleted. On average most of their records are
//     finished, so a commit frees more than it carries.
//
// The work of one commit is bounded by about twice what it writes anyway. Segments are
// found through lists by class, never by a scan.
func (s *Bolt) compact(tx *bbolt.Tx) {
	p, t := &s.plan, &s.segs
	budget := max(s.o.tune.carryBytes, 2*(p.bytes+int64(p.alive)*recordWeight))
	for tier := range tiers {
		if t.counts[tier] < s.o.tune.mergeFanIn {
			continue
		}
		for n := 2 * s.o.tune.mergeFanIn; n > 0 && t.heads[tier] != 0 && budget > 0; n-- {
			budget -= s.carry(tx, t.heads[tier])
		}
	}
	weight := t.weight
	for _, h := range p.victims {
		weight -= t.segs[h].weight - t.segs[h].liveWeight
	}
	for class := classes - 1; class >= deadFloor && budget > 0; {
		if weight <= s.o.CompactMinBytes || float64(weight) <= s.o.CompactRatio*float64(t.liveWeight) {
			return
		}
		h := t.heads[class]
		if h == 0 {
			class--
			continue
		}
		weight -= t.segs[h].weight - t.segs[h].liveWeight
		budget -= s.carry(tx, h)
	}
}

// carry makes a segment a victim and returns the cost. A segment that cannot be read
// remains, and is not compacted again.
func (s *Bolt) carry(tx *bbolt.Tx, h uint32) int64 {
	g, p := s.segs.segs[h], &s.plan
	mark := len(p.carried)
	err := s.carryAll(tx, h, g)
	s.mu.Lock()
	if err != nil {
		p.carried = p.carried[:mark]
		g.damaged = true
	} else {
		g.victim = true
		p.victims = append(p.victims, h)
	}
	s.segs.reclass(h)
	s.mu.Unlock()
	if err != nil {
		s.o.Logger.Error("store: segment cannot be compacted", "error", err)
	}
	return g.liveWeight + 1<<10
}

func (s *Bolt) carryAll(tx *bbolt.Tx, h uint32, g *segment) error {
	index, err := storefile.OpenBlock(storefile.SegmentBucket(tx, g.id).Get(storefile.KeyIndex), storefile.KindIndex, g.id)
	if err != nil {
		return s.path.Corrupt("index", g.id, 0, err)
	}
	records, err := storefile.OpenBlock(g.value(tx), storefile.KindSegment, g.id)
	if err == nil && (records.N != g.n || index.N != g.n) {
		err = errors.New("wrong number of records")
	}
	if err != nil {
		return s.path.Corrupt("segment", g.id, 0, err)
	}
	for i := range g.n {
		if g.isDone(i) {
			continue
		}
		entry, off, err := index.Item(i)
		var head storefile.EntryHead
		if err == nil {
			head, err = storefile.OpenEntry(entry)
		}
		if err != nil {
			return s.path.Corrupt("index", g.id, off, err)
		}
		ref := head.Ref
		raw, off, err := records.Item(i)
		if err == nil {
			var in storefile.Record
			if in, err = storefile.DecodeRecord(raw); err == nil && in.Ref != ref {
				err = errors.New("is another message than the index says")
			}
		}
		if err != nil {
			return s.path.Corrupt("segment", g.id, off, err)
		}
		q, l, ok := s.find(ref)
		if q == nil {
			return s.path.Corrupt("index", g.id, off, storefile.ErrNoQueueOf(ref))
		}
		if !ok || l.seg != h || l.slotNo() != i {
			return s.path.Corrupt("index", g.id, off, errors.New("its message is somewhere else"))
		}
		s.plan.carried = append(s.plan.carried, carried{ref: ref, entry: entry, record: raw})
	}
	return nil
}
