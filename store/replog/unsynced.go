package replog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/filaq/fila/store/storefile"
)

// The file of a replica is not synced at each commit, because the log is durable. Written data
// survives the end of fila, since the system has it, but not a crash of the machine, which
// leaves any mixture of old and new pages. So an open file has a note with the boot of the
// machine. The note remains if fila dies. Under another boot the file is not used any more,
// and replaced from snapshot and log. If the system has no boot id, files are synced at
// each commit.

// unsynced is an open file with a note.
type unsynced struct {
	note   string
	file   *os.File // opened before the first write, so its sync reports every failed write
	synced time.Time
	failed bool
}

// syncEvery is the interval of syncs, so that a failing disk is noticed.
const syncEvery = time.Minute

// spoiled is the note of a file whose sync failed. It matches no boot.
const spoiled = "a sync has failed"

func noteOf(path string) string { return path + ".unsynced" }

// torn reports whether parts of a file may be missing.
func torn(path, boot string) (bool, error) {
	note, err := os.ReadFile(noteOf(path))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && strings.TrimSpace(string(note)) != boot, err
}

// openUnsynced writes the note of a file before the first write to the file. The caller must
// close the result also after an error. An existing note is written again, because it may
// not be on the disk.
func openUnsynced(path, boot string, now time.Time) (*unsynced, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	u := &unsynced{note: noteOf(path), file: f, synced: now}
	return u, u.write(boot)
}

// write writes the note durably. An existing note with the same text remains valid
// meanwhile.
func (u *unsynced) write(text string) error {
	f, err := os.OpenFile(u.note, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	n, err := f.WriteString(text + "\n")
	if err = errors.Join(err, f.Truncate(int64(n)), f.Sync(), f.Close()); err != nil {
		return err
	}
	return storefile.SyncDir(filepath.Dir(u.note))
}

// sync syncs the file, unless it did so within syncEvery. After an error the content of the
// file cannot be trusted.
func (u *unsynced) sync(now time.Time) error {
	if u == nil || now.Sub(u.synced) < syncEvery {
		return nil
	}
	u.synced = now
	return u.syncNow()
}

func (u *unsynced) syncNow() error {
	if err := u.file.Sync(); err != nil {
		u.failed = true
		return fmt.Errorf("replog: syncing %s: %w", u.file.Name(), err)
	}
	return nil
}

// close syncs the file and removes the note. There must be no more writes to the file.
func (u *unsynced) close() error {
	if u == nil {
		return nil
	}
	err := u.syncNow()
	if u.failed {
		return errors.Join(err, u.write(spoiled), u.file.Close())
	}
	if err := u.file.Close(); err != nil {
		return err
	}
	if err := remove(u.note); err != nil {
		return err
	}
	return storefile.SyncDir(filepath.Dir(u.note))
}
