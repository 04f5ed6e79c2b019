package storefile

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

// RecordHeader is the size of a record without headers and payload.
const RecordHeader = 24

// AppendRecord encodes a record.
func AppendRecord(dst []byte, ref Ref, headers, payload []byte) []byte {
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

// Record is a decoded record.
type Record struct {
	Ref              Ref
	Headers, Payload []byte
}

// DecodeRecord decodes a record. Its slices refer to b.
func DecodeRecord(b []byte) (Record, error) {
	if err := verify(b, RecordHeader); err != nil {
		return Record{}, err
	}
	h, p := uint64(le.Uint32(b[16:])), uint64(le.Uint32(b[20:]))
	if h+p != uint64(len(b)-RecordHeader) {
		return Record{}, errors.New("lengths do not add up")
	}
	rest := b[RecordHeader:]
	return Record{Ref: itemRef(b), Headers: rest[:h:h], Payload: rest[h:]}, nil
}

// An entry is an item of a header index: one message without its headers and
// payload. Item i describes record i of the same segment.
//
//	 0  u32  CRC32-C of bytes 4..
//	 4  u32  queue
//	 8  u64  seq
//	16       id, 16 bytes
//	32  i64  enqueued at
//	40  i64  not before; with flag 2 the end of a delay, steady time (see Clock)
//	48  i64  expires at
//	56  u32  weight
//	60  u32  cost
//	64  u32  attempts
//	68  u32  length of headers
//	72  u32  length of payload
//	76  u8   flags: 1 = dead letter, 2 = delayed, 4 = routes; the upper four bits are the
//	         priority
//	77       fairness key, string
//	         number of throttle keys, uvarint, and each of them, string
//	         circuit key, string
//	         with routes: their number, uvarint, and of each: name, string; weight,
//	         uvarint; throttle keys and circuit key as above
//	         of a dead letter: reason, error, error code, source queue, strings;
//	         at, i64; attempts, u32
//
// A string is its length as a uvarint and its bytes.
const (
	entryFixed  = 77
	flagDead    = 1
	flagDelayed = 2
	flagRoutes  = 4

	priorityShift = 4
)

// EntrySize returns the size of the encoded entry of a message.
func EntrySize(m *Message) int {
	n := entryFixed + sizeString(m.Key) + sizeGates(m.ThrottleKeys, m.CircuitKey)
	if len(m.Routes) > 0 {
		n += sizeUvarint(len(m.Routes))
	}
	for i := range m.Routes {
		r := &m.Routes[i]
		n += sizeString(r.Name) + sizeUvarint(int(r.Weight)) + sizeGates(r.ThrottleKeys, r.CircuitKey)
	}
	if d := m.Dead; d != nil {
		n += sizeString(d.Reason) + sizeString(d.Error) + sizeString(d.ErrorCode) + sizeString(d.SourceQueue) + 12
	}
	return n
}

func sizeGates(throttleKeys []string, circuitKey string) int {
	n := sizeUvarint(len(throttleKeys)) + sizeString(circuitKey)
	for _, k := range throttleKeys {
		n += sizeString(k)
	}
	return n
}

func appendGates(dst []byte, throttleKeys []string, circuitKey string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(throttleKeys)))
	for _, k := range throttleKeys {
		dst = appendString(dst, k)
	}
	return appendString(dst, circuitKey)
}

// AppendEntry encodes the entry of a message whose headers and payload have these sizes.
func AppendEntry(dst []byte, m *Message, headers, payload int) []byte {
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
	if len(m.Routes) > 0 {
		flags |= flagRoutes
	}
	dst = append(dst, flags)
	dst = appendString(dst, m.Key)
	dst = appendGates(dst, m.ThrottleKeys, m.CircuitKey)
	if len(m.Routes) > 0 {
		dst = binary.AppendUvarint(dst, uint64(len(m.Routes)))
	}
	for i := range m.Routes {
		r := &m.Routes[i]
		dst = binary.AppendUvarint(appendString(dst, r.Name), uint64(r.Weight))
		dst = appendGates(dst, r.ThrottleKeys, r.CircuitKey)
	}
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

// EntryHead is the part of an entry that the location index needs.
type EntryHead struct {
	Ref              Ref
	Headers, Payload uint32 // bytes
}

// Size returns the bytes of headers and payload.
func (h EntryHead) Size() uint32 { return h.Headers + h.Payload }

// OpenEntry checks an entry.
func OpenEntry(b []byte) (EntryHead, error) {
	if err := verify(b, entryFixed); err != nil {
		return EntryHead{}, err
	}
	return EntryHead{Ref: itemRef(b), Headers: le.Uint32(b[68:]), Payload: le.Uint32(b[72:])}, nil
}

// DecodeEntry decodes an entry whose checksum was checked. Strings come from in, so
// that messages of one flow share them.
func DecodeEntry(b []byte, m *Message, in *Interner) error {
	if len(b) < entryFixed {
		return errShort
	}
	*m = Message{
		Ref:        itemRef(b),
		ID:         ID(b[16:32]),
		EnqueuedAt: int64(le.Uint64(b[32:])),
		NotBefore:  int64(le.Uint64(b[40:])),
		ExpiresAt:  int64(le.Uint64(b[48:])),
		Class:      Class{Weight: le.Uint32(b[56:]), Cost: le.Uint32(b[60:])},
		Attempts:   le.Uint32(b[64:]),
	}
	flags := b[76]
	if m.Priority = flags >> priorityShift; flags&^(flagDead|flagDelayed|flagRoutes|0xf0) != 0 || m.Priority > MaxPriority {
		return fmt.Errorf("unknown flags %#x", flags)
	}
	m.Delayed = flags&flagDelayed != 0
	r := reader{b: b[entryFixed:]}
	m.Key = in.str(r.bytes())
	m.ThrottleKeys = in.list(&r)
	m.CircuitKey = in.str(r.bytes())
	if flags&flagRoutes != 0 {
		m.Routes = in.routes(&r)
	}
	if flags&flagDead != 0 {
		m.Dead = &Dead{
			Reason: in.str(r.bytes()), Error: in.str(r.bytes()), ErrorCode: in.str(r.bytes()), SourceQueue: in.str(r.bytes()),
			At: r.i64(), Attempts: r.u32(),
		}
	}
	return r.done()
}

// Entry checks and decodes item i of a header index.
func (bl Block) Entry(i int, m *Message, in *Interner) (head EntryHead, offset int64, err error) {
	b, offset, err := bl.Item(i)
	if err == nil {
		head, err = OpenEntry(b)
	}
	if err == nil {
		err = DecodeEntry(b, m, in)
	}
	return head, offset, err
}

// Interner makes equal strings share memory. It keeps only the first strings, so that
// a million different keys cost no more than themselves.
type Interner struct {
	strs  map[string]string
	lists map[string][]string
	most  int // entries of each map
}

const internMax = 1 << 16

// NewInterner returns an interner for the strings of a whole file.
func NewInterner() *Interner { return NewInternerOf(internMax) }

// NewInternerOf returns an interner that keeps at most most strings, and lists.
func NewInternerOf(most int) *Interner {
	return &Interner{strs: make(map[string]string), lists: make(map[string][]string), most: most}
}

func (in *Interner) str(b []byte) string {
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

// list reads a list of strings with its length.
func (in *Interner) list(r *reader) []string {
	n := r.uvarint()
	if n == 0 || r.err != nil {
		return nil
	}
	if n > len(r.b) { // each takes at least a byte
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
	// The same bytes may encode lists of different lengths. A cached list of n
	// strings with these bytes is equal to this one.
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

// routes reads the routes of a message.
func (in *Interner) routes(r *reader) []Route {
	n := r.uvarint()
	if r.err == nil && (n == 0 || n > MaxRoutes) {
		r.err = fmt.Errorf("%d routes", n)
	}
	if r.err != nil {
		return nil
	}
	list := make([]Route, n)
	for i := range list {
		list[i] = Route{Name: in.str(r.bytes()), Weight: uint32(r.uvarint()), ThrottleKeys: in.list(r), CircuitKey: in.str(r.bytes())}
	}
	return list
}
