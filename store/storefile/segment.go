package storefile

import (
	"encoding/hex"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
)

// SegmentBucket returns the bucket of a segment that exists.
func SegmentBucket(tx *bbolt.Tx, id uint64) *bbolt.Bucket {
	var key [8]byte
	be.PutUint64(key[:], id)
	return tx.Bucket(BucketSegments).Bucket(key[:])
}

// walker reads the segments of a file in the order of their ids.
type walker struct {
	f       *File
	tx      *bbolt.Tx
	in      *Interner
	key     []byte // of the last segment
	ended   bool   // there is no next segment, or the cursor failed
	st      State
	stKey   []byte
	history [][]byte
}

// segmentView is a segment whose block headers are valid. Its items are not checked
// yet.
type segmentView struct {
	id             uint64
	index, records Block
	done           []uint64 // nil: no record is finished
}

func (v *segmentView) finished(i int) bool { return v.done != nil && v.done[i/64]>>(i%64)&1 != 0 }

// next opens the next segment; nil is the end. After an error it continues with the
// segment behind.
func (w *walker) next() (*segmentView, error) {
	w.ended = true
	segments := w.tx.Bucket(BucketSegments)
	c := segments.Cursor()
	k, _ := c.Seek(w.key)
	if w.key != nil && string(k) == string(w.key) {
		k, _ = c.Next()
	}
	if k == nil {
		return nil, nil
	}
	w.ended, w.key = false, append(w.key[:0], k...)
	return w.f.path.viewSegment(k, segments.Bucket(k), w.tx.Bucket(BucketBitmaps).Get(k))
}

// viewSegment opens a segment. b is nil if the key has no bucket.
func (p Path) viewSegment(k []byte, b *bbolt.Bucket, bits []byte) (*segmentView, error) {
	if len(k) != 8 || b == nil {
		return nil, p.CorruptMeta("segment "+hex.EncodeToString(k), errors.New("bad key"))
	}
	v := &segmentView{id: be.Uint64(k)}
	var err error
	if v.index, err = OpenBlock(b.Get(KeyIndex), KindIndex, v.id); err != nil {
		return nil, p.Corrupt("index", v.id, 0, err)
	}
	if v.records, err = OpenBlock(b.Get(KeyValue), KindSegment, v.id); err != nil {
		return nil, p.Corrupt("segment", v.id, 0, err)
	}
	if v.records.N != v.index.N {
		return nil, p.Corrupt("segment", v.id, 0, fmt.Errorf("has %d records, the index %d", v.records.N, v.index.N))
	}
	if bits != nil {
		if v.done, err = DecodeBitmap(k, bits, v.index.N); err != nil {
			return nil, p.Corrupt("bitmap", v.id, -1, err)
		}
	}
	return v, nil
}

// entry reads item i without headers and payload.
func (w *walker) entry(v *segmentView, i int, m *Message) (EntryHead, error) {
	head, off, err := v.index.Entry(i, m, w.in)
	if err == nil {
		w.f.clock.WallMessage(m)
	}
	return head, w.f.path.Corrupt("index", v.id, off, err)
}

// full reads item i with headers and payload.
func (w *walker) full(v *segmentView, i int, m *Message) error {
	head, err := w.entry(v, i, m)
	if err != nil {
		return err
	}
	r, off, err := ItemAs(v.records, i, DecodeRecord)
	m.Headers, m.Payload = r.Headers, r.Payload
	if got := (EntryHead{r.Ref, uint32(len(r.Headers)), uint32(len(r.Payload))}); err == nil && got != head {
		err = fmt.Errorf("is message %d of queue %d with %d and %d bytes, the index says message %d of queue %d with %d and %d",
			got.Ref.Seq, got.Ref.Queue, got.Headers, got.Payload, m.Seq, m.Queue, head.Headers, head.Payload)
	}
	return w.f.path.Corrupt("segment", v.id, off, err)
}

// message reads item i with its state.
func (w *walker) message(v *segmentView, i int, m *Message) (*State, error) {
	if err := w.full(v, i, m); err != nil {
		return nil, err
	}
	return w.state(m.Ref)
}

// readHistory reads the history of a message; none if it cannot be read.
func (w *walker) readHistory(ref Ref) ([][]byte, error) {
	history, err := w.f.path.ReadHistory(w.tx, ref, w.history[:0])
	if err != nil {
		return nil, err
	}
	w.history = history
	return history, nil
}

// ReadHistory appends the records of the history of a message.
func (p Path) ReadHistory(tx *bbolt.Tx, ref Ref, dst [][]byte) ([][]byte, error) {
	b := tx.Bucket(BucketHistory)
	if b == nil {
		return dst, nil
	}
	key := AppendRefKey(make([]byte, 0, RefKeySize), ref)
	sealed := b.Get(key)
	if sealed == nil {
		return dst, nil
	}
	dst, err := decodeHistory(key, sealed, dst)
	return dst, p.CorruptMeta("history "+hex.EncodeToString(key), err)
}

// state reads the state of a message, nil if it has none.
func (w *walker) state(ref Ref) (*State, error) {
	w.stKey = AppendRefKey(w.stKey[:0], ref)
	value := w.tx.Bucket(BucketState).Get(w.stKey)
	if value == nil {
		return nil, nil
	}
	return &w.st, w.f.path.DecodeState(w.stKey, value, &w.st, w.in, &w.f.clock)
}

// DedupeReader reads the dedupe log in the order of expiry.
type DedupeReader struct {
	Path Path
	Now  int64 // ids that expired are skipped
	log  *bbolt.Cursor
}

// NewDedupeReader returns a reader for the log as tx sees it.
func NewDedupeReader(p Path, tx *bbolt.Tx, now int64) (r *DedupeReader, err error) {
	err = p.Guard("recovery", func() error {
		r = &DedupeReader{Path: p, Now: now, log: tx.Bucket(BucketDedupe).Cursor()}
		return nil
	})
	return r, err
}

// Each calls fn for every dedupe id that has not expired and broken for everything
// that cannot be read. An error of fn ends it.
func (r *DedupeReader) Each(broken func(error), fn func(Dedupe) error) error {
	var batch []Dedupe
	for first := true; ; first = false {
		more := false
		err := r.Path.Guard("recovery", func() error {
			batch, more = r.next(batch[:0], first, broken)
			return nil
		})
		if err != nil || !more {
			return err
		}
		for _, d := range batch {
			if err := fn(d); err != nil {
				return err
			}
		}
	}
}

// next appends the ids of the next value of the log that have not expired.
func (r *DedupeReader) next(dst []Dedupe, first bool, broken func(error)) (out []Dedupe, more bool) {
	var k, v []byte
	if first {
		k, v = r.log.Seek(AppendDedupeKey(nil, max(r.Now, 0), 0))
	} else {
		k, v = r.log.Next()
	}
	if k == nil {
		return dst, false
	}
	part := "dedupe " + hex.EncodeToString(k)
	_, items, err := openDedupes(k, v)
	if err != nil {
		broken(r.Path.Corrupt(part, 0, 0, err))
		return dst, true
	}
	for i := range items.N {
		d, off, err := ItemAs(items, i, decodeDedupe)
		if err != nil {
			broken(r.Path.Corrupt(part, 0, off, err))
			continue
		}
		if d.Until > r.Now {
			dst = append(dst, d)
		}
	}
	return dst, true
}
