//go:build !linux

package bench

import "os/exec"

// DieWithParent does nothing on this system: children are killed by process only.
func DieWithParent(*exec.Cmd) {}

// memoryFS is not known on this system.
func memoryFS(string) bool { return false }
