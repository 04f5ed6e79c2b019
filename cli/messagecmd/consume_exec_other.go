//go:build !unix

package messagecmd

import (
	"context"
	"os/exec"
)

// shellCommand returns a command for the system's shell. The end of ctx kills it.
func shellCommand(ctx context.Context, command string) *exec.Cmd {
	return exec.CommandContext(ctx, "cmd", "/C", command)
}
