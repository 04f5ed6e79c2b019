package store

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// A record is an item of a segment: headers and payload of one message.
//
//	 0  u32  CRC32-C of bytes 4..
//	 4  u32  queue
//	 8  u64  seq
//	16  u32  length of headers
//	20  u32  length of payload
//	24       headers, payload
const recordHeader = 24

func appendRecord(dst []byte, ref Ref, headers, payload []byte) []byte {
	at := len(dst)
	dst = le.AppendUint32(dst, 0)
	dst = le.AppendUint32(dst, uint32(ref.Queue))
	dst = le.AppendUint64(dst, ref.Seq)
	dst = le.AppendUint32(dst, uint32(len(headers)))
	dst = le.AppendUint32(dst, uint32(len(payload)))
	dst = append(dst, headers...)
	dst = append(dst, payload...)
	le.PutUint32(dst[at:], checksum(dst[at+4:]))
	return dst
}

// record is a record taken apart.
type record struct {
	ref              Ref
	headers, payload []byte
}

func decodeRecord(b []byte) (record, error) {
	if err := verify(b, recordHeader); err != nil {
		return record{}, err
	}
	h, p := uint64(le.Uint32(b[16:])), uint64(le.Uint32(b[20:]))
	if h+p != uint64(len(b)-recordHeader) {
		return record{}, errors.New("lengths do not add up")
	}
	rest := b[recordHeader:]
	return record{ref: itemRef(b), headers: rest[:h:h], payload: rest[h:]}, nil
}

// An entry is an item of a header index: everything of one message but its
// headers and payload. Item i describes record i of the same segment.
//
//	 0  u32  CRC32-C of bytes 4..
//	 4  u32  queue
//	 8  u64  seq
//	16       id, 16 bytes
//	32  i64  enqueued at
//	40  i64  not before; with flag 2 the end of a delay, steady time (see clock)
//	48  i64  expires at
//	56  u32  weight
//	60  u32  cost
//	64  u32  attempts
//	68  u32  length of headers
//	72  u32  length of payload
//	76  u8   flags: 1 = dead letter, 2 = delayed; the upper four bits are the priority
//	77       fairness key, string
//	         number of throttle keys, uvarint, and each of them, string
//	         circuit key, string
//	         of a dead letter: reason, error, error code, source queue, strings;
//	         at, i64; attempts, u32
//
// A string is its length as a uvarint and its bytes.
const (
	entryFixed  = 77
	flagDead    = 1
	flagDelayed = 2

	priorityShift = 4
)

func entrySize(m *Message) int {
	n := entryFixed + sizeString(m.Key) + sizeUvarint(len(m.ThrottleKeys)) + sizeString(m.CircuitKey)
	for _, k := range m.ThrottleKeys {
		n += sizeString(k)
	}
	if d := m.Dead; d != nil {
		n += sizeString(d.Reason) + sizeString(d.Error) + sizeString(d.ErrorCode) + sizeString(d.SourceQueue) + 12
	}
	return n
}

func appendEntry(dst []byte, m *Message, headers, payload int) []byte {
	at := len(dst)
	dst = le.AppendUint32(dst, 0)
	dst = le.AppendUint32(dst, uint32(m.Queue))
	dst = le.AppendUint64(dst, m.Seq)
	dst = append(dst, m.ID[:]...)
	dst = le.AppendUint64(dst, uint64(m.EnqueuedAt))
	dst = le.AppendUint64(dst, uint64(m.NotBefore))
	dst = le.AppendUint64(dst, uint64(m.ExpiresAt))
	dst = le.AppendUint32(dst, m.Weight)
	dst = le.AppendUint32(dst, m.Cost)
	dst = le.AppendUint32(dst, m.Attempts)
	dst = le.AppendUint32(dst, uint32(headers))
	dst = le.AppendUint32(dst, uint32(payload))
	flags := m.Priority << priorityShift
	if m.Dead != nil {
		flags |= flagDead
	}
	if m.Delayed {
		flags |= flagDelayed
	}
	dst = append(dst, flags)
	dst = appendString(dst, m.Key)
	dst = binary.AppendUvarint(dst, uint64(len(m.ThrottleKeys)))
	for _, k := range m.ThrottleKeys {
		dst = appendString(dst, k)
	}
	dst = appendString(dst, m.CircuitKey)
	if d := m.Dead; d != nil {
		dst = appendString(dst, d.Reason)
		dst = appendString(dst, d.Error)
		dst = appendString(dst, d.ErrorCode)
		dst = appendString(dst, d.SourceQueue)
		dst = le.AppendUint64(dst, uint64(d.At))
		dst = le.AppendUint32(dst, d.Attempts)
	}
	le.PutUint32(dst[at:], checksum(dst[at+4:]))
	return dst
}

// entryHead is what the location index needs of an entry.
type entryHead struct {
	ref              Ref
	headers, payload uint32 // sizes
}

func (h entryHead) size() uint32 { return h.headers + h.payload }

// openEntry checks an entry.
func openEntry(b []byte) (entryHead, error) {
	if err := verify(b, entryFixed); err != nil {
		return entryHead{}, err
	}
	return entryHead{ref: itemRef(b), headers: le.Uint32(b[68:]), payload: le.Uint32(b[72:])}, nil
}

// decodeEntry reads an entry whose checksum has been checked. Strings come from
// in, so that messages of one flow share them.
func decodeEntry(b []byte, m *Message, in *interner) error {
	if len(b) < entryFixed {
		return errShort
	}
	*m = Message{
		Ref:        itemRef(b),
		ID:         ID(b[16:32]),
		EnqueuedAt: int64(le.Uint64(b[32:])),
		NotBefore:  int64(le.Uint64(b[40:])),
		ExpiresAt:  int64(le.Uint64(b[48:])),
		Weight:     le.Uint32(b[56:]),
		Cost:       le.Uint32(b[60:]),
		Attempts:   le.Uint32(b[64:]),
	}
	flags := b[76]
	if m.Priority = flags >> priorityShift; flags&^(flagDead|flagDelayed|0xf0) != 0 || m.Priority > MaxPriority {
		return fmt.Errorf("unknown flags %#x", flags)
	}
	m.Delayed = flags&flagDelayed != 0
	r := reader{b: b[entryFixed:]}
	m.Key = in.str(r.bytes())
	m.ThrottleKeys = in.list(&r)
	m.CircuitKey = in.str(r.bytes())
	if flags&flagDead != 0 {
		m.Dead = &Dead{
			Reason: in.str(r.bytes()), Error: in.str(r.bytes()), ErrorCode: in.str(r.bytes()), SourceQueue: in.str(r.bytes()),
			At: r.i64(), Attempts: r.u32(),
		}
	}
	return r.done()
}

// entry reads item i of a header index as a whole.
func (bl block) entry(i int, m *Message, in *interner) (head entryHead, offset int64, err error) {
	b, offset, err := bl.item(i)
	if err == nil {
		head, err = openEntry(b)
	}
	if err == nil {
		err = decodeEntry(b, m, in)
	}
	return head, offset, err
}

// interner makes equal strings share memory. It stops taking new ones when it is
// full, so that a million different keys cost no more than themselves.
type interner struct {
	strs  map[string]string
	lists map[string][]string
	most  int // of each
}

const internMax = 1 << 16

func newInterner() *interner { return newInternerOf(internMax) }

func newInternerOf(most int) *interner {
	return &interner{strs: make(map[string]string), lists: make(map[string][]string), most: most}
}

func (in *interner) str(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if s, ok := in.strs[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(in.strs) < in.most && len(s) <= 256 {
		in.strs[s] = s
	}
	return s
}

// list reads a counted row of strings.
func (in *interner) list(r *reader) []string {
	n := r.uvarint()
	if n == 0 || r.err != nil {
		return nil
	}
	if n > len(r.b) { // each takes a byte at least
		r.err = errShort
		return nil
	}
	before := r.b
	for range n {
		r.bytes()
	}
	if r.err != nil {
		return nil
	}
	raw := before[:len(before)-len(r.b)]
	// Not every row of strings with these bytes has the same number of them,
	// but a cached one that has n strings of these bytes is this one.
	if l, ok := in.lists[string(raw)]; ok && len(l) == n {
		return l
	}
	l := make([]string, n)
	again := reader{b: raw}
	for i := range l {
		l[i] = in.str(again.bytes())
	}
	if len(in.lists) < in.most && len(raw) <= 1024 {
		in.lists[string(raw)] = l
	}
	return l
}
