package sidecar

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// TestStoreBackupVerb makes a backup over NATS and starts from it.
func TestStoreBackupVerb(t *testing.T) {
	dir, second := t.TempDir(), t.TempDir()
	var first string
	inBubble(t, func(t *testing.T) {
		x := startSite(t, dir, nil)
		x.must("fila.admin.queue-create.orders", ``, nil)
		first = x.enqueue("kept", nil)
		var r wire.StoreBackupReply
		x.must("fila.admin.store-backup", ``, &r)
		x.enqueue("too late", nil)
		require.Equal(t, filepath.Join(dir, "backups"), filepath.Dir(r.Path))
		fi, err := os.Stat(r.Path)
		require.NoError(t, err)
		require.Equal(t, fi.Size(), r.Bytes)
		require.Equal(t, os.FileMode(0o600), fi.Mode().Perm())

		require.Equal(t, wire.CodeUnknownField, x.request("fila.admin.store-backup", `{"path":"/etc/passwd"}`, nil, nil).ErrCode)
		x.end()
		data, err := os.ReadFile(r.Path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(second, "fila.db"), data, 0o600))
	})
	inBubble(t, func(t *testing.T) {
		x := startSite(t, second, nil)
		ch, _ := x.consumer("w", "orders", `{"consumer":"w"}`)
		m := <-ch
		require.Equal(t, first, m.Header.Get(wire.HeaderID))
		require.Equal(t, "kept", string(m.Data))
		x.none(ch)
		require.Nil(t, x.ack(m, ""))
		x.end()
	})
}

// slowStore is a store whose backups end when they are told to.
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
	r := newRig(t, nil)
	slow := &slowStore{Store: r.st, begun: make(chan struct{}), end: make(chan error)}
	r.core.store = slow
	r.core.cfg.DataDir = t.TempDir()
	b := newBackups(&Server{cfg: r.core.cfg, core: r.core})
	b.now = func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }
	b.free = func(string) (uint64, bool) { return 0, false }
	type outcome struct {
		reply any
		err   *wire.Error
	}
	done := make(chan outcome, 1)
	start := func() {
		go func() {
			reply, err := b.verb("", nil)
			done <- outcome{reply, err}
		}()
		<-slow.begun
	}
	start()
	_, werr := b.verb("", nil)
	require.Equal(t, wire.CodeLimitReached, werr.ErrCode)
	require.Positive(t, werr.RetryAfter)
	slow.end <- nil
	got := <-done
	require.Nil(t, got.err)
	reply := got.reply.(wire.StoreBackupReply)
	require.Equal(t, filepath.Join(r.core.cfg.DataDir, "backups", "fila-20260102T030405.000Z.db"), reply.Path)
	require.EqualValues(t, 7, reply.Bytes)

	left := filepath.Join(filepath.Dir(reply.Path), "fila-20250101T000000.000Z.db.part")
	require.NoError(t, os.WriteFile(left, []byte("half"), 0o600))
	for err, want := range map[error]int{errors.New("input/output error"): wire.CodeBackupFailed, store.ErrClosed: wire.CodeDraining} {
		start()
		require.NoFileExists(t, left, "what a killed process has left")
		slow.end <- err
		got = <-done
		require.Equal(t, want, got.err.ErrCode)
	}

	// 100 MiB need as much, an eighth for the growth meanwhile, and some room.
	var free uint64
	b.free = func(string) (uint64, bool) { return free, true }
	free = 176 << 20
	_, werr = b.verb("", nil)
	require.Equal(t, wire.CodeBackupFailed, werr.ErrCode)
	require.Contains(t, werr.Description, "has 176 MiB free")
	free++
	free += 1 << 20
	start()
	slow.end <- nil
	require.NotNil(t, (<-done).reply)

	b = newBackups(&Server{cfg: r.core.cfg, core: &core{cfg: r.core.cfg, log: r.core.log, store: r.st}})
	_, werr = b.verb("", nil)
	require.Equal(t, wire.CodeBackupFailed, werr.ErrCode, "a store that cannot be copied")
}

func TestFreeBytes(t *testing.T) {
	free, known := freeBytes(t.TempDir())
	if known {
		require.Positive(t, free)
	}
	_, known = freeBytes(filepath.Join(t.TempDir(), "none"))
	require.False(t, known)
}
