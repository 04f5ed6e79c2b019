package store_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storefile"
	"github.com/filaq/fila/store/storetest"
)

var update = flag.Bool("update", false, "write testdata/*.db anew")

// golden fills a store with a record of each kind.
func golden(t *testing.T, s store.Store) {
	t.Helper()
	m := func(q store.QueueID, seq uint64) store.Message {
		return store.Message{
			Ref: store.Ref{Queue: q, Seq: seq}, ID: store.ID{1, 2, 3, 4: byte(seq)}, EnqueuedAt: 1_700_000_000_000_000_000,
			NotBefore: 1_700_000_001_000_000_000, ExpiresAt: 1_800_000_000_000_000_000,
			Class:    store.Class{Weight: 3000, Cost: 500, Key: "tenant-1", ThrottleKeys: []string{"api", "db"}, CircuitKey: "stripe"},
			Attempts: 2,
			Headers:  []byte("a: b"), Payload: storetest.Payload(q, seq),
		}
	}
	dead := m(2, 1)
	dead.Dead = &store.Dead{
		Reason: "max_deliveries", Error: "boom", ErrorCode: "E42", SourceQueue: "orders",
		At: 1_700_000_002_000_000_000, Attempts: 20,
	}
	require.NoError(t, storetest.Do(s, &store.Batch{
		PutQueues: []store.QueueRecord{
			{ID: 1, Name: "orders", Settings: []byte(`{"name":"orders"}`)}, {ID: 2, Name: "orders.dlq"}, {ID: 3, Name: "gone"},
		},
		Add: []store.Message{m(1, 1), m(1, 2), m(1, 3), m(1, 4), m(3, 1)},
		State: []store.State{{
			Ref: store.Ref{Queue: 1, Seq: 2}, Attempts: 1, ReadyAt: 5, LastError: "timeout",
			Lease: store.Lease{ID: 9, Consumer: "c1", Deadline: 1_700_000_030_000_000_000},
		}},
		Dedupe:       []store.Dedupe{{Queue: 1, DedupeID: "once", ID: store.ID{7}, Until: 4_000_000_000_000_000_000}},
		PutConsumers: []store.ConsumerRecord{{Queue: 1, Name: "c1", MaxInFlight: 64, ExpiresAt: 6, Reg: 7}},
		PutConfig:    []store.Entry{{Key: "throttle:api:rate", Value: "10"}},
	}))
	require.NoError(t, storetest.Do(s, &store.Batch{
		Finish:       []store.Ref{{Queue: 1, Seq: 3}},
		Move:         []store.Move{{From: store.Ref{Queue: 1, Seq: 4}, To: dead}},
		DeleteQueues: []store.QueueID{3},
	}))
}

// goldenFile makes a closed store with records of each kind.
func goldenFile(t *testing.T, o store.Options, more ...store.Batch) string {
	t.Helper()
	s := open(t, t.TempDir(), o)
	golden(t, s)
	for _, b := range more {
		require.NoError(t, storetest.Do(s, &b))
	}
	require.NoError(t, s.Close())
	return s.Path()
}

// goldenPast adds records that only a file of version 2 has.
func goldenPast(t *testing.T, s store.Store) {
	t.Helper()
	golden(t, s)
	ref := func(q store.QueueID, seq uint64) store.Ref { return store.Ref{Queue: q, Seq: seq} }
	require.NoError(t, storetest.Do(s, &store.Batch{
		History: []store.Attempt{{Ref: ref(1, 1), Record: []byte("one")}, {Ref: ref(2, 1), Record: []byte("two")}, {Ref: ref(1, 1), Record: []byte("three")}},
		State: []store.State{{
			Ref: ref(1, 1), Attempts: 2,
			Lease: store.Lease{ID: 10, Consumer: "c1", Deadline: 1_700_000_060_000_000_000, DeliveredAt: 1_700_000_030_000_000_000, Held: "held"},
		}},
	}))
}

// TestGolden opens files of earlier versions.
func TestGolden(t *testing.T) {
	for name, fill := range map[string]func(*testing.T, store.Store){"v1.db": golden, "v2.db": goldenPast} {
		file := filepath.Join("testdata", name)
		if *update {
			require.NoError(t, os.MkdirAll("testdata", 0o755))
			require.NoError(t, errors.Join(os.RemoveAll(file)))
			s, err := store.Open(file, store.Options{}.Dense())
			require.NoError(t, err)
			fill(t, s)
			require.NoError(t, s.Close())
		}
		dir := t.TempDir()
		old := filepath.Join(dir, "fila.db")
		copyFile(t, file, old)
		m, err := storetest.OpenModel(dir, nil)
		require.NoError(t, err)
		fill(t, m)
		require.Equal(t, storetest.Dump(t, m), dump(t, old), name)
		require.NoError(t, m.Close())
	}
}

// TestLockedIsCalled: Open calls Locked after it has the lock and before it checks the
// file.
func TestLockedIsCalled(t *testing.T) {
	dir := t.TempDir()
	calls := 0
	var no error
	o := store.Options{Timeout: time.Millisecond, Locked: func() error { calls++; return no }}
	s := open(t, dir, o)
	require.Equal(t, 1, calls)
	_, err := store.Open(s.Path(), o)
	require.ErrorIs(t, err, store.ErrLocked)
	require.ErrorContains(t, err, s.Path())
	require.Equal(t, 1, calls, "another one has it")
	require.NoError(t, s.Close())

	no = errors.New("no")
	_, err = store.Open(s.Path(), o)
	require.Equal(t, no, err)
	require.Equal(t, 2, calls)
	no = nil
	require.NoError(t, open(t, dir, o).Close(), "it has let go of the file")

	require.NoError(t, os.WriteFile(s.Path(), make([]byte, 100_000), 0o600))
	_, err = store.Open(s.Path(), o)
	require.ErrorIs(t, err, store.ErrNotStore)
	require.Equal(t, 4, calls)
}

// TestOtherFiles: a file that is no store is refused for serving and for reading. A
// truncated store must not become a new one.
func TestOtherFiles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "x.db")
	changed := func(fn func(tx *bbolt.Tx) error) []byte {
		edit(t, file, fn)
		b, err := os.ReadFile(file)
		require.NoError(t, errors.Join(err, os.Remove(file)))
		return b
	}
	for _, c := range []struct {
		content []byte
		text    string
	}{
		{[]byte("hello"), "no valid meta page"},
		{bytes.Repeat([]byte("no"), 9000), "no valid meta page"},
		{make([]byte, 100_000), "no valid meta page"},
		{nil, "restore a backup"},
		{changed(func(*bbolt.Tx) error { return nil }), ""},
		{changed(func(tx *bbolt.Tx) error { _, err := tx.CreateBucket([]byte("theirs")); return err }), "without our meta data"},
	} {
		require.NoError(t, os.WriteFile(file, c.content, 0o600))
		_, err := store.Open(file, store.Options{})
		_, cerr := store.CheckFile(file, store.Options{}, func(*store.CorruptError) { require.Fail(t, "called") })
		for _, err := range []error{err, cerr} {
			require.ErrorIs(t, err, store.ErrNotStore)
			require.ErrorContains(t, err, file)
			require.ErrorContains(t, err, c.text)
		}
	}
	require.Equal(t, []string{"x.db"}, names(t, dir), "left over from creation")

	_, err := store.Open(filepath.Join(dir, "none", "x.db"), store.Options{})
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = store.Open(dir, store.Options{})
	require.Error(t, err)
}

// edit changes a file like another tool, with the defaults of bbolt. The file has a list of
// free pages then.
func edit(t *testing.T, file string, fn func(tx *bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(file, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, errors.Join(db.Update(fn), db.Close()))
}

// TestFormatVersion: a file of version 1 keeps its version until it has a record that
// an older program does not understand.
func TestFormatVersion(t *testing.T) {
	file := goldenFile(t, store.Options{})
	version := func() (v uint32) {
		edit(t, file, func(tx *bbolt.Tx) error {
			v = binary.LittleEndian.Uint32(tx.Bucket([]byte("meta")).Get([]byte("format"))[4:])
			return nil
		})
		return v
	}
	write := func(b store.Batch) {
		s := open(t, filepath.Dir(file), store.Options{})
		require.NoError(t, storetest.Do(s, &b))
		require.NoError(t, s.Close())
		_, err := store.CheckFile(file, store.Options{}, func(e *store.CorruptError) { require.NoError(t, e) })
		require.NoError(t, err)
	}
	ref := store.Ref{Queue: 1, Seq: 1}
	write(store.Batch{State: []store.State{{Ref: ref, Lease: store.Lease{ID: 1, Consumer: "c", Deadline: 5}}}})
	require.EqualValues(t, 1, version())
	write(store.Batch{State: []store.State{{Ref: ref, Lease: store.Lease{ID: 1, Consumer: "c", Deadline: 5, DeliveredAt: 4}}}})
	require.EqualValues(t, 2, version())

	file = goldenFile(t, store.Options{})
	write(store.Batch{History: []store.Attempt{{Ref: ref, Record: []byte("x")}}})
	require.EqualValues(t, 2, version())
	write(store.Batch{Finish: []store.Ref{ref}})
	require.EqualValues(t, storefile.WithHistories, version())

	file = goldenFile(t, store.Options{})
	for i, c := range []store.Class{{}, {Priority: 1}, {Routes: []store.Route{{Name: "one"}}}, {}} {
		m := store.Message{Ref: store.Ref{Queue: 1, Seq: uint64(9 + i)}, Class: c}
		write(store.Batch{Add: []store.Message{m}})
		require.EqualValues(t, min(i+1, storefile.Version), version())
	}
	s := open(t, filepath.Dir(file), store.Options{})
	require.ErrorIs(t, storetest.Do(s, &store.Batch{Add: []store.Message{{Ref: store.Ref{Queue: 1, Seq: 20}, Class: store.Class{Priority: 10}}}}), store.ErrInvalid)
	require.NoError(t, s.Close())
}

func TestOpenOtherVersion(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, store.Options{})
	require.NoError(t, s.Close())
	edit(t, s.Path(), func(tx *bbolt.Tx) error { // everything else may differ, too
		return errors.Join(store.PutVersion(tx, storefile.Version+1), tx.DeleteBucket([]byte("segments")))
	})
	before, err := os.ReadFile(s.Path())
	require.NoError(t, err)
	_, err = store.Open(s.Path(), store.Options{})
	require.ErrorIs(t, err, store.ErrVersion)
	after, rerr := os.ReadFile(s.Path())
	require.NoError(t, rerr)
	require.True(t, bytes.Equal(before, after), "a refused file stays as it is")
	var ve *store.VersionError
	require.ErrorAs(t, err, &ve)
	require.Equal(t, store.VersionError{File: s.Path(), Found: storefile.Version + 1, Want: storefile.Version}, *ve)
}
