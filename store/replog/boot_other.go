//go:build !linux

package replog

// bootID returns "": the id is unknown.
func bootID() string { return "" }
