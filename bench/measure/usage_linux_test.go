package measure

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUsageHasThatOfChildren(t *testing.T) {
	cmd := exec.Command("sh", "-c", "sleep 1000 & wait")
	require.NoError(t, cmd.Start())
	parent := cmd.Process.Pid
	var child *os.Process
	for child == nil {
		for _, pid := range children(parent) {
			var err error
			child, err = os.FindProcess(pid)
			require.NoError(t, err)
		}
	}
	both, err := ReadUsage(parent)
	require.NoError(t, err)
	alone, err := readOne(parent)
	require.NoError(t, err)
	require.NoError(t, child.Kill())
	_ = cmd.Wait() // its exit code is wait's
	require.Greater(t, both.RSS, alone.RSS)
}
