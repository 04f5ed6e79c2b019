//go:build unix

package messagecmd

import (
	"context"
	"os/exec"
	"syscall"
)

// shellCommand returns a command in its own process group, so that an interrupt from the
// terminal reaches only fila. When ctx ends, the whole group gets a SIGTERM.
func shellCommand(ctx context.Context, command string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	return cmd
}
