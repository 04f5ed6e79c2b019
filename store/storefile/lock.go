package storefile

import (
	"errors"
	"os"
	"time"
)

// openLocked opens a file and locks it. While it waits for the lock, the process that
// has it may replace the file, as a compaction does. Then openLocked opens the new
// file.
func openLocked(name string, flag int, mode os.FileMode, timeout time.Duration, shared bool) (*os.File, error) {
	for {
		f, err := os.OpenFile(name, flag, mode)
		if err != nil {
			return nil, err
		}
		same := false
		if err = lockFile(f, timeout, shared); err == nil {
			same, err = hasName(f, name)
		}
		if err == nil && same {
			return f, nil
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
	}
}

// hasName reports whether a file still has the name.
func hasName(f *os.File, name string) (bool, error) {
	open, err := f.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Stat(name)
	if err != nil {
		return false, err
	}
	return os.SameFile(open, named), nil
}
