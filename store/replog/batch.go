package replog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/filaq/fila/store"
)

// A batch consists of sections, each at most once and in the order of their numbers, and
// a 0. A section is its number, u8, the number of its items, uvarint and at least 1, and the
// items:
//
//	 1  Add              message with headers and payload, strings
//	 2  Move             ref of the source; message
//	 3  State            ref; attempts; ready at; lease id; consumer, string; deadline;
//	                     last error, string
//	 4  Finish           ref
//	 5  Dedupe           queue; dedupe id, string; id, 16 bytes; until
//	 6  PutQueues        id; name, string; settings, string
//	 7  DeleteQueues     id
//	 8  PutConsumers     queue; name, string; most in flight; expires at; reg
//	 9  DeleteConsumers  queue; name, string
//	10  PutConfig        key and value, strings
//	11  DeleteConfig     key, string
//	12  History          ref; record, string
//	13  State            one item for each of section 3, about its lease: delivered at;
//	                     what blocked the message before, string. Left out if all are empty
//
// Times are varints, other numbers uvarints. A ref is queue and sequence number. A
// message:
//
//	ref; id, 16 bytes; flags, u8: 1 = dead letter, 2 = delayed, 4 = routes
//	enqueued at; not before; expires at; weight; cost; attempts
//	key, string; number of throttle keys, and each of them, string; circuit key, string
//	with routes: their number, and of each: name, string; weight; throttle keys and circuit
//	key as above
//	of a dead letter: reason, error, error code, source queue, strings; at; attempts
const (
	sectionEnd byte = iota
	sectionAdd
	sectionMove
	sectionState
	sectionFinish
	sectionDedupe
	sectionPutQueues
	sectionDeleteQueues
	sectionPutConsumers
	sectionDeleteConsumers
	sectionPutConfig
	sectionDeleteConfig
	sectionHistory
	sectionLeases
)

const (
	flagDead    = 1
	flagDelayed = 2
	flagRoutes  = 4

	priorityShift = 4 // the upper four bits are the priority
)

// appendBatches appends the body of a commit record.
func appendBatches(dst []byte, batches []*store.Batch) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(batches)))
	for _, b := range batches {
		dst = appendBatch(dst, b)
	}
	return dst
}

func appendBatch(dst []byte, b *store.Batch) []byte {
	dst = section(dst, sectionAdd, b.Add, func(dst []byte, m *store.Message) []byte {
		return putString(putString(putMessage(dst, m), m.Headers), m.Payload)
	})
	dst = section(dst, sectionMove, b.Move, func(dst []byte, mv *store.Move) []byte {
		return putMessage(putRef(dst, mv.From), &mv.To)
	})
	dst = section(dst, sectionState, b.State, putState)
	dst = section(dst, sectionFinish, b.Finish, func(dst []byte, r *store.Ref) []byte { return putRef(dst, *r) })
	dst = section(dst, sectionDedupe, b.Dedupe, func(dst []byte, d *store.Dedupe) []byte {
		dst = putString(binary.AppendUvarint(dst, uint64(d.Queue)), d.DedupeID)
		return binary.AppendVarint(append(dst, d.ID[:]...), d.Until)
	})
	dst = section(dst, sectionPutQueues, b.PutQueues, func(dst []byte, q *store.QueueRecord) []byte {
		return putString(putString(binary.AppendUvarint(dst, uint64(q.ID)), q.Name), q.Settings)
	})
	dst = section(dst, sectionDeleteQueues, b.DeleteQueues, func(dst []byte, id *store.QueueID) []byte {
		return binary.AppendUvarint(dst, uint64(*id))
	})
	dst = section(dst, sectionPutConsumers, b.PutConsumers, func(dst []byte, c *store.ConsumerRecord) []byte {
		inFlight, expires := c.Packed()
		dst = putString(binary.AppendUvarint(dst, uint64(c.Queue)), c.Name)
		return binary.AppendUvarint(binary.AppendVarint(binary.AppendUvarint(dst, uint64(inFlight)), expires), c.Reg)
	})
	dst = section(dst, sectionDeleteConsumers, b.DeleteConsumers, func(dst []byte, c *store.ConsumerRecord) []byte {
		return putString(binary.AppendUvarint(dst, uint64(c.Queue)), c.Name)
	})
	dst = section(dst, sectionPutConfig, b.PutConfig, func(dst []byte, e *store.Entry) []byte {
		return putString(putString(dst, e.Key), e.Value)
	})
	dst = section(dst, sectionDeleteConfig, b.DeleteConfig, func(dst []byte, k *string) []byte { return putString(dst, *k) })
	dst = section(dst, sectionHistory, b.History, func(dst []byte, a *store.Attempt) []byte {
		return putString(putRef(dst, a.Ref), a.Record)
	})
	if slices.ContainsFunc(b.State, func(st store.State) bool { return st.Lease.DeliveredAt != 0 || st.Lease.Held != "" }) {
		dst = section(dst, sectionLeases, b.State, func(dst []byte, st *store.State) []byte {
			return putString(binary.AppendVarint(dst, st.Lease.DeliveredAt), st.Lease.Held)
		})
	}
	return append(dst, sectionEnd)
}

func section[T any](dst []byte, number byte, items []T, put func([]byte, *T) []byte) []byte {
	if len(items) == 0 {
		return dst
	}
	dst = binary.AppendUvarint(append(dst, number), uint64(len(items)))
	for i := range items {
		dst = put(dst, &items[i])
	}
	return dst
}

func putString[T ~string | ~[]byte](dst []byte, s T) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func putRef(dst []byte, r store.Ref) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(dst, uint64(r.Queue)), r.Seq)
}

func putMessage(dst []byte, m *store.Message) []byte {
	dst = append(putRef(dst, m.Ref), m.ID[:]...)
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
	dst = binary.AppendVarint(dst, m.EnqueuedAt)
	dst = binary.AppendVarint(dst, m.NotBefore)
	dst = binary.AppendVarint(dst, m.ExpiresAt)
	dst = binary.AppendUvarint(dst, uint64(m.Weight))
	dst = binary.AppendUvarint(dst, uint64(m.Cost))
	dst = binary.AppendUvarint(dst, uint64(m.Attempts))
	dst = putGates(putString(dst, m.Key), m.ThrottleKeys, m.CircuitKey)
	if len(m.Routes) > 0 {
		dst = binary.AppendUvarint(dst, uint64(len(m.Routes)))
	}
	for i := range m.Routes {
		rt := &m.Routes[i]
		dst = binary.AppendUvarint(putString(dst, rt.Name), uint64(rt.Weight))
		dst = putGates(dst, rt.ThrottleKeys, rt.CircuitKey)
	}
	if d := m.Dead; d != nil {
		dst = putString(putString(putString(putString(dst, d.Reason), d.Error), d.ErrorCode), d.SourceQueue)
		dst = binary.AppendUvarint(binary.AppendVarint(dst, d.At), uint64(d.Attempts))
	}
	return dst
}

func putGates(dst []byte, throttleKeys []string, circuitKey string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(throttleKeys)))
	for _, k := range throttleKeys {
		dst = putString(dst, k)
	}
	return putString(dst, circuitKey)
}

func putState(dst []byte, st *store.State) []byte {
	dst = binary.AppendUvarint(putRef(dst, st.Ref), uint64(st.Attempts))
	dst = binary.AppendUvarint(binary.AppendVarint(dst, st.ReadyAt), st.Lease.ID)
	dst = binary.AppendVarint(putString(dst, st.Lease.Consumer), st.Lease.Deadline)
	return putString(dst, st.LastError)
}

// decodeBatches decodes the body of a commit record. Headers, payloads and settings are
// slices of it.
func decodeBatches(body []byte) ([]*store.Batch, error) {
	r := reader{b: body}
	n := r.count()
	out := make([]*store.Batch, 0, min(n, 1024))
	for range n {
		out = append(out, r.batch())
		if r.err != nil {
			return nil, r.err
		}
	}
	return out, r.done()
}

// reader decodes bytes. After an error it returns zeros.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.b = nil
}

// done returns the first error, or an error if bytes are left.
func (r *reader) done() error {
	if r.err == nil && len(r.b) > 0 {
		return errTrailing
	}
	return r.err
}

func (r *reader) take(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.fail(errShort)
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) u8() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) u64() uint64 {
	if b := r.take(8); b != nil {
		return le.Uint64(b)
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	r.skip(n)
	return v
}

// u32 reads a uvarint that fits into 32 bits.
func (r *reader) u32() uint32 {
	v := r.uvarint()
	if v > math.MaxUint32 {
		r.fail(fmt.Errorf("%d is too large a number", v))
		return 0
	}
	return uint32(v)
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	r.skip(n)
	return v
}

// skip skips a varint of n bytes. n is 0 or less if it is cut short or too long.
func (r *reader) skip(n int) {
	if n <= 0 {
		r.fail(errShort)
		return
	}
	r.b = r.b[n:]
}

// count reads the number of items that follow. Each takes at least a byte.
func (r *reader) count() int {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.fail(errShort)
		return 0
	}
	return int(n)
}

// bytes reads a string; an empty one is nil.
func (r *reader) bytes() []byte {
	if b := r.take(r.uvarint()); len(b) > 0 {
		return b
	}
	return nil
}

func (r *reader) str() string { return string(r.bytes()) }

func (r *reader) id() (id store.ID) {
	copy(id[:], r.take(uint64(len(id))))
	return id
}

func (r *reader) queue() store.QueueID { return store.QueueID(r.u32()) }

func (r *reader) ref() store.Ref { return store.Ref{Queue: r.queue(), Seq: r.uvarint()} }

func (r *reader) batch() *store.Batch {
	b := new(store.Batch)
	for last := sectionEnd; r.err == nil; {
		number := r.u8()
		if number == sectionEnd {
			break
		}
		if number <= last {
			r.fail(fmt.Errorf("section %d behind section %d", number, last))
			break
		}
		last = number
		switch number {
		case sectionAdd:
			items(r, &b.Add, func(m *store.Message) {
				r.message(m)
				m.Headers, m.Payload = r.bytes(), r.bytes()
			})
		case sectionMove:
			items(r, &b.Move, func(mv *store.Move) {
				mv.From = r.ref()
				r.message(&mv.To)
			})
		case sectionState:
			items(r, &b.State, r.state)
		case sectionFinish:
			items(r, &b.Finish, func(ref *store.Ref) { *ref = r.ref() })
		case sectionDedupe:
			items(r, &b.Dedupe, func(d *store.Dedupe) {
				*d = store.Dedupe{Queue: r.queue(), DedupeID: r.str(), ID: r.id(), Until: r.varint()}
			})
		case sectionPutQueues:
			items(r, &b.PutQueues, func(q *store.QueueRecord) {
				*q = store.QueueRecord{ID: r.queue(), Name: r.str(), Settings: r.bytes()}
			})
		case sectionDeleteQueues:
			items(r, &b.DeleteQueues, func(id *store.QueueID) { *id = r.queue() })
		case sectionPutConsumers:
			items(r, &b.PutConsumers, func(c *store.ConsumerRecord) {
				*c = store.ConsumerRecord{Queue: r.queue(), Name: r.str()}
				c.SetPacked(r.u32(), r.varint())
				c.Reg = r.uvarint()
			})
		case sectionDeleteConsumers:
			items(r, &b.DeleteConsumers, func(c *store.ConsumerRecord) {
				*c = store.ConsumerRecord{Queue: r.queue(), Name: r.str()}
			})
		case sectionPutConfig:
			items(r, &b.PutConfig, func(e *store.Entry) { *e = store.Entry{Key: r.str(), Value: r.str()} })
		case sectionDeleteConfig:
			items(r, &b.DeleteConfig, func(k *string) { *k = r.str() })
		case sectionHistory:
			items(r, &b.History, func(a *store.Attempt) { *a = store.Attempt{Ref: r.ref(), Record: r.bytes()} })
		case sectionLeases:
			var leases []store.Lease
			items(r, &leases, func(l *store.Lease) { l.DeliveredAt, l.Held = r.varint(), r.str() })
			if r.err == nil && len(leases) != len(b.State) {
				r.fail(fmt.Errorf("%d leases of %d states", len(leases), len(b.State)))
			}
			for i := range b.State {
				if r.err == nil {
					b.State[i].Lease.DeliveredAt, b.State[i].Lease.Held = leases[i].DeliveredAt, leases[i].Held
				}
			}
		default:
			r.fail(fmt.Errorf("%w: section %d of a batch", ErrUnknown, number))
		}
	}
	return b
}

// items reads the items of a section. It allocates for a few items first, so that a wrong
// number costs nothing.
func items[T any](r *reader, dst *[]T, read func(*T)) {
	n := r.count()
	if r.err == nil && n == 0 {
		r.fail(errors.New("a section without items"))
	}
	*dst = make([]T, 0, min(n, 1024))
	for range n {
		var item T
		if read(&item); r.err != nil {
			return
		}
		*dst = append(*dst, item)
	}
}

func (r *reader) message(m *store.Message) {
	m.Ref, m.ID = r.ref(), r.id()
	flags := r.u8()
	if m.Priority = flags >> priorityShift; flags&^(flagDead|flagDelayed|flagRoutes|0xf0) != 0 || m.Priority > store.MaxPriority {
		r.fail(fmt.Errorf("%w: flags %#x of a message", ErrUnknown, flags))
		return
	}
	m.Delayed = flags&flagDelayed != 0
	m.EnqueuedAt, m.NotBefore, m.ExpiresAt = r.varint(), r.varint(), r.varint()
	m.Weight, m.Cost, m.Attempts = r.u32(), r.u32(), r.u32()
	m.Key = r.str()
	m.ThrottleKeys, m.CircuitKey = r.gates()
	if flags&flagRoutes != 0 {
		r.routes(m)
	}
	if flags&flagDead != 0 {
		m.Dead = &store.Dead{Reason: r.str(), Error: r.str(), ErrorCode: r.str(), SourceQueue: r.str(), At: r.varint(), Attempts: r.u32()}
	}
}

func (r *reader) gates() (throttleKeys []string, circuitKey string) {
	if n := r.count(); n > 0 {
		throttleKeys = make([]string, n)
		for i := range throttleKeys {
			throttleKeys[i] = r.str()
		}
	}
	return throttleKeys, r.str()
}

func (r *reader) routes(m *store.Message) {
	n := r.count()
	if r.err == nil && (n == 0 || n > store.MaxRoutes) {
		r.fail(fmt.Errorf("%d routes of a message", n))
	}
	if r.err != nil {
		return
	}
	m.Routes = make([]store.Route, n)
	for i := range m.Routes {
		rt := &m.Routes[i]
		rt.Name, rt.Weight = r.str(), r.u32()
		rt.ThrottleKeys, rt.CircuitKey = r.gates()
	}
}

func (r *reader) state(st *store.State) {
	*st = store.State{Ref: r.ref(), Attempts: r.u32(), ReadyAt: r.varint()}
	st.Lease = store.Lease{ID: r.uvarint(), Consumer: r.str(), Deadline: r.varint()}
	st.LastError = r.str()
}
