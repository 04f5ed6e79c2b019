//go:build unix

package e2e

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// freeze stops a child as it is, and returns when all its threads stand still: kill(2) returns
// before that, and the child may still answer what comes meanwhile.
func freeze(t testing.TB, child *os.Process) {
	t.Helper()
	require.NoError(t, child.Signal(syscall.SIGSTOP))
	var status syscall.WaitStatus
	_, err := syscall.Wait4(child.Pid, &status, syscall.WUNTRACED, nil)
	for errors.Is(err, syscall.EINTR) {
		_, err = syscall.Wait4(child.Pid, &status, syscall.WUNTRACED, nil)
	}
	require.NoError(t, err)
	require.True(t, status.Stopped(), "the child has ended: %v", status)
}

// Freeze stops fila as it is: its connections stay, and nothing answers.
func (p *proc) Freeze(t testing.TB) {
	t.Helper()
	freeze(t, p.cmd.Process)
}

// Thaw lets a frozen fila go on.
func (p *proc) Thaw(t testing.TB) {
	t.Helper()
	p.Signal(t, syscall.SIGCONT)
}
