package storefile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
)

// Backup copies a store to another file.
type Backup struct {
	From   Path
	DB     *bbolt.DB                 // of From
	Stop   <-chan struct{}           // ends the copy with [ErrClosed]; may be nil
	Writer func(io.Writer) io.Writer // wraps the file in tests; may be nil
}

// To writes a copy of the store as it is now to a new file at path, and returns its
// size in bytes. It writes to path.part, syncs it and renames it, so that there is
// never half a backup at path. It does not touch an existing file, and the error wraps
// [fs.ErrExist]. The copy contains the secret of the store; its mode is 0600.
func (b *Backup) To(ctx context.Context, path string) (n int64, err error) {
	if _, err := os.Lstat(path); err == nil {
		return 0, fmt.Errorf("store: backup: %s: %w", path, os.ErrExist)
	}
	tmp := path + ".part"
	if err := os.Remove(tmp); err != nil && !Missing(err) {
		return 0, fmt.Errorf("store: backup: %w", err)
	}
	file, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, fmt.Errorf("store: backup: %w", err)
	}
	defer os.Remove(tmp) //nolint:errcheck // after a rename it is gone already
	err = b.From.Guard("backup", func() error { n, err = b.copyPages(ctx, file); return err })
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = Publish(tmp, path)
	}
	if err == nil {
		err = errors.Join(SyncDir(filepath.Dir(path)), SyncDir(filepath.Dir(filepath.Dir(path))))
	}
	if err != nil {
		return 0, fmt.Errorf("store: backup: %w", err)
	}
	return n, nil
}

// copyPages writes the pages of one read transaction, which keeps them unchanged.
func (b *Backup) copyPages(ctx context.Context, file *os.File) (int64, error) {
	tx, err := b.DB.Begin(false)
	if err != nil {
		return 0, ErrClosed
	}
	defer tx.Rollback() //nolint:errcheck // of a read transaction
	var to io.Writer = file
	if b.Writer != nil {
		to = b.Writer(file)
	}
	w := &copyWriter{stop: b.Stop, ctx: ctx, file: file, to: to}
	n, err := tx.WriteTo(w)
	if w.err != nil { // bbolt returns only its text
		err = w.err
	}
	return n, err
}

// syncEvery is how much of a copy is written between syncs: a single sync at the end
// would delay the syncs of commits.
const syncEvery = 16 << 20

// copyWriter writes until it is stopped, and syncs at times.
type copyWriter struct {
	stop     <-chan struct{}
	ctx      context.Context
	file     *os.File
	to       io.Writer
	unsynced int
	err      error
}

func (w *copyWriter) Write(b []byte) (n int, err error) {
	defer func() { w.err = err }()
	select {
	case <-w.stop:
		return 0, ErrClosed
	case <-w.ctx.Done():
		return 0, w.ctx.Err()
	default:
	}
	n, err = w.to.Write(b)
	if w.unsynced += n; err == nil && w.unsynced >= syncEvery {
		w.unsynced = 0
		err = w.file.Sync()
	}
	return n, err
}

// BackupName returns the name of a backup made at now.
func BackupName(now time.Time) string {
	return "fila-" + now.UTC().Format("20060102T150405.000") + "Z.db"
}
