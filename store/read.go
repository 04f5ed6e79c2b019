package store

import (
	"errors"
	"fmt"
	"sync"

	"go.etcd.io/bbolt"
)

// place is where a message was when it was looked up.
type place struct {
	l    loc
	id   uint64 // of its segment
	data []byte // the segment's value, if it is cached
	ok   bool
}

// reading is one call of Read.
type reading struct {
	s      *Bolt
	refs   []Ref
	places []place
	tx     *bbolt.Tx // opened for the first message that is not cached
	segs   *bbolt.Bucket
	lastID uint64
	last   []byte // the value of segment lastID
}

var readings = sync.Pool{New: func() any { return new(reading) }}

// Read implements [Store].
func (s *Bolt) Read(refs []Ref, fn func(i int, headers, payload []byte)) error {
	if s.closed.Load() {
		return ErrClosed
	}
	if err := s.Err(); err != nil {
		return err
	}
	r := readings.Get().(*reading)
	r.s, r.refs = s, refs
	defer r.release()
	s.mu.RLock()
	r.locate(0)
	s.mu.RUnlock()
	var first error
	for i := range refs {
		headers, payload, err := r.record(i)
		if err == nil {
			fn(i, headers, payload)
			continue
		}
		if errors.Is(err, ErrClosed) {
			return err
		}
		if first == nil {
			first = fmt.Errorf("message %d of queue %d: %w", refs[i].Seq, refs[i].Queue, err)
		}
	}
	return first
}

func (r *reading) release() {
	r.endTx()
	clear(r.places)
	*r = reading{places: r.places[:0]}
	readings.Put(r)
}

func (r *reading) endTx() {
	if r.tx != nil {
		r.tx.Rollback() //nolint:errcheck // of a read transaction
		r.tx, r.segs, r.last, r.lastID = nil, nil, nil, 0
	}
}

// locate looks up refs[from:]. The caller holds mu.
func (r *reading) locate(from int) {
	r.places = r.places[:from]
	var q *queue
	for _, ref := range r.refs[from:] {
		if q == nil || q.id != ref.Queue {
			q = r.s.queues[ref.Queue]
		}
		var p place
		if q != nil {
			if l, ok := q.index.get(ref.Seq); ok && l.seg != pendingSeg {
				g := r.s.segs.segs[l.seg]
				p = place{l: l, id: g.id, data: g.data, ok: true}
			}
		}
		r.places = append(r.places, p)
	}
}

// record returns headers and payload of message i.
func (r *reading) record(i int) (headers, payload []byte, err error) {
	p := r.places[i]
	if !p.ok {
		return nil, nil, ErrNotFound
	}
	if p.data != nil {
		return r.s.decode(p.data, p.id, p.l.slotNo(), r.refs[i])
	}
	err = r.s.guard("read", func() error {
		value, err := r.value(p.id)
		if err == nil && value == nil {
			// Compaction was faster: its messages are somewhere else, or
			// finished. Look again, with file and memory in agreement.
			if err = r.again(i); err != nil {
				return err
			}
			if p = r.places[i]; !p.ok {
				return ErrNotFound
			}
			if value = p.data; value == nil {
				value, err = r.value(p.id)
			}
			if err == nil && value == nil {
				err = &CorruptError{File: r.s.path, Part: "segment", Segment: p.id, Offset: -1, Reason: "is missing"}
			}
		}
		if err == nil {
			headers, payload, err = r.s.decode(value, p.id, p.l.slotNo(), r.refs[i])
		}
		return err
	})
	return headers, payload, err
}

// value returns the records of a segment, nil if there is no such segment.
func (r *reading) value(id uint64) ([]byte, error) {
	if r.tx == nil {
		if err := r.begin(); err != nil {
			return nil, err
		}
	}
	if r.last != nil && r.lastID == id {
		return r.last, nil
	}
	var key [8]byte
	be.PutUint64(key[:], id)
	b := r.segs.Bucket(key[:])
	if b == nil {
		return nil, nil
	}
	r.last, r.lastID = b.Get(keyValue), id
	return r.last, nil
}

func (r *reading) begin() error {
	tx, err := r.s.db.Begin(false)
	if err != nil {
		return ErrClosed
	}
	r.tx = tx // before a page is touched: whatever happens then, it must end
	r.segs = tx.Bucket(bucketSegments)
	return nil
}

// again looks up refs[i:] once more and begins a transaction that sees the same
// state of affairs. The old one ends first: a commit that waits for it would
// hold the gate.
func (r *reading) again(i int) error {
	r.endTx()
	r.s.gate.RLock()
	defer r.s.gate.RUnlock()
	r.s.mu.RLock()
	r.locate(i)
	r.s.mu.RUnlock()
	return r.begin()
}

// decode takes one record out of a segment's value and checks that it is the
// right one.
func (s *Bolt) decode(value []byte, id uint64, slot int, want Ref) (headers, payload []byte, err error) {
	bl, err := openBlock(value, kindSegment, id)
	off := int64(0)
	if err == nil && slot >= bl.n {
		err = fmt.Errorf("has %d records, not %d", bl.n, slot+1)
	}
	if err == nil {
		var raw []byte
		var ref Ref
		if raw, off, err = bl.item(slot); err == nil {
			if ref, headers, payload, err = decodeRecord(raw); err == nil && ref != want {
				err = fmt.Errorf("holds message %d of queue %d", ref.Seq, ref.Queue)
			}
		}
	}
	if err != nil {
		return nil, nil, &CorruptError{File: s.path, Part: "segment", Segment: id, Offset: off, Reason: err.Error()}
	}
	return headers, payload, nil
}
