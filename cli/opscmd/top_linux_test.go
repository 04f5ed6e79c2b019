package opscmd

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
)

// pty opens a terminal: what is written to ours is typed, and what is drawn is read there.
func pty(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("there are no terminals: %v", err)
	}
	t.Cleanup(func() { _ = ours.Close() }) // which ends who reads
	require.NoError(t, unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = theirs.Close() })
	require.NoError(t, unix.IoctlSetWinsize(int(theirs.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 30, Col: 72}))
	return ours, theirs
}

// The terminal is as it was when fila top ends, whatever ends it, and keys work meanwhile
// without being echoed.
func TestTopOnATerminal(t *testing.T) {
	f := clitest.StartFake(t)
	scripted(f)
	for name, key := range map[string]string{"q": "q", "an interrupt": "\x03", "a signal": ""} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := pty(t)
			before, err := unix.IoctlGetTermios(int(theirs.Fd()), unix.TCGETS)
			require.NoError(t, err)
			var screen clitest.Buffer
			go func() {
				chunk := make([]byte, 4096)
				for {
					n, err := ours.Read(chunk)
					_, _ = screen.Write(chunk[:n])
					if err != nil {
						return
					}
				}
			}()
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
