//go:build darwin || linux

package admin

import "syscall"

// freeBytes returns how much more can be written to the file system of dir.
func freeBytes(dir string) (bytes uint64, known bool) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, false
	}
	return st.Bavail * uint64(st.Bsize), true
}
