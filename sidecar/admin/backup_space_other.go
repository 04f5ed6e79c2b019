//go:build !(darwin || linux)

package admin

// freeBytes does not know.
func freeBytes(string) (bytes uint64, known bool) { return 0, false }
