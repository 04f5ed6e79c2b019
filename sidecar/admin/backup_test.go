package admin

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storetest"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// slowStore is a store whose backups end when the test says so.
type slowStore struct {
	store.Store
	begun chan struct{}
	end   chan error
}

func (s *slowStore) BackupTo(_ context.Context, path string) (int64, error) {
	s.begun <- struct{}{}
	if err := <-s.end; err != nil {
		return 0, err
	}
	return 7, os.WriteFile(path, []byte("1234567"), 0o600)
}

func (s *slowStore) Stats() store.Stats { return store.Stats{FileBytes: 100 << 20} }

func TestBackupsOneAtATime(t *testing.T) {
	slow := &slowStore{begun: make(chan struct{}), end: make(chan error)}
	dir := t.TempDir()
	b := newBackups(slog.New(slog.DiscardHandler), dir, slow)
	b.now = func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }
	b.space = func(string) (store.Space, bool) { return store.Space{}, false }
	type outcome struct {
		reply api.StoreBackupReply
		err   *wire.Error
	}
	done := make(chan outcome, 1)
	start := func() {
		go func() {
			reply, err := b.make(api.Empty{})
			done <- outcome{reply, err}
		}()
		<-slow.begun
	}
	start()
	_, werr := b.make(api.Empty{})
	require.Equal(t, wire.CodeLimitReached, werr.ErrCode)
	require.Positive(t, werr.RetryAfter)
	slow.end <- nil
	got := <-done
	require.Nil(t, got.err)
	require.Equal(t, filepath.Join(dir, "backups", "fila-20260102T030405.000Z.db"), got.reply.Path)
	require.EqualValues(t, 7, got.reply.Bytes)

	left := filepath.Join(filepath.Dir(got.reply.Path), "fila-20250101T000000.000Z.db.part")
	require.NoError(t, os.WriteFile(left, []byte("half"), 0o600))
	for err, want := range map[error]int{errors.New("input/output error"): wire.CodeBackupFailed, store.ErrClosed: wire.CodeDraining} {
		start()
		require.NoFileExists(t, left, "what a killed process has left")
		slow.end <- err
		got = <-done
		require.Equal(t, want, got.err.ErrCode)
	}

	// 100 MiB need as much, an eighth for the growth meanwhile, and some room.
	var free int64
	b.space = func(string) (store.Space, bool) { return store.Space{Free: free}, true }
	free = 176 << 20
	_, werr = b.make(api.Empty{})
	require.Equal(t, wire.CodeBackupFailed, werr.ErrCode)
	require.Contains(t, werr.Description, "has 176 MiB free")
	free += 1<<20 + 1
	start()
	slow.end <- nil
	require.NotEmpty(t, (<-done).reply)
}

// TestBackupOfAStoreThatCannotBeCopied: the backup is refused.
func TestBackupOfAStoreThatCannotBeCopied(t *testing.T) {
	model, err := storetest.OpenModel(t.TempDir(), func() int64 { return now })
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, model.Close()) })
	_, werr := newBackups(slog.New(slog.DiscardHandler), t.TempDir(), model).make(api.Empty{})
	require.Equal(t, wire.CodeBackupFailed, werr.ErrCode)
}

// TestBackupOfAStoreInUse: the copy opens as a store, and only its owner may read it.
func TestBackupOfAStoreInUse(t *testing.T) {
	dir := t.TempDir()
	st, err := store.Open(filepath.Join(dir, "fila.db"), store.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = st.Close() })
	put := func(key string) {
		done := make(chan error, 1)
		st.Submit(&store.Batch{PutConfig: []store.Entry{{Key: key, Value: "1"}}, Done: func(err error) { done <- err }})
		require.NoError(t, <-done)
	}
	put("kept")
	reply, werr := newBackups(slog.New(slog.DiscardHandler), dir, st).make(api.Empty{})
	require.Nil(t, werr)
	put("too late")
	require.Equal(t, filepath.Join(dir, "backups"), filepath.Dir(reply.Path))
	fi, err := os.Stat(reply.Path)
	require.NoError(t, err)
	require.Equal(t, fi.Size(), reply.Bytes)
	require.Equal(t, os.FileMode(0o600), fi.Mode().Perm())

	copied, err := store.Open(reply.Path, store.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, copied.Close()) })
	snap, err := copied.Snapshot()
	require.NoError(t, err)
	require.Equal(t, []store.Entry{{Key: "kept", Value: "1"}}, snap.Config)
}
