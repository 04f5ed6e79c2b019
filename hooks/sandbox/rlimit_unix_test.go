//go:build unix

package sandbox

import "syscall"

// limitAddressSpace bounds how much memory the process may map, until the next call.
func limitAddressSpace(bytes uint64) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_AS, &limit); err != nil {
		return err
	}
	limit.Cur = min(bytes, limit.Max)
	return syscall.Setrlimit(syscall.RLIMIT_AS, &limit)
}
