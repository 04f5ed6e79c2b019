package storecmd

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
)

// TestAcceptLossAsks on a terminal.
func TestAcceptLossAsks(t *testing.T) {
	for _, c := range []struct {
		flag, typed string
		code        int
		left        int // exit code of a check afterwards
	}{
		{"", "y\n", command.ExitOK, command.ExitOK},
		{"", "n\n", command.ExitConflict, command.ExitInDoubt},
		{"--yes", "", command.ExitOK, command.ExitOK},
		{"--dry-run", "", command.ExitOK, command.ExitInDoubt},
	} {
		t.Run(c.flag+strings.TrimSpace(c.typed), func(t *testing.T) {
			dir := t.TempDir()
			olderStore(t, dir)
			ours, theirs, screen := clitest.Terminal(t)
			var out clitest.Buffer
			code := make(chan int, 1)
			go func() {
				code <- program.Exec(t.Context(), append([]string{"store", "accept-loss", dir}, strings.Fields(c.flag)...), theirs, &out, theirs)
			}()
			if c.typed != "" {
				require.Eventually(t, func() bool {
					return strings.Contains(screen.String(), "give up the commits in between for good? [y/N] ")
				}, time.Minute, time.Millisecond)
				_, err := ours.WriteString(c.typed)
				require.NoError(t, err)
			}
			require.Equal(t, c.code, <-code, screen.String())
			require.Equal(t, c.left, program.Run(t, "", "store", "check", dir).Code)
		})
	}
}
