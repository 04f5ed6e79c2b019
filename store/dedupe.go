package store

import (
	"cmp"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/filaq/fila/store/storefile"
)

// writeDedupe appends to the dedupe log, one value per step of expiry, and deletes expired
// values from its front: a few more than it appends, so that the log stays bounded and no
// commit has much work.
func (s *Bolt) writeDedupe(tx *bbolt.Tx) error {
	now := s.o.Now()
	if len(s.plan.dedupe) == 0 && (s.count.dedupes == 0 || s.dedupeFirst > now) {
		return nil
	}
	bucket := tx.Bucket(storefile.BucketDedupe)
	bucket.FillPercent = 0.9
	puts, err := s.appendDedupes(bucket, uint64(tx.ID()), now)
	if err != nil || s.dedupeFirst > now {
		return err
	}
	c := bucket.Cursor()
	k, _ := c.First()
	for budget := 4 + 2*puts; k != nil; k, _ = c.First() {
		step, _, err := storefile.DecodeDedupeKey(k)
		if err != nil {
			return s.path.CorruptMeta("dedupe", err)
		}
		if s.dedupeFirst = step; step > now || budget == 0 {
			return nil
		}
		if err := c.Delete(); err != nil {
			return err
		}
		s.count.dedupes--
		budget--
	}
	s.dedupeFirst = 1<<63 - 1
	return nil
}

func (s *Bolt) appendDedupes(bucket *bbolt.Bucket, stamp uint64, now int64) (puts int, err error) {
	p := &s.plan
	live := slices.DeleteFunc(p.dedupe, func(d *Dedupe) bool { return d.Until <= now })
	slices.SortStableFunc(live, func(a, b *Dedupe) int {
		return cmp.Compare(storefile.DedupeStepOf(a.Until), storefile.DedupeStepOf(b.Until))
	})
	for len(live) > 0 {
		step := storefile.DedupeStepOf(live[0].Until)
		n, size := 0, storefile.BlockHeader
		for n < len(live) && storefile.DedupeStepOf(live[n].Until) == step {
			size += 4 + storefile.DedupeFixed + len(live[n].DedupeID)
			n++
		}
		// In a file that was rewritten, transactions are counted from 0 again.
		key := storefile.AppendDedupeKey(nil, step, stamp)
		for bucket.Get(key) != nil {
			stamp++
			key = storefile.AppendDedupeKey(key[:0], step, stamp)
		}
		b := storefile.BeginBlock(p.grab(size), storefile.KindDedupe, stamp, n)
		for i, d := range live[:n] {
			b = storefile.AppendDedupe(b, d)
			storefile.EndItem(b, i)
		}
		if err := bucket.Put(key, b); err != nil {
			return puts, err
		}
		puts++
		s.count.dedupes++
		s.dedupeFirst = min(s.dedupeFirst, step)
		live = live[n:]
	}
	return puts, nil
}
