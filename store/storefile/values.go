package storefile

import (
	"encoding/hex"
	"errors"
	"fmt"
)

// The key of a state, and the beginning of a consumer's key.
//
//	0  u32 big endian  queue
//	4  u64 big endian  seq

// RefKeySize is the size of an encoded key.
const RefKeySize = 12

// AppendRefKey encodes the key of a state or a history.
func AppendRefKey(dst []byte, ref Ref) []byte {
	return be.AppendUint64(be.AppendUint32(dst, uint32(ref.Queue)), ref.Seq)
}

// DecodeRefKey decodes the key of a state or a history.
func DecodeRefKey(b []byte) (Ref, error) {
	if len(b) != 12 {
		return Ref{}, errors.New("bad key")
	}
	return Ref{Queue: QueueID(be.Uint32(b)), Seq: be.Uint64(b[4:])}, nil
}

// A state is a sealed value:
//
//	 0  u32  attempts
//	 4  i64  ready at, steady time (see Clock)
//	12  u64  lease id
//	20  i64  lease deadline, steady time
//	28       consumer, last error, strings
//	         of a lease that has them: delivered at, i64; what blocked the message
//	         before, string

// AppendState encodes a state, with its times in steady time.
func AppendState(dst []byte, st *State) []byte {
	dst = le.AppendUint32(dst, st.Attempts)
	dst = le.AppendUint64(dst, uint64(st.ReadyAt))
	dst = le.AppendUint64(dst, st.Lease.ID)
	dst = le.AppendUint64(dst, uint64(st.Lease.Deadline))
	dst = appendString(dst, st.Lease.Consumer)
	dst = appendString(dst, st.LastError)
	if !st.Lease.HasHistory() {
		return dst
	}
	return appendString(le.AppendUint64(dst, uint64(st.Lease.DeliveredAt)), st.Lease.Held)
}

// HasHistory reports whether the lease has its begin or what blocked the message
// before.
func (l *Lease) HasHistory() bool { return l.DeliveredAt != 0 || l.Held != "" }

// StateSize returns the size of an encoded state.
func StateSize(st *State) int {
	n := 28 + sizeString(st.Lease.Consumer) + sizeString(st.LastError)
	if st.Lease.HasHistory() {
		n += 8 + sizeString(st.Lease.Held)
	}
	return n
}

func decodeState(key, value []byte, st *State, in *Interner) error {
	ref, err := DecodeRefKey(key)
	if err != nil {
		return err
	}
	r := unsealed(key, value)
	*st = State{Ref: ref, Attempts: r.u32(), ReadyAt: r.i64()}
	st.Lease.ID = r.u64()
	st.Lease.Deadline = r.i64()
	st.Lease.Consumer = in.str(r.bytes())
	st.LastError = in.str(r.bytes())
	if len(r.b) > 0 {
		st.Lease.DeliveredAt = r.i64()
		st.Lease.Held = in.str(r.bytes())
		if r.err == nil && !st.Lease.HasHistory() {
			return errTrailing
		}
	}
	return r.done()
}

// A history is a sealed value: its records as strings, the oldest first. No history is
// empty.

func decodeHistory(key, value []byte, dst [][]byte) ([][]byte, error) {
	r := unsealed(key, value)
	if len(r.b) == 0 && r.err == nil {
		return nil, errShort
	}
	for len(r.b) > 0 && r.err == nil {
		if b := r.bytes(); r.err == nil && len(b) == 0 {
			return nil, errors.New("a record without bytes")
		} else {
			dst = append(dst, b)
		}
	}
	return dst, r.err
}

// HistoryRules bound histories and join their records. They must depend on the records
// alone, because copies of a store build their histories themselves.
type HistoryRules struct {
	// Join returns one record for the newest record and the next one. If it returns
	// nil or a record that is too long, both remain. nil joins nothing.
	Join func(last, next []byte) []byte
	// Keep reports whether a record is kept for longer than others: of the records that
	// would be dropped, the newest such one remains. nil keeps none.
	Keep func(record []byte) bool
}

// Add returns a history with a record added, within [MaxHistory] and
// [MaxHistoryBytes]: the oldest records but the first are dropped. It does not change
// history.
func (o HistoryRules) Add(history, record []byte) []byte {
	n, first := 1, 0 // first: bytes of the oldest record
	var newest []byte
	before := 0 // bytes before the newest record
	for r := (reader{b: history}); len(r.b) > 0; n++ {
		before = len(history) - len(r.b)
		newest = r.bytes()
		if r.err != nil {
			return o.Add(nil, record) // the history is damaged
		}
		if n == 1 {
			first = len(history) - len(r.b)
		}
	}
	if o.Join != nil && newest != nil {
		if one := o.Join(newest, record); len(one) > 0 && len(one) <= MaxAttemptBytes {
			return HistoryRules{Keep: o.Keep}.Add(history[:before], one)
		}
	}
	size := len(history) + sizeBytes(record)
	rest := reader{b: history[first:]}
	var kept []byte
	for n > MaxHistory || size > MaxHistoryBytes {
		var oldest []byte
		if len(rest.b) > 0 {
			oldest = rest.bytes()
		}
		if oldest == nil || o.Keep != nil && o.Keep(oldest) {
			oldest, kept = kept, oldest
		}
		if oldest != nil {
			size -= sizeBytes(oldest)
			n--
		}
	}
	out := append(make([]byte, 0, size), history[:first]...)
	if kept != nil {
		out = appendBytes(out, kept)
	}
	return appendBytes(append(out, rest.b...), record)
}

// DecodeState decodes a state and converts its times to wall time.
func (p Path) DecodeState(key, value []byte, st *State, in *Interner, c *Clock) error {
	if err := decodeState(key, value, st, in); err != nil {
		return p.CorruptMeta("state "+hex.EncodeToString(key), err)
	}
	st.ReadyAt, st.Lease.Deadline = c.Wall(st.ReadyAt), c.Wall(st.Lease.Deadline)
	return nil
}

// A bitmap marks the finished records of a segment. Its value is sealed with the
// key of the segment:
//
//	0  u32  n, number of records
//	4       bit i of byte i/8, counted from the lowest, for record i

// AppendBitmap encodes a bitmap of n records.
func AppendBitmap(dst []byte, n int, words []uint64) []byte {
	dst = le.AppendUint32(dst, uint32(n))
	for i := range (n + 7) / 8 {
		dst = append(dst, byte(words[i/8]>>(8*(i%8))))
	}
	return dst
}

// DecodeBitmap decodes a sealed bitmap of n records.
func DecodeBitmap(key, value []byte, n int) ([]uint64, error) {
	b, err := Unseal(key, value)
	if err != nil {
		return nil, err
	}
	if len(b) < 4 || int64(le.Uint32(b)) != int64(n) || len(b)-4 != (n+7)/8 {
		return nil, fmt.Errorf("is not for %d records", n)
	}
	if n%8 != 0 && b[len(b)-1]>>(n%8) != 0 {
		return nil, errTrailing
	}
	words := make([]uint64, (n+63)/64)
	for i, v := range b[4:] {
		words[i/8] |= uint64(v) << (8 * (i % 8))
	}
	return words, nil
}

// The key of a dedupe value, in the order of expiry:
//
//	0  u64 big endian  the latest expiry in it, rounded up to dedupeStep, nanoseconds
//	8  u64 big endian  stamp, unique: the number of the transaction
//
// Its value is a block of kind D with the stamp as its id. An item:
//
//	 0  u32  CRC32-C of bytes 4..
//	 4  u32  queue
//	 8  i64  until
//	16       id, 16 bytes
//	32       dedupe id, to the end
const (
	DedupeFixed = 32
	dedupeStep  = int64(10e9)
)

// AppendDedupeKey encodes the key of a dedupe value.
func AppendDedupeKey(dst []byte, step int64, stamp uint64) []byte {
	return be.AppendUint64(be.AppendUint64(dst, uint64(step)), stamp)
}

// DecodeDedupeKey decodes the key of a dedupe value.
func DecodeDedupeKey(b []byte) (step int64, stamp uint64, err error) {
	if len(b) != 16 {
		return 0, 0, errors.New("bad key")
	}
	return int64(be.Uint64(b)), be.Uint64(b[8:]), nil
}

// openDedupes opens a value of the dedupe log.
func openDedupes(k, v []byte) (step int64, items Block, err error) {
	step, stamp, err := DecodeDedupeKey(k)
	if err == nil {
		items, err = OpenBlock(v, KindDedupe, stamp)
	}
	return step, items, err
}

// DedupeStepOf returns the key time of an expiry. Times before 1970 expired long ago.
func DedupeStepOf(until int64) int64 {
	if until > (1<<63-1)-dedupeStep {
		return 1<<63 - 1
	}
	return (max(until, 0) + dedupeStep - 1) / dedupeStep * dedupeStep
}

// AppendDedupe encodes a dedupe id.
func AppendDedupe(dst []byte, d *Dedupe) []byte {
	at := len(dst)
	dst = le.AppendUint32(dst, 0)
	dst = le.AppendUint32(dst, uint32(d.Queue))
	dst = le.AppendUint64(dst, uint64(d.Until))
	dst = append(dst, d.ID[:]...)
	dst = append(dst, d.DedupeID...)
	le.PutUint32(dst[at:], checksum(dst[at+4:]))
	return dst
}

func decodeDedupe(b []byte) (Dedupe, error) {
	if err := verify(b, DedupeFixed); err != nil {
		return Dedupe{}, err
	}
	return Dedupe{
		Queue: QueueID(le.Uint32(b[4:])), Until: int64(le.Uint64(b[8:])),
		ID: ID(b[16:32]), DedupeID: string(b[32:]),
	}, nil
}

// A queue is a sealed value under its id (u32 big endian): name, string, and
// settings to the end.

// QueueKey returns the key of a queue.
func QueueKey(id QueueID) []byte { return be.AppendUint32(nil, uint32(id)) }

// AppendQueue encodes a queue.
func AppendQueue(dst []byte, q *QueueRecord) []byte {
	return append(appendString(dst, q.Name), q.Settings...)
}

func decodeQueue(key, value []byte) (QueueRecord, error) {
	if len(key) != 4 {
		return QueueRecord{}, errors.New("bad key")
	}
	r := unsealed(key, value)
	q := QueueRecord{ID: QueueID(be.Uint32(key)), Name: string(r.bytes())}
	q.Settings = append(q.Settings, r.b...)
	return q, r.err
}

// A consumer is a sealed value under its queue (u32 big endian) and its name:
//
//	 0  u32  most in flight and the form of deliveries, see Packed
//	 4  i64  expires at
//	12  u64  reg

// ConsumerKey returns the key of a consumer.
func ConsumerKey(c *ConsumerRecord) []byte { return append(QueueKey(c.Queue), c.Name...) }

// AppendConsumer encodes a consumer.
func AppendConsumer(dst []byte, c *ConsumerRecord) []byte {
	inFlight, expires := c.Packed()
	dst = le.AppendUint32(dst, inFlight)
	dst = le.AppendUint64(dst, uint64(expires))
	return le.AppendUint64(dst, c.Reg)
}

func decodeConsumer(key, value []byte) (ConsumerRecord, error) {
	if len(key) < 5 {
		return ConsumerRecord{}, errors.New("bad key")
	}
	r := unsealed(key, value)
	c := ConsumerRecord{Queue: QueueID(be.Uint32(key)), Name: string(key[4:])}
	c.SetPacked(r.u32(), r.i64())
	c.Reg = r.u64()
	return c, r.done()
}

// Counts is a sealed value with the counts of the other buckets. Every commit rewrites
// it (at no cost: it lies in the root page), and opening compares it, which detects a
// missing part of the tree.
//
//	 0  u64  segments
//	 8  u64  records in them
//	16  u64  of these, finished
//	24  u64  states
//	32  u64  dedupe values
//	40  u64  commits
//	48  u64  histories, if there are any
type Counts struct {
	Segments, Records, Finished, States, Dedupes, Commits, Histories uint64
}

// AppendCounts encodes counts.
func AppendCounts(dst []byte, t Counts) []byte {
	for _, v := range []uint64{t.Segments, t.Records, t.Finished, t.States, t.Dedupes, t.Commits} {
		dst = le.AppendUint64(dst, v)
	}
	if t.Histories > 0 {
		dst = le.AppendUint64(dst, t.Histories)
	}
	return dst
}

func decodeCounts(key, value []byte) (Counts, error) {
	r := unsealed(key, value)
	t := Counts{r.u64(), r.u64(), r.u64(), r.u64(), r.u64(), r.u64(), 0}
	if len(r.b) > 0 {
		if t.Histories = r.u64(); r.err == nil && t.Histories == 0 {
			return t, errTrailing
		}
	}
	return t, r.done()
}

// Differs returns an error unless the counts are equal to the counts of the last commit.
func (t Counts) Differs(want Counts) error {
	if t == want {
		return nil
	}
	return fmt.Errorf("found %s where the last commit counted %s", t, want)
}

func (t Counts) String() string {
	return fmt.Sprintf("%d segments, %d records, %d finished, %d states, %d histories, %d dedupe values", t.Segments, t.Records, t.Finished, t.States, t.Histories, t.Dedupes)
}
