package store

import (
	"encoding/hex"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
)

const corruptListed = 100

// note keeps a record that cannot be read for Recover.
func (s *Bolt) note(part string, segment uint64, offset int64, reason error) *CorruptError {
	e := &CorruptError{File: s.path, Part: part, Segment: segment, Offset: offset, Reason: reason.Error()}
	if s.corruptN++; len(s.corrupt) < corruptListed {
		s.corrupt = append(s.corrupt, e)
	}
	return e
}

// load builds what the store keeps in memory.
func (s *Bolt) load() error {
	return s.db.View(func(tx *bbolt.Tx) error {
		if err := s.checkFormat(tx); err != nil {
			return err
		}
		if err := s.loadMeta(tx); err != nil {
			return err
		}
		return errors.Join(s.loadSegments(tx), s.loadStates(tx), s.loadDedupe(tx), s.compareTally(tx))
	})
}

// checkFormat comes before everything else: nothing is known about the rest of a
// file of another version.
func (s *Bolt) checkFormat(tx *bbolt.Tx) error {
	meta := tx.Bucket(bucketMeta)
	if meta == nil {
		return fmt.Errorf("%w: %s is a bbolt file without our meta data", ErrNotStore, s.path)
	}
	raw := meta.Get(keyFormat)
	if raw == nil {
		return fmt.Errorf("%w: %s is a bbolt file without a format version", ErrNotStore, s.path)
	}
	v, err := unseal(keyFormat, raw)
	if err != nil || len(v) != 4 {
		return s.metaError("format", errChecksum)
	}
	if found := le.Uint32(v); found != Version {
		return &VersionError{File: s.path, Found: found, Want: Version}
	}
	for _, name := range buckets {
		if tx.Bucket(name) == nil {
			return s.metaError(string(name), errors.New("bucket is missing"))
		}
	}
	return nil
}

func (s *Bolt) metaError(part string, reason error) error {
	return &CorruptError{File: s.path, Part: part, Offset: -1, Reason: reason.Error()}
}

func (s *Bolt) loadMeta(tx *bbolt.Tx) error {
	meta := tx.Bucket(bucketMeta)
	v, err := unseal(keyNextQueue, meta.Get(keyNextQueue))
	if err != nil || len(v) != 4 {
		return s.metaError("next_queue", errChecksum)
	}
	s.nextQueue = QueueID(le.Uint32(v))
	return tx.Bucket(bucketQueues).ForEach(func(k, v []byte) error {
		q, err := decodeQueue(k, v)
		if err != nil {
			return s.metaError("queue "+hex.EncodeToString(k), err)
		}
		if q.ID >= s.nextQueue {
			return s.metaError("queue "+q.Name, fmt.Errorf("id %d, the next one to come is %d", q.ID, s.nextQueue))
		}
		s.queues[q.ID] = &queue{id: q.ID}
		return nil
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
	have := 0
	if err := bitmaps.ForEach(func(k, v []byte) error { have++; return nil }); err != nil {
		return err
	}
	if have != used {
		return s.metaError("bitmap", fmt.Errorf("%d of them belong to no segment", have-used))
	}
	return nil
}

// loadSegment puts the live messages of a segment into the location index. What
// cannot be read is noted and makes the segment damaged.
func (s *Bolt) loadSegment(k []byte, b *bbolt.Bucket, bits []byte) {
	g := &segment{id: be.Uint64(k)}
	h := s.segs.add(g)
	index, err := openBlock(b.Get(keyIndex), kindIndex, g.id)
	if err == nil && b.Get(keyValue) == nil {
		err = errors.New("has no records")
	}
	if err != nil {
		s.note("index", g.id, 0, err)
		g.damaged = true
		return
	}
	g.done = make([]uint64, (index.n+63)/64)
	if bits != nil {
		if g.done, err = decodeBitmap(k, bits, index.n); err != nil {
			s.note("bitmap", g.id, -1, err)
			g.damaged = true
			return
		}
	}
	g.hasBitmap = bits != nil
	for i := range index.n {
		g.n++
		s.segs.records++
		raw, off, err := index.item(i)
		var ref Ref
		var size uint32
		if err == nil {
			ref, size, err = entryRef(raw)
		}
		if err == nil && !g.isDone(i) {
			err = s.place(ref, loc{seg: h, slot: uint32(i), size: size})
		}
		if err != nil {
			s.note("index", g.id, off, err)
			g.damaged = true
		}
		w := int64(size) + recordWeight
		g.weight += w
		s.segs.weight += w
		if g.isDone(i) {
			s.segs.finished++
			continue
		}
		g.live++
		g.liveWeight += w
		s.segs.liveWeight += w
	}
	s.segs.reclass(h)
}

// place files a live message.
func (s *Bolt) place(ref Ref, l loc) error {
	q := s.queues[ref.Queue]
	if q == nil {
		return fmt.Errorf("message %d of queue %d, which does not exist", ref.Seq, ref.Queue)
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
	return tx.Bucket(bucketState).ForEach(func(k, v []byte) error {
		s.count.states++
		ref, err := decodeRefKey(k)
		if err == nil {
			q := s.queues[ref.Queue]
			if q == nil {
				err = errors.New("its queue does not exist")
			} else if l, ok := q.index.get(ref.Seq); ok {
				l.slot |= stateBit
				q.index.put(ref.Seq, l)
			} else if s.corruptN == 0 { // its message may be one that cannot be read
				err = errors.New("its message does not exist")
			}
		}
		if err != nil {
			s.note("state "+hex.EncodeToString(k), 0, -1, err)
		}
		return nil
	})
}

func (s *Bolt) loadDedupe(tx *bbolt.Tx) error {
	return tx.Bucket(bucketDedupe).ForEach(func(k, v []byte) error {
		s.count.dedupes++
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
	if s.corruptN > 0 { // known to be incomplete
		got.records, got.finished = want.records, want.finished
	}
	if got != want {
		return s.metaError("tally", fmt.Errorf("found %s where the last commit counted %s", got, want))
	}
	s.count.commits = int64(want.commits)
	return nil
}

func (s *Bolt) tally() tally {
	return tally{
		segments: uint64(s.segs.n), records: uint64(s.segs.records), finished: uint64(s.segs.finished),
		states: uint64(s.count.states), dedupes: uint64(s.count.dedupes), commits: uint64(s.count.commits),
	}
}

// Snapshot implements [Store].
func (s *Bolt) Snapshot() (Snapshot, error) {
	if s.closed.Load() {
		return Snapshot{}, ErrClosed
	}
	var out Snapshot
	err := s.guard("snapshot", func() error {
		return s.db.View(func(tx *bbolt.Tx) error { return s.snapshot(tx, &out) })
	})
	return out, err
}

func (s *Bolt) snapshot(tx *bbolt.Tx, out *Snapshot) error {
	meta := tx.Bucket(bucketMeta)
	secret, err := unseal(keySecret, meta.Get(keySecret))
	if err != nil || len(secret) != 32 {
		return s.metaError("secret", errChecksum)
	}
	created, err := unseal(keyCreated, meta.Get(keyCreated))
	if err != nil || len(created) != 8 {
		return s.metaError("created", errChecksum)
	}
	next, err := unseal(keyNextQueue, meta.Get(keyNextQueue))
	if err != nil || len(next) != 4 {
		return s.metaError("next_queue", errChecksum)
	}
	out.Secret = append([]byte(nil), secret...)
	out.CreatedAt = int64(le.Uint64(created))
	out.NextQueueID = QueueID(le.Uint32(next))
	err = tx.Bucket(bucketQueues).ForEach(func(k, v []byte) error {
		q, err := decodeQueue(k, v)
		if err != nil {
			return s.metaError("queue "+hex.EncodeToString(k), err)
		}
		out.Queues = append(out.Queues, q)
		return nil
	})
	if err != nil {
		return err
	}
	err = tx.Bucket(bucketConsumers).ForEach(func(k, v []byte) error {
		c, err := decodeConsumer(k, v)
		if err != nil {
			return s.metaError("consumer "+hex.EncodeToString(k), err)
		}
		out.Consumers = append(out.Consumers, c)
		return nil
	})
	if err != nil {
		return err
	}
	return tx.Bucket(bucketConfig).ForEach(func(k, v []byte) error {
		val, err := unseal(k, v)
		if err != nil {
			return s.metaError("config "+string(k), err)
		}
		out.Config = append(out.Config, Entry{Key: string(k), Value: string(val)})
		return nil
	})
}
