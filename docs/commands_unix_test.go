//go:build unix

package docs

import (
	"os/exec"
	"syscall"
)

// ownGroup has a command that is about to start, and all that it starts, be a group.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func killGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
