//go:build !(darwin || linux)

package sidecar

// freeBytes does not know.
func freeBytes(string) (bytes uint64, known bool) { return 0, false }
