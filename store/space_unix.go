//go:build darwin || linux

package store

import "syscall"

// SpaceOf returns the space on the disk of dir. known is false if it is unknown.
func SpaceOf(dir string) (s Space, known bool) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return Space{}, false
	}
	return Space{Free: int64(st.Bavail) * int64(st.Bsize), Total: int64(st.Blocks) * int64(st.Bsize)}, true
}
