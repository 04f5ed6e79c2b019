package store_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storefile"
	"github.com/filaq/fila/store/storetest"
)

// gateWriter lets a backup wait in the middle.
type gateWriter struct {
	io.Writer
	begun chan struct{} // closed with the first write
	open  chan struct{}
	n     int
}

func (w *gateWriter) Write(b []byte) (int, error) {
	if w.n++; w.n == 1 {
		close(w.begun)
		<-w.open
	}
	return w.Writer.Write(b)
}

// gated returns a store whose backups wait at a gate.
func gated(t *testing.T) (*store.Bolt, *gateWriter) {
	gate := &gateWriter{begun: make(chan struct{}), open: make(chan struct{})}
	s := open(t, t.TempDir(), store.Options{NoSync: true}.Small().WithWriter(func(w io.Writer) io.Writer {
		gate.Writer = w
		return gate
	}))
	golden(t, s)
	return s, gate
}

func seqs(c *storetest.Content) []uint64 {
	var out []uint64
	for _, m := range c.Messages {
		out = append(out, m.Seq)
	}
	return out
}

// TestBackupWhileCommitting stops a backup in the middle. Commits continue, and the
// backup has the content of its start.
func TestBackupWhileCommitting(t *testing.T) {
	s, gate := gated(t)
	before := storetest.Dump(t, s)
	file := filepath.Join(t.TempDir(), "backup.db")
	done := make(chan error, 1)
	var size int64
	go func() {
		var err error
		size, err = s.BackupTo(context.Background(), file)
		done <- err
	}()
	<-gate.begun
	for seq := uint64(100); seq < 400; seq++ { // turns every page over
		b := store.Batch{Add: []store.Message{{Ref: store.Ref{Queue: 1, Seq: seq}, Payload: storetest.Payload(1, seq)}}}
		if seq > 110 {
			b.Finish = []store.Ref{{Queue: 1, Seq: seq - 5}}
		}
		require.NoError(t, storetest.Do(s, &b))
	}
	require.NoFileExists(t, file, "half a backup has no name")
	close(gate.open)
	require.NoError(t, <-done)
	require.NoError(t, s.Close())

	fi, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, fi.Size(), size)
	if runtime.GOOS != "windows" {
		require.Equal(t, os.FileMode(0o600), fi.Mode().Perm())
	}
	require.NoFileExists(t, file+".part")
	sum, found := check(t, file)
	require.Empty(t, found)
	require.False(t, sum.TornMeta)
	require.Equal(t, before, dump(t, file))
	require.Greater(t, len(seqs(dump(t, s.Path()))), 3, "the store went on")

	_, err = s.BackupTo(t.Context(), file+"2")
	require.ErrorIs(t, err, store.ErrClosed)
}

// failingWriter accepts n bytes and then fails.
type failingWriter struct {
	io.Writer
	n int
}

var errDiskFull = errors.New("no space left on device")

func (w *failingWriter) Write(b []byte) (int, error) {
	if len(b) > w.n {
		n, _ := w.Writer.Write(b[:w.n])
		w.n = 0
		return n, errDiskFull
	}
	w.n -= len(b)
	return w.Writer.Write(b)
}

// TestBackupFails fills the disk at every page. Nothing of the backup remains, and the
// store works as before.
func TestBackupFails(t *testing.T) {
	room := 0
	o := store.Options{NoSync: true}.Small().Dense().WithWriter(func(w io.Writer) io.Writer { return &failingWriter{w, room} })
	s := open(t, t.TempDir(), o)
	golden(t, s)
	dir := t.TempDir()
	file := filepath.Join(dir, "backup.db")
	for ; ; room += 3000 {
		_, err := s.BackupTo(t.Context(), file)
		if err == nil {
			break
		}
		require.ErrorIs(t, err, errDiskFull)
		require.Empty(t, names(t, dir))
	}
	require.Positive(t, room)
	// The file of a killed process does not matter, and an existing file is not touched.
	require.NoError(t, os.WriteFile(file+"2.part", []byte("half"), 0o600))
	_, err := s.BackupTo(t.Context(), file+"2")
	require.NoError(t, err)
	require.NoFileExists(t, file+"2.part")
	_, err = s.BackupTo(t.Context(), file)
	require.ErrorIs(t, err, os.ErrExist)
	require.NoError(t, storetest.Do(s, &store.Batch{Finish: []store.Ref{{Queue: 1, Seq: 1}}}))
	require.NoError(t, s.Close())
	_, found := check(t, file)
	require.Empty(t, found)
	require.Len(t, dump(t, file).Messages, 3)
}

// TestBackupStops: a backup ends with its context and does not delay a close.
func TestBackupStops(t *testing.T) {
	for name, stop := range map[string]func(s *store.Bolt, gate *gateWriter, cancel func()){
		"context": func(_ *store.Bolt, gate *gateWriter, cancel func()) { cancel(); close(gate.open) },
		"close": func(s *store.Bolt, gate *gateWriter, _ func()) {
			closed := make(chan error, 1)
			go func() { closed <- s.Close() }()
			for len(closed) == 0 && !s.Leaving() {
				time.Sleep(time.Millisecond)
			}
			close(gate.open)
			require.NoError(t, <-closed)
		},
	} {
		s, gate := gated(t)
		dir := t.TempDir()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := s.BackupTo(ctx, filepath.Join(dir, name))
			done <- err
		}()
		<-gate.begun
		stop(s, gate, cancel)
		cancel()
		require.Error(t, <-done, name)
		require.Empty(t, names(t, dir))
		require.NoError(t, s.Close())
	}
}

func TestFileBackup(t *testing.T) {
	file := goldenFile(t, store.Options{NoSync: true})
	f, err := store.OpenFile(file, store.Options{})
	require.NoError(t, err)
	to := filepath.Join(t.TempDir(), "b.db")
	n, err := f.BackupTo(t.Context(), to)
	require.NoError(t, errors.Join(err, f.Close()))
	require.Positive(t, n)
	require.Equal(t, dump(t, file), dump(t, to))
	require.Equal(t, "fila-20260102T150405.678Z.db",
		storefile.BackupName(time.Date(2026, 1, 2, 16, 4, 5, 678_900_000, time.FixedZone("CET", 3600))))
}
