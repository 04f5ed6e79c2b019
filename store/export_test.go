package store

import "go.etcd.io/bbolt"

// Small makes segments and thresholds so small that a few messages exercise
// compaction, merging and several segments per commit.
func (o Options) Small() Options {
	o.CompactMinBytes = 1
	o.tune = tuning{segmentRecords: 7, segmentBytes: 4 << 10, allocBytes: 16 << 10, mergeFanIn: 4, carryBytes: 8 << 10}
	return o
}

// Dense makes the file grow by single pages.
func (o Options) Dense() Options {
	o.tune.allocBytes = pageSize
	return o
}

// Freeze runs fn while nothing is committed.
func (s *Bolt) Freeze(fn func()) {
	s.gate.RLock()
	defer s.gate.RUnlock()
	fn()
}

// PutVersion makes a file one of another version.
func PutVersion(tx *bbolt.Tx, v uint32) error {
	return putSealed(tx.Bucket(bucketMeta), keyFormat, le.AppendUint32(nil, v))
}

// LimitSize makes every commit fail that would grow the file beyond n bytes, as
// a full disk does. It must be called before the first Submit.
func (s *Bolt) LimitSize(n int) { s.db.MaxSize = n }
