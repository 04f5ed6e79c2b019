package storefile

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"
)

// Version is the newest format version that this program reads and writes. A file
// starts with FirstVersion. It gets WithHistories with the first history, the first lease
// with its begin, or the first message with a priority, and WithRoutes with the first
// message that has routes.
//
// The file is a bbolt file with these buckets:
//
//	meta       format (u32), secret (32 bytes), created (i64), next_queue (u32),
//	           tally, clock (in files of versions that have one), position (of a
//	           replica: how far it applied a log, opaque here): all sealed
//	segments   segment id (u64 big endian) -> a bucket with two blocks: "i", the
//	           header index, and "v", the records. A bucket of its own keeps the
//	           big values out of its neighbours' pages; "i" lies before "v", so
//	           that recovery does not read payloads
//	bitmaps    segment id -> bitmap of finished records, if there are any
//	state      queue, seq -> state
//	history    queue, seq -> history; since version 2
//	dedupe     expiry, stamp -> block of dedupe ids
//	queues     queue id (u32 big endian) -> queue
//	consumers  queue id, name -> consumer
//	config     key -> value, sealed
const (
	Version = WithRoutes

	FirstVersion  = 1
	WithHistories = 2
	WithRoutes    = 3
)

// Buckets and keys of the file.
var (
	BucketMeta      = []byte("meta")
	BucketSegments  = []byte("segments")
	BucketBitmaps   = []byte("bitmaps")
	BucketState     = []byte("state")
	BucketHistory   = []byte("history") // made when it is needed
	BucketDedupe    = []byte("dedupe")
	BucketQueues    = []byte("queues")
	BucketConsumers = []byte("consumers")
	BucketConfig    = []byte("config")

	KeyFormat    = []byte("format")
	KeyNextQueue = []byte("next_queue")
	KeyCounts    = []byte("tally")
	KeyClock     = []byte("clock")
	KeyPosition  = []byte("position")
	KeyIndex     = []byte("i")
	KeyValue     = []byte("v")

	keySecret  = []byte("secret")
	keyCreated = []byte("created")

	// buckets are the buckets of every file.
	buckets = [][]byte{
		BucketMeta, BucketSegments, BucketBitmaps, BucketState, BucketDedupe,
		BucketQueues, BucketConsumers, BucketConfig,
	}
)

// Initialise writes the content of an empty store. With a nil secret it makes one, and
// with created 0 the store is created now.
func Initialise(tx *bbolt.Tx, secret []byte, created int64) error {
	for _, name := range buckets {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	if secret == nil {
		secret = make([]byte, 32)
		rand.Read(secret) // it never fails
	}
	meta := tx.Bucket(BucketMeta)
	return errors.Join(
		PutSealed(meta, KeyFormat, le.AppendUint32(nil, FirstVersion)),
		PutSealed(meta, keySecret, secret),
		PutSealed(meta, keyCreated, le.AppendUint64(nil, uint64(cmp.Or(created, time.Now().UnixNano())))),
		PutSealed(meta, KeyNextQueue, le.AppendUint32(nil, 1)),
		PutSealed(meta, KeyCounts, AppendCounts(nil, Counts{})),
	)
}

// PutSealed seals a value and puts it into a bucket.
func PutSealed(b *bbolt.Bucket, key, value []byte) error {
	return b.Put(key, Seal(make([]byte, 0, 4+len(value)), key, value))
}

// CheckFormat returns the format version of the file. It must come before everything
// else, because the rest of a file of another version is unknown.
func (p Path) CheckFormat(tx *bbolt.Tx) (version uint32, err error) {
	meta := tx.Bucket(BucketMeta)
	if meta == nil {
		return 0, fmt.Errorf("%w: %s is a bbolt file without our meta data", ErrNotStore, p)
	}
	if meta.Get(KeyFormat) == nil {
		return 0, fmt.Errorf("%w: %s is a bbolt file without a format version", ErrNotStore, p)
	}
	v, err := p.metaValue(meta, KeyFormat, 4)
	if err != nil {
		return 0, err
	}
	if version = le.Uint32(v); version < FirstVersion || version > Version {
		return 0, &VersionError{File: string(p), Found: version, Want: Version}
	}
	for _, name := range buckets {
		if tx.Bucket(name) == nil {
			return 0, p.CorruptMeta(string(name), errors.New("bucket is missing"))
		}
	}
	return version, nil
}

// metaValue returns a value of the meta bucket that is size bytes long.
func (p Path) metaValue(meta *bbolt.Bucket, key []byte, size int) ([]byte, error) {
	v, err := Unseal(key, meta.Get(key))
	if err != nil || len(v) != size {
		return nil, p.CorruptMeta(string(key), ErrChecksum)
	}
	return v, nil
}

// ReadQueues calls fn for every queue and returns the next queue id.
func (p Path) ReadQueues(tx *bbolt.Tx, fn func(QueueRecord)) (next QueueID, err error) {
	v, err := p.metaValue(tx.Bucket(BucketMeta), KeyNextQueue, 4)
	if err != nil {
		return 0, err
	}
	next = QueueID(le.Uint32(v))
	return next, readRecords(p, tx.Bucket(BucketQueues), "queue", decodeQueue, func(q QueueRecord) error {
		if q.ID >= next {
			return p.CorruptMeta(fmt.Sprintf("queue %08x", q.ID), fmt.Errorf("id %d, the next id is %d", q.ID, next))
		}
		fn(q)
		return nil
	})
}

// readRecords calls fn for every record of a bucket until one cannot be read.
func readRecords[T any](p Path, b *bbolt.Bucket, part string, decode func(k, v []byte) (T, error), fn func(T) error) error {
	return b.ForEach(func(k, v []byte) error {
		r, err := decode(k, v)
		if err != nil {
			return p.CorruptMeta(part+" "+hex.EncodeToString(k), err)
		}
		return fn(r)
	})
}

// ReadCounts returns the counts of the last commit.
func (p Path) ReadCounts(tx *bbolt.Tx) (Counts, error) {
	t, err := decodeCounts(KeyCounts, tx.Bucket(BucketMeta).Get(KeyCounts))
	return t, p.CorruptMeta("tally", err)
}

// ReadSnapshot reads everything but messages and dedupe ids.
func (p Path) ReadSnapshot(tx *bbolt.Tx) (out Snapshot, err error) {
	meta := tx.Bucket(BucketMeta)
	secret, err := p.metaValue(meta, keySecret, 32)
	if err != nil {
		return out, err
	}
	created, err := p.metaValue(meta, keyCreated, 8)
	if err != nil {
		return out, err
	}
	next, err := p.metaValue(meta, KeyNextQueue, 4)
	if err != nil {
		return out, err
	}
	out.Secret = bytes.Clone(secret)
	out.CreatedAt = int64(le.Uint64(created))
	out.NextQueueID = QueueID(le.Uint32(next))
	err = readRecords(p, tx.Bucket(BucketQueues), "queue", decodeQueue, func(q QueueRecord) error {
		out.Queues = append(out.Queues, q)
		return nil
	})
	if err != nil {
		return out, err
	}
	err = readRecords(p, tx.Bucket(BucketConsumers), "consumer", decodeConsumer, func(c ConsumerRecord) error {
		out.Consumers = append(out.Consumers, c)
		return nil
	})
	if err != nil {
		return out, err
	}
	return out, tx.Bucket(BucketConfig).ForEach(func(k, v []byte) error {
		val, err := Unseal(k, v)
		if err != nil {
			return p.CorruptMeta(configPart(k), err)
		}
		out.Config = append(out.Config, Entry{Key: string(k), Value: string(val)})
		return nil
	})
}

// configPart names a key of the configuration in errors. Other keys are in hex.
func configPart(key []byte) string { return fmt.Sprintf("config %q", key) }

// ReadPosition returns how far the file applied its log, nil if it has none.
func (p Path) ReadPosition(tx *bbolt.Tx) ([]byte, error) {
	sealed := tx.Bucket(BucketMeta).Get(KeyPosition)
	if sealed == nil {
		return nil, nil
	}
	value, err := Unseal(KeyPosition, sealed)
	return bytes.Clone(value), p.CorruptMeta(string(KeyPosition), err)
}
