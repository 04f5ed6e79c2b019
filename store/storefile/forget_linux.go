package storefile

import (
	"os"

	"golang.org/x/sys/unix"
)

// ForgetCached drops a file from the page cache of the system. No process may have it
// open or mapped. After a failed sync Linux marks pages as clean that never reached the
// disk: a reader would see data that a power failure removes. Errors are ignored, since
// the file can be read in any case.
func ForgetCached(path string) {
	f, err := os.Open(path)
	if err != nil {
		return
	}
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	_ = f.Close() // it was only read
}
