//go:build unix

package messagecmd

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/wire"
)

func soon(t *testing.T, done func() bool) {
	t.Helper()
	require.Eventually(t, done, 20*time.Second, 5*time.Millisecond)
}

func TestConsumeExec(t *testing.T) {
	f := clitest.StartFake(t)
	q := startQueue(f, 20)
	q.headers = map[string][]string{"tenant": {"acme"}, "X-Two.b": {"1", "2\x00"}, "x_two_B": {"3"}}
	r := clitest.OK(t, program.Run(t, "", "consume", "orders", "--count", "5", "--concurrency", "2",
		"--exec", `echo "$(cat) $FILA_HEADER_TENANT $FILA_HEADER_X_TWO_B $FILA_HEADER_FILA_ID $FILA_HEADER_FILA_ATTEMPT"`))
	var want []string
	for i := range 5 {
		want = append(want, fmt.Sprintf("message %d acme 1, 2, 3 id-%d 1", i+1, i+1))
	}
	require.ElementsMatch(t, want, strings.Split(strings.TrimSpace(r.Out), "\n"))
	require.Equal(t, taken{sent: 5, acked: 5, left: 1}, q.taken(), "not one more was taken")
}

func TestConsumeExecNacks(t *testing.T) {
	for shell, want := range map[string]struct{ text, code string }{
		"echo one >&2; printf 'the last line \\n\\n' >&2; exit 75": {"the last line", "exit-75"},
		"exit 3":     {"exit-3", "exit-3"},
		"kill -9 $$": {"signal-9", "signal-9"},
		`head -c 20000 /dev/zero | tr '\0' x >&2; exit 1`: {strings.Repeat("x", 100), "exit-1"},
	} {
		f := clitest.StartFake(t)
		q := startQueue(f, 1)
		clitest.OK(t, program.Run(t, "", "consume", "orders", "--count", "1", "--exec", shell))
		require.Equal(t, taken{sent: 1, nacked: 1, left: 1}, q.taken())
		ack, bad := wire.ParseAck([]byte(q.nack), nil)
		require.Nil(t, bad, q.nack)
		require.Equal(t, wire.AckNack, ack.Kind)
		require.False(t, ack.HasDelay, "on_failure decides")
		require.True(t, strings.HasPrefix(ack.Error, want.text), ack.Error)
		require.Equal(t, want.code, ack.ErrorCode)
	}
}

// A command succeeds and does not block the consumer even if its child keeps the output open.
func TestConsumeExecOfADaemon(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a process to be given up")
	}
	f := clitest.StartFake(t)
	q := startQueue(f, 1)
	pid := filepath.Join(t.TempDir(), "pid")
	clitest.OK(t, program.Run(t, "", "consume", "orders", "--count", "1", "--exec", "sleep 600 & echo $! > "+pid))
	require.Equal(t, taken{sent: 1, acked: 1, left: 1}, q.taken())
	var child int
	data, err := os.ReadFile(pid)
	require.NoError(t, err)
	_, err = fmt.Sscan(string(data), &child)
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(child, syscall.SIGKILL))
}

// After an interrupt running commands finish and no new ones start.
func TestConsumeExecFinishesWhatRuns(t *testing.T) {
	f := clitest.StartFake(t)
	q := startQueue(f, 5)
	dir := t.TempDir()
	gate := filepath.Join(dir, "gate")
	r := program.Start(t, nil, "consume", "orders", "--concurrency", "2",
		"--exec", fmt.Sprintf("echo began; while [ ! -e %s ]; do sleep 0.01; done; echo ended", gate))
	soon(t, func() bool { return strings.Count(r.Out.String(), "began") == 2 })
	r.Stop()
	soon(t, func() bool {
		return strings.Contains(r.Err.String(), "waiting for 2 commands; an interrupt ends what runs")
	})
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	require.Equal(t, command.ExitOK, <-r.Code, r.Err.String())
	require.Equal(t, 2, strings.Count(r.Out.String(), "ended"))
	require.Equal(t, taken{sent: 2, acked: 2, left: 1}, q.taken())
}

// A second interrupt ends the commands, and their messages come again.
func TestConsumeExecStoppedAtOnce(t *testing.T) {
	f := clitest.StartFake(t)
	q := startQueue(f, 1)
	r := program.Start(t, nil, "consume", "orders", "--exec", "echo began; sleep 600")
	soon(t, func() bool { return r.Out.String() == "began\n" })
	r.Stop()
	soon(t, func() bool { return strings.Contains(r.Err.String(), "waiting for 1 command;") })
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGINT))
	require.Equal(t, command.ExitFailed, <-r.Code)
	require.Contains(t, r.Err.String(), "their messages come again")
	require.Equal(t, taken{sent: 1, nacked: 1, left: 1}, q.taken())
}

func TestConsumeVerbose(t *testing.T) {
	f := clitest.StartFake(t)
	q := startQueue(f, 1)
	q.headers = map[string][]string{"tenant": {"acme\x1b"}}
	r := program.RunAt(t, "consume", "orders", "--count", "1", "-v")
	require.Equal(t, clitest.Ended(command.ExitOK, clitest.Lines(
		"id-1  key acme, attempt 1, enqueued 2026-01-02T03:04:05Z (8h56m ago)", "tenant: acme?", "", "message 1"), ""), r)
}

// publish --jsonl reads the output of consume --json.
func TestConsumeJSONIsReadBack(t *testing.T) {
	f := clitest.StartFake(t)
	q := startQueue(f, 1)
	values := []string{"acme", "b", "caf\xe9", `C:\x41`}
	q.headers = map[string][]string{"tenant": values}
	intake(f, takeAll)
	r := program.Run(t, "", "consume", "orders", "--count", "1", "--json")
	require.True(t, json.Valid([]byte(r.Out)))
	for range 3 {
		f.Next()
	}
	r = clitest.OK(t, program.Run(t, r.Out, "publish", "orders", "--jsonl"))
	for msg := f.Next(); ; msg = f.Next() {
		if msg.Subject == "fila.enqueue.orders" {
			require.Equal(t, "message 1", string(msg.Data))
			require.Equal(t, values, msg.Header["tenant"])
			require.Len(t, msg.Header, 1)
			return
		}
	}
}

func TestConsumeMistakes(t *testing.T) {
	clitest.Isolate(t)
	program.Mistakes(t, map[string]string{
		"consume q --count -1":                          "--count -1",
		"consume q --exec=":                             "--exec is empty",
		"consume q --concurrency 2":                     "--concurrency is for --exec",
		"consume q --exec true --concurrency 0":         "--concurrency 0: allowed are 1 to 1000",
		"consume q --exec true --no-ack":                "the command decides",
		"consume q --exec true -v":                      "the command decides",
		"consume q --exec true --max-in-flight nothing": `--max-in-flight "nothing": allowed is a whole number`,
	})
}
