//go:build !linux

package bench

import "os/exec"

// dieWithParent does nothing on this system: children are killed by process only.
func dieWithParent(*exec.Cmd) {}

// memoryFS is not known on this system.
func memoryFS(string) bool { return false }
