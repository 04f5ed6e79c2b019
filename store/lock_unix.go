//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package store

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// lockFile takes the lock that bbolt will take again on the same file, so that
// nobody writes while the structure of the file is checked. A shared lock lets
// others read.
func lockFile(f *os.File, timeout time.Duration, shared bool) error {
	how := syscall.LOCK_EX
	if shared {
		how = syscall.LOCK_SH
	}
	for end := time.Now().Add(timeout); ; time.Sleep(10 * time.Millisecond) {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, syscall.EINTR):
		case !errors.Is(err, syscall.EWOULDBLOCK):
			return err
		case time.Now().After(end):
			return ErrLocked
		}
	}
}
