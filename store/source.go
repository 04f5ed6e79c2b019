package store

import "go.etcd.io/bbolt"

// source is where a Move takes headers and payload from. They are good until the
// commit.
type source struct {
	headers, payload []byte
	err              error
}

// sources reads what a batch moves, before the lock is taken.
func (s *Bolt) sources(tx *bbolt.Tx, b *Batch) []source {
	if len(b.Move) == 0 {
		return nil
	}
	out := make([]source, len(b.Move))
	for i := range b.Move {
		src, ref := &out[i], b.Move[i].From
		src.err = ErrNotFound
		if _, l, ok := s.find(ref); ok && l.seg != pendingSeg {
			g := s.segs.segs[l.seg]
			src.headers, src.payload, src.err = s.decode(g.value(tx), g.id, l.slotNo(), ref)
		}
	}
	return out
}

// pendingSource is for a message that the running commit adds; for any other one
// it returns the error that is known already.
func (s *Bolt) pendingSource(ref Ref, err error) source {
	if _, l, ok := s.find(ref); ok && l.seg == pendingSeg {
		a := &s.plan.adds[l.slotNo()]
		return source{headers: a.headers, payload: a.payload}
	}
	return source{err: err}
}

// value returns the records of a segment that exists.
func (g *segment) value(tx *bbolt.Tx) []byte {
	if g.data != nil {
		return g.data
	}
	return segmentBucket(tx, g.id).Get(keyValue)
}

// segmentBucket returns the bucket of a segment that exists.
func segmentBucket(tx *bbolt.Tx, id uint64) *bbolt.Bucket {
	var key [8]byte
	be.PutUint64(key[:], id)
	return tx.Bucket(bucketSegments).Bucket(key[:])
}
