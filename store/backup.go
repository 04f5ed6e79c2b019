package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// BackupTo writes a copy of the store, as it is at this moment, to a new file at
// path, and returns its size in bytes. The copy is written under the name
// path.part, synced, and then gets its name: there is never half a backup at
// path. A file that is there already is not touched, and the error wraps
// [fs.ErrExist]. The copy holds the secret of the store; its mode is 0600.
//
// Commits go on meanwhile. Pages that they free stay in use until the copy is
// done, so the file may grow by as much as is written in that time. BackupTo
// stops when ctx ends, and with [ErrClosed] when the store is closed.
func (s *Bolt) BackupTo(ctx context.Context, path string) (int64, error) {
	if err := s.usable(); err != nil {
		return 0, err
	}
	return s.backupTo(ctx, path)
}

// BackupTo is like [Bolt.BackupTo], of a store that nobody serves.
func (f *File) BackupTo(ctx context.Context, path string) (int64, error) {
	return f.s.backupTo(ctx, path)
}

func (s *Bolt) backupTo(ctx context.Context, path string) (n int64, err error) {
	if _, err := os.Lstat(path); err == nil {
		return 0, fmt.Errorf("store: backup: %s: %w", path, os.ErrExist)
	}
	tmp := path + ".part"
	if err := os.Remove(tmp); err != nil && !missing(err) {
		return 0, fmt.Errorf("store: backup: %w", err)
	}
	file, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, fmt.Errorf("store: backup: %w", err)
	}
	defer os.Remove(tmp) //nolint:errcheck // after a rename it is gone already
	err = s.guard("backup", func() error { n, err = s.copyTo(ctx, file); return err })
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = publish(tmp, path)
	}
	if err == nil {
		err = errors.Join(SyncDir(filepath.Dir(path)), SyncDir(filepath.Dir(filepath.Dir(path))))
	}
	if err != nil {
		return 0, fmt.Errorf("store: backup: %w", err)
	}
	return n, nil
}

// copyTo writes the pages of one moment. A read transaction keeps them as they
// are.
func (s *Bolt) copyTo(ctx context.Context, file *os.File) (int64, error) {
	tx, err := s.db.Begin(false)
	if err != nil {
		return 0, ErrClosed
	}
	defer tx.Rollback() //nolint:errcheck // of a read transaction
	var to io.Writer = file
	if s.o.tune.writer != nil {
		to = s.o.tune.writer(file)
	}
	w := &copyWriter{s: s, ctx: ctx, file: file, to: to}
	n, err := tx.WriteTo(w)
	if w.err != nil { // bbolt hands on no more than its text
		err = w.err
	}
	return n, err
}

// syncEvery is how much of a copy is written before it is synced: one sync of
// everything in the end would hold up the syncs of commits.
const syncEvery = 16 << 20

// copyWriter writes until it is to stop, and syncs on the way.
type copyWriter struct {
	s     *Bolt
	ctx   context.Context
	file  *os.File
	to    io.Writer
	fresh int
	err   error
}

func (w *copyWriter) Write(b []byte) (n int, err error) {
	defer func() { w.err = err }()
	select {
	case <-w.s.leaving:
		return 0, ErrClosed
	case <-w.ctx.Done():
		return 0, w.ctx.Err()
	default:
	}
	n, err = w.to.Write(b)
	if w.fresh += n; err == nil && w.fresh >= syncEvery {
		w.fresh = 0
		err = w.file.Sync()
	}
	return n, err
}

// BackupName is the name of a backup made at now.
func BackupName(now time.Time) string {
	return "fila-" + now.UTC().Format("20060102T150405.000") + "Z.db"
}
