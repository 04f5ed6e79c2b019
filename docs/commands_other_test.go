//go:build !unix

package docs

import "os/exec"

// Without process groups the pages do not run.
func ownGroup(*exec.Cmd) {}

func killGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
