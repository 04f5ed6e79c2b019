package store_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storetest"
)

// variety makes a closed store in a new directory. Its tree has branches, overflow
// pages, inline buckets, bitmaps, states, histories and dedupe ids.
func variety(t *testing.T, o store.Options) (dir, file string) {
	t.Helper()
	dir = t.TempDir()
	s := open(t, dir, o)
	golden(t, s)
	rng := rand.New(rand.NewPCG(3, 4))
	for seq := uint64(10); seq < 400; {
		var b store.Batch
		for range rng.IntN(12) {
			m := store.Message{Ref: store.Ref{Queue: 1, Seq: seq}, Class: store.Class{Key: "k"}, Payload: storetest.Payload(1, seq)}
			if seq%17 == 0 {
				m.Payload = bytes.Repeat(m.Payload, 100)
			}
			b.Add = append(b.Add, m)
			if seq%3 == 0 {
				b.State = append(b.State, store.State{Ref: m.Ref, Attempts: uint32(seq), LastError: "no reason given"})
			}
			for range seq % 4 {
				b.History = append(b.History, store.Attempt{Ref: m.Ref, Record: []byte("what has happened")})
			}
			if seq > 40 && seq%5 != 0 {
				b.Finish = append(b.Finish, store.Ref{Queue: 1, Seq: seq - 30})
			}
			seq++
		}
		b.Dedupe = append(b.Dedupe, store.Dedupe{Queue: 2, DedupeID: "d" + string(rune('a'+seq%26)), Until: 4_000_000_000_000_000_000 + int64(seq)*1e10})
		require.NoError(t, storetest.Do(s, &b))
	}
	require.NoError(t, s.Close())
	return dir, s.Path()
}

// TestFlippedBytes flips single bytes across a file. The result is the right data or an
// error that names the file, and records beside a broken one are right. If a check finds
// nothing, everything is right. (bbolt lays out pages differently in each run, so the
// offset of a failure needs the file of that run.)
func TestFlippedBytes(t *testing.T) {
	o := store.Options{NoSync: true, Now: func() int64 { return 1e18 }}.Small().Dense() // the clock stands still, so Close writes nothing
	_, file := variety(t, o)
	whole := func() *storetest.Content {
		s, err := store.Open(file, o)
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		return storetest.Dump(t, s)
	}
	want := whole()
	image, err := os.ReadFile(file)
	require.NoError(t, err)
	expected := make(map[store.Ref]storetest.Stored)
	for _, m := range want.Messages {
		expected[m.Ref] = m
	}

	n := 2000
	if testing.Short() {
		n = 400
	}
	rng := rand.New(rand.NewPCG(5, 6))
	var right, refused, partly, clean int
	for range n {
		at := rng.IntN(len(image))
		if rng.IntN(2) == 0 { // page headers and tables are where it hurts
			at = at&^4095 + rng.IntN(128)
		}
		mask := byte(1 << rng.IntN(8))
		if rng.IntN(4) == 0 {
			mask = 0xFF
		}
		poke(t, file, at, image[at]^mask)
		found := 0
		_, cerr := store.CheckFile(file, o, func(*store.CorruptError) { found++ })
		if cerr != nil { // the very mark of a store is broken
			require.True(t, errors.Is(cerr, store.ErrNotStore) || errors.Is(cerr, store.ErrVersion), "offset %d: %v", at, cerr)
		} else if found == 0 && at >= 2*4096 {
			clean++
			require.Equal(t, want, whole(), "offset %d", at)
		}
		switch got, err := salvage(t, file, o); {
		case got == nil:
			refused++
			require.ErrorContains(t, err, file, "offset %d", at)
			ok := errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrNotStore) || errors.Is(err, store.ErrVersion)
			require.True(t, ok, "offset %d: %v", at, err)
		case err != nil:
			partly++
			require.ErrorIs(t, err, store.ErrCorrupt, "offset %d", at)
			var ce *store.CorruptError
			require.ErrorAs(t, err, &ce)
			for _, m := range got {
				want := expected[m.Ref]
				if strings.HasPrefix(ce.Part, "state") && m.State == nil {
					want.State = nil // with a broken key nobody knows whose it was
				}
				if (strings.HasPrefix(ce.Part, "history") || strings.HasPrefix(ce.Part, "bitmap")) && m.History == nil {
					want.History = nil // in the same way; and what has one is known of messages whose segment can be read as a whole
				}
				require.Equal(t, want, m, "offset %d: %v", at, err)
			}
		case at >= 2*4096: // without its newer meta page the file is one commit older
			right++
			require.Equal(t, want.Messages, got, "offset %d mask %x", at, mask)
		}
		poke(t, file, at, image[at])
	}
	t.Logf("%d flips: %d harmless, %d files refused, %d with a broken record; a check found nothing in %d", n, right, refused, partly, clean)
	require.Positive(t, clean)
	require.Positive(t, right)
	require.Positive(t, refused)
	require.Positive(t, partly)
}

func poke(t *testing.T, file string, at int, b byte) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte{b}, int64(at))
	require.NoError(t, errors.Join(err, f.Close()))
}

// salvage reads everything that can be read. It returns nil if the file does not open.
func salvage(t *testing.T, file string, o store.Options) ([]storetest.Stored, error) {
	t.Helper()
	s, err := store.Open(file, o)
	if err != nil {
		return nil, err
	}
	defer func() { require.NoError(t, s.Close()) }()
	if _, err := s.Snapshot(); err != nil {
		return []storetest.Stored{}, err
	}
	all := []storetest.Stored{}
	rs, first := s.Recover(store.Visitor{Message: func(m *store.Message, _ int, st *store.State) error {
		all = append(all, storetest.Keep(m, st, nil))
		return nil
	}})
	if first != nil {
		require.NotZero(t, rs.CorruptN)
		require.NotEmpty(t, rs.Corrupt)
		require.NotEmpty(t, rs.Corrupt[0].Part)
	}
	var out []storetest.Stored
	for _, m := range all {
		err := s.Read([]store.Ref{m.Ref}, func(_ int, h, p []byte) {
			m.Headers, m.Payload = bytes.Clone(h), bytes.Clone(p)
			c := (&storetest.Content{Messages: []storetest.Stored{m}}).Normalise()
			out = append(out, c.Messages...)
		})
		if first == nil {
			first = err
		}
		require.NoError(t, s.Dead([]store.Ref{m.Ref}, func(_ int, d *store.Dead) { require.Equal(t, m.Dead, d) }))
		err = s.History([]store.Ref{m.Ref}, func(_ int, records [][]byte) {
			if n := len(out); n > 0 && out[n-1].Ref == m.Ref {
				out[n-1].History = storetest.Keep(&m.Message, nil, records).History
			}
		})
		if first == nil {
			first = err
		}
	}
	return out, first
}

// TestBrokenPayload breaks one payload. Its neighbours in the segment can be read,
// compaction ignores the segment, and a move of the message is refused without
// affecting others.
func TestBrokenPayload(t *testing.T) {
	dir := t.TempDir()
	o := store.Options{NoSync: true}.Small()
	s := open(t, dir, o)
	b := store.Batch{PutQueues: []store.QueueRecord{{ID: 1, Name: "q"}}}
	for seq := uint64(1); seq <= 5; seq++ {
		b.Add = append(b.Add, store.Message{Ref: store.Ref{Queue: 1, Seq: seq}, Payload: []byte(strings.Repeat(string(rune('a'+seq)), 900))})
	}
	require.NoError(t, storetest.Do(s, &b))
	require.NoError(t, s.Close())
	image, err := os.ReadFile(s.Path())
	require.NoError(t, err)
	at := bytes.Index(image, bytes.Repeat([]byte{'d'}, 900)) + 450 // of message 3
	poke(t, s.Path(), at, 'X')

	s = open(t, dir, o)
	defer func() { require.NoError(t, s.Close()) }()
	_, err = s.Recover(store.Visitor{})
	require.NoError(t, err, "recovery does not read payloads")
	read := func() {
		t.Helper()
		var got []int
		err := s.Read([]store.Ref{{Queue: 1, Seq: 2}, {Queue: 1, Seq: 3}, {Queue: 1, Seq: 4}}, func(i int, _, p []byte) {
			require.Equal(t, byte('a'+2+i), p[0])
			got = append(got, i)
		})
		var ce *store.CorruptError
		require.ErrorAs(t, err, &ce)
		require.Equal(t, store.CorruptError{File: s.Path(), Part: "segment", Segment: ce.Segment, Offset: ce.Offset, Reason: "checksum does not match"}, *ce)
		require.NotZero(t, ce.Segment)
		require.Positive(t, ce.Offset)
		require.Equal(t, []int{0, 2}, got)
	}
	read()
	move := store.Batch{Move: []store.Move{{From: store.Ref{Queue: 1, Seq: 3}, To: store.Message{Ref: store.Ref{Queue: 1, Seq: 9}}}}}
	require.ErrorIs(t, storetest.Do(s, &move), store.ErrCorrupt)
	for seq := uint64(100); seq < 200; seq++ { // wakes compaction
		add := store.Batch{Add: []store.Message{{Ref: store.Ref{Queue: 1, Seq: seq}, Payload: make([]byte, 300)}}}
		if seq > 102 {
			add.Finish = []store.Ref{{Queue: 1, Seq: seq - 2}}
		}
		require.NoError(t, storetest.Do(s, &add))
	}
	read()
	// It can be finished like any other.
	require.NoError(t, storetest.Do(s, &store.Batch{Finish: []store.Ref{{Queue: 1, Seq: 3}}}))
	require.ErrorIs(t, s.Read([]store.Ref{{Queue: 1, Seq: 3}}, nil), store.ErrNotFound)
}

// TestBrokenIndex breaks the header index of one message of an open store. Its
// neighbours and its payload can be read.
func TestBrokenIndex(t *testing.T) {
	s := open(t, t.TempDir(), store.Options{NoSync: true}.Small())
	defer func() { require.NoError(t, s.Close()) }()
	_, err := s.Recover(store.Visitor{})
	require.NoError(t, err)
	b := store.Batch{PutQueues: []store.QueueRecord{{ID: 1, Name: "q"}}}
	var refs []store.Ref
	for seq := range uint64(3) {
		text := strings.Repeat(string(rune('a'+seq)), 300)
		refs = append(refs, store.Ref{Queue: 1, Seq: seq + 1})
		b.Add = append(b.Add, store.Message{Ref: refs[seq], Payload: []byte("x"), Dead: &store.Dead{Error: text}})
	}
	require.NoError(t, storetest.Do(s, &b))
	image, err := os.ReadFile(s.Path())
	require.NoError(t, err)
	poke(t, s.Path(), bytes.Index(image, bytes.Repeat([]byte{'b'}, 300))+150, 'X') // of message 2

	var got []int
	err = s.Dead(append([]store.Ref{{Queue: 1, Seq: 99}}, refs...), func(i int, d *store.Dead) {
		require.Equal(t, b.Add[i-1].Dead, d)
		got = append(got, i)
	})
	var ce *store.CorruptError
	require.ErrorAs(t, err, &ce)
	require.Equal(t, store.CorruptError{File: s.Path(), Part: "index", Segment: ce.Segment, Offset: ce.Offset, Reason: "checksum does not match"}, *ce)
	require.Positive(t, ce.Offset)
	require.Equal(t, []int{1, 3}, got, "a message that is not there says less than one that is broken")
	require.NoError(t, s.Read(refs, func(_ int, _, p []byte) { require.Equal(t, "x", string(p)) }))
}
