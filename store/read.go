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

// reading is one call of Read or Dead.
type reading struct {
	s      *Bolt
	refs   []Ref
	index  bool // header indexes are read, not records
	places []place
	tx     *bbolt.Tx // opened for the first message that is not cached
	segs   *bbolt.Bucket
	lastID uint64
	last   []byte // what is read of segment lastID
	err    error  // the first, of what is there if any
}

var readings = sync.Pool{New: func() any { return new(reading) }}

// Read implements [Store].
func (s *Bolt) Read(refs []Ref, fn func(i int, headers, payload []byte)) error {
	r, err := s.reading(refs, false)
	if err != nil {
		return err
	}
	defer r.release()
	for i := range refs {
		headers, payload, err := r.record(i)
		if err == nil {
			fn(i, headers, payload)
		} else if !r.failed(i, err) {
			break
		}
	}
	return r.err
}

// Dead implements [Store].
func (s *Bolt) Dead(refs []Ref, fn func(i int, d *Dead)) error {
	r, err := s.reading(refs, true)
	if err != nil {
		return err
	}
	defer r.release()
	in := newInterner()
	for i := range refs {
		m, err := r.entry(i, in)
		if err == nil {
			fn(i, m.Dead)
		} else if !r.failed(i, err) {
			break
		}
	}
	return r.err
}

func (s *Bolt) reading(refs []Ref, index bool) (*reading, error) {
	if s.closed.Load() {
		return nil, ErrClosed
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	r := readings.Get().(*reading)
	r.s, r.refs, r.index = s, refs, index
	s.mu.RLock()
	r.locate(0)
	s.mu.RUnlock()
	return r, nil
}

// failed notes that message i cannot be read, above all if it is there. It
// reports whether others can.
func (r *reading) failed(i int, err error) bool {
	if errors.Is(err, ErrClosed) {
		r.err = err
		return false
	}
	if r.err == nil || errors.Is(r.err, ErrNotFound) && !errors.Is(err, ErrNotFound) {
		r.err = fmt.Errorf("message %d of queue %d: %w", r.refs[i].Seq, r.refs[i].Queue, err)
	}
	return true
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
				p = place{l: l, id: g.id, ok: true}
				if !r.index {
					p.data = g.data
				}
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
		value, err := r.stored(i)
		if err == nil {
			p := r.places[i]
			headers, payload, err = r.s.decode(value, p.id, p.l.slotNo(), r.refs[i])
		}
		return err
	})
	return headers, payload, err
}

// entry returns message i as its header index knows it.
func (r *reading) entry(i int, in *interner) (m Message, err error) {
	if !r.places[i].ok {
		return m, ErrNotFound
	}
	err = r.s.guard("read", func() error {
		index, err := r.stored(i)
		if err == nil {
			p := r.places[i]
			m, err = r.s.decodeIndexed(index, p.id, p.l.slotNo(), r.refs[i], in)
		}
		return err
	})
	return m, err
}

// stored returns what is read of the segment in which message i is, and updates
// its place if it has moved.
func (r *reading) stored(i int) ([]byte, error) {
	value, err := r.value(r.places[i].id)
	if err != nil || value != nil {
		return value, err
	}
	// Compaction was faster: its messages are somewhere else, or finished. Look
	// again, with file and memory in agreement.
	if err := r.again(i); err != nil {
		return nil, err
	}
	p := r.places[i]
	if !p.ok {
		return nil, ErrNotFound
	}
	if p.data != nil {
		return p.data, nil
	}
	if value, err = r.value(p.id); err == nil && value == nil {
		err = &CorruptError{File: r.s.path, Part: "segment", Segment: p.id, Offset: -1, Reason: "is missing"}
	}
	return value, err
}

// value returns the records or the header index of a segment, nil if there is no
// such segment.
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
	what := keyValue
	if r.index {
		what = keyIndex
	}
	r.last, r.lastID = b.Get(what), id
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
	raw, off, err := itemOf(value, kindSegment, id, slot)
	if err == nil {
		var ref Ref
		if ref, headers, payload, err = decodeRecord(raw); err == nil && ref != want {
			err = fmt.Errorf("holds message %d of queue %d", ref.Seq, ref.Queue)
		}
	}
	if err != nil {
		return nil, nil, &CorruptError{File: s.path, Part: "segment", Segment: id, Offset: off, Reason: err.Error()}
	}
	return headers, payload, nil
}

// decodeIndexed does the same with a segment's header index.
func (s *Bolt) decodeIndexed(index []byte, id uint64, slot int, want Ref, in *interner) (m Message, err error) {
	raw, off, err := itemOf(index, kindIndex, id, slot)
	if err == nil {
		if _, _, err = entryRef(raw); err == nil {
			if err = decodeEntry(raw, &m, in); err == nil && m.Ref != want {
				err = fmt.Errorf("holds message %d of queue %d", m.Seq, m.Queue)
			}
		}
	}
	if err != nil {
		return Message{}, &CorruptError{File: s.path, Part: "index", Segment: id, Offset: off, Reason: err.Error()}
	}
	return m, nil
}

// itemOf returns item i of a block and where it begins.
func itemOf(b []byte, kind byte, id uint64, i int) (raw []byte, off int64, err error) {
	bl, err := openBlock(b, kind, id)
	if err != nil {
		return nil, 0, err
	}
	if i >= bl.n {
		return nil, 0, fmt.Errorf("has %d records, not %d", bl.n, i+1)
	}
	return bl.item(i)
}
