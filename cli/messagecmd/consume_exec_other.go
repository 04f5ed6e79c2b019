//go:build !unix

package messagecmd

import (
	"context"
	"os/exec"
)

// shellCommand is a command for the shell of the system. When ctx ends, it is
// killed.
func shellCommand(ctx context.Context, command string) *exec.Cmd {
	return exec.CommandContext(ctx, "cmd", "/C", command)
}
