//go:build !linux

package storefile

// ForgetCached does nothing on systems that keep pages dirty after a failed sync.
func ForgetCached(string) {}
