package opscmd

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
)

// fila top restores the terminal however it ends; meanwhile keys work without an echo.
func TestTopOnATerminal(t *testing.T) {
	f := clitest.StartFake(t)
	scripted(f)
	for name, key := range map[string]string{"q": "q", "an interrupt": "\x03", "a signal": ""} {
		t.Run(name, func(t *testing.T) {
			ours, theirs, screen := clitest.Terminal(t)
			before, err := unix.IoctlGetTermios(int(theirs.Fd()), unix.TCGETS)
			require.NoError(t, err)
			ctx, signal := context.WithCancel(t.Context())
			defer signal()
			var errOut clitest.Buffer
			code := make(chan int, 1)
			go func() { code <- program.Exec(ctx, []string{"top", "-i", "50ms"}, theirs, theirs, &errOut) }()
			sees := func(text string) {
				t.Helper()
				require.Eventually(t, func() bool { return strings.Contains(screen.String(), text) }, 20*time.Second, time.Millisecond, text)
			}
			sees("orders ")
			_, err = ours.WriteString("s")
			require.NoError(t, err)
			sees("s sort: name")
			if key == "" {
				signal()
			} else {
				_, err = ours.WriteString(key)
				require.NoError(t, err)
			}
			require.Equal(t, command.ExitOK, <-code, errOut.String())
			sees("\x1b[?1049l")
			after, err := unix.IoctlGetTermios(int(theirs.Fd()), unix.TCGETS)
			require.NoError(t, err)
			require.Equal(t, before, after)
		})
	}
}
