package store

import (
	"errors"
	"fmt"
	"sync"

	"go.etcd.io/bbolt"

	"github.com/filaq/fila/store/storefile"
)

// place is the location of a message when it was looked up.
type place struct {
	l    loc
	id   uint64 // of its segment
	data []byte // the value of the segment (or, ahead of the file, its header index) if it is in memory
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
	last   []byte // value or header index of segment lastID
	err    error  // the first error; others take precedence over ErrNotFound
}

var readings = sync.Pool{New: func() any { return new(reading) }}

// deadStrings are the interners of Dead. They keep the first strings: there are few reasons,
// codes and queues, and most errors are unique.
var deadStrings = sync.Pool{New: func() any { return storefile.NewInternerOf(1024) }}

// Read implements [Store].
func (s *Bolt) Read(refs []Ref, fn func(i int, headers, payload []byte)) error {
	var headers, payload []byte
	return s.read(refs, false, func(value []byte, p place, ref Ref) (err error) {
		headers, payload, err = s.decode(value, p.id, p.l.slotNo(), ref)
		return err
	}, func(i int) { fn(i, headers, payload) })
}

// Dead implements [Store].
func (s *Bolt) Dead(refs []Ref, fn func(i int, d *Dead)) error {
	var m Message
	in := deadStrings.Get().(*storefile.Interner)
	defer deadStrings.Put(in)
	return s.read(refs, true, func(index []byte, p place, ref Ref) error {
		return s.decodeIndexed(index, p.id, p.l.slotNo(), ref, &m, in)
	}, func(i int) { fn(i, m.Dead) })
}

// History implements [Store].
func (s *Bolt) History(refs []Ref, fn func(i int, records [][]byte)) error {
	if err := s.usable(); err != nil {
		return err
	}
	locs := make([]loc, len(refs))
	// With a Log, Done is called before the commit: wait until the batch is in the file.
	s.gate.RLock()
	s.mu.RLock()
	for i, ref := range refs {
		if q := s.queues[ref.Queue]; q != nil {
			if l, _ := q.index.get(ref.Seq); l.seg != pendingSeg {
				locs[i] = l
			}
		}
	}
	s.mu.RUnlock()
	tx, err := s.db.Begin(false)
	s.gate.RUnlock()
	if err != nil {
		return ErrClosed
	}
	defer tx.Rollback() //nolint:errcheck // of a read transaction
	r := reading{s: s, refs: refs}
	var records [][]byte
	for i, ref := range refs {
		records = records[:0]
		err := ErrNotFound
		if locs[i].seg != 0 {
			err = nil
		}
		if locs[i].slot&historyBit != 0 {
			err = s.path.Guard("read", func() (err error) {
				records, err = s.path.ReadHistory(tx, ref, records)
				return err
			})
		}
		if err != nil {
			r.failed(i, err)
			continue
		}
		fn(i, records)
	}
	return r.err
}

// read decodes the records, or the header indexes, of the messages of refs, and calls fn
// after each that could be decoded.
func (s *Bolt) read(refs []Ref, index bool, decode decoder, fn func(i int)) error {
	if err := s.usable(); err != nil {
		return err
	}
	r := readings.Get().(*reading)
	defer r.release()
	r.s, r.refs, r.index = s, refs, index
	s.mu.RLock()
	r.locate(0)
	s.mu.RUnlock()
	for i := range refs {
		if err := r.message(i, decode); err == nil {
			fn(i)
		} else if !r.failed(i, err) {
			break
		}
	}
	return r.err
}

// usable is nil while the store is neither closed nor failed.
func (s *Bolt) usable() error {
	if s.closed.Load() {
		return ErrClosed
	}
	return s.Err()
}

// failed notes that message i cannot be read. It reports whether to continue.
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
			switch l, ok := q.index.get(ref.Seq); {
			case !ok:
			case l.seg != pendingSeg:
				g := r.s.segs.segs[l.seg]
				p = place{l: l, id: g.id, ok: true}
				if !r.index {
					p.data = g.data
				}
			case r.s.ahead:
				p = r.s.planned(l, r.index)
			}
		}
		r.places = append(r.places, p)
	}
}

// decoder decodes message ref in the value, or the header index, of its segment.
type decoder func(value []byte, p place, ref Ref) error

// message decodes message i.
func (r *reading) message(i int, decode decoder) error {
	p := r.places[i]
	if !p.ok {
		return ErrNotFound
	}
	if p.data != nil {
		return decode(p.data, p, r.refs[i])
	}
	return r.s.path.Guard("read", func() error {
		value, err := r.stored(i)
		if err != nil {
			return err
		}
		return decode(value, r.places[i], r.refs[i])
	})
}

// stored returns the value, or the header index, of the segment of message i, and updates
// the place of the message if it moved.
func (r *reading) stored(i int) ([]byte, error) {
	value, err := r.value(r.places[i].id)
	if err != nil || value != nil {
		return value, err
	}
	// Compaction deleted the segment: the message is in another one, or finished. Look
	// it up again, with file and memory in agreement.
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
		err = r.s.path.Corrupt("segment", p.id, -1, errors.New("is missing"))
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
	what := storefile.KeyValue
	if r.index {
		what = storefile.KeyIndex
	}
	r.last, r.lastID = b.Get(what), id
	return r.last, nil
}

func (r *reading) begin() error {
	tx, err := r.s.db.Begin(false)
	if err != nil {
		return ErrClosed
	}
	r.tx = tx // before a page is read, so that it ends in any case
	r.segs = tx.Bucket(storefile.BucketSegments)
	return nil
}

// again looks up refs[i:] again and begins a transaction that sees the same state. The old
// transaction ends first, because a commit that waits for it would hold the gate.
func (r *reading) again(i int) error {
	r.endTx()
	r.s.gate.RLock()
	defer r.s.gate.RUnlock()
	r.s.mu.RLock()
	r.locate(i)
	r.s.mu.RUnlock()
	return r.begin()
}

// decode decodes a record of a segment and checks its message.
func (s *Bolt) decode(value []byte, id uint64, slot int, want Ref) (headers, payload []byte, err error) {
	var r storefile.Record
	var off int64
	b, err := openBlockAt(value, storefile.KindSegment, id, slot)
	if err == nil {
		r, off, err = storefile.ItemAs(b, slot, storefile.DecodeRecord)
	}
	if err == nil {
		err = isAbout(r.Ref, want)
	}
	return r.Headers, r.Payload, s.path.Corrupt("segment", id, off, err)
}

// decodeIndexed is like decode, for a header index.
func (s *Bolt) decodeIndexed(index []byte, id uint64, slot int, want Ref, m *Message, in *storefile.Interner) error {
	var off int64
	b, err := openBlockAt(index, storefile.KindIndex, id, slot)
	if err == nil {
		_, off, err = b.Entry(slot, m, in)
	}
	if err == nil {
		err = isAbout(m.Ref, want)
	}
	return s.path.Corrupt("index", id, off, err)
}

// openBlockAt opens a block that must have an item i.
func openBlockAt(b []byte, kind byte, id uint64, i int) (storefile.Block, error) {
	bl, err := storefile.OpenBlock(b, kind, id)
	if err == nil && i >= bl.N {
		err = fmt.Errorf("has %d records, not %d", bl.N, i+1)
	}
	return bl, err
}

func isAbout(found, want Ref) error {
	if found == want {
		return nil
	}
	return fmt.Errorf("holds message %d of queue %d", found.Seq, found.Queue)
}
