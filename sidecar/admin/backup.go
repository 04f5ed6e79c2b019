package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storefile"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

const (
	// backupDir is where backups go, in the data directory.
	backupDir = "backups"
	// backupRetryAfter is when to retry a request that came during a backup.
	backupRetryAfter = 10 * time.Second
)

// backups writes copies of the store while it is in use, one at a time.
type backups struct {
	log   *slog.Logger
	dir   string   // the data directory
	from  copyable // nil: this store cannot be copied
	space func(dir string) (s store.Space, known bool)
	now   func() time.Time
	busy  sync.Mutex
}

// copyable is a store that can be copied while it is in use.
type copyable interface {
	BackupTo(ctx context.Context, path string) (int64, error)
	Stats() store.Stats
}

func newBackups(log *slog.Logger, dir string, st store.Store) *backups {
	from, _ := st.(copyable)
	return &backups{log: log, dir: dir, from: from, space: store.SpaceOf, now: time.Now}
}

// make writes a backup and returns when it is on disk.
func (b *backups) make(api.Empty) (reply api.StoreBackupReply, werr *wire.Error) {
	if !b.busy.TryLock() {
		return reply, wire.LimitReached("backups at the same time", 1, backupRetryAfter)
	}
	defer b.busy.Unlock()
	begin := time.Now()
	path, n, err := b.write()
	if err != nil {
		b.log.Error("backup failed", "error", err)
		if errors.Is(err, store.ErrClosed) {
			return reply, wire.Draining()
		}
		return reply, wire.BackupFailed(err.Error())
	}
	took := time.Since(begin)
	b.log.Info("backup written", "file", path, "bytes", n, "took", took.Round(time.Millisecond))
	return api.StoreBackupReply{Path: path, Bytes: n, DurationMs: took.Milliseconds()}, nil
}

func (b *backups) write() (path string, n int64, err error) {
	if b.from == nil {
		return "", 0, errors.New("a node of a cluster has no store of its own: the queues are in the logs and snapshots in JetStream, and a copy of its shards at each node")
	}
	dir, err := filepath.Abs(filepath.Join(b.dir, backupDir))
	if err != nil {
		return "", 0, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", 0, err
	}
	if err := clean(dir); err != nil {
		return "", 0, err
	}
	if err := b.room(dir); err != nil {
		return "", 0, err
	}
	path = filepath.Join(dir, storefile.BackupName(b.now()))
	n, err = b.from.BackupTo(context.Background(), path) // closing the store ends it
	return path, n, err
}

// clean removes the unfinished backups of killed processes. The process that has the store
// is the only one that writes to the directory.
func clean(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, "fila-*.db.part"))
	for _, file := range left {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}

// room refuses a backup that could fill the disk: then commits would fail, which stops fila.
// The file may grow while it is copied.
func (b *backups) room(dir string) error {
	size := b.from.Stats().FileBytes
	need := size + size/8 + 64<<20
	if space, known := b.space(dir); known && space.Free < need {
		return fmt.Errorf("%s has %d MiB free, and a copy of %d MiB should leave room to go on: needed are %d MiB",
			dir, space.Free>>20, size>>20, need>>20)
	}
	return nil
}
