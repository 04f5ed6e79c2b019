//go:build !linux

package bench

import "os/exec"

// dieWithParent does nothing here: children are ended by name of their process
// only.
func dieWithParent(*exec.Cmd) {}

// memoryFS cannot tell here.
func memoryFS(string) bool { return false }
