//go:build unix

package hooks

import "syscall"

// limitAddressSpace bounds how much memory the process may map.
func limitAddressSpace(bytes uint64) error {
	return syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: bytes, Max: bytes})
}
