//go:build !linux

package bench

import "os/exec"

// DieWithParent does nothing here: children are ended by name of their process
// only.
func DieWithParent(*exec.Cmd) {}

// memoryFS cannot tell here.
func memoryFS(string) bool { return false }
