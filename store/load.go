package store

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"github.com/filaq/fila/store/storefile"
)

var (
	be = binary.BigEndian
	le = binary.LittleEndian
)

// load builds the state in memory.
func (s *Bolt) load() error {
	return s.db.View(func(tx *bbolt.Tx) (err error) {
		if s.format, err = s.path.CheckFormat(tx); err != nil {
			return err
		}
		s.nextQueue, err = s.path.ReadQueues(tx, func(q QueueRecord) { s.queues[q.ID] = &queue{id: q.ID} })
		if err != nil {
			return err
		}
		if err := s.loadClock(tx); err != nil {
			return err
		}
		if s.o.KeepConfirmed {
			if err := s.loadConfirmed(tx); err != nil {
				return err
			}
		}
		s.count.dedupes = int64(tx.Bucket(storefile.BucketDedupe).Stats().KeyN)
		return errors.Join(s.loadSegments(tx), s.loadStates(tx), s.loadHistories(tx), s.compareCounts(tx))
	})
}

// loadClock continues the clock of the file.
func (s *Bolt) loadClock(tx *bbolt.Tx) error {
	c, back, err := s.path.ReadClock(tx, s.o.Now())
	if err != nil {
		return err
	}
	s.clock = c
	if back > 0 && s.serving {
		s.o.Logger.Warn("store: the clock has been set back: delays and leases keep their remaining time, other times stay unchanged",
			"file", string(s.path), "by", time.Duration(back).Round(time.Millisecond))
	}
	return nil
}

func (s *Bolt) loadSegments(tx *bbolt.Tx) error {
	bitmaps, used := tx.Bucket(storefile.BucketBitmaps), 0
	segments := tx.Bucket(storefile.BucketSegments)
	err := segments.ForEach(func(k, v []byte) error {
		b := segments.Bucket(k)
		if len(k) != 8 || b == nil {
			return s.path.CorruptMeta("segment "+hex.EncodeToString(k), errors.New("bad key"))
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
		return s.path.CorruptMeta("bitmap", fmt.Errorf("%d of them belong to no segment", have-used))
	}
	return nil
}

// loadSegment adds the live messages of a segment to the location index. It notes
// records that cannot be read; they make the segment damaged.
func (s *Bolt) loadSegment(k []byte, b *bbolt.Bucket, bits []byte) {
	g := &segment{id: be.Uint64(k)}
	h := s.segs.add(g) // it is counted after it was read
	damaged := func(part string, offset int64, err error) {
		s.loaded.note(s.path.Corrupt(part, g.id, offset, err))
		g.damaged = true
	}
	index, err := storefile.OpenBlock(b.Get(storefile.KeyIndex), storefile.KindIndex, g.id)
	if err == nil && b.Get(storefile.KeyValue) == nil {
		err = errors.New("has no records")
	}
	if err != nil {
		damaged("index", 0, err)
		return
	}
	g.done = make([]uint64, (index.N+63)/64)
	if bits != nil {
		if g.done, err = storefile.DecodeBitmap(k, bits, index.N); err != nil {
			damaged("bitmap", -1, err)
			return
		}
	}
	g.hasBitmap = bits != nil
	g.n = index.N
	for i := range g.n {
		head, off, err := storefile.ItemAs(index, i, storefile.OpenEntry)
		if err == nil && !g.isDone(i) {
			err = s.place(head.Ref, loc{seg: h, slot: uint32(i), size: head.Size()})
		}
		if err != nil {
			damaged("index", off, err)
		}
		w := int64(head.Size()) + recordWeight
		g.weight += w
		if !g.isDone(i) {
			g.live++
			g.liveWeight += w
		}
	}
	s.segs.count(g, 1)
	s.segs.reclass(h)
}

// place adds a live message to the location index.
func (s *Bolt) place(ref Ref, l loc) error {
	q := s.queues[ref.Queue]
	duplicate := false
	if q != nil {
		_, duplicate = q.index.get(ref.Seq)
	}
	if err := storefile.CheckMessage(ref, q != nil, duplicate); err != nil {
		return err
	}
	q.index.put(ref.Seq, l)
	s.count.bytes += int64(l.size)
	return nil
}

// loadStates marks the messages that have a state.
func (s *Bolt) loadStates(tx *bbolt.Tx) error {
	return s.loadMarks(tx.Bucket(storefile.BucketState), "state", stateBit, &s.count.states)
}

// loadHistories marks the messages that have a history.
func (s *Bolt) loadHistories(tx *bbolt.Tx) error {
	b := tx.Bucket(storefile.BucketHistory)
	if b == nil {
		return nil
	}
	return s.loadMarks(b, "history", historyBit, &s.count.history)
}

// loadMarks marks the messages that have a key in a bucket, and counts the keys.
func (s *Bolt) loadMarks(b *bbolt.Bucket, what string, bit uint32, count *int64) error {
	return b.ForEach(func(k, _ []byte) error {
		*count++
		ref, err := storefile.DecodeRefKey(k)
		if err == nil {
			q := s.queues[ref.Queue]
			if q == nil {
				err = storefile.ErrNoQueueOf(ref)
			} else if l, ok := q.index.get(ref.Seq); ok {
				l.slot |= bit
				q.index.put(ref.Seq, l)
			} else if s.loaded.CorruptN == 0 { // else its message may be unreadable
				err = storefile.ErrNoMessage(ref)
			}
		}
		if err != nil {
			s.loaded.note(s.path.CorruptMeta(what+" "+hex.EncodeToString(k), err))
		}
		return nil
	})
}

// compareCounts notices missing parts of the tree.
func (s *Bolt) compareCounts(tx *bbolt.Tx) error {
	want, err := s.path.ReadCounts(tx)
	if err != nil {
		return err
	}
	got := s.counts()
	got.Commits = want.Commits
	if s.loaded.CorruptN > 0 { // known to be incomplete
		got.Records, got.Finished = want.Records, want.Finished
	}
	s.count.commits = int64(want.Commits)
	return s.path.CorruptMeta("tally", got.Differs(want))
}

func (s *Bolt) counts() storefile.Counts {
	return storefile.Counts{
		Segments: uint64(s.segs.n), Records: uint64(s.segs.records), Finished: uint64(s.segs.finished),
		States: uint64(s.count.states), Dedupes: uint64(s.count.dedupes), Commits: uint64(s.count.commits),
		Histories: uint64(s.count.history),
	}
}

// Snapshot implements [Store].
func (s *Bolt) Snapshot() (out Snapshot, err error) {
	if s.closed.Load() {
		return Snapshot{}, ErrClosed
	}
	// With a Log, Done is called before the commit: wait until the batch is in the file.
	s.gate.RLock()
	defer s.gate.RUnlock()
	err = s.path.Guard("snapshot", func() error {
		return s.db.View(func(tx *bbolt.Tx) error { out, err = s.path.ReadSnapshot(tx); return err })
	})
	return out, err
}
