package store

import (
	"hash/crc32"
	"io"

	"go.etcd.io/bbolt"

	"github.com/filaq/fila/store/storefile"
)

// Small makes segments and thresholds so small that a few messages exercise
// compaction, merging and several segments per commit.
func (o Options) Small() Options {
	o.CompactMinBytes = 1
	o.tune = tuning{coldBytes: 100, segmentRecords: 7, segmentBytes: 4 << 10, allocBytes: 16 << 10, mergeFanIn: 4, carryBytes: 8 << 10}
	return o
}

// Dense makes the file grow by single pages.
func (o Options) Dense() Options {
	o.tune.allocBytes = storefile.PageSize
	return o
}

// Path returns the name of the file.
func (s *Bolt) Path() string { return string(s.path) }

// Freeze runs fn while nothing is committed.
func (s *Bolt) Freeze(fn func()) {
	s.gate.RLock()
	defer s.gate.RUnlock()
	fn()
}

// PutVersion changes the version of a file.
func PutVersion(tx *bbolt.Tx, v uint32) error {
	return storefile.PutSealed(tx.Bucket(storefile.BucketMeta), storefile.KeyFormat, le.AppendUint32(nil, v))
}

// LimitSize makes every commit fail that would grow the file beyond n bytes, as
// a full disk does. It must be called before the first Submit.
func (s *Bolt) LimitSize(n int) { s.db.MaxSize = n }

// WithStep calls fn between the steps of a rewrite.
func (o Options) WithStep(fn func(name string) error) Options {
	o.tune.step = fn
	return o
}

// WithWriter puts fn before the file of a backup.
func (o Options) WithWriter(fn func(io.Writer) io.Writer) Options {
	o.tune.writer = fn
	return o
}

// PutState, PutQueue and PutConsumer write into a bucket like the store.
func PutState(tx *bbolt.Tx, st *State) error {
	return storefile.PutSealed(tx.Bucket(storefile.BucketState), storefile.AppendRefKey(nil, st.Ref), storefile.AppendState(nil, st))
}

func PutQueue(tx *bbolt.Tx, q *QueueRecord) error {
	return storefile.PutSealed(tx.Bucket(storefile.BucketQueues), storefile.QueueKey(q.ID), storefile.AppendQueue(nil, q))
}

func PutConsumer(tx *bbolt.Tx, c *ConsumerRecord) error {
	return storefile.PutSealed(tx.Bucket(storefile.BucketConsumers), storefile.ConsumerKey(c), storefile.AppendConsumer(nil, c))
}

// SetBlockID changes the id of a block.
func SetBlockID(b []byte, id uint64) {
	le.PutUint64(b[8:], id)
	le.PutUint32(b[16:], crc32.Checksum(b[:16], crc32.MakeTable(crc32.Castagnoli)))
}

// Leaving says whether Close has begun.
func (s *Bolt) Leaving() bool {
	select {
	case <-s.leaving:
		return true
	default:
		return false
	}
}
