//go:build !(darwin || linux)

package store

// SpaceOf knows nothing on this system.
func SpaceOf(string) (s Space, known bool) { return Space{}, false }
