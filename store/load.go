package store

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
)

// load builds what the store keeps in memory.
func (s *Bolt) load() error {
	return s.db.View(func(tx *bbolt.Tx) error {
		if err := s.checkFormat(tx); err != nil {
			return err
		}
		if err := s.loadMeta(tx); err != nil {
			return err
		}
		if err := s.loadClock(tx); err != nil {
			return err
		}
		s.count.dedupes = int64(tx.Bucket(bucketDedupe).Stats().KeyN)
		return errors.Join(s.loadSegments(tx), s.loadStates(tx), s.loadHistories(tx), s.compareTally(tx))
	})
}

// checkFormat comes before everything else: nothing is known about the rest of a
// file of another version.
func (s *Bolt) checkFormat(tx *bbolt.Tx) error {
	meta := tx.Bucket(bucketMeta)
	if meta == nil {
		return fmt.Errorf("%w: %s is a bbolt file without our meta data", ErrNotStore, s.path)
	}
	if meta.Get(keyFormat) == nil {
		return fmt.Errorf("%w: %s is a bbolt file without a format version", ErrNotStore, s.path)
	}
	v, err := s.metaValue(meta, keyFormat, 4)
	if err != nil {
		return err
	}
	if s.format = le.Uint32(v); s.format < firstVersion || s.format > Version {
		return &VersionError{File: s.path, Found: s.format, Want: Version}
	}
	for _, name := range buckets {
		if tx.Bucket(name) == nil {
			return s.metaError(string(name), errors.New("bucket is missing"))
		}
	}
	return nil
}

// metaValue returns a value of the meta bucket that is size bytes long.
func (s *Bolt) metaValue(meta *bbolt.Bucket, key []byte, size int) ([]byte, error) {
	v, err := unseal(key, meta.Get(key))
	if err != nil || len(v) != size {
		return nil, s.metaError(string(key), errChecksum)
	}
	return v, nil
}

func (s *Bolt) loadMeta(tx *bbolt.Tx) error {
	v, err := s.metaValue(tx.Bucket(bucketMeta), keyNextQueue, 4)
	if err != nil {
		return err
	}
	s.nextQueue = QueueID(le.Uint32(v))
	return each(s, tx.Bucket(bucketQueues), "queue", decodeQueue, func(q QueueRecord) error {
		if q.ID >= s.nextQueue {
			return s.metaError(fmt.Sprintf("queue %08x", q.ID), fmt.Errorf("id %d, the next one to come is %d", q.ID, s.nextQueue))
		}
		s.queues[q.ID] = &queue{id: q.ID}
		return nil
	})
}

// each calls fn for every record of a bucket until one cannot be read.
func each[T any](s *Bolt, b *bbolt.Bucket, what string, decode func(k, v []byte) (T, error), fn func(T) error) error {
	return b.ForEach(func(k, v []byte) error {
		r, err := decode(k, v)
		if err != nil {
			return s.metaError(what+" "+hex.EncodeToString(k), err)
		}
		return fn(r)
	})
}

func (s *Bolt) loadSegments(tx *bbolt.Tx) error {
	bitmaps, used := tx.Bucket(bucketBitmaps), 0
	segments := tx.Bucket(bucketSegments)
	err := segments.ForEach(func(k, v []byte) error {
		b := segments.Bucket(k)
		if len(k) != 8 || b == nil {
			return s.metaError("segment "+hex.EncodeToString(k), errors.New("bad key"))
		}
		bits := bitmaps.Get(k)
		if bits != nil {
			used++
		}
		s.loadSegment(k, b, bits)
		return nil
	})
	if err != nil {
		return err
	}
	if have := bitmaps.Stats().KeyN; have != used {
		return s.metaError("bitmap", fmt.Errorf("%d of them belong to no segment", have-used))
	}
	return nil
}

// loadSegment puts the live messages of a segment into the location index. What
// cannot be read is noted and makes the segment damaged.
func (s *Bolt) loadSegment(k []byte, b *bbolt.Bucket, bits []byte) {
	g := &segment{id: be.Uint64(k)}
	h := s.segs.add(g) // it is counted once it has been read
	damaged := func(part string, offset int64, err error) {
		s.loaded.note(s.corrupt(part, g.id, offset, err))
		g.damaged = true
	}
	index, err := openBlock(b.Get(keyIndex), kindIndex, g.id)
	if err == nil && b.Get(keyValue) == nil {
		err = errors.New("has no records")
	}
	if err != nil {
		damaged("index", 0, err)
		return
	}
	g.done = make([]uint64, (index.n+63)/64)
	if bits != nil {
		if g.done, err = decodeBitmap(k, bits, index.n); err != nil {
			damaged("bitmap", -1, err)
			return
		}
	}
	g.hasBitmap = bits != nil
	g.n = index.n
	for i := range g.n {
		head, off, err := itemAs(index, i, openEntry)
		if err == nil && !g.isDone(i) {
			err = s.place(head.ref, loc{seg: h, slot: uint32(i), size: head.size()})
		}
		if err != nil {
			damaged("index", off, err)
		}
		w := int64(head.size()) + recordWeight
		g.weight += w
		if !g.isDone(i) {
			g.live++
			g.liveWeight += w
		}
	}
	s.segs.count(g, 1)
	s.segs.reclass(h)
}

// place files a live message.
func (s *Bolt) place(ref Ref, l loc) error {
	q := s.queues[ref.Queue]
	if q == nil {
		return noQueueOf(ref)
	}
	if ref.Seq > MaxSeq {
		return fmt.Errorf("message %d of queue %d: no such number is given out", ref.Seq, ref.Queue)
	}
	if _, ok := q.index.get(ref.Seq); ok {
		return fmt.Errorf("message %d of queue %d is there twice", ref.Seq, ref.Queue)
	}
	q.index.put(ref.Seq, l)
	s.count.bytes += int64(l.size)
	return nil
}

// loadStates marks the messages that have a state.
func (s *Bolt) loadStates(tx *bbolt.Tx) error {
	return s.loadMarks(tx.Bucket(bucketState), "state", stateBit, &s.count.states)
}

// loadHistories marks the messages that have a history.
func (s *Bolt) loadHistories(tx *bbolt.Tx) error {
	b := tx.Bucket(bucketHistory)
	if b == nil {
		return nil
	}
	return s.loadMarks(b, "history", historyBit, &s.count.history)
}

// loadMarks marks the messages that a bucket has keys of, and counts them.
func (s *Bolt) loadMarks(b *bbolt.Bucket, what string, bit uint32, count *int64) error {
	return b.ForEach(func(k, _ []byte) error {
		*count++
		ref, err := decodeRefKey(k)
		if err == nil {
			q := s.queues[ref.Queue]
			if q == nil {
				err = noQueueOf(ref)
			} else if l, ok := q.index.get(ref.Seq); ok {
				l.slot |= bit
				q.index.put(ref.Seq, l)
			} else if s.loaded.CorruptN == 0 { // its message may be one that cannot be read
				err = noMessage(ref)
			}
		}
		if err != nil {
			s.loaded.note(s.metaError(what+" "+hex.EncodeToString(k), err))
		}
		return nil
	})
}

// compareTally notices parts of the tree that went missing.
func (s *Bolt) compareTally(tx *bbolt.Tx) error {
	want, err := decodeTally(keyTally, tx.Bucket(bucketMeta).Get(keyTally))
	if err != nil {
		return s.metaError("tally", err)
	}
	got := s.tally()
	got.commits = want.commits
	if s.loaded.CorruptN > 0 { // known to be incomplete
		got.records, got.finished = want.records, want.finished
	}
	s.count.commits = int64(want.commits)
	return s.metaError("tally", got.differs(want))
}

func (s *Bolt) tally() tally {
	return tally{
		segments: uint64(s.segs.n), records: uint64(s.segs.records), finished: uint64(s.segs.finished),
		states: uint64(s.count.states), dedupes: uint64(s.count.dedupes), commits: uint64(s.count.commits),
		histories: uint64(s.count.history),
	}
}

// Snapshot implements [Store].
func (s *Bolt) Snapshot() (Snapshot, error) {
	if s.closed.Load() {
		return Snapshot{}, ErrClosed
	}
	var out Snapshot
	// What is done is in the file: with a Log, Done comes before the commit.
	s.gate.RLock()
	defer s.gate.RUnlock()
	err := s.guard("snapshot", func() error {
		return s.db.View(func(tx *bbolt.Tx) error { return s.snapshot(tx, &out) })
	})
	return out, err
}

func (s *Bolt) snapshot(tx *bbolt.Tx, out *Snapshot) error {
	meta := tx.Bucket(bucketMeta)
	secret, err := s.metaValue(meta, keySecret, 32)
	if err != nil {
		return err
	}
	created, err := s.metaValue(meta, keyCreated, 8)
	if err != nil {
		return err
	}
	next, err := s.metaValue(meta, keyNextQueue, 4)
	if err != nil {
		return err
	}
	out.Secret = bytes.Clone(secret)
	out.CreatedAt = int64(le.Uint64(created))
	out.NextQueueID = QueueID(le.Uint32(next))
	err = each(s, tx.Bucket(bucketQueues), "queue", decodeQueue, func(q QueueRecord) error {
		out.Queues = append(out.Queues, q)
		return nil
	})
	if err != nil {
		return err
	}
	err = each(s, tx.Bucket(bucketConsumers), "consumer", decodeConsumer, func(c ConsumerRecord) error {
		out.Consumers = append(out.Consumers, c)
		return nil
	})
	if err != nil {
		return err
	}
	return tx.Bucket(bucketConfig).ForEach(func(k, v []byte) error {
		val, err := unseal(k, v)
		if err != nil {
			return s.metaError(configPart(k), err)
		}
		out.Config = append(out.Config, Entry{Key: string(k), Value: string(val)})
		return nil
	})
}
