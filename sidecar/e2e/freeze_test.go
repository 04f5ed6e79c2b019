//go:build unix

package e2e

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// freeze stops a child with SIGSTOP and returns when all its threads have stopped: kill(2)
// returns earlier, and the child may still answer until then.
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

// Freeze stops fila with SIGSTOP: its connections stay open and nothing answers.
func (p *proc) Freeze(t testing.TB) {
	t.Helper()
	freeze(t, p.cmd.Process)
}

// Thaw continues a frozen fila.
func (p *proc) Thaw(t testing.TB) {
	t.Helper()
	p.Signal(t, syscall.SIGCONT)
}
