package store

import (
	"os"

	"golang.org/x/sys/unix"
)

// forgetCached drops what the system has cached of a file that nobody has open or
// mapped. After a failed sync Linux counts pages as clean that never got to the
// disk: who read them again would take for written what a power failure takes
// away. Errors are ignored, since the file can be read in any case.
func forgetCached(path string) {
	f, err := os.Open(path)
	if err != nil {
		return
	}
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	_ = f.Close() // it was only read
}
