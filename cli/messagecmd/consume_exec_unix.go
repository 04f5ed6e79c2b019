//go:build unix

package messagecmd

import (
	"context"
	"os/exec"
	"syscall"
)

// shellCommand is a command in a process group of its own: an interrupt from the
// terminal is for fila, and when ctx ends, all of the group are told to end.
func shellCommand(ctx context.Context, command string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	return cmd
}
