//go:build !unix

package docs

import "os/exec"

// Where there are no groups of processes the pages are not run.
func ownGroup(*exec.Cmd) {}

func killGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
