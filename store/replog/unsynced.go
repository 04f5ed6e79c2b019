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

// The file of a replica is not synced at each commit: the log is what is durable. What
// fila has written survives the end of fila, since the system has it, and not that of the
// machine, which leaves any mixture of old and new pages. So a note beside a file that is
// open, or was when fila died, says which boot of the machine may have what is not on the
// disk. Under another boot the file is not read any more, and made again of snapshot and
// log. Where the system has no name for its boots, files are synced at each commit.

// unsynced is a file that is open and has a note.
type unsynced struct {
	note   string
	file   *os.File // opened before anything was written: its sync fails for each write that has
	synced time.Time
	failed bool
}

// syncEvery is how often a file is synced all the same, so that a disk that fails shows.
const syncEvery = time.Minute

// spoiled is the note of a file whose sync has failed: no boot has that name.
const spoiled = "a sync has failed"

func noteOf(path string) string { return path + ".unsynced" }

// torn says whether parts of a file may be missing.
func torn(path, boot string) (bool, error) {
	note, err := os.ReadFile(noteOf(path))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && strings.TrimSpace(string(note)) != boot, err
}

// openUnsynced leaves the note of a file to which nothing has been written yet. What it
// returns with an error is to be closed, too. A note that is there is written again: nobody
// knows whether it is on the disk.
func openUnsynced(path, boot string, now time.Time) (*unsynced, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	u := &unsynced{note: noteOf(path), file: f, synced: now}
	return u, u.write(boot)
}

// write writes the note. When it returns, the note outlives the machine. One that says the
// same already goes on saying it meanwhile.
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

// sync brings the file to the disk, if that was not done lately. After an error what is
// in the file is not to be trusted.
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

// close takes the note away when the file is on the disk. Nobody writes to it any more.
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
