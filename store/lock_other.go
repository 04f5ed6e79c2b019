//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package store

import (
	"os"
	"time"
)

// lockFile leaves locking to bbolt.
func lockFile(*os.File, time.Duration, bool) error { return nil }
