package store

import (
	"encoding/hex"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
)

// walker goes through the segments of a file in the order of their ids.
type walker struct {
	s     *Bolt
	tx    *bbolt.Tx
	in    *interner
	key   []byte // of the segment before the next one
	ended bool   // there is no next one, or the cursor itself failed
	st    State
	stKey []byte
	past  [][]byte
}

// segmentView is a segment whose frames are sound. Its items are not checked
// yet.
type segmentView struct {
	id             uint64
	index, records block
	done           []uint64 // nil: none is finished
}

func (v *segmentView) finished(i int) bool { return v.done != nil && v.done[i/64]>>(i%64)&1 != 0 }

// next opens the next segment; nil is the end. After an error it goes on with
// the one behind.
func (w *walker) next() (*segmentView, error) {
	w.ended = true
	segments := w.tx.Bucket(bucketSegments)
	c := segments.Cursor()
	k, _ := c.Seek(w.key)
	if w.key != nil && string(k) == string(w.key) {
		k, _ = c.Next()
	}
	if k == nil {
		return nil, nil
	}
	w.ended, w.key = false, append(w.key[:0], k...)
	return w.s.viewSegment(k, segments.Bucket(k), w.tx.Bucket(bucketBitmaps).Get(k))
}

// viewSegment opens a segment, b being nil if it is no bucket.
func (s *Bolt) viewSegment(k []byte, b *bbolt.Bucket, bits []byte) (*segmentView, error) {
	if len(k) != 8 || b == nil {
		return nil, s.metaError("segment "+hex.EncodeToString(k), errors.New("bad key"))
	}
	v := &segmentView{id: be.Uint64(k)}
	var err error
	if v.index, err = openBlock(b.Get(keyIndex), kindIndex, v.id); err != nil {
		return nil, s.corrupt("index", v.id, 0, err)
	}
	if v.records, err = openBlock(b.Get(keyValue), kindSegment, v.id); err != nil {
		return nil, s.corrupt("segment", v.id, 0, err)
	}
	if v.records.n != v.index.n {
		return nil, s.corrupt("segment", v.id, 0, fmt.Errorf("has %d records, the index %d", v.records.n, v.index.n))
	}
	if bits != nil {
		if v.done, err = decodeBitmap(k, bits, v.index.n); err != nil {
			return nil, s.corrupt("bitmap", v.id, -1, err)
		}
	}
	return v, nil
}

// entry reads everything of item i but headers and payload.
func (s *Bolt) entry(v *segmentView, i int, m *Message, in *interner) (entryHead, error) {
	head, off, err := v.index.entry(i, m, in)
	if err == nil {
		s.toWall(m)
	}
	return head, s.corrupt("index", v.id, off, err)
}

// full reads item i with headers and payload.
func (s *Bolt) full(v *segmentView, i int, m *Message, in *interner) error {
	head, err := s.entry(v, i, m, in)
	if err != nil {
		return err
	}
	r, off, err := itemAs(v.records, i, decodeRecord)
	m.Headers, m.Payload = r.headers, r.payload
	if got := (entryHead{r.ref, uint32(len(r.headers)), uint32(len(r.payload))}); err == nil && got != head {
		err = fmt.Errorf("is message %d of queue %d with %d and %d bytes, the index says message %d of queue %d with %d and %d",
			got.ref.Seq, got.ref.Queue, got.headers, got.payload, m.Seq, m.Queue, head.headers, head.payload)
	}
	return s.corrupt("segment", v.id, off, err)
}

// message reads item i with its state.
func (w *walker) message(v *segmentView, i int, m *Message) (*State, error) {
	if err := w.s.full(v, i, m, w.in); err != nil {
		return nil, err
	}
	return w.state(m.Ref)
}

// history reads the history of a message; none if it cannot be read.
func (w *walker) history(ref Ref) ([][]byte, error) {
	past, err := w.s.history(w.tx, ref, w.past[:0])
	if err != nil {
		return nil, err
	}
	w.past = past
	return past, nil
}

// history appends the records of a message, which lie in the file.
func (s *Bolt) history(tx *bbolt.Tx, ref Ref, dst [][]byte) ([][]byte, error) {
	b := tx.Bucket(bucketHistory)
	if b == nil {
		return dst, nil
	}
	key := appendRefKey(make([]byte, 0, refKeySize), ref)
	sealed := b.Get(key)
	if sealed == nil {
		return dst, nil
	}
	dst, err := decodeHistory(key, sealed, dst)
	return dst, s.metaError("history "+hex.EncodeToString(key), err)
}

// state reads the state of a message, nil if it has none.
func (w *walker) state(ref Ref) (*State, error) {
	w.stKey = appendRefKey(w.stKey[:0], ref)
	value := w.tx.Bucket(bucketState).Get(w.stKey)
	if value == nil {
		return nil, nil
	}
	return &w.st, w.s.decodeState(w.stKey, value, &w.st, w.in)
}
