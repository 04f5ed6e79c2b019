package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// result is the output and exit code of a command.
type result struct {
	out, err string
	code     int
}

// fila runs a command against the process.
func (p *proc) fila(t testing.TB, args ...string) result {
	t.Helper()
	return p.filaIn(t, "", args...)
}

// filaIn is fila with standard input.
func (p *proc) filaIn(t testing.TB, in string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(cleanEnv(), "NATS_URL="+p.URL, "XDG_CONFIG_HOME="+t.TempDir())
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &out, &errOut
	err := cmd.Run()
	require.NoError(t, ctx.Err(), "fila %v hangs", args)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return result{out.String(), errOut.String(), cmd.ProcessState.ExitCode()}
}

// ok runs a command that must succeed and returns its output.
func (p *proc) ok(t testing.TB, args ...string) string {
	t.Helper()
	r := p.fila(t, args...)
	require.Zero(t, r.code, "fila %v: %s", args, r.err)
	return r.out
}

// okJSON is ok with --json, decoded.
func (p *proc) okJSON(t testing.TB, into any, args ...string) {
	t.Helper()
	out := p.ok(t, append(args, "--json")...)
	require.NoError(t, json.Unmarshal([]byte(out), into), "fila %v printed %q", args, out)
}

// TestCommandLine: output, standard input and exit codes of the binary. docs/cli.md has an example
// of every command, which the tests of docs run.
func TestCommandLine(t *testing.T) {
	p := shared(t)
	queue := unique(t)
	p.ok(t, "queue", "create", queue, "--fairness-header", "tenant", "--max-depth", "2")
	id := strings.TrimSpace(p.ok(t, "publish", queue, "hello", "--header", "tenant=acme"))
	require.Zero(t, p.filaIn(t, "from stdin", "publish", queue).code)
	full := p.fila(t, "publish", queue, "x")
	require.Equal(t, 6, full.code)
	require.Len(t, strings.Split(strings.TrimSpace(full.err), "\n"), 1, "one line: %s", full.err)
	var first struct {
		ID      string `json:"id"`
		Key     string `json:"key"`
		Payload string `json:"payload"`
	}
	p.okJSON(t, &first, "consume", queue, "--count", "1")
	require.Equal(t, [3]string{id, "acme", "hello"}, [3]string{first.ID, first.Key, first.Payload})
	require.Equal(t, "from stdin\n", p.ok(t, "consume", queue, "--count", "1"))
	for _, tt := range []struct {
		code int
		args []string
	}{
		{2, []string{"queue", "create", queue, "--visibility-timeout", "soon"}},
		{2, []string{"no-such-command"}},
		{4, []string{"publish", unique(t), "x"}},
		{5, []string{"queue", "create", queue}}, // it has other settings
		{7, []string{"queue", "list", "--server", "nats://127.0.0.1:1"}},
	} {
		require.Equal(t, tt.code, p.fila(t, tt.args...).code, "%v", tt.args)
	}
}
