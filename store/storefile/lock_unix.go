//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package storefile

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// lockFile takes the lock that bbolt takes again on the same file, so that no process
// writes while the structure of the file is checked. With a shared lock other processes
// can read.
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

// KeepOwner gives file to the owner, the group and the mode of file from.
func KeepOwner(from, to string) error {
	fi, err := os.Stat(from)
	if err != nil {
		return err
	}
	old, ok := fi.Sys().(*syscall.Stat_t)
	if fi, err = os.Stat(to); err != nil || !ok {
		return err
	}
	if now, ok := fi.Sys().(*syscall.Stat_t); ok && (now.Uid != old.Uid || now.Gid != old.Gid) {
		if err := os.Chown(to, int(old.Uid), int(old.Gid)); err != nil {
			return fmt.Errorf("%w: run it as the user that owns the store", err)
		}
	}
	return os.Chmod(to, os.FileMode(old.Mode).Perm())
}
