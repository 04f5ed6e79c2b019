package store_test

import (
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storetest"
)

// TestFailedCommit limits the size of the file, like a full disk.
func TestFailedCommit(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, store.Options{})
	newLoader(t, s).fill(t, 10)
	require.NoError(t, s.Close())

	s = open(t, dir, store.Options{})
	s.LimitSize(8 << 20)
	l := newLoader(t, s)
	l.next = 11
	var n int
	for {
		b := l.batch(1000)
		err := storetest.Do(s, b)
		if err != nil {
			require.ErrorIs(t, err, store.ErrFailed)
			break
		}
		n += 1000
		require.Less(t, n, 100_000)
	}
	<-s.Failed()
	require.ErrorIs(t, s.Err(), store.ErrFailed)
	require.ErrorContains(t, s.Err(), s.Path())
	require.ErrorIs(t, storetest.Do(s, &store.Batch{}), store.ErrFailed)
	require.ErrorIs(t, s.Read([]store.Ref{{Queue: 1, Seq: 1}}, nil), store.ErrFailed)
	require.NoError(t, s.Close())

	s = open(t, dir, store.Options{})
	c := storetest.Dump(t, s)
	require.Len(t, c.Messages, n+10)
	require.NoError(t, s.Close())
}

// TestFileCutWhileOpen truncates the file of an open store. An access to the mapping is
// a fault, which must become an error and not a crash.
func TestFileCutWhileOpen(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a mapped file cannot be cut there")
	}
	s := open(t, t.TempDir(), store.Options{NoSync: true, ReadCacheBytes: -1})
	newLoader(t, s).fill(t, 5000)
	require.NoError(t, os.Truncate(s.Path(), 2*4096))
	var ce *store.CorruptError
	require.ErrorAs(t, s.Read([]store.Ref{{Queue: 1, Seq: 1}}, nil), &ce)
	require.ErrorAs(t, s.Dead([]store.Ref{{Queue: 1, Seq: 1}}, nil), &ce)
	require.Equal(t, s.Path(), ce.File)
	_, err := s.Snapshot()
	require.ErrorAs(t, err, &ce)
	_, err = s.Recover(store.Visitor{})
	require.ErrorAs(t, err, &ce)
	require.ErrorIs(t, storetest.Do(s, &store.Batch{Finish: []store.Ref{{Queue: 1, Seq: 1}}}), store.ErrFailed)
	<-s.Failed()
	require.NoError(t, s.Close())
}
