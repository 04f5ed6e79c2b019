package storefile

import (
	"bytes"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func fullRoutes() []Route {
	return []Route{
		{Name: "one", Weight: math.MaxInt32, ThrottleKeys: []string{"b", ""}, CircuitKey: "other"},
		{Name: "two"},
	}
}

func fullMessage() Message {
	return Message{
		Ref: Ref{Queue: 7, Seq: 1 << 40}, ID: ID{1, 2, 3}, EnqueuedAt: -1, NotBefore: 2, Delayed: true, ExpiresAt: 3,
		Class:    Class{Weight: 4, Cost: 5, Key: "tenant", ThrottleKeys: []string{"a", "", strings.Repeat("k", 300)}, CircuitKey: "stripe", Priority: 9, Routes: fullRoutes()},
		Attempts: 6,
		Dead:     &Dead{Reason: "r", Error: "e", ErrorCode: "c", SourceQueue: "q", At: 8, Attempts: 9},
	}
}

func TestEntryCodec(t *testing.T) {
	m := fullMessage()
	b := AppendEntry([]byte("before"), &m, 10, 20)[6:]
	require.Len(t, b, EntrySize(&m))
	head, err := OpenEntry(b)
	require.NoError(t, err)
	require.Equal(t, EntryHead{Ref: m.Ref, Headers: 10, Payload: 20}, head)
	require.Equal(t, uint32(30), head.Size())
	var got Message
	in := NewInterner()
	require.NoError(t, DecodeEntry(b, &got, in))
	require.Equal(t, m, got)
	// Every flipped bit shows, every shorter piece too.
	for i := range b {
		c := bytes.Clone(b)
		c[i] ^= 1 << (i % 8)
		_, err := OpenEntry(c)
		require.Error(t, err, i)
		_, err = OpenEntry(b[:i])
		require.Error(t, err, i)
	}
	// Messages of one flow share their strings, and decoding allocates nothing then.
	m.Dead, m.Routes = nil, nil
	b = AppendEntry(b[:0], &m, 1, 1)
	require.NoError(t, DecodeEntry(b, &got, in))
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = DecodeEntry(b, &got, in) }))
}

func TestInternedListsOfEqualBytes(t *testing.T) {
	in := NewInterner()
	var a, b Message
	ma := Message{Class: Class{ThrottleKeys: []string{"\x01b"}}}
	mb := Message{Class: Class{ThrottleKeys: []string{"\x01b", ""}}}
	require.NoError(t, DecodeEntry(AppendEntry(nil, &ma, 0, 0), &a, in))
	require.NoError(t, DecodeEntry(AppendEntry(nil, &mb, 0, 0), &b, in))
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
		b := Seal(nil, key, AppendBitmap(nil, n, words))
		got, err := DecodeBitmap(key, b, n)
		require.NoError(t, err)
		require.Equal(t, words, got)
		_, err = DecodeBitmap(key, b, n+1)
		require.Error(t, err)
		_, err = DecodeBitmap([]byte("segment2"), b, n)
		require.ErrorIs(t, err, ErrChecksum)
	}
}

func TestBlock(t *testing.T) {
	items := []string{"a", "", "ccc"}
	b := BeginBlock(nil, KindIndex, 5, len(items))
	for i, s := range items {
		b = append(b, s...)
		EndItem(b, i)
	}
	bl, err := OpenBlock(b, KindIndex, 5)
	require.NoError(t, err)
	for i, s := range items {
		got, off, err := bl.Item(i)
		require.NoError(t, err)
		require.Equal(t, s, string(got))
		require.Equal(t, s, string(b[off:off+int64(len(s))]))
	}
	for i := range len(b) {
		_, err := OpenBlock(b[:i], KindIndex, 5)
		require.Error(t, err)
	}
	_, err = OpenBlock(b, KindSegment, 5)
	require.Error(t, err)
	_, err = OpenBlock(b, KindIndex, 6)
	require.Error(t, err)
	_, err = OpenBlock(append(b, 0), KindIndex, 5)
	require.Error(t, err)
	empty, err := OpenBlock(BeginBlock(nil, KindIndex, 0, 0), KindIndex, 0)
	require.NoError(t, err)
	require.Zero(t, empty.N)
}

func TestDedupeStep(t *testing.T) {
	for until, want := range map[int64]int64{
		-5: 0, 0: 0, 1: dedupeStep, dedupeStep: dedupeStep, dedupeStep + 1: 2 * dedupeStep, 1<<63 - 1: 1<<63 - 1, 1<<63 - 2: 1<<63 - 1,
	} {
		require.Equal(t, want, DedupeStepOf(until), until)
	}
}

// fuzzed runs a decoder on b, and on b with a corrected checksum, so that the fuzzer
// gets past the checksum.
func fuzzed(b []byte, decode func(b []byte)) {
	decode(b)
	if len(b) >= 4 {
		c := bytes.Clone(b)
		le.PutUint32(c, checksum(c[4:]))
		decode(c)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add(AppendRecord(nil, Ref{1, 2}, []byte("h"), []byte("payload")))
	f.Fuzz(func(t *testing.T, b []byte) {
		fuzzed(b, func(b []byte) {
			if r, err := DecodeRecord(b); err == nil {
				require.Equal(t, b, AppendRecord(nil, r.Ref, r.Headers, r.Payload))
			}
		})
	})
}

func FuzzEntry(f *testing.F) {
	m := fullMessage()
	f.Add(AppendEntry(nil, &m, 3, 4))
	f.Add(AppendEntry(nil, &Message{}, 0, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		fuzzed(b, func(b []byte) {
			head, err := OpenEntry(b)
			if err != nil {
				return
			}
			var m Message
			if DecodeEntry(b, &m, NewInterner()) == nil {
				require.Equal(t, head.Ref, m.Ref)
				require.Equal(t, b, AppendEntry(nil, &m, int(head.Headers), int(head.Payload)))
			}
		})
	})
}

func FuzzState(f *testing.F) {
	key := AppendRefKey(nil, Ref{1, 2})
	f.Add(AppendState(nil, &State{Attempts: 1, ReadyAt: 2, Lease: Lease{ID: 3, Consumer: "c", Deadline: 4}, LastError: "e"}))
	f.Add(AppendState(nil, &State{Lease: Lease{ID: 3, DeliveredAt: 5, Held: "h"}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var st State
		_ = decodeState(b, b, &st, NewInterner())
		if decodeState(key, Seal(nil, key, b), &st, NewInterner()) == nil {
			require.Equal(t, Ref{1, 2}, st.Ref)
			require.Equal(t, b, AppendState(nil, &st))
			require.Len(t, b, StateSize(&st))
		}
	})
}

func FuzzHistory(f *testing.F) {
	key := AppendRefKey(nil, Ref{1, 2})
	var o HistoryRules
	f.Add(o.Add(o.Add(nil, []byte("one")), []byte("two")), []byte("three"))
	keeps := HistoryRules{Keep: func(r []byte) bool { return r[0] == 't' }}
	f.Fuzz(func(t *testing.T, b, record []byte) {
		_, _ = decodeHistory(b, b, nil)
		records, err := decodeHistory(key, Seal(nil, key, b), nil)
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
		for _, o := range []HistoryRules{{}, keeps} {
			added := o.Add(b, record)
			longer, err := decodeHistory(key, Seal(nil, key, added), nil)
			require.NoError(t, err)
			require.Equal(t, records[0], longer[0])
			require.Equal(t, record, longer[len(longer)-1])
			require.LessOrEqual(t, len(longer), MaxHistory)
			require.LessOrEqual(t, len(added), MaxHistoryBytes)
		}
	})
}

func FuzzBitmap(f *testing.F) {
	f.Add(AppendBitmap(nil, 9, []uint64{0x155}), 9)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		if n < 0 || n > 1<<20 {
			return
		}
		if words, err := DecodeBitmap(nil, Seal(nil, nil, b), n); err == nil {
			require.Equal(t, b, AppendBitmap(nil, n, words))
		}
	})
}

func FuzzDedupe(f *testing.F) {
	f.Add(AppendDedupe(nil, &Dedupe{Queue: 1, DedupeID: "d", ID: ID{1}, Until: 5}))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = DecodeDedupeKey(b)
		fuzzed(b, func(b []byte) {
			if d, err := decodeDedupe(b); err == nil {
				require.Equal(t, b, AppendDedupe(nil, &d))
			}
		})
	})
}

func FuzzBlock(f *testing.F) {
	b := BeginBlock(nil, KindSegment, 9, 1)
	b = AppendRecord(b, Ref{1, 2}, nil, []byte("x"))
	EndItem(b, 0)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		for range 2 {
			for _, kind := range []byte{KindSegment, KindIndex, KindDedupe} {
				if bl, err := OpenBlock(b, kind, 9); err == nil {
					for i := range min(bl.N, 1000) {
						_, _, _ = bl.Item(i)
					}
				}
			}
			if len(b) < BlockHeader {
				return
			}
			b = bytes.Clone(b)
			le.PutUint64(b[8:], 9)
			le.PutUint32(b[16:], checksum(b[:16]))
		}
	})
}

func FuzzSmallRecords(f *testing.F) {
	f.Add(AppendQueue(nil, &QueueRecord{Name: "q", Settings: []byte("{}")}))
	f.Add(AppendConsumer(nil, &ConsumerRecord{MaxInFlight: 1, ExpiresAt: 2, Reg: 3}))
	f.Add(AppendConsumer(nil, &ConsumerRecord{Form: DeliveryForm{MinHeaders: true}}))
	f.Add(AppendConsumer(nil, &ConsumerRecord{MaxInFlight: 65536, Form: DeliveryForm{Batch: 1000, BatchBytes: 64 << 20}, ExpiresAt: math.MaxInt64}))
	f.Add(AppendCounts(nil, Counts{1, 2, 3, 4, 5, 6, 0}))
	f.Add(AppendCounts(nil, Counts{1, 2, 3, 4, 5, 6, 7}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if q, err := decodeQueue([]byte("1234"), Seal(nil, []byte("1234"), b)); err == nil {
			require.Equal(t, b, AppendQueue(nil, &q))
		}
		if c, err := decodeConsumer([]byte("12345"), Seal(nil, []byte("12345"), b)); err == nil {
			require.Equal(t, b, AppendConsumer(nil, &c))
		}
		if x, err := decodeCounts(KeyCounts, Seal(nil, KeyCounts, b)); err == nil {
			require.Equal(t, b, AppendCounts(nil, x))
		}
		_, _ = decodeQueue(b, b)
		_, _ = decodeConsumer(b, b)
	})
}

func BenchmarkEntry(b *testing.B) {
	m := fullMessage()
	m.Dead = nil
	buf := AppendEntry(nil, &m, 1, 2)
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buf = AppendEntry(buf[:0], &m, 1, 2)
		}
	})
	b.Run("decode", func(b *testing.B) {
		in := NewInterner()
		var got Message
		b.ReportAllocs()
		for b.Loop() {
			_, _ = OpenEntry(buf)
			_ = DecodeEntry(buf, &got, in)
		}
	})
}

func BenchmarkRecord(b *testing.B) {
	payload := make([]byte, 1000)
	buf := AppendRecord(nil, Ref{1, 2}, []byte("some: header"), payload)
	b.Run("encode", func(b *testing.B) {
		b.SetBytes(1000)
		b.ReportAllocs()
		for b.Loop() {
			buf = AppendRecord(buf[:0], Ref{1, 2}, []byte("some: header"), payload)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.SetBytes(1000)
		b.ReportAllocs()
		for b.Loop() {
			_, _ = DecodeRecord(buf)
		}
	})
}
