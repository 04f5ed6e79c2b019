package store

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func fullMessage() Message {
	return Message{
		Ref: Ref{Queue: 7, Seq: 1 << 40}, ID: ID{1, 2, 3}, EnqueuedAt: -1, NotBefore: 2, Delayed: true, ExpiresAt: 3, Weight: 4, Cost: 5,
		Key: "tenant", ThrottleKeys: []string{"a", "", strings.Repeat("k", 300)}, CircuitKey: "stripe", Priority: 9, Attempts: 6,
		Dead: &Dead{Reason: "r", Error: "e", ErrorCode: "c", SourceQueue: "q", At: 8, Attempts: 9},
	}
}

func TestEntryCodec(t *testing.T) {
	m := fullMessage()
	b := appendEntry([]byte("before"), &m, 10, 20)[6:]
	require.Len(t, b, entrySize(&m))
	head, err := openEntry(b)
	require.NoError(t, err)
	require.Equal(t, entryHead{ref: m.Ref, headers: 10, payload: 20}, head)
	require.Equal(t, uint32(30), head.size())
	var got Message
	in := newInterner()
	require.NoError(t, decodeEntry(b, &got, in))
	require.Equal(t, m, got)
	// Every flipped bit shows, every shorter piece too.
	for i := range b {
		c := bytes.Clone(b)
		c[i] ^= 1 << (i % 8)
		_, err := openEntry(c)
		require.Error(t, err, i)
		_, err = openEntry(b[:i])
		require.Error(t, err, i)
	}
	// Messages of one flow share their strings, and decoding allocates nothing then.
	m.Dead = nil
	b = appendEntry(b[:0], &m, 1, 1)
	require.NoError(t, decodeEntry(b, &got, in))
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = decodeEntry(b, &got, in) }))
}

func TestInternedListsOfEqualBytes(t *testing.T) {
	in := newInterner()
	var a, b Message
	ma := Message{ThrottleKeys: []string{"\x01b"}}
	mb := Message{ThrottleKeys: []string{"\x01b", ""}}
	require.NoError(t, decodeEntry(appendEntry(nil, &ma, 0, 0), &a, in))
	require.NoError(t, decodeEntry(appendEntry(nil, &mb, 0, 0), &b, in))
	require.Equal(t, ma.ThrottleKeys, a.ThrottleKeys)
	require.Equal(t, mb.ThrottleKeys, b.ThrottleKeys)
}

func TestBitmapCodec(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	key := []byte("segment1")
	for n := range 200 {
		words := make([]uint64, (n+63)/64)
		for i := range n {
			if rng.IntN(2) == 0 {
				words[i/64] |= 1 << (i % 64)
			}
		}
		b := seal(nil, key, appendBitmap(nil, n, words))
		got, err := decodeBitmap(key, b, n)
		require.NoError(t, err)
		require.Equal(t, words, got)
		_, err = decodeBitmap(key, b, n+1)
		require.Error(t, err)
		_, err = decodeBitmap([]byte("segment2"), b, n)
		require.ErrorIs(t, err, errChecksum)
	}
}

func TestBlock(t *testing.T) {
	items := []string{"a", "", "ccc"}
	b := beginBlock(nil, kindIndex, 5, len(items))
	for i, s := range items {
		b = append(b, s...)
		endItem(b, i)
	}
	bl, err := openBlock(b, kindIndex, 5)
	require.NoError(t, err)
	for i, s := range items {
		got, off, err := bl.item(i)
		require.NoError(t, err)
		require.Equal(t, s, string(got))
		require.Equal(t, s, string(b[off:off+int64(len(s))]))
	}
	for i := range len(b) {
		_, err := openBlock(b[:i], kindIndex, 5)
		require.Error(t, err)
	}
	_, err = openBlock(b, kindSegment, 5)
	require.Error(t, err)
	_, err = openBlock(b, kindIndex, 6)
	require.Error(t, err)
	_, err = openBlock(append(b, 0), kindIndex, 5)
	require.Error(t, err)
	empty, err := openBlock(beginBlock(nil, kindIndex, 0, 0), kindIndex, 0)
	require.NoError(t, err)
	require.Zero(t, empty.n)
}

func TestDedupeStep(t *testing.T) {
	for until, want := range map[int64]int64{
		-5: 0, 0: 0, 1: dedupeStep, dedupeStep: dedupeStep, dedupeStep + 1: 2 * dedupeStep, 1<<63 - 1: 1<<63 - 1, 1<<63 - 2: 1<<63 - 1,
	} {
		require.Equal(t, want, dedupeStepOf(until), until)
	}
}

// fuzzed runs a decoder on b as it is, and with its checksum put right, so that
// the fuzzer gets past it.
func fuzzed(b []byte, decode func(b []byte)) {
	decode(b)
	if len(b) >= 4 {
		c := bytes.Clone(b)
		le.PutUint32(c, checksum(c[4:]))
		decode(c)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add(appendRecord(nil, Ref{1, 2}, []byte("h"), []byte("payload")))
	f.Fuzz(func(t *testing.T, b []byte) {
		fuzzed(b, func(b []byte) {
			if r, err := decodeRecord(b); err == nil {
				require.Equal(t, b, appendRecord(nil, r.ref, r.headers, r.payload))
			}
		})
	})
}

func FuzzEntry(f *testing.F) {
	m := fullMessage()
	f.Add(appendEntry(nil, &m, 3, 4))
	f.Add(appendEntry(nil, &Message{}, 0, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		fuzzed(b, func(b []byte) {
			head, err := openEntry(b)
			if err != nil {
				return
			}
			var m Message
			if decodeEntry(b, &m, newInterner()) == nil {
				require.Equal(t, head.ref, m.Ref)
				require.Equal(t, b, appendEntry(nil, &m, int(head.headers), int(head.payload)))
			}
		})
	})
}

func FuzzState(f *testing.F) {
	key := appendRefKey(nil, Ref{1, 2})
	f.Add(appendState(nil, &State{Attempts: 1, ReadyAt: 2, Lease: Lease{ID: 3, Consumer: "c", Deadline: 4}, LastError: "e"}))
	f.Add(appendState(nil, &State{Lease: Lease{ID: 3, DeliveredAt: 5, Held: "h"}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var st State
		_ = decodeState(b, b, &st, newInterner())
		if decodeState(key, seal(nil, key, b), &st, newInterner()) == nil {
			require.Equal(t, Ref{1, 2}, st.Ref)
			require.Equal(t, b, appendState(nil, &st))
			require.Len(t, b, stateSize(&st))
		}
	})
}

func FuzzHistory(f *testing.F) {
	key := appendRefKey(nil, Ref{1, 2})
	var o Options
	f.Add(o.addRecord(o.addRecord(nil, []byte("one")), []byte("two")), []byte("three"))
	keeps := Options{Keep: func(r []byte) bool { return r[0] == 't' }}
	f.Fuzz(func(t *testing.T, b, record []byte) {
		_, _ = decodeHistory(b, b, nil)
		records, err := decodeHistory(key, seal(nil, key, b), nil)
		if err != nil {
			return
		}
		var again []byte
		for _, r := range records {
			again = appendBytes(again, r)
		}
		require.Equal(t, b, again)
		if len(record) == 0 || len(record) > MaxAttemptBytes || len(records) > MaxHistory || len(records[0]) > MaxAttemptBytes {
			return
		}
		for _, o := range []Options{{}, keeps} {
			added := o.addRecord(b, record)
			longer, err := decodeHistory(key, seal(nil, key, added), nil)
			require.NoError(t, err)
			require.Equal(t, records[0], longer[0])
			require.Equal(t, record, longer[len(longer)-1])
			require.LessOrEqual(t, len(longer), MaxHistory)
			require.LessOrEqual(t, len(added), MaxHistoryBytes)
		}
	})
}

func FuzzBitmap(f *testing.F) {
	f.Add(appendBitmap(nil, 9, []uint64{0x155}), 9)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		if n < 0 || n > 1<<20 {
			return
		}
		if words, err := decodeBitmap(nil, seal(nil, nil, b), n); err == nil {
			require.Equal(t, b, appendBitmap(nil, n, words))
		}
	})
}

func FuzzDedupe(f *testing.F) {
	f.Add(appendDedupe(nil, &Dedupe{Queue: 1, DedupeID: "d", ID: ID{1}, Until: 5}))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = decodeDedupeKey(b)
		fuzzed(b, func(b []byte) {
			if d, err := decodeDedupe(b); err == nil {
				require.Equal(t, b, appendDedupe(nil, &d))
			}
		})
	})
}

func FuzzBlock(f *testing.F) {
	b := beginBlock(nil, kindSegment, 9, 1)
	b = appendRecord(b, Ref{1, 2}, nil, []byte("x"))
	endItem(b, 0)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		for range 2 {
			for _, kind := range []byte{kindSegment, kindIndex, kindDedupe} {
				if bl, err := openBlock(b, kind, 9); err == nil {
					for i := range min(bl.n, 1000) {
						_, _, _ = bl.item(i)
					}
				}
			}
			if len(b) < blockHeader {
				return
			}
			b = bytes.Clone(b)
			le.PutUint64(b[8:], 9)
			le.PutUint32(b[16:], checksum(b[:16]))
		}
	})
}

func FuzzSmallRecords(f *testing.F) {
	f.Add(appendQueue(nil, &QueueRecord{Name: "q", Settings: []byte("{}")}))
	f.Add(appendConsumer(nil, &ConsumerRecord{MaxInFlight: 1, ExpiresAt: 2, Reg: 3}))
	f.Add(appendTally(nil, tally{1, 2, 3, 4, 5, 6, 0}))
	f.Add(appendTally(nil, tally{1, 2, 3, 4, 5, 6, 7}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if q, err := decodeQueue([]byte("1234"), seal(nil, []byte("1234"), b)); err == nil {
			require.Equal(t, b, appendQueue(nil, &q))
		}
		if c, err := decodeConsumer([]byte("12345"), seal(nil, []byte("12345"), b)); err == nil {
			require.Equal(t, b, appendConsumer(nil, &c))
		}
		if x, err := decodeTally(keyTally, seal(nil, keyTally, b)); err == nil {
			require.Equal(t, b, appendTally(nil, x))
		}
		_, _ = decodeQueue(b, b)
		_, _ = decodeConsumer(b, b)
	})
}

func BenchmarkEntry(b *testing.B) {
	m := fullMessage()
	m.Dead = nil
	buf := appendEntry(nil, &m, 1, 2)
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buf = appendEntry(buf[:0], &m, 1, 2)
		}
	})
	b.Run("decode", func(b *testing.B) {
		in := newInterner()
		var got Message
		b.ReportAllocs()
		for b.Loop() {
			_, _ = openEntry(buf)
			_ = decodeEntry(buf, &got, in)
		}
	})
}

func BenchmarkRecord(b *testing.B) {
	payload := make([]byte, 1000)
	buf := appendRecord(nil, Ref{1, 2}, []byte("some: header"), payload)
	b.Run("encode", func(b *testing.B) {
		b.SetBytes(1000)
		b.ReportAllocs()
		for b.Loop() {
			buf = appendRecord(buf[:0], Ref{1, 2}, []byte("some: header"), payload)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.SetBytes(1000)
		b.ReportAllocs()
		for b.Loop() {
			_, _ = decodeRecord(buf)
		}
	})
}
